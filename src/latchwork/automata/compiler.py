"""From automata to networks."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal, get_args

import numpy as np

from latchwork.automata.aperiodic import witness_of
from latchwork.automata.build import BUDGET, Blueprint, cascade, single_unit
from latchwork.automata.compiled import CompiledCascade
from latchwork.automata.dfa import DFA, BoolArray
from latchwork.automata.holonomy import Decomposition
from latchwork.automata.images import MAX_IMAGES
from latchwork.automata.machine import IntArray, MooreMachine
from latchwork.automata.mealy import MealyMachine
from latchwork.automata.minimal import minimize
from latchwork.automata.nfa import NFA
from latchwork.automata.search import BudgetError

Units = Literal["auto", "scalar", "vector", "mixed"]
_MAX_TABLE = 1 << 27  # numbers in the tables of one vector unit: 512 MiB in float32


def compile(
    machine: DFA | NFA | MooreMachine | MealyMachine, units: Units = "auto", *, budget: int = BUDGET
) -> CompiledCascade:
    """A network that does what an automaton does, on every word of every length.

    Arguments:
        machine: an automaton; or a Moore machine, whose letters are then the integers 0 … A − 1 and whose outputs are
            given in place of acceptance; or a Mealy machine, which is made a Moore machine first.
        units: what it is made of.
            "scalar": a scalar unit for every level of the holonomy decomposition of the minimal automaton (one more
            where a level has more than 128 values), joined by lattice gates. Star-free languages only.
            "vector": one vector unit with a place for every state. An NFA is not determinized.
            "mixed": as "scalar", with vector units for the levels that permute.
            "auto": "vector" or "mixed", whichever takes less time for a letter.
        budget: the most meets and joins of gates; more would need "vector".

    Raises:
        ValueError: "scalar" for a language that is not star-free, naming a word that moves states in a circle.
        BudgetError: the decomposition has too many sets of states (10,000) or its gates are beyond the budget, an NFA
            has too many sets of states (20,000) for what is not "vector", or a vector unit would need tables of more
            than 2^27 numbers.

    Source: Krohn and Rhodes by way of holonomy, see `decompose`; scalar units suffice for star-free languages and
    vector units for all (arXiv 2605.06384, §5).
    """
    if units not in get_args(Units):
        raise ValueError(f"units must be one of {', '.join(map(repr, get_args(Units)))}, got {units!r}")
    if isinstance(machine, MealyMachine):
        machine = machine.to_moore()
    if not isinstance(machine, DFA | NFA | MooreMachine):
        wanted = "a DFA, an NFA, a Moore machine or a Mealy machine"
        raise TypeError(f"{wanted} can be compiled, got {type(machine).__name__}; from_regex makes a DFA of a pattern")
    if isinstance(machine, NFA):
        if units == "vector":
            return _finished(machine, _vector(machine))
        try:
            machine = machine.determinize()
        except BudgetError:
            if units == "auto":
                return _finished(machine, _vector(machine))
            raise
    machine = minimize(machine)
    if units == "vector":
        return _finished(machine, _vector(machine))
    if units == "auto":
        return _finished(machine, _cheaper(machine, budget))
    if units == "scalar":
        witness = witness_of(machine.transitions, _alphabet(machine))
        if witness is not None:
            raise ValueError(
                f"the language is not star-free, so scalar units cannot recognise it: {witness}, a group of "
                f'{witness.period}; use units="vector" or "mixed"'
            )
    return _finished(machine, _cascade(machine, budget))


def _cheaper(machine: DFA | MooreMachine, budget: int) -> Blueprint:
    """The cheaper of both; what is too large is not built."""
    n, letters = machine.n_states, machine.n_symbols
    if letters * n * n > _MAX_TABLE:
        return _cascade(machine, budget)
    vector = _vector(machine)
    try:
        gates = _cascade(machine, min(budget, int(vector.cost)))
    except BudgetError:
        return vector
    return gates if gates.cost < vector.cost else vector


def _cascade(machine: DFA | MooreMachine, budget: int) -> Blueprint:
    decomposition = Decomposition(machine.transitions, machine.start, MAX_IMAGES)
    return cascade(decomposition, [set(np.flatnonzero(states).tolist()) for states in _outputs(machine)], budget)


def _vector(machine: DFA | NFA | MooreMachine) -> Blueprint:
    n, letters = machine.n_states, machine.n_symbols
    if letters * n * n > _MAX_TABLE:
        raise BudgetError(
            f"a vector unit of {n:,} states over {letters:,} letters needs tables of {letters * n * n:,} numbers, more "
            f'than {_MAX_TABLE:,}; try units="mixed", or letters that act alike as one'
        )
    if isinstance(machine, NFA):
        # R[i, k]: some run goes from k over the letter and then ε-arcs to i.
        steps = np.array([(moves.astype(np.float32) @ machine.closure) > 0 for moves in machine.transitions])
        starts = np.asarray(machine.closure[machine.starts].any(axis=0))
        return single_unit(steps.reshape(letters, n, n).transpose(0, 2, 1), starts, [machine.accepting], False)
    return single_unit(_matrices(machine.transitions), np.arange(n) == machine.start, _outputs(machine), True)


def _matrices(transitions: IntArray) -> BoolArray:
    """[A, S, S] whether letter a leads to state i from state k."""
    n, letters = transitions.shape
    matrices = np.zeros((letters, n, n), dtype=bool)
    for letter, targets in enumerate(transitions.T):
        matrices[letter, targets, np.arange(n)] = True
    return matrices


def _outputs(machine: DFA | MooreMachine) -> list[BoolArray]:
    """For each score the states where it is high."""
    if isinstance(machine, DFA):
        return [machine.accepting]
    return [machine.outputs == label for label in _labels(machine)]


def _labels(machine: MooreMachine) -> Sequence[int]:
    return [int(label) for label in np.unique(machine.outputs)]


def _alphabet(machine: DFA | NFA | MooreMachine) -> Sequence[Hashable]:
    return range(machine.n_symbols) if isinstance(machine, MooreMachine) else machine.alphabet


def _finished(machine: DFA | NFA | MooreMachine, blueprint: Blueprint) -> CompiledCascade:
    other = isinstance(machine, DFA) and machine.other
    labels = _labels(machine) if isinstance(machine, MooreMachine) else None
    return CompiledCascade.from_blueprint(blueprint, _alphabet(machine), other, labels)
