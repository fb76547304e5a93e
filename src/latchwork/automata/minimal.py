"""The smallest automaton of a language."""

from __future__ import annotations

from collections import defaultdict
from typing import overload

import numpy as np
from numpy.typing import NDArray

from latchwork.automata.dfa import DFA, check_dfa
from latchwork.automata.machine import IntArray, MooreMachine
from latchwork.automata.search import explore


def reachable(dfa: DFA) -> DFA:
    """The part that words lead to, its states numbered in breadth-first order from the start."""
    check_dfa(dfa)
    kept, table = _reached(dfa.transitions, dfa.start)
    return DFA(dfa.alphabet, table, dfa.accepting[kept], 0, dfa.other)


@overload
def minimize(machine: DFA) -> DFA: ...
@overload
def minimize(machine: MooreMachine) -> MooreMachine: ...
def minimize(machine: DFA | MooreMachine) -> DFA | MooreMachine:
    """The smallest automaton of the same language, its states numbered in breadth-first order from the start.

    Over one alphabet, in one order, equal languages give equal tables. Likewise for the outputs of a Moore machine.
    """
    if not isinstance(machine, MooreMachine):
        check_dfa(machine)
    labels = machine.accepting if isinstance(machine, DFA) else machine.outputs
    kept, table = _reached(machine.transitions, machine.start)
    blocks = partition(table, labels[kept])
    members = np.unique(blocks, return_index=True)[1]  # one state of each block stands for all
    some, table = _reached(blocks[table[members]], int(blocks[0]))
    which = np.array(kept)[members][some]
    if isinstance(machine, DFA):
        return DFA(machine.alphabet, table, machine.accepting[which], 0, machine.other)
    return MooreMachine(table, machine.outputs[which], 0)


def _reached(transitions: IntArray, start: int) -> tuple[list[int], IntArray]:
    """The states that words lead to, in breadth-first order, and the table between them."""
    return explore(start, transitions.tolist().__getitem__, transitions.shape[1])


def partition(transitions: IntArray, labels: NDArray[np.generic]) -> IntArray:
    """The block of each state, [S]: two states share one when the same words lead from both to the same labels.

    Partition refinement (Hopcroft, 1971): blocks are split by which of their states lead into a splitter; of two halves
    the smaller one becomes a splitter, so a state is in at most log2 S + 1 of them.
    """
    n_states, n_symbols = transitions.shape
    columns = np.unique(transitions, axis=1).T if n_symbols else transitions.T
    inverse = [_sources(column) for column in columns]  # letters that act alike count once
    blocks = [set(np.flatnonzero(labels == label).tolist()) for label in np.unique(labels)]
    block_of = [0] * n_states
    for number, block in enumerate(blocks):
        for state in block:
            block_of[state] = number
    # All but the largest block split the others; a single one would split nothing.
    waiting = set(range(len(blocks))) - {max(range(len(blocks)), key=lambda number: len(blocks[number]))}
    while waiting:
        splitter = list(blocks[waiting.pop()])
        for sources in inverse:
            for number, hit in _by_block([p for q in splitter for p in sources[q]], block_of).items():
                if len(hit) < len(blocks[number]):
                    _split(number, hit, blocks, block_of, waiting)
    return np.array(block_of, dtype=np.int64)


def _sources(column: IntArray) -> list[list[int]]:
    """The states that a letter leads from, for each state it leads to."""
    sources: list[list[int]] = [[] for _ in column]
    for state, target in enumerate(column.tolist()):
        sources[target].append(state)
    return sources


def _by_block(states: list[int], block_of: list[int]) -> dict[int, list[int]]:
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for state in states:
        groups[block_of[state]].append(state)
    return groups


def _split(number: int, hit: list[int], blocks: list[set[int]], block_of: list[int], waiting: set[int]) -> None:
    """Take the states `hit` out of a block into a new one."""
    new = len(blocks)
    blocks.append(set(hit))
    blocks[number].difference_update(hit)
    for state in hit:
        block_of[state] = new
    # Where the whole block still waits, both halves have to; otherwise the smaller one does.
    smaller = new if number in waiting or len(hit) <= len(blocks[number]) else number
    waiting.add(smaller)
