"""Formulas over letters and values of levels, interned: equal ones have one number, shared parts are stored once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Literal

Node = tuple[str | int, ...]


class Formulas:
    """Formulas by number; a formula is made after its parts, so its number is larger than theirs.

    A node is ("letters", no, a, …): one of these is read; ("values", no, level, v, …): the level has one of these;
    both the other way round where `no` is 1; ("and", f, g, …) or ("or", f, g, …). `size` counts the letters and
    values in the written formula.
    """

    def __init__(self, n_letters: int) -> None:
        self._n_letters = n_letters
        self._numbers: dict[Node, int] = {}
        self.nodes: list[Node] = []
        self.size: list[int] = []
        self.false = self._number(("or",), 1)
        self.true = self._number(("and",), 1)

    def letters(self, letters: Collection[int]) -> int:
        """One of these letters is read; "none of the others" where that is shorter."""
        rest = [letter for letter in range(self._n_letters) if letter not in letters]
        if not rest:
            return self.true
        no = len(rest) < len(letters)
        chosen = rest if no else sorted(letters)
        return self._number(("letters", int(no), *chosen), len(chosen))

    def values(self, level: int, possible: Collection[int], values: Collection[int]) -> int:
        """The level has one of these values, where only the possible ones occur.

        Value 0 is never written: it is what a level has that has no other value.
        """
        others = sorted(value for value in possible if value not in values)
        if not others:
            return self.true
        no = 0 in values
        chosen = others if no else sorted(values)
        return self._number(("values", int(no), level, *chosen), len(chosen))

    def either(self, groups: dict[int, list[int]], guard: Callable[[list[int]], int]) -> int:
        """The disjunction of guard(g) & f over {f: g}, where one guard holds at a time.

        Where f is true its guard alone is a part; the others may then be as wide as to hold there too.
        """
        free = groups.get(self.true, [])
        parts = [guard(free)] if free else []
        for formula, chosen in groups.items():
            if formula not in (self.true, self.false):
                narrow, wide = guard(chosen), guard(chosen + free)
                parts.append(self.conjunction([min(narrow, wide, key=self._cost), formula]))
        return self.disjunction(parts)

    def conjunction(self, parts: Iterable[int]) -> int:
        return self._join("and", parts, self.true, self.false)

    def disjunction(self, parts: Iterable[int]) -> int:
        return self._join("or", parts, self.false, self.true)

    def write(
        self,
        formula: int,
        letters: Callable[[list[int], bool], str],
        values: Callable[[int, list[int], bool], str],
        joints: tuple[str, str],
    ) -> str:
        """A formula as text.

        Arguments:
            letters, values: text for "one of these letters" and "the level has one of these"; the other way round where
                the last argument is true. Text with the joint for "or" in it gets brackets where it needs them.
            joints: what stands for and, or.
        """
        conjunction, disjunction = joints
        written: dict[int, tuple[str, str]] = {self.false: ("false", ""), self.true: ("true", "")}
        for number in self._below(formula):
            kind, *rest = self.nodes[number]
            parts = [int(part) for part in rest]
            if kind in ("and", "or"):
                joint = conjunction if kind == "and" else disjunction
                inner = [written[part] for part in parts]
                texts = [text if top in ("", joint) else f"({text})" for text, top in inner]
                written[number] = (joint.join(texts), joint)
                continue
            if kind == "letters":
                text = letters(parts[1:], bool(parts[0]))
            else:
                text = values(parts[1], parts[2:], bool(parts[0]))
            written[number] = (text, disjunction if len(parts) > 2 + (kind == "values") and not parts[0] else "")
        return written[formula][0]

    def _below(self, formula: int) -> list[int]:
        """The formula's parts that are no constants, parts first."""
        found = {formula}
        work = [formula]
        while work:
            kind, *parts = self.nodes[work.pop()]
            if kind in ("and", "or"):
                fresh = {int(part) for part in parts} - found
                found |= fresh
                work.extend(fresh)
        return sorted(found - {self.false, self.true})

    def _cost(self, formula: int) -> int:
        return 0 if formula == self.true else self.size[formula]

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
