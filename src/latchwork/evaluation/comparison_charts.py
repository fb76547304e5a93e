"""Curves of several groups of runs in one picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from latchwork.chart import GREY, blank, colour, dashes, to_svg
from latchwork.evaluation.comparison import curves, median
from latchwork.evaluation.groups import Group

_POINTS = 300
"""Points of a line at most: more cannot be seen and make the file large."""


def extrapolation(title: str, groups: Sequence[Group]) -> str | None:
    """SVG of accuracy against length: medians over the runs, bands from lowest to highest; None if there is none."""
    lines = [curves(group) for group in groups]
    if not any(lines):
        return None
    figure, axes = blank(width=5.2, height=3.4)
    for number, line in enumerate(lines):
        if not line:
            continue
        lengths, shares = list(line), [100 * np.array(values) for values in line.values()]
        axes.fill_between(
            lengths, [s.min() for s in shares], [s.max() for s in shares], color=colour(number), alpha=0.15, linewidth=0
        )
        axes.plot(
            lengths,
            [median(s) for s in shares],
            linestyle=dashes(number),
            color=colour(number),
            # lines that lie on one another are all to be seen
            linewidth=min(6.0, 1.5 + len(groups) - 1 - number),
            marker="o",
            markersize=3,
        )
    evaluations = [o.evaluation for group in groups for o in group.ended if o.evaluation]
    _floor(axes, [evaluation["floor"] for evaluation in evaluations])
    axes.set_xscale("log", base=2)
    axes.set_xlabel("length, steps")
    axes.set_ylabel("accuracy, %")
    axes.set_ylim(0, 103)
    return to_svg(figure, f"{title}: accuracy against length")


def training_loss(title: str, groups: Sequence[Group]) -> str | None:
    """SVG of the training loss of every run against its updates; None if there is none."""
    lines = [[outcome.losses for outcome in group.outcomes] for group in groups]
    figure = _lines(groups, lines, "training loss, nats a scored step", markers=False)
    return figure and to_svg(figure, f"{title}: training loss against updates")


def validation(title: str, groups: Sequence[Group]) -> str | None:
    """SVG of the validations of every run against its updates: accuracy, or bits; None if there is none."""
    if groups[0].outcomes[0].has_accuracy:
        scale, label = 100.0, "validation accuracy, %"
        lines = [
            [[(step, f["correct"] / max(1, f["scored"])) for step, f in o.validations] for o in group.outcomes]
            for group in groups
        ]
        floors = [f["floor"] for group in groups for o in group.outcomes for _, f in o.validations[-1:]]
    else:
        scale, label, floors = 1.0, "validation, bits per byte", []
        lines = [[[(step, f["bits"]) for step, f in o.validations] for o in group.outcomes] for group in groups]
    figure = _lines(groups, lines, label, markers=True, scale=scale, floors=floors)
    return figure and to_svg(figure, f"{title}: validation against updates")


def thinned(points: Sequence[tuple[int, float]], most: int = _POINTS) -> list[tuple[float, float]]:
    """At most `most` points in place of many: the means of as many consecutive points each."""
    if len(points) <= most:
        return [(float(x), y) for x, y in points]
    pieces = np.array_split(np.asarray(points, dtype=np.float64), most)
    return [(float(x), float(y)) for x, y in (piece.mean(axis=0) for piece in pieces)]


def _lines(
    groups: Sequence[Group],
    lines: Sequence[Sequence[Sequence[tuple[int, float]]]],
    label: str,
    *,
    markers: bool,
    scale: float = 1.0,
    floors: Sequence[float] = (),
) -> Any:
    """A figure with a line a run in the colour of its group, runs that have not ended paler."""
    if not any(points for runs in lines for points in runs):
        return None
    figure, axes = blank(width=5.2, height=3.4)
    for number, (group, runs) in enumerate(zip(groups, lines, strict=True)):
        for outcome, points in zip(group.outcomes, runs, strict=True):
            if not points:
                continue
            axes.plot(
                *zip(*((x, scale * y) for x, y in thinned(points)), strict=True),
                linestyle=dashes(number),
                color=colour(number),
                alpha=0.8 if outcome.end else 0.35,
                linewidth=1,
                marker="o" if markers else None,
                markersize=2.5,
            )
    _floor(axes, floors)
    axes.set_xlabel("updates")
    axes.set_ylabel(label)
    if scale == 100:
        axes.set_ylim(0, 103)
    elif not markers:
        axes.set_ylim(bottom=0)
    return figure


def _floor(axes: Any, floors: Sequence[float]) -> None:
    """A dotted line at the median of the floors, which depend a little on the seed."""
    if floors:
        height = 100 * median(floors)
        axes.axhline(height, color=GREY, linestyle="dotted")
        axes.annotate(
            "floor",
            (1, height),
            xycoords=("axes fraction", "data"),
            xytext=(-2, 2),
            textcoords="offset points",
            ha="right",
            fontsize=8,
            color=GREY,
        )
