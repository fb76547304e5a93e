"""From a decomposition, or the transitions themselves, to the structure of a cascade and its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latchwork.automata.circuit import FALSE, MAX_VALUES, TRUE, TRUE_VALUE, Circuit, Holder, Read, Unit
from latchwork.automata.conditions import Conditions
from latchwork.automata.dfa import BoolArray
from latchwork.automata.holonomy import Decomposition
from latchwork.automata.levels import Action
from latchwork.automata.search import BudgetError
from latchwork.automata.structure import Group, Stage, Structure, Wiring

Numbers = NDArray[np.float64]
BUDGET = 100_000
"""How many meets and joins the gates may need before giving up, unless told otherwise."""

_WIRE, _SCALAR, _VECTOR, _LOOKED_UP = 3.0, 10.0, 15.0, 1.0  # nanoseconds
_READY = 1e-4  # and for each number in a table that is got ready in every call

_WORK, _LEAST_WORK = 10, 20_000  # places of diagrams that are looked at: for each gate of the budget, and at least

HIGH, LOW = 1.0, -1.0
PASS, BLOCK = TRUE_VALUE, -TRUE_VALUE


@dataclass
class Blueprint:
    """A structure and its numbers.

    Arguments:
        structure: which gate reads what.
        reset, set: of every unit, in the order of `structure.units()`: the tables of its terms, [P, A] for scalar,
            [P, A, n, n] and [P, A, n] for vector units.
        before, after: weight and bias of the reads of every stage, [reads, 2].
        start: [D] the state before the first letter.
    """

    structure: Structure
    reset: list[Numbers]
    set: list[Numbers]
    before: list[Numbers]
    after: list[Numbers]
    start: Numbers

    @property
    def cost(self) -> float:
        """About how many nanoseconds a letter of a long word takes on one processor core (docs/decisions/0011)."""
        wires = self.structure.n_wires + self.structure.n_readout_wires
        units = zip(self.structure.units(), self.reset, self.set, strict=True)
        return _WIRE * wires + sum(_unit_cost(*unit) for unit in units)


def single_unit(matrices: BoolArray, start: BoolArray, outputs: Sequence[BoolArray], exclusive: bool) -> Blueprint:
    """One vector unit that has a place for every state, high where a run may be.

    Arguments:
        matrices: [A, S, S] whether letter a leads to state i from state k.
        start: [S] where runs begin.
        outputs: for every output [S] the states that give it.
        exclusive: whether a run is in exactly one state at a time.
    """
    n_letters, n = matrices.shape[:2]
    unit = Unit(n, True, 0, 0, exclusive)
    after = Circuit()
    wires = [after.has([unit], [(place,) for place in np.flatnonzero(states).tolist()]) for states in outputs]
    # A place that no state leads to has to be set low; the others are low where all states before are.
    empty = ~matrices.any(axis=2)
    return _assembled(
        n_letters,
        [_Tables(unit, [TRUE], np.where(matrices, PASS, BLOCK)[None], np.where(empty, LOW, BLOCK)[None])],
        Circuit(),
        after,
        wires,
        np.where(start, HIGH, LOW),
    )


def cascade(decomposition: Decomposition, outputs: Sequence[set[int]], budget: int = BUDGET) -> Blueprint:
    """A unit for every level: scalar ones for those that keep and reset, vector ones for those that permute.

    Arguments:
        decomposition: of the automaton.
        outputs: for every output the states that give it.
        budget: the most meets and joins of gates, for the levels and for the outputs.

    Raises: BudgetError beyond the budget, or where finding the gates takes out of all proportion to it.
    """
    conditions = Conditions(decomposition, max(_LEAST_WORK, _WORK * budget))
    before = Circuit()
    holders: list[Holder] = []
    levels: list[_Tables] = []
    made: dict[int, int] = {}
    first = 0
    for number, level in enumerate(decomposition.levels):
        terms: dict[int, dict[int, Action]] = {}  # {gate: {letter: what the level does if the gate is true}}
        columns = [
            {action: before.formula(conditions.formulas, formula, holders, made) for action, formula in found.items()}
            for found in conditions.by_column(number)
        ]
        for letter, column in enumerate(decomposition.walk.images.column):
            for action, gate in columns[column].items():
                if gate != FALSE:
                    terms.setdefault(gate, {})[letter] = action
        stage = max(before.stage[gate] for gate in terms)
        holder = _holder(level.values, level.kind == "permutation", first, stage)
        for place, unit in enumerate(holder.units):
            levels.append(_level(unit, terms, holder, place, decomposition.n_letters))
            first += unit.width
        holders.append(holder)
        _check_cost(before, budget, f"the first {number + 1} of {decomposition.n_levels} levels")
    after = Circuit()
    seen: dict[int, int] = {}
    wires = []
    for states in outputs:
        wires.append(after.formula(conditions.formulas, conditions.standing(states), holders, seen))
        _check_cost(after, budget, "the outputs")
    start = [x for holder in holders for unit in holder.units for x in unit.coordinates(0)]
    return _assembled(decomposition.n_letters, levels, before, after, wires, np.array(start))


def _unit_cost(unit: Wiring, reset: Numbers, set_: Numbers) -> float:
    if not unit.degree:
        return _SCALAR + 2 * _WIRE * len(unit.gates)
    if unit.gates != (TRUE,):
        return _VECTOR + _WIRE * unit.degree**2 * len(unit.gates)
    decisive = float((reset > set_[..., None]).sum(dtype=np.int64)) / max(1, reset.shape[1])
    return _VECTOR + _LOOKED_UP * (unit.degree + decisive) + _READY * reset.size


def _check_cost(circuit: Circuit, budget: int, what: str) -> None:
    if circuit.cost > budget:
        raise BudgetError(
            f'the gates of {what} need more than {budget:,} meets and joins; use units="vector", or a larger budget'
        )


@dataclass
class _Tables:
    """A unit with its terms: the gates, and what R and s are for each letter where a gate is true."""

    unit: Unit
    gates: list[int]
    reset: Numbers
    set: Numbers


def _holder(values: int, permutes: bool, first: int, stage: int) -> Holder:
    if permutes:
        return Holder((Unit(values, True, first, stage),))
    sizes = []
    while values > MAX_VALUES:
        sizes.append(MAX_VALUES)
        values = -(-values // MAX_VALUES)
    sizes.append(values)
    return Holder(tuple(Unit(size, False, first + place, stage) for place, size in enumerate(reversed(sizes))))


def _level(unit: Unit, terms: dict[int, dict[int, Action]], holder: Holder, place: int, n_letters: int) -> _Tables:
    """The tables of a unit; `place`: which digit of the level's value it holds."""
    n = unit.size
    shape = (len(terms), n_letters, n, n) if unit.vector else (len(terms), n_letters)
    reset, set_ = np.full(shape, BLOCK), np.full(shape[:3], BLOCK)
    for term, actions in enumerate(terms.values()):
        for letter, action in actions.items():
            at = (term, letter)
            if action.reset is not None:
                digit = holder.digits(action.reset)[place]
                set_[at] = unit.coordinates(digit) if unit.vector else unit.number(digit)
            elif not unit.vector:
                reset[at] = PASS
            else:
                permutation = action.permutation or tuple(range(n))
                for value, image in enumerate(permutation):
                    reset[term, letter, image, value] = PASS
    return _Tables(unit, list(terms), reset, set_)


def _assembled(
    n_letters: int, levels: list[_Tables], before: Circuit, after: Circuit, outputs: list[int], start: Numbers
) -> Blueprint:
    """Number the wires in the order of computation, and leave out what nothing depends on."""
    used = _used(before, [gate for level in levels for gate in level.gates])
    read = _used(after, outputs)
    wires, readout_wires = {FALSE: 0, TRUE: 1}, {FALSE: 0, TRUE: 1}
    n_stages = 1 + max((level.unit.stage for level in levels), default=-1)
    stages, ordered, before_numbers, after_numbers = [], [], [], []
    for number in range(n_stages):
        gates = _groups(before, [node for node in used if before.stage[node] == number], wires)
        own = sorted((level for level in levels if level.unit.stage == number), key=lambda level: level.unit.vector)
        ordered.extend(own)
        units = tuple(
            Wiring(
                unit.unit.first, unit.unit.size if unit.unit.vector else 0, tuple(wires[gate] for gate in unit.gates)
            )
            for unit in own
        )
        reads, weights = _reads(before, [node for node in used if before.stage[node] == number + 1], wires)
        reads_after, weights_after = _reads(after, [n for n in read if after.stage[n] == number + 1], readout_wires)
        before_numbers.append(weights)
        after_numbers.append(weights_after)
        stages.append(Stage(gates, units, reads, reads_after))
    # Gates of the readout wait for all reads, whatever stages they are of.
    after.depth = _depths(after)
    gates = _groups(after, read, readout_wires)
    structure = Structure(n_letters, tuple(stages), gates, tuple(readout_wires[wire] for wire in outputs))
    return Blueprint(
        structure,
        [level.reset for level in ordered],
        [level.set for level in ordered],
        before_numbers,
        after_numbers,
        start,
    )


def _used(circuit: Circuit, roots: list[int]) -> list[int]:
    """The nodes that these depend on and themselves, ascending."""
    found = set(roots)
    work = list(found)
    while work:
        node = circuit.nodes[work.pop()]
        if not isinstance(node, Read):
            fresh = set(node[1]) - found
            found |= fresh
            work.extend(fresh)
    return sorted(found)


def _reads(circuit: Circuit, nodes: list[int], wires: dict[int, int]) -> tuple[tuple[int, ...], Numbers]:
    """The reads among nodes, which get the next wires: their coordinates, and weights and biases [reads, 2]."""
    coordinates, numbers = [], []
    for number in nodes:
        node = circuit.nodes[number]
        if isinstance(node, Read):
            wires[number] = len(wires)
            coordinates.append(node.coordinate)
            numbers.append((node.weight, node.bias))
    return tuple(coordinates), np.array(numbers).reshape(-1, 2)


def _groups(circuit: Circuit, nodes: list[int], wires: dict[int, int]) -> tuple[Group, ...]:
    """The gates among nodes by depth and kind; they get the next wires."""
    groups: dict[tuple[int, str], list[int]] = {}
    for number in nodes:
        node = circuit.nodes[number]
        if not isinstance(node, Read) and node[1]:
            groups.setdefault((circuit.depth[number], node[0]), []).append(number)
    found = []
    for depth, kind in sorted(groups):
        members = groups[depth, kind]
        found.append((kind, tuple(tuple(wires[i] for i in _inputs(circuit, number)) for number in members)))
        for number in members:
            wires[number] = len(wires)
    return tuple(found)


def _inputs(circuit: Circuit, number: int) -> tuple[int, ...]:
    node = circuit.nodes[number]
    return () if isinstance(node, Read) else node[1]


def _depths(circuit: Circuit) -> list[int]:
    """The depth of every node over all stages together."""
    depths: list[int] = []
    for number in range(len(circuit.nodes)):
        depths.append(1 + max((depths[i] for i in _inputs(circuit, number)), default=-1))
    return depths
