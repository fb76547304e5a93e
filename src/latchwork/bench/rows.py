"""One measured comparison, and how it is shown."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

Unit = Literal["s", "s/step", "s/token", "s/letter", "B"]

HEAD = ["what", "ours", "against", "theirs", "ratio"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """What we need for something, against a limit or a peer measured in the same run."""

    what: str
    """What is measured."""
    shape: tuple[int, ...] = ()
    """Of the data; empty where two shapes are compared."""
    dtype: str = "float32"
    unit: Unit = "s"
    """Of `ours` and `theirs`: seconds, seconds a step, token or letter, or bytes."""
    ours: float | None = None
    against: str
    """The limit or peer."""
    theirs: float | None = None
    note: str = ""
    """Why there is no figure, if there is none."""
    details: dict[str, int] = field(default_factory=dict)
    """Further figures, such as the sizes of both models."""

    @property
    def ratio(self) -> float | None:
        """Ours over theirs: below 1 we need less."""
        return None if self.ours is None or self.theirs is None else self.ours / self.theirs

    def to_dict(self) -> dict[str, Any]:
        """As it is written to JSON."""
        return {**dataclasses.asdict(self), "ratio": self.ratio}


def title(row: Row) -> str:
    """What is measured, on which shape; float32 goes without saying."""
    dtype = "" if row.dtype == "float32" else row.dtype
    return " ".join(part for part in (row.what, dtype, "×".join(map(str, row.shape))) if part)


def result(row: Row) -> str:
    """The ratio, or why there is none."""
    if row.ratio is None:
        return row.note
    return f"{row.ratio:.2f}" if row.ratio >= 0.1 else f"1 / {1 / row.ratio:,.0f}"


def cells(row: Row) -> list[str]:
    """The row as texts, one for each column of `HEAD`."""
    ours, theirs = quantity(row.ours, row.unit), quantity(row.theirs, row.unit)
    return [title(row), ours, row.against, theirs, result(row)]


def quantity(value: float | None, unit: Unit) -> str:
    """A figure for people; training is shown as speed."""
    if value is None:
        return "–"
    if unit == "B":
        return f"{value / 2**20:,.1f} MiB"
    if unit == "s/token":
        return f"{1 / value:,.0f} tokens/s"
    scale, prefix = next((s, p) for s, p in ((1, ""), (1e3, "m"), (1e6, "µ"), (1e9, "n")) if value * s >= 1 or p == "n")
    return f"{value * scale:,.3g} {prefix}{unit}"
