"""From what a person types to tokens."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any


class TokenError(ValueError):
    """Something that is no token of the task."""

    def __init__(self, problem: str, position: int, near: list[str]) -> None:
        super().__init__(f"{problem}; did you mean {' or '.join(near)}?" if near else problem)
        self.problem = problem
        self.position = position
        """Which one it is; the first is 1."""
        self.near = near
        """Names that look like it."""
        self.before: list[int] = []
        """The tokens before it."""

    def to_dict(self) -> dict[str, Any]:
        return {"problem": self.problem, "position": self.position, "near": self.near}


def read_tokens(items: str | Sequence[Any], names: Sequence[str]) -> list[int]:
    """The tokens that are meant by names or numbers; a string is split at its spaces.

    Raises: TokenError for the first item that is none.
    """
    numbers = {name: number for number, name in enumerate(names)}
    tokens: list[int] = []
    for position, item in enumerate(items.split() if isinstance(items, str) else items, 1):
        try:
            tokens.append(_read(item, position, numbers))
        except TokenError as error:
            error.before = tokens
            raise
    return tokens


def _read(item: Any, position: int, numbers: dict[str, int]) -> int:
    if isinstance(item, str):
        if item in numbers:
            return numbers[item]
        if not (item.isascii() and item.isdigit() and len(item) < 10):
            near = difflib.get_close_matches(item[:40], numbers, n=5, cutoff=0.5)
            raise TokenError(f"token {position}, {_shown(item)}, is unknown", position, near)
    elif isinstance(item, bool) or not isinstance(item, int):
        raise TokenError(f"token {position} must be a name or a number, got {_shown(item)}", position, [])
    number = int(item)
    if not 0 <= number < len(numbers):
        raise TokenError(f"token {position} must be in 0 … {len(numbers) - 1}, got {_shown(item)}", position, [])
    return number


def _shown(item: Any) -> str:
    text = repr(item)
    return text if len(text) <= 40 else text[:39] + "…"
