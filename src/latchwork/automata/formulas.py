"""Formulas over letters and values of levels, interned: equal ones have one number, shared parts are stored once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Literal

Node = tuple[str | int, ...]


class Formulas:
    """Formulas by number; a formula is made after its parts, so its number is larger than theirs.

    A node is ("letters", a, …): one of these is read; ("values", level, v, …): the level has one of these;
    ("not", f); ("and", f, g, …) or ("or", f, g, …). `size` counts letters and values in the written formula.
    """

    def __init__(self, n_letters: int) -> None:
        self._n_letters = n_letters
        self._numbers: dict[Node, int] = {}
        self.nodes: list[Node] = []
        self.size: list[int] = []
        self.false = self._number(("or",), 1)
        self.true = self._number(("and",), 1)

    def letters(self, letters: Collection[int]) -> int:
        """One of these letters is read; written as "none of the others" where that is shorter."""
        rest = [letter for letter in range(self._n_letters) if letter not in letters]
        if not rest:
            return self.true
        if len(rest) < len(letters):
            return self._negation(self._number(("letters", *rest), len(rest)))
        return self._number(("letters", *sorted(letters)), len(letters))

    def values(self, level: int, values: Collection[int], possible: Collection[int]) -> int:
        """The level has one of these values, where only the possible ones occur.

        Value 0 is never written: it is what a level has that has no other value.
        """
        others = sorted(value for value in possible if value not in values)
        if not others:
            return self.true
        if 0 in values:
            return self._negation(self._number(("values", level, *others), len(others)))
        return self._number(("values", level, *sorted(values)), len(values))

    def conjunction(self, parts: Iterable[int]) -> int:
        return self._join("and", parts, self.true, self.false)

    def disjunction(self, parts: Iterable[int]) -> int:
        return self._join("or", parts, self.false, self.true)

    def write(
        self,
        formula: int,
        letters: Callable[[list[int]], list[str]],
        values: Callable[[int, list[int]], list[str]],
        words: tuple[str, str, str],
    ) -> str:
        """A formula as text.

        Arguments:
            letters, values: the alternatives that "one of these letters" and "the level has one of these" are.
            words: what stands for not, and, or.
        """
        negation, conjunction, disjunction = words
        written: dict[int, tuple[str, bool]] = {self.false: ("false", True), self.true: ("true", True)}
        for number in self._below(formula):
            kind, *rest = self.nodes[number]
            parts = [int(part) for part in rest]
            if kind == "letters":
                alternatives = letters(parts)
                written[number] = (disjunction.join(alternatives), len(alternatives) == 1)
            elif kind == "values":
                alternatives = values(parts[0], parts[1:])
                written[number] = (disjunction.join(alternatives), len(alternatives) == 1)
            elif kind == "not":
                written[number] = (negation + _enclosed(*written[parts[0]]), True)
            else:
                joint = conjunction if kind == "and" else disjunction
                written[number] = (joint.join(_enclosed(*written[part]) for part in parts), False)
        return written[formula][0]

    def _below(self, formula: int) -> list[int]:
        """The formula's parts that are no constants, parts first."""
        found = {formula}
        for number in range(formula, -1, -1):
            if number in found and self.nodes[number][0] in ("not", "and", "or"):
                found.update(int(part) for part in self.nodes[number][1:])
        return sorted(found - {self.false, self.true})

    def _negation(self, formula: int) -> int:
        return self._number(("not", formula), self.size[formula])

    def _join(self, kind: Literal["and", "or"], parts: Iterable[int], neutral: int, final: int) -> int:
        kept = [part for part in dict.fromkeys(parts) if part != neutral]
        if final in kept:
            return final
        if len(kept) < 2:
            return kept[0] if kept else neutral
        return self._number((kind, *kept), sum(self.size[part] for part in kept))

    def _number(self, node: Node, size: int) -> int:
        if node not in self._numbers:
            self._numbers[node] = len(self.nodes)
            self.nodes.append(node)
            self.size.append(size)
        return self._numbers[node]


def _enclosed(text: str, simple: bool) -> str:
    return text if simple else f"({text})"
