"""Programs that only read: sets of positions as rows of bits, many times faster than `stepping`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from latchwork.automata.program import ACCEPT, Node, Program, Read, Split

Bits = NDArray[np.uint8]


def is_plain(program: Program) -> bool:
    """Whether no node asks what stands around it, and the table of what follows what takes less than 128 MiB."""
    return len(program.nodes) < 1 << 15 and all(isinstance(node, Read | Split) for node in program.nodes[1:])


class PlainStepper:
    """As `Stepper`, for a plain program; a state is the bytes of one bit a position that comes next.

    Positions are the places that read, and the end, which is number 0 (Glushkov, 1961).

    Arguments: as for `Stepper`.
    """

    def __init__(self, program: Program, inside: dict[int, frozenset[int]], n_symbols: int) -> None:
        reads = [number for number, node in enumerate(program.nodes) if isinstance(node, Read)]
        places = {number: place for place, number in enumerate([ACCEPT, *reads])}
        first = _closures(program.nodes, places)
        self._follow = np.stack([first[0], *(first[_next(program.nodes[number])] for number in reads)])
        self._follow[0] = 0
        reading = np.zeros((n_symbols, len(places)), dtype=bool)
        for number in reads:
            reading[list(inside[number]), places[number]] = True
        self._reading, self._count = reading, len(places)
        self.start = first[program.start].tobytes()

    def after(self, state: bytes) -> list[bytes]:
        """The states after each character."""
        here = np.unpackbits(np.frombuffer(state, dtype=np.uint8), count=self._count).astype(bool)
        hits = self._reading & here
        return [np.bitwise_or.reduce(self._follow[np.flatnonzero(hit)], axis=0).tobytes() for hit in hits]

    def accepts(self, state: bytes) -> bool:
        """Whether the word may end here."""
        return bool(state[0] & 0x80)  # the first bit


def _next(node: Node) -> int:
    if not isinstance(node, Read):
        raise TypeError(f"{node} does not read")
    return node.next


def _closures(nodes: list[Node], places: dict[int, int]) -> list[Bits]:
    """For each node, the positions that are reached from it without reading."""
    reached = [0] * len(nodes)  # as Python's integers, most significant bit first
    size = -(-len(places) // 8) * 8
    for number, place in places.items():
        reached[number] = 1 << (size - 1 - place)
    splits = [(number, node.next) for number, node in enumerate(nodes) if isinstance(node, Split)]
    changed = True
    while changed:  # once for all but loops, which come before what they lead to
        changed = False
        for number, targets in splits:
            union = 0
            for target in targets:
                union |= reached[target]
            if union != reached[number]:
                reached[number], changed = union, True
    return [np.frombuffer(bits.to_bytes(size // 8, "big"), dtype=np.uint8) for bits in reached]
