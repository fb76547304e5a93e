"""The states of units over time as pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latchwork.chart import blank, to_svg
from latchwork.evaluation.trace import LayerTrace, Trace

_INK = "#1c2733"
_LABELS = 64
"""Tokens that fit below a picture."""
_VECTOR_MARKS = 2000
"""More marks than this are drawn as pixels, or the file would be large."""


def state_heatmaps(trace: Trace, token_labels: list[str], row: int = 0) -> list[str]:
    """Draw the states of the units over time, one row a state and one column a step.

    Arguments:
        trace: of tokens [B, T].
        token_labels: the T tokens as they are to be read.
        row: which sequence of the batch.

    Returns: one ``<svg>`` element a layer. A dot marks the steps where a unit was set; colours go from the lowest to
    the highest state of the layer, with white at zero.

    Raises: ValueError if labels or row do not fit; ImportError with what to install when matplotlib is missing.
    """
    batch, time = trace.logits.shape[:2]
    if len(token_labels) != time:
        raise ValueError(f"there are {len(token_labels)} labels for {time} steps")
    if not 0 <= row < batch:
        raise ValueError(f"row must be in 0 … {batch - 1}, got {row}")
    if not time:
        raise ValueError("there is no step to draw")
    return [_draw(layer, number, token_labels, row) for number, layer in enumerate(trace.layers, 1)]


def _draw(layer: LayerTrace, number: int, labels: Sequence[str], row: int) -> str:
    x, was_set = _rows(layer.x[row].float().numpy(force=True)), _rows(layer.was_set[row].numpy(force=True))
    states, time = x.shape
    degree = 1 if layer.x.ndim == 3 else layer.x.shape[-1]
    figure, axes = blank(height=min(12.0, 0.9 + 0.11 * states))
    axes.grid(False)
    finite = np.abs(x[np.isfinite(x)])
    most = float(finite.max(initial=0.0)) or 1.0
    image = axes.imshow(x, aspect="auto", interpolation="nearest", cmap=_colours(), vmin=-most, vmax=most)
    unit, step = np.nonzero(was_set)
    size = max(1.0, min(9.0, 200.0 / time))
    axes.scatter(step, unit, s=size, color=_INK, linewidths=0, rasterized=len(step) > _VECTOR_MARKS)
    figure.colorbar(image, ax=axes, pad=0.01).outline.set_visible(False)
    every = math.ceil(time / _LABELS)
    shown = range(0, time, every)
    long = max(len(labels[t]) for t in shown) > 2
    axes.set_xticks(list(shown), [_plain(labels[t]) for t in shown], rotation=90 if long else 0, fontsize=7)
    every = math.ceil(states / degree / 20)
    axes.set_yticks(range(0, states, every * degree), range(0, states // degree, every), fontsize=7)
    axes.set_ylabel("unit")
    axes.set_title(f"Layer {number}", loc="left", fontsize=9)
    figure.dpi = 150
    return to_svg(figure, f"States of the units of layer {number} over {time} steps")


def _rows(values: NDArray[Any]) -> NDArray[Any]:
    """[T, …] -> [states, T]"""
    return values.reshape(len(values), -1).T


def _plain(label: str) -> str:
    """A label in which matplotlib sees no formula."""
    return label.replace("$", r"\$")


def _colours() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("states", ["#1f6feb", "#f7f8fa", "#d9730d"])
