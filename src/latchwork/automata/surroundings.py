"""What the nodes of a program ask about the two characters around a place in the word."""

from __future__ import annotations

from collections.abc import Mapping

from latchwork.automata.program import After, Before, Boundary, Program

EDGE = -1
"""In the place of a character, beyond the ends of the word."""


class Surroundings:
    """The characters as far as a program tells them apart.

    Attributes:
        n_symbols: how many characters there are.
        inside: for each node that has a set of characters, the numbers of those in it.
        last: for each character the one that stands for it when it came last, EDGE where no node asks.
        coming: likewise when it comes next.

    Arguments: empty_non_boundary says whether the empty word has a non-boundary; versions of Python differ.
    """

    def __init__(
        self, program: Program, inside: Mapping[int, frozenset[int]], n_symbols: int, empty_non_boundary: bool
    ) -> None:
        self.inside, self.n_symbols, self._empty = inside, n_symbols, empty_non_boundary
        back = [n for n, node in enumerate(program.nodes) if isinstance(node, After | Boundary)]
        forth = [n for n, node in enumerate(program.nodes) if isinstance(node, Before | Boundary)]
        self.last, self.coming = self._alike(back), self._alike(forth)

    def holds(self, number: int, node: Before | After | Boundary, last: int, coming: int) -> bool:
        """What a test says between two characters."""
        inside = self.inside.get(number, frozenset())
        if isinstance(node, Before):
            return node.end if coming == EDGE else coming in inside
        if isinstance(node, After):
            return node.start if last == EDGE else last in inside
        if last == coming == EDGE:
            return node.inverted and self._empty
        return ((last in inside) != (coming in inside)) != node.inverted

    def _alike(self, numbers: list[int]) -> list[int]:
        """For each character the first one that the sets of some nodes treat as they treat it."""
        if not numbers:
            return [EDGE] * self.n_symbols
        sets = [self.inside.get(number, frozenset()) for number in numbers]
        first: dict[tuple[bool, ...], int] = {}
        return [first.setdefault(tuple(a in known for known in sets), a) for a in range(self.n_symbols)]
