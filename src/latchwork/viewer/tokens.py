"""From what a person types to tokens."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any


class TokenError(ValueError):
    """Something that is no token of the task."""

    def __init__(self, message: str, position: int, near: list[str]) -> None:
        super().__init__(message)
        self.position = position
        """Which one it is; the first is 1."""
        self.near = near
        """Names that look like it."""


def read_tokens(items: str | Sequence[Any], names: Sequence[str]) -> list[int]:
    """The tokens that are meant by names or numbers; a string is split at its spaces.

    Raises: TokenError for the first item that is none.
    """
    numbers = {name: number for number, name in enumerate(names)}
    items = items.split() if isinstance(items, str) else items
    return [_read(item, i, numbers) for i, item in enumerate(items, 1)]


def _read(item: Any, position: int, numbers: dict[str, int]) -> int:
    if isinstance(item, str):
        if item in numbers:
            return numbers[item]
        if not (item.isascii() and item.isdigit() and len(item) < 10):
            near = difflib.get_close_matches(item[:40], numbers, n=5, cutoff=0.5)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise TokenError(f"token {position}, {_shown(item)}, is unknown{hint}", position, near)
    elif isinstance(item, bool) or not isinstance(item, int):
        raise TokenError(
            f"token {position} must be a name or a number, got {_shown(item)}: {type(item).__name__}", position, []
        )
    number = int(item)
    if not 0 <= number < len(numbers):
        raise TokenError(f"token {position} must be in 0 … {len(numbers) - 1}, got {_shown(item)}", position, [])
    return number


def _shown(item: Any) -> str:
    text = repr(item)
    return text if len(text) <= 40 else text[:39] + "…"
