"""Small models, and what their modules say."""

from __future__ import annotations

import re

import pytest
import torch
from helpers import assert_close

from latchwork import CascadeConfig, CascadeLM

SIZES = {"d_model": 18, "n_layers": 2, "n_units": 11}
V = 13


def build(n_outputs=None, **choices):
    """A model in evaluation mode whose parameters are all away from 0 and 1."""
    model = CascadeLM(CascadeConfig(**{**SIZES, **choices}), V, n_outputs).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def draw(steps=1):
    return torch.randint(V, (1, steps))


def by_modules(model, tokens, state=None):
    """What the modules say."""
    y, state = model.cascade(model._embed(tokens), state)
    return model.head(y), state


def assert_same_step(actual, expected):
    (logits, state), (wanted, wanted_state) = actual, expected
    assert_close(logits, wanted)
    for layer, other in zip(state, wanted_state, strict=True):
        assert type(layer) is type(other)
        assert_close(layer.conv, other.conv)
        assert_close(layer.unit, other.unit)


def assert_same_outcome(actual, expected):
    """The same step, or the same refusal."""
    try:
        wanted = expected()
    except TypeError as error:
        with pytest.raises(TypeError, match=re.escape(str(error))):
            actual()
    else:
        assert_same_step(actual(), wanted)
