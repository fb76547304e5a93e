"""What a compiled cascade is made of, without its numbers: which gate reads what, which unit listens to which gate.

*Wires* are numbered in the order in which they are computed: false, true, then stage by stage its gates and after its
units the reads of their states before the step. A wire of the readout is numbered likewise: false, true, the reads of
all states after the step, stage by stage, then the gates of the readout.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

Group = tuple[str, tuple[tuple[int, ...], ...]]
"""Gates of one depth that are all "and" or all "or": the wires that each joins."""


@dataclass(frozen=True)
class Terms:
    """A unit and the gates that it listens to: its R and s are joined over terms min(gate, table[letter]).

    Arguments:
        first: its first coordinate in the state.
        degree: of a vector unit; 0 for a scalar unit.
        gates: the wire of each term.
    """

    first: int
    degree: int
    gates: tuple[int, ...]


@dataclass(frozen=True)
class Stage:
    """Units that depend on the stages above only.

    Arguments:
        gates: what is computed first.
        units: then these, scalar ones first.
        before: coordinates of the stage whose states before the step the stages below read, one for each read.
        after: coordinates whose states after the step the readout reads.
    """

    gates: tuple[Group, ...]
    units: tuple[Terms, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True)
class Structure:
    """All stages and the readout.

    Arguments:
        n_letters: A, the size of the alphabet.
        stages: from the top.
        readout: gates over the states after the step.
        outputs: a wire of the readout for each output.

    Raises: ValueError where a part refers to what is not there.
    """

    n_letters: int
    stages: tuple[Stage, ...]
    readout: tuple[Group, ...]
    outputs: tuple[int, ...]

    def __post_init__(self) -> None:
        taken = sorted(place for unit in self.units() for place in range(unit.first, unit.first + max(1, unit.degree)))
        if taken != list(range(len(taken))):
            raise ValueError("the coordinates of the units are not 0, 1, 2 …")
        wires, after = 2, 2
        for stage in self.stages:
            wires = _check_gates(stage.gates, wires)
            own = {p for unit in stage.units for p in range(unit.first, unit.first + max(1, unit.degree))}
            for unit in stage.units:
                _check_wires(unit.gates, wires)
            if not own.issuperset(stage.before) or not own.issuperset(stage.after):
                raise ValueError("a stage reads units of another one")
            wires += len(stage.before)
            after += len(stage.after)
        _check_wires(self.outputs, _check_gates(self.readout, after))

    def units(self) -> Iterator[Terms]:
        """All units, from the top."""
        return (unit for stage in self.stages for unit in stage.units)

    @property
    def n_states(self) -> int:
        """D, the numbers in a state."""
        return sum(max(1, unit.degree) for unit in self.units())

    def gates(self) -> Iterator[tuple[int, ...]]:
        """The wires that each gate joins, of the readout too."""
        for groups in [*(stage.gates for stage in self.stages), self.readout]:
            for _, gates in groups:
                yield from gates

    @property
    def n_wires(self) -> int:
        """How many wires the stages have together."""
        return 2 + sum(len(stage.before) + _count(stage.gates) for stage in self.stages)

    @property
    def n_readout_wires(self) -> int:
        return 2 + sum(len(stage.after) for stage in self.stages) + _count(self.readout)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Structure:
        """The structure of `to_dict` after a way through JSON. Raises: ValueError for anything else."""
        try:
            stages = tuple(
                Stage(
                    _groups(stage["gates"]),
                    tuple(Terms(int(u["first"]), int(u["degree"]), _whole(u["gates"])) for u in stage["units"]),
                    _whole(stage["before"]),
                    _whole(stage["after"]),
                )
                for stage in values["stages"]
            )
            return cls(int(values["n_letters"]), stages, _groups(values["readout"]), _whole(values["outputs"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"not the structure of a cascade: {error}") from error


def _count(groups: tuple[Group, ...]) -> int:
    return sum(len(gates) for _, gates in groups)


def _groups(values: Iterable[Any]) -> tuple[Group, ...]:
    return tuple((str(kind), tuple(_whole(gate) for gate in gates)) for kind, gates in values)


def _whole(values: Iterable[Any]) -> tuple[int, ...]:
    return tuple(int(value) for value in values)


def _check_gates(groups: tuple[Group, ...], wires: int) -> int:
    """How many wires there are after the gates."""
    for kind, gates in groups:
        if kind not in ("and", "or") or not gates:
            raise ValueError(f"a group of gates must be 'and' or 'or' and hold some, got {kind!r} of {len(gates)}")
        for gate in gates:
            _check_wires(gate, wires)
        wires += len(gates)
    return wires


def _check_wires(numbers: tuple[int, ...], wires: int) -> None:
    if not numbers or not all(0 <= number < wires for number in numbers):
        raise ValueError(f"wires must be in 0 … {wires - 1}, got {list(numbers)}")
