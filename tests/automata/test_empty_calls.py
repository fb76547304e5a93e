"""Calls of a compiled cascade without a letter or without a word."""

from __future__ import annotations

import pytest
import torch

from latchwork.automata import compile, from_regex


@pytest.mark.parametrize("units", ["scalar", "vector", "mixed"])
@pytest.mark.parametrize(("batch", "time"), [(2, 0), (0, 3), (0, 0)])
def test_a_call_without_letters_keeps_the_state(units, batch, time):
    cascade = compile(from_regex("(a|b)*abb", "ab"), units)
    letters, state = torch.zeros(batch, time, dtype=torch.int64), cascade.initial(batch) + 0.25
    for call, width in ((cascade, 1), (cascade.features, cascade.n_states)):
        found, last = call(letters, state)
        assert found.shape == (batch, time, width)
        assert torch.equal(last, state)


def test_conditional_vector_units_take_calls_without_letters():
    cascade = compile(from_regex("((a|b){6})*|(aa)*b", "ab"), "mixed")
    assert cascade.degree > 1
    assert cascade.n_units > 1
    assert cascade.verdicts("").tolist() == [True]
