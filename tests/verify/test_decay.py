"""What is left of a gradient on its way back through any model with a state."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from latchwork import CascadeConfig
from latchwork.models.architectures import build
from latchwork.models.baselines import GRUConfig, LSTMConfig
from latchwork.verify import state_decay

MODELS = {
    "cascade": CascadeConfig(d_model=8, n_layers=2, n_units=5),
    "vector": CascadeConfig(d_model=8, n_layers=1, n_units=3, degree=2),
    "lstm": LSTMConfig(6),
    "gru": GRUConfig(6),
}


def flat(state) -> torch.Tensor:
    parts = [state] if isinstance(state, torch.Tensor) else [flat(part) for part in state]
    return torch.cat([part.flatten(1) for part in parts], 1)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("chunk", [1, 5, 64])
def test_it_is_the_gradient_of_autograd_through_one_call(name, chunk):
    # no token comes twice: where r or s are equal at two steps, rounding says whether they tie
    model, tokens = build(MODELS[name], 66).double(), torch.randperm(66).view(3, 22)
    found = list(state_decay(model, tokens, chunk=chunk, seed=3))
    assert [length for length, _ in found] == [1, 2, 4, 8, 16, 21]
    model.eval()
    direction = None
    for length, norms in found:
        with torch.no_grad():
            _, state = model(tokens[:, : 22 - length], None)
        leaves = []

        def leaf(part, leaves=leaves):
            if isinstance(part, torch.Tensor):
                leaves.append(part.clone().requires_grad_())
                return leaves[-1]
            parts = [leaf(each) for each in part]
            return type(part)(*parts) if hasattr(part, "_fields") else tuple(parts)

        after = flat(model(tokens[:, 22 - length :], leaf(state))[1])
        if direction is None:
            direction = torch.randn(after.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
            direction /= direction.norm(dim=1, keepdim=True)
        parts = torch.autograd.grad(after, leaves, direction, allow_unused=True, materialize_grads=True)
        wanted = flat(parts).norm(dim=1)
        torch.testing.assert_close(10**norms, wanted)


class Scale(nn.Module):
    """Every step multiplies the state."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, tokens, state):
        state = torch.ones(len(tokens), 1, dtype=torch.float64) if state is None else state
        for _ in range(tokens.shape[1]):
            state = state * self.factor
        return None, state


@pytest.mark.parametrize("chunk", [100, 1000])
def test_it_goes_below_what_a_float_can_hold(chunk):
    *_, last = state_decay(Scale(0.5), torch.zeros(2, 5001, dtype=torch.long), chunk=chunk)
    assert last.length == 5000
    torch.testing.assert_close(last.norms, torch.full((2,), -5000 * 0.3010299956639812, dtype=torch.float64))


def test_a_gradient_that_no_float_can_hold_is_no_figure():
    with pytest.raises(OverflowError, match="the gradient over 4000 steps is no finite number"):
        list(state_decay(Scale(2.0), torch.zeros(1, 4001, dtype=torch.long), chunk=2000))


def test_what_forgets_all_at_once_has_no_gradient():
    class Forget(nn.Module):
        def forward(self, tokens, state):
            return None, (torch.zeros(len(tokens), 2),)

    assert all((norms == -torch.inf).all() for _, norms in state_decay(Forget(), torch.zeros(1, 9, dtype=torch.long)))


@pytest.mark.parametrize(
    ("shape", "chunk", "message"), [((3,), 1, "tokens"), ((2, 1), 1, "tokens"), ((1, 4), 0, "chunk")]
)
def test_what_cannot_be_is_refused(shape, chunk, message):
    with pytest.raises(ValueError, match=message):
        state_decay(build(MODELS["gru"], 5), torch.zeros(shape, dtype=torch.long), chunk=chunk)
