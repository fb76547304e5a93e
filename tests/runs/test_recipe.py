"""Recipes: schedules and their arithmetic."""

from __future__ import annotations

import itertools

import pytest

from latchwork.runs.recipe import Recipe


def test_the_defaults_are_the_papers():
    recipe = Recipe()
    assert (recipe.optimizer, recipe.lr, recipe.weight_decay, recipe.batch_size, recipe.epochs) == (
        *("adam", 1e-3, 1e-4, 64, 30),
    )
    assert recipe.epoch_steps(20_000) == 313
    rates = [recipe.learning_rate(epoch * 313, 20_000) for epoch in range(15)]
    assert rates == [1e-3] * 5 + [5e-4] * 5 + [2.5e-4] * 5


def test_steps_bound_the_updates_exactly():
    assert Recipe(steps=7).total_steps(20_000) == 7
    assert Recipe(epochs=2).total_steps(130) == 2 * 3


def test_cosine_falls_to_a_hundredth_after_a_linear_rise():
    recipe = Recipe(schedule="cosine", steps=1000, warmup_steps=9, lr=1.0)
    rates = [recipe.learning_rate(step, 1) for step in range(1000)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == pytest.approx(1.0, abs=1e-3)
    assert rates[-1] == pytest.approx(0.01, abs=1e-3)
    assert all(a >= b for a, b in itertools.pairwise(rates[10:]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": 0.0}, "lr must be a positive number"),
        ({"lr": float("nan")}, "lr must be a positive number"),
        ({"batch_size": 0}, "batch_size must be an integer of at least 1"),
        ({"steps": 0}, "steps must be an integer of at least 1"),
        ({"clip": -1.0}, "clip must be a positive number"),
        ({"weight_decay": -1.0}, "weight_decay must be 0 or more"),
        ({"lr": "0.1"}, "lr must be a number, got '0.1'"),
        ({"steps": 2.0}, "steps must be an integer or None, got 2.0"),
        ({"stop_when_perfect": "no"}, "stop_when_perfect must be True or False, got 'no'"),
        ({"optimizer": "sgd"}, "optimizer must be one of adam, adamw"),
        ({"seed": -1}, "seed must be an integer of at least 0"),
    ],
)
def test_bad_values_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**options)
