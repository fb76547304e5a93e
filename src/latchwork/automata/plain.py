"""Programs without look-ahead and look-behind: sets of places as rows of bits, many times faster than `stepping`."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from latchwork.automata.dfa import BoolArray
from latchwork.automata.program import ACCEPT, After, Ahead, Before, Behind, Boundary, Program, Read, Split
from latchwork.automata.surroundings import EDGE, Surroundings

Bits = NDArray[np.uint8]
State = tuple[int, bytes]
"""What is known of the last character, and one bit for each place where a run may rest."""


def is_plain(program: Program) -> bool:
    """Whether no node looks further than one character, and tables of what follows what stay below 50 MB."""
    return len(program.nodes) <= 20_000 and not any(isinstance(node, Ahead | Behind) for node in program.nodes)


class PlainStepper:
    """As `Stepper`, for a plain program.

    Runs rest where they have just read something; from there they are led to the places that read next, or to the end,
    by tables that know both characters around (as Glushkov, 1961).

    Arguments: as for `Stepper`.
    """

    def __init__(self, program: Program, around: Surroundings) -> None:
        self._nodes, self._around = program.nodes, around
        reads = {number: node for number, node in enumerate(self._nodes) if isinstance(node, Read)}
        self._rests = sorted({program.start, *(node.next for node in reads.values())})
        index = {number: rest for rest, number in enumerate(self._rests)}
        self._after = np.array([index[node.next] for node in reads.values()], dtype=np.int64)
        self._places = [ACCEPT, *reads]
        self._reading = np.zeros((around.n_symbols, len(reads)), dtype=bool)
        for place, number in enumerate(reads):
            self._reading[list(around.inside[number]), place] = True
        self._follow = cache(self._table)
        self.start = (EDGE, self._packed(np.array([index[program.start]])))
        self._dead = (EDGE, self._packed(np.array([], dtype=np.int64)))

    def after(self, state: State) -> list[State]:
        """The states after each character."""
        if state == self._dead:
            return [state] * self._around.n_symbols
        reached = {coming: self._reached(state, coming) for coming in set(self._around.coming)}
        following = []
        for reading, last, coming in zip(self._reading, self._around.last, self._around.coming, strict=True):
            rests = self._after[reading & reached[coming][1:]]
            following.append((last, self._packed(rests)) if len(rests) else self._dead)
        return following

    def accepts(self, state: State) -> bool:
        """Whether the word may end here."""
        return state != self._dead and bool(self._reached(state, EDGE)[0])

    def _packed(self, rests: NDArray[np.int64]) -> bytes:
        flags = np.zeros(len(self._rests), dtype=bool)
        flags[rests] = True
        return np.packbits(flags).tobytes()

    def _reached(self, state: State, coming: int) -> BoolArray:
        """Whether each place is reached from where the runs of a state rest; the first is the end."""
        last, packed = state
        rests = np.flatnonzero(np.unpackbits(np.frombuffer(packed, dtype=np.uint8), count=len(self._rests)))
        bits = np.bitwise_or.reduce(self._follow(last, coming)[rests], axis=0)
        return np.unpackbits(bits, count=len(self._places)).astype(bool)

    def _table(self, last: int, coming: int) -> Bits:
        """The places that are reached from each rest between two characters, one bit each."""
        reached = [0] * len(self._nodes)  # as Python's integers, most significant bit first
        size = -(-len(self._places) // 8) * 8
        for place, number in enumerate(self._places):
            reached[number] = 1 << (size - 1 - place)
        arcs: list[tuple[int, tuple[int, ...]]] = []
        for number, node in enumerate(self._nodes):
            if isinstance(node, Split):
                arcs.append((number, node.next))
            elif isinstance(node, After | Before | Boundary):
                arcs.append((number, (node.next,) if self._around.holds(number, node, last, coming) else ()))
        changed = True
        while changed:  # once and again for loops, which come before what they lead to
            changed = False
            for number, targets in arcs:
                union = 0
                for target in targets:
                    union |= reached[target]
                if union != reached[number]:
                    reached[number], changed = union, True
        rows = [np.frombuffer(reached[number].to_bytes(size // 8, "big"), dtype=np.uint8) for number in self._rests]
        return np.stack(rows)
