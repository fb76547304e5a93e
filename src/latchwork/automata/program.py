"""A regular expression as a program: a nondeterministic automaton that can also ask what stands around a position.

Thompson's construction (1968), with nodes for anchors, word boundaries and assertions.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from latchwork.automata.characters import NEWLINE, Characters, of_node, word
from latchwork.automata.patterns import sre
from latchwork.automata.search import BudgetError


class Accept(NamedTuple):
    """The end of the pattern, or of an assertion."""


class Read(NamedTuple):
    """Read a character of a set."""

    characters: Characters
    next: int


class Split(NamedTuple):
    """Go on in any of several places; with none, fail."""

    next: tuple[int, ...]


class Before(NamedTuple):
    """Go on where a character of the set comes next; None is no character. At the end, go on where `end` says so."""

    characters: Characters | None
    end: bool
    next: int


class After(NamedTuple):
    """Go on where a character of the set came last; None is no character. At the start, go on where `start` says so."""

    characters: Characters | None
    start: bool
    next: int


class Boundary(NamedTuple):
    """Go on where a word begins or ends (`inverted`: where none does)."""

    characters: Characters
    inverted: bool
    next: int


class Ahead(NamedTuple):
    """Go on where the program at `start` matches a beginning of what follows (`inverted`: where it does not)."""

    start: int
    inverted: bool
    next: int


class Behind(NamedTuple):
    """Go on where this look-behind matches an end of what came before (`inverted`: where it does not)."""

    number: int
    inverted: bool
    next: int


Node = Accept | Read | Split | Before | After | Boundary | Ahead | Behind
ACCEPT = 0


class Program:
    """The nodes of a pattern.

    Attributes: nodes, the first of which accepts; start, the node to begin at; behinds, where each look-behind begins,
    inner ones before those that hold them.
    Raises: BudgetError above `budget` nodes.
    """

    def __init__(self, tree: Any, budget: int) -> None:
        self.nodes: list[Node] = [Accept()]
        self.behinds: list[int] = []
        self._parts: dict[tuple[int, int], int] = {}
        self._budget, self._depth = budget, 0  # the depth of assertions
        self.start = self._sequence(tree, tree.state.flags, ACCEPT)

    def sets(self) -> list[Characters]:
        """The sets of characters that the nodes speak of."""
        found = (node.characters for node in self.nodes if isinstance(node, Read | Before | After | Boundary))
        return [characters for characters in dict.fromkeys(found) if characters is not None]

    def _add(self, node: Node) -> int:
        if len(self.nodes) >= self._budget:
            raise BudgetError(f"the pattern has more than {self._budget:,} positions; are its repeats too long?")
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _sequence(self, tree: Any, flags: int, then: int) -> int:
        """The node where matching of a sequence begins; it ends in `then`. Programs grow from their end."""
        for kind, value in reversed(tree.data):
            then = self._node(kind, value, flags, then)
        return then

    def _node(self, kind: Any, value: Any, flags: int, then: int) -> int:
        if kind in (sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY):
            return self._add(Read(of_node(kind, value, flags), then))
        if kind is sre.BRANCH:
            return self._add(Split(tuple(self._sequence(part, flags, then) for part in value[1])))
        if kind is sre.SUBPATTERN:
            return self._sequence(value[3], _combined(flags, value[1], value[2]), then)
        if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            return self._repeat(value[0], value[1], value[2], flags, then)
        if kind in (sre.ASSERT, sre.ASSERT_NOT):
            return self._assertion(value[0], value[1], kind is sre.ASSERT_NOT, flags, then)
        if kind is sre.AT:
            return self._anchor(value, flags, then)
        if kind is sre.FAILURE:
            return self._add(Split(()))
        raise ValueError(f"this version of Python parses a part of the pattern as {kind}, which is not known here")

    def _repeat(self, low: int, high: Any, part: Any, flags: int, then: int) -> int:
        """`low` copies in a row, then a loop or copies that may be left out; greedy or not is the same language."""
        if part.getwidth()[1] == 0:  # a test: it holds twice where it holds once
            low, high = min(low, 1), min(int(high), 1)
        if high is sre.MAXREPEAT or high == sre.MAXREPEAT:
            loop = self._add(Split(()))
            self.nodes[loop] = Split((self._sequence(part, flags, loop), then))
            start = loop
        else:
            start = then
            for _ in range(high - low):
                start = self._add(Split((self._sequence(part, flags, start), then)))
        for _ in range(low):
            start = self._sequence(part, flags, start)
        return start

    def _assertion(self, direction: int, part: Any, inverted: bool, flags: int, then: int) -> int:
        self._depth += 1
        key = id(part), flags
        if key not in self._parts:  # copies of a repeat share what they assert
            self._parts[key] = self._sequence(part, flags, ACCEPT)
        self._depth -= 1
        start = self._parts[key]
        if direction > 0:
            return self._add(Ahead(start, inverted, then))
        if start not in self.behinds:
            self.behinds.append(start)
        return self._add(Behind(self.behinds.index(start), inverted, then))

    def _anchor(self, where: Any, flags: int, then: int) -> int:
        if where in (sre.AT_BOUNDARY, sre.AT_NON_BOUNDARY):
            return self._add(Boundary(word(flags), where is sre.AT_NON_BOUNDARY, then))
        lines = flags & re.MULTILINE
        if where in (sre.AT_BEGINNING, sre.AT_BEGINNING_STRING):
            by_line = lines and where is sre.AT_BEGINNING
            return self._add(After(NEWLINE if by_line else None, True, then))
        if where is sre.AT_END and lines:
            return self._add(Before(NEWLINE, True, then))
        end = self._add(Before(None, True, then))
        if where is sre.AT_END_STRING or (then == ACCEPT and not self._depth):  # a newline left would not be read
            return end
        last = self._add(Read(NEWLINE, self._add(Before(None, True, ACCEPT))))  # $ holds before a last newline too
        return self._add(Split((end, self._add(Ahead(last, False, then)))))


def _combined(flags: int, on: int, off: int) -> int:
    """The flags inside of a group: of the types ASCII and Unicode there is always one."""
    if on & sre.TYPE_FLAGS:
        flags &= ~sre.TYPE_FLAGS
    return (flags | on) & ~off
