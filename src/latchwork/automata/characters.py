"""Sets of characters as a pattern names them; what belongs to them is asked of Python's own `re`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from latchwork.automata.patterns import sre

LAST = 0x10FFFF
"""The last code point."""

_CATEGORIES = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
}
_RELEVANT = int(re.IGNORECASE | re.ASCII | re.DOTALL)


@dataclass(frozen=True)
class Characters:
    """The characters that a pattern for one character matches, under its flags."""

    text: str
    flags: int

    def __contains__(self, character: str) -> bool:
        return re.compile(self.text, self.flags).fullmatch(character) is not None

    def spans(self) -> tuple[tuple[int, int], ...]:
        """The code points, as ranges (first, end)."""
        return _spans(self.text, self.flags)

    def count(self) -> int:
        """How many characters there are."""
        return sum(end - first for first, end in self.spans())

    def few(self, most: int) -> str | None:
        """The characters in it, or those not in it, whichever are fewer; None when both are more than `most`."""
        inside = self.spans()
        edges = [0, *(edge for span in inside for edge in span), LAST + 1]
        outside = tuple(zip(edges[::2], edges[1::2], strict=True))
        spans = min((inside, outside), key=lambda spans: sum(end - first for first, end in spans))
        if sum(end - first for first, end in spans) > most:
            return None
        return "".join(chr(code) for first, end in spans for code in range(first, end))


def of_node(kind: Any, value: Any, flags: int) -> Characters:
    """The set that a node of a parsed pattern stands for: a literal, its negation, a class or the dot."""
    flags &= _RELEVANT
    if kind is sre.ANY:
        return Characters(".", flags)
    if kind is sre.LITERAL:
        return Characters(_literal(value), flags)
    if kind is sre.NOT_LITERAL:
        return Characters(f"[^{_literal(value)}]", flags)
    return Characters(f"[{''.join(_item(*item) for item in value)}]", flags)


def word(flags: int) -> Characters:
    r"""What ``\\b`` takes for a part of a word."""
    return Characters(r"\w", flags & int(re.ASCII))


NEWLINE = Characters(r"\n", 0)


def _item(kind: Any, value: Any) -> str:
    """An item of a class, as it stands in brackets."""
    if kind is sre.NEGATE:
        return "^"
    if kind is sre.RANGE:
        return f"{_literal(value[0])}-{_literal(value[1])}"
    return _literal(value) if kind is sre.LITERAL else _CATEGORIES[str(value)]


def _literal(code: int) -> str:
    return f"\\U{code:08x}"


@cache
def _everything() -> str:
    return "".join(map(chr, range(LAST + 1)))


@lru_cache(maxsize=256)
def _spans(text: str, flags: int) -> tuple[tuple[int, int], ...]:
    return tuple(found.span() for found in re.compile(f"(?:{text})+", flags).finditer(_everything()))
