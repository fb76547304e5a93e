"""How figures look; matplotlib is imported when one is drawn."""

from __future__ import annotations

import html
import io
from typing import Any

BLUE, GREY, ORANGE = "#1f6feb", "#8a97a5", "#d9730d"
_LINES = (BLUE, ORANGE, "#2da44e", "#8250df", "#bf3989", "#0a7ea4", "#9a6700", "#6e7781")
_DASHES = ("solid", "dashed", "dotted")  # as matplotlib and CSS both say


def colour(number: int) -> str:
    """Of the line with this number, counted from 0; they come again after eight."""
    return _LINES[number % len(_LINES)]


def dashes(number: int) -> str:
    """How the line with this number is dashed, so that two of one colour can be told apart."""
    return _DASHES[number // len(_LINES) % len(_DASHES)]


def blank(width: float = 8.5, height: float = 3.2) -> tuple[Any, Any]:
    """A figure of `width` × `height` inches and its axes.

    Raises: ImportError with what to install when matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("charts need matplotlib: pip install 'latchwork[train]'") from None
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e3e8ee")
    axes.set_axisbelow(True)
    return figure, axes


def to_svg(figure: Any, label: str) -> str:
    """The figure as one ``<svg>`` element, the same bytes every time; `label` says what it shows."""
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "latchwork", "svg.fonttype": "path"}):
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    return text.replace("<svg ", f'<svg role="img" aria-label="{html.escape(label)}" ', 1)
