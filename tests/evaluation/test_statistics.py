"""Intervals against published values and against every resample there is."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from latchwork.evaluation.statistics import Interval, bootstrap, summarise, wilson


@pytest.mark.parametrize(
    ("successes", "trials", "interval"),
    [
        (10, 10, (0.7225, 1.0)),
        (9, 10, (0.5958, 0.9821)),
        (7, 10, (0.3968, 0.8922)),
        (0, 10, (0.0, 0.2775)),
        (1, 1, (0.2065, 1.0)),
        (81, 263, (0.2553, 0.3662)),  # Newcombe, Statistics in Medicine 17 (1998), table I
        (15, 148, (0.0624, 0.1605)),
        (0, 20, (0.0, 0.1611)),
        (1, 29, (0.0061, 0.1718)),
    ],
)
def test_wilson_gives_the_published_intervals(successes, trials, interval):
    assert wilson(successes, trials) == pytest.approx(interval, abs=5.1e-5)


def test_wilson_intervals_mirror_and_shrink():
    for trials in (1, 2, 7, 40):
        for successes in range(trials + 1):
            low, high = wilson(successes, trials)
            assert 0 <= low <= successes / trials <= high <= 1
            assert wilson(trials - successes, trials) == pytest.approx((1 - high, 1 - low))
            wide = wilson(successes, trials, confidence=0.99)
            assert wide.low <= low
            assert wide.high >= high


def every_resample(values, statistic):
    """The quantiles over all n^n samples with replacement."""
    samples = np.array(list(itertools.product(values, repeat=len(values))))
    return np.quantile(getattr(np, statistic)(samples, axis=1), [0.025, 0.975], method="inverted_cdf")


@pytest.mark.parametrize("statistic", ["median", "mean"])
@pytest.mark.parametrize("values", [[3.0, 1.0], [0.2, 0.9, 1.0], [5.0, 7.0, 7.5, 20.0, 1.0], [1.0, 2, 4, 8, 16, 32]])
def test_the_bootstrap_agrees_with_every_resample(values, statistic):
    exact = every_resample(values, statistic)
    step = np.ptp(values) * 0.02  # what 100,000 draws can be off
    assert bootstrap(values, statistic, resamples=100_000) == pytest.approx(exact, abs=step)


def test_the_bootstrap_is_the_same_every_time_and_stays_in_the_range():
    values = np.random.default_rng(3).normal(size=25)
    assert bootstrap(values) == bootstrap(values)
    assert bootstrap(values, "mean", seed=1) != bootstrap(values, "mean", seed=0)
    low, high = bootstrap(values)
    assert values.min() <= low <= np.median(values) <= high <= values.max()
    narrow = bootstrap(values, confidence=0.5)
    assert low <= narrow.low <= narrow.high <= high


def test_many_values_take_bounded_memory_and_give_the_same_kind_of_answer():
    values = np.random.default_rng(0).normal(size=100_000)
    low, high = bootstrap(values, "mean", resamples=100)
    assert low < values.mean() < high
    assert high - low == pytest.approx(2 * 1.96 / math.sqrt(len(values)), rel=0.3)


def test_one_value_is_its_own_interval():
    for statistic in ("median", "mean"):
        assert bootstrap([0.25], statistic) == Interval(0.25, 0.25)
    assert summarise([0.25]) == (1, 0.25, (0.25, 0.25))
    assert summarise([]) is None
    assert summarise([1.0, 2.0, 4.0]).median == 2.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: wilson(0, 0), "at least one trial, got 0"),
        (lambda: wilson(3, 2), r"successes must be in 0 … 2, got 3"),
        (lambda: wilson(-1, 2), "successes must be"),
        (lambda: wilson(1, 2, confidence=95), "confidence must be between 0 and 1, got 95"),
        (lambda: bootstrap([]), "at least one value"),
        (lambda: bootstrap([1.0, math.nan]), "finite values, got nan"),
        (lambda: bootstrap([1.0, math.inf]), "finite values, got inf"),
        (lambda: bootstrap([1.0], resamples=0), "resamples must be at least 1"),
        (lambda: bootstrap([1.0], "mode"), "median or mean, got 'mode'"),
        (lambda: summarise([math.nan]), "finite values"),
    ],
)
def test_what_has_no_interval_is_an_error(call, message):
    with pytest.raises(ValueError, match=message):
        call()
