"""The smallest automaton of a language."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from latchwork.automata.dfa import DFA
from latchwork.automata.machine import IntArray
from latchwork.automata.search import explore


def reachable(dfa: DFA) -> DFA:
    """The part that words lead to, its states numbered in breadth-first order from the start."""
    rows = dfa.transitions.tolist()
    kept, table = explore(dfa.start, rows.__getitem__, dfa.n_symbols)
    return DFA(dfa.alphabet, table, dfa.accepting[kept], 0, dfa.other)


def minimize(dfa: DFA) -> DFA:
    """The smallest automaton of the same language, its states numbered in breadth-first order from the start.

    Over one alphabet, in one order, equal languages give equal tables.
    """
    dfa = reachable(dfa)
    blocks = partition(dfa)
    members = np.unique(blocks, return_index=True)[1]  # one state of each block stands for all
    return reachable(
        DFA(dfa.alphabet, blocks[dfa.transitions[members]], dfa.accepting[members], int(blocks[dfa.start]), dfa.other)
    )


def partition(dfa: DFA) -> IntArray:
    """The block of each state, [S]: two states share one when the same words lead from both to acceptance.

    Partition refinement (Hopcroft, 1971): blocks are split by which of their states lead into a splitter; of two halves
    the smaller one becomes a splitter, so a state is in at most log2 S + 1 of them.
    """
    columns = np.unique(dfa.transitions, axis=1).T if dfa.n_symbols else dfa.transitions.T
    inverse = [_sources(column) for column in columns]  # letters that act alike count once
    yes, no = set(np.flatnonzero(dfa.accepting).tolist()), set(np.flatnonzero(~dfa.accepting).tolist())
    blocks = [block for block in (yes, no) if block]
    block_of = [0] * dfa.n_states
    for number, block in enumerate(blocks):
        for state in block:
            block_of[state] = number
    waiting = {min(range(len(blocks)), key=lambda number: len(blocks[number]))} if len(blocks) > 1 else set()
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
