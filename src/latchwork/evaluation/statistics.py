"""Intervals for what a few seeds show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np

Statistic = Literal["median", "mean"]
_CELLS = 1 << 22
"""Values that are drawn at once."""


class Interval(NamedTuple):
    """From `low` to `high`, both included."""

    low: float
    high: float


class Summary(NamedTuple):
    """A median of some runs, and its interval over them."""

    runs: int
    median: float
    interval: Interval


def wilson(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """Wilson's score interval of a probability, from `successes` in independent `trials`: 10 of 10 -> (0.72, 1).

    Source: E. B. Wilson, Journal of the American Statistical Association 22 (1927).
    """
    if trials < 1:
        raise ValueError(f"an interval of a success rate needs at least one trial, got {trials}")
    if not 0 <= successes <= trials:
        raise ValueError(f"successes must be in 0 … {trials}, got {successes}")
    z = NormalDist().inv_cdf(0.5 + _checked(confidence) / 2)
    share, weight = successes / trials, z * z / trials
    centre = (share + weight / 2) / (1 + weight)
    half = math.sqrt(share * (1 - share) * weight + weight * weight / 4) / (1 + weight)
    # at both ends the formula gives 0 and 1 up to rounding
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == trials else min(1.0, centre + half)
    return Interval(low, high)


def bootstrap(
    values: Sequence[float],
    statistic: Statistic = "median",
    *,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Interval:
    """The percentile bootstrap interval of the median or mean of `values`; the same one every time for a seed.

    Of one value it is that value alone. Source: B. Efron, Annals of Statistics 7 (1979).

    Raises: ValueError when there are no values or one of them is not finite.
    """
    data = _values(values)
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1, got {resamples}")
    if statistic not in ("median", "mean"):
        raise ValueError(f"statistic must be median or mean, got {statistic!r}")
    edges = [0.5 - _checked(confidence) / 2, 0.5 + confidence / 2]
    reduce = np.median if statistic == "median" else np.mean
    generator, rows = np.random.default_rng(seed), max(1, _CELLS // len(data))
    pieces = []
    for first in range(0, resamples, rows):
        drawn = generator.integers(len(data), size=(min(rows, resamples - first), len(data)))
        pieces.append(reduce(data[drawn], axis=1))
    low, high = np.quantile(np.concatenate(pieces), edges)
    return Interval(float(low), float(high))


def summarise(values: Sequence[float]) -> Summary | None:
    """The median and its bootstrap interval; None of no values."""
    if not len(values):
        return None
    return Summary(len(values), float(np.median(_values(values))), bootstrap(values))


def _values(values: Sequence[float]) -> np.ndarray:
    data = np.asarray(values, dtype=np.float64)
    if data.ndim != 1 or not data.size:
        raise ValueError(f"a statistic needs at least one value in one dimension, got shape {data.shape}")
    if not np.isfinite(data).all():
        raise ValueError(f"a statistic needs finite values, got {data[~np.isfinite(data)][0]}")
    return data


def _checked(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence}")
    return confidence
