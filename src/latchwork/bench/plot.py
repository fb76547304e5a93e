"""The rows of a benchmark as a chart."""

from __future__ import annotations

from collections.abc import Sequence

from latchwork.bench.rows import Row, result
from latchwork.bench.rows import title as title_of
from latchwork.chart import BLUE, GREY, ORANGE, blank, to_svg

_COLOURS = (GREY, ORANGE, "#2da44e", "#8250df", "#bf3989", "#6e7781")
_LABELS = {
    "s": "seconds",
    "s/step": "seconds a step",
    "s/token": "seconds a token",
    "s/letter": "seconds a letter",
    "B": "bytes",
}


def ratios(title: str, rows: Sequence[Row]) -> str:
    """SVG with a bar a row: ours over theirs, on a logarithmic axis around 1; rows without a figure are left out."""
    shown = [row for row in rows if row.ratio is not None][::-1]
    figure, axes = blank(width=11, height=1 + 0.28 * len(shown))
    axes.grid(visible=False)
    axes.grid(axis="x", color="#e3e8ee")
    values = [row.ratio or 0.0 for row in shown]
    # a bar of a logarithmic axis begins at 1, where both sides are equal
    bars = axes.barh(
        range(len(shown)), [v - 1 for v in values], left=1, color=[BLUE if v <= 1 else GREY for v in values]
    )
    axes.bar_label(bars, [result(row) for row in shown], padding=3, fontsize=8)
    axes.set_xscale("log")
    axes.margins(x=0.2)
    axes.axvline(1, color=ORANGE, linewidth=1)
    axes.set_yticks(range(len(shown)), [f"{title_of(row)} / {row.against}" for row in shown], fontsize=8)
    axes.set_xlabel(f"{title}: ours over theirs, below 1 we need less")
    return to_svg(figure, f"{title}: ours over theirs in every row")


def against_length(title: str, rows: Sequence[Row]) -> str:
    """SVG with a line for each of ours and theirs against the length, their shape's second size."""
    shown = [row for row in rows if row.shape]
    figure, axes = blank(height=4)
    lines: dict[str, dict[int, float]] = {}
    for row in shown:
        for name, value in ((row.what, row.ours), (row.against, row.theirs)):
            if value is not None:
                lines.setdefault(name, {}).setdefault(row.shape[1], value)
    ours = list(dict.fromkeys(row.what for row in shown))
    others = iter(_COLOURS * len(lines))
    for name, points in lines.items():
        mine = name in ours
        colour = BLUE if mine else next(others)
        style = ":" if mine and ours.index(name) else "-"
        axes.plot(*zip(*points.items(), strict=True), style, color=colour, marker="o", markersize=3, label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("length, steps")
    axes.set_ylabel(_LABELS[shown[0].unit])
    axes.legend(frameon=False, fontsize=8)
    return to_svg(figure, f"{title} against the length")
