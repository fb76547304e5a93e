"""What vector units are for is learned in seconds; `tests/test_promises.py` has it for all seeds."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest


@pytest.mark.parametrize("model", ["rnn", "cascade-1"])
def test_parity_is_learned_from_short_sequences_and_held_on_long_ones(model):
    parity = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "parity.py"))
    assert parity["run"](model, degree=2, seed=0, updates=300, length=10_000)["accuracy"] == 1
