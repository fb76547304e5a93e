"""What a compiled cascade is made of, without its numbers: which gate reads what, which unit listens to which gate.

*Wires* are numbered in the order in which they are computed: false, true, then stage by stage its gates and after its
units the reads of their states before the step. A wire of the readout is numbered likewise: false, true, the reads of
all states after the step, stage by stage, then the gates of the readout.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

Group = tuple[str, tuple[tuple[int, ...], ...]]
"""Gates of one depth that are all "and" or all "or": the wires that each joins."""


@dataclass(frozen=True)
class Wiring:
    """How a unit is wired: its R and s are joined over terms min(gate, table[letter]), one for each of these gates.

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
    """Units of one stage: what they do depends on units of earlier stages only.

    Arguments:
        gates: what is computed first.
        units: then these, scalar ones first.
        before: coordinates of the stage whose states before the step the stages below read, one for each read.
        after: coordinates whose states after the step the readout reads.
    """

    gates: tuple[Group, ...]
    units: tuple[Wiring, ...]
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
        firsts = [first for first, _ in _spans(self.units())]
        if firsts != [0, *(end for _, end in _spans(self.units()))][: len(firsts)]:
            raise ValueError("the coordinates of the units are not 0, 1, 2 …")
        wires, after = 2, 2
        for stage in self.stages:
            wires = _check_gates(stage.gates, wires)
            own = _spans(stage.units)
            for unit in stage.units:
                _check_wires(unit.gates, wires)
            if not all(_within(coordinate, own) for coordinate in (*stage.before, *stage.after)):
                raise ValueError("a stage reads units of another one")
            wires += len(stage.before)
            after += len(stage.after)
        _check_wires(self.outputs, _check_gates(self.readout, after))

    def units(self) -> Iterator[Wiring]:
        """All units, from the top."""
        return (unit for stage in self.stages for unit in stage.units)

    @property
    def n_states(self) -> int:
        """D, the numbers in a state."""
        return sum(max(1, unit.degree) for unit in self.units())

    @property
    def n_parameters(self) -> int:
        """How many numbers a cascade of this structure has: the first state, all tables and reads."""
        tables = sum(len(unit.gates) * max(2, unit.degree * (unit.degree + 1)) for unit in self.units())
        reads = sum(len(stage.before) + len(stage.after) for stage in self.stages)
        return self.n_states + self.n_letters * tables + 2 * reads

    def gates(self) -> Iterator[tuple[int, ...]]:
        """The wires that each gate joins, of the readout too."""
        for groups in [*(stage.gates for stage in self.stages), self.readout]:
            for _, gates in groups:
                yield from gates

    @cached_property
    def n_wires(self) -> int:
        """How many wires the stages have together."""
        return 2 + sum(len(stage.before) + _count(stage.gates) for stage in self.stages)

    @cached_property
    def n_readout_wires(self) -> int:
        """How many wires the readout has."""
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
                    tuple(_wiring(unit) for unit in stage["units"]),
                    _whole(stage["before"]),
                    _whole(stage["after"]),
                )
                for stage in values["stages"]
            )
            (n_letters,) = _whole([values["n_letters"]])
            return cls(n_letters, stages, _groups(values["readout"]), _whole(values["outputs"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"not the structure of a cascade: {error}") from error


def _count(groups: tuple[Group, ...]) -> int:
    return sum(len(gates) for _, gates in groups)


def _wiring(values: dict[str, Any]) -> Wiring:
    first, degree = _whole([values["first"], values["degree"]])
    return Wiring(first, degree, _whole(values["gates"]))


def _groups(values: Iterable[Any]) -> tuple[Group, ...]:
    return tuple((str(kind), tuple(_whole(gate) for gate in gates)) for kind, gates in values)


def _whole(values: Sequence[Any]) -> tuple[int, ...]:
    if not isinstance(values, list) or not all(type(value) is int and value >= 0 for value in values):
        raise ValueError(f"a list of whole numbers from 0 on is needed, got {values!r}")
    return tuple(values)


def _spans(units: Iterable[Wiring]) -> list[tuple[int, int]]:
    """The coordinates of each unit, [first, end), ascending."""
    return sorted((unit.first, unit.first + max(1, unit.degree)) for unit in units)


def _within(coordinate: int, spans: list[tuple[int, int]]) -> bool:
    at = bisect(spans, coordinate, key=lambda span: span[0]) - 1
    return at >= 0 and coordinate < spans[at][1]


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
