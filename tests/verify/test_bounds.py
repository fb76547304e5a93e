"""No state leaves its bounds, and the bounds are attained by inputs that point along the weights."""

from __future__ import annotations

import pytest
import torch

from latchwork import Cascade, CascadeConfig, CascadeLM
from latchwork.verify import bounds

SMALL = {"d_model": 12, "n_layers": 3, "n_units": 8}


def spread(model: torch.nn.Module) -> None:
    """Weights, norms and first states far from where they start."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5).add_(0.3 * torch.randn_like(parameter))


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("degree", [1, 3])
@pytest.mark.parametrize("learned_x0", [False, True])
def test_states_never_leave_their_bounds(norm, degree, learned_x0):
    model = Cascade(CascadeConfig(**SMALL, norm=norm, degree=degree, learned_x0=learned_x0)).eval()
    spread(model)
    intervals = bounds(model)
    assert [len(interval.low) for interval in intervals] == [8 * degree] * 3
    state = None
    with torch.no_grad():
        for scale in (0.0, 0.1, 1.0, 100.0):
            for _ in range(20):
                _, state = model(scale * torch.randn(16, 7, 12), state)
                for interval, layer in zip(intervals, state, strict=True):
                    assert interval.contains(layer.unit)


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
def test_bounds_of_products_in_bfloat16_hold_under_autocast(norm):
    escaped = 0
    for seed in range(20):
        torch.manual_seed(seed)
        model = Cascade(CascadeConfig(d_model=2, n_layers=1, n_units=8, norm=norm)).eval()
        spread(model)
        (interval,), (narrow,) = bounds(model, torch.bfloat16), bounds(model)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            _, ((_, states),) = model(100 * torch.randn(64, 9, 2))
        assert interval.contains(states)
        escaped += not narrow.contains(states)
    assert escaped  # the bounds of float32 are too narrow there


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
def test_bounds_are_attained(norm):
    """The set value of each unit of a layer reaches its bound for the input along its weights."""
    model = Cascade(CascadeConfig(**{**SMALL, "n_layers": 1}, norm=norm))
    spread(model)
    layer = model.layers[0]
    with torch.no_grad():
        layer.unit.reset.bias.fill_(1000.0)  # the largest state is the largest s
        layer.unit.reset.weight.zero_()
    (interval,) = bounds(model)
    rows = layer.unit.set.weight * layer.unit_norm.weight
    along = rows - rows.mean(1, keepdim=True) if norm == "layernorm" else rows
    with torch.no_grad():
        reached = layer.unit.set(layer.unit_norm(1000 * along)).diagonal()
    torch.testing.assert_close(reached.double(), interval.high, rtol=1e-4, atol=1e-4)
    assert interval.contains(reached)


def test_the_head_of_a_language_model_changes_nothing():
    config = CascadeConfig(**SMALL)
    model = CascadeLM(config, 5)
    for a, b in zip(bounds(model), bounds(model.cascade), strict=True):
        assert torch.equal(a.low, b.low)
        assert torch.equal(a.high, b.high)


def test_models_without_bounds_are_refused():
    with pytest.raises(ValueError, match="without normalisation"):
        bounds(Cascade(CascadeConfig(**SMALL, norm="none")))
    with pytest.raises(TypeError, match="must be a Cascade or a CascadeLM, got Linear"):
        bounds(torch.nn.Linear(2, 2))
