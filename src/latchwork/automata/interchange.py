"""Automata of automata-lib (https://github.com/caleb531/automata), there and back."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from latchwork.automata.dfa import DFA
from latchwork.automata.nfa import NFA


def from_automata_lib(machine: Any) -> DFA | NFA:
    """An automaton of automata-lib as one of ours; transitions that are missing in a DFA lead to a rejecting sink.

    Letters are sorted, as automata-lib keeps them in no order.

    Arguments: machine is an ``automata.fa.dfa.DFA`` or ``automata.fa.nfa.NFA``.
    Raises: ImportError with what to install when automata-lib is missing; TypeError for anything else.
    """
    theirs, nondeterministic = _classes()
    if not isinstance(machine, theirs | nondeterministic):
        raise TypeError(f"expected a DFA or NFA of automata-lib, got {type(machine).__name__}")
    alphabet = sorted(machine.input_symbols)
    if isinstance(machine, theirs):
        return DFA.from_table(alphabet, machine.transitions, machine.initial_state, machine.final_states)
    arcs = [
        (source, letter or None, target)
        for source, row in machine.transitions.items()
        for letter, targets in row.items()
        for target in sorted(targets, key=repr)
    ]
    return NFA.from_arcs(alphabet, arcs, [machine.initial_state], machine.final_states)


def to_automata_lib(machine: DFA | NFA) -> Any:
    """An automaton of ours as an ``automata.fa.dfa.DFA`` or ``automata.fa.nfa.NFA``; states are numbers.

    An NFA gets one more state, the last, where runs begin: automata-lib has one start.

    Raises: ImportError with what to install when automata-lib is missing; ValueError for letters that are not strings,
    which it does not have, and for a letter that stands for all others.
    """
    theirs, nondeterministic = _classes()
    letters = _strings(machine)
    accepting = {int(q) for q in np.flatnonzero(machine.accepting)}
    states = set(range(machine.n_states))
    if isinstance(machine, DFA):
        rows = {q: dict(zip(letters, row, strict=True)) for q, row in enumerate(machine.transitions.tolist())}
        return theirs(
            states=states,
            input_symbols=set(letters),
            transitions=rows,
            initial_state=machine.start,
            final_states=accepting,
        )
    start = machine.n_states
    arcs: dict[int, dict[str, set[int]]] = {q: {} for q in (*states, start)}
    moves = {letter: machine.transitions[a] for a, letter in enumerate(letters)} | {"": machine.closure}
    for letter, matrix in moves.items():
        for source, target in np.argwhere(matrix).tolist():
            if letter or source != target:
                arcs[source].setdefault(letter, set()).add(target)
    arcs[start][""] = {int(q) for q in np.flatnonzero(machine.starts)}
    return nondeterministic(
        states={*states, start},
        input_symbols=set(letters),
        transitions=arcs,
        initial_state=start,
        final_states=accepting,
    )


def _classes() -> tuple[Any, Any]:
    """Their two classes, imported when they are needed."""
    try:
        from automata.fa.dfa import DFA as THEIRS
        from automata.fa.nfa import NFA as NONDETERMINISTIC
    except ImportError:
        raise ImportError("this needs automata-lib: pip install 'latchwork[automata]'") from None
    return THEIRS, NONDETERMINISTIC


def _strings(machine: DFA | NFA) -> list[str]:
    if isinstance(machine, DFA) and machine.other:
        raise ValueError("automata-lib has no letter that stands for all others; give the automaton an alphabet")
    bad: list[Hashable] = [letter for letter in machine.alphabet if not isinstance(letter, str) or not letter]
    if bad:
        raise ValueError(f"letters of automata-lib are strings that are not empty, got {bad[0]!r}")
    return [str(letter) for letter in machine.alphabet]
