"""The scan as an operator of `torch.library`."""

from __future__ import annotations

import pytest
import torch
from helpers import assert_same
from test_scan import draw

from latchwork import CascadeConfig, CascadeLM, minmax_scan
from latchwork.ops.scan import _SCALAR
from latchwork.state import detach

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.mark.parametrize("flags", [False, True])
def test_the_operators_keep_their_promises(flags):
    r, s, state, x0 = draw(2, 6, 5)
    mask, reset = (torch.rand(2, 6) < 0.7, torch.rand(2, 6) < 0.3) if flags else (None, None)
    leaves = tuple(a.clone().requires_grad_() for a in (r, s, state, x0))
    torch.library.opcheck(_SCALAR.operator, (*leaves, mask, reset))
    x, last = _SCALAR.operator(r, s, state, x0, mask, reset)
    gradients = torch.randn_like(x), torch.randn_like(last)
    torch.library.opcheck(
        torch.ops.latchwork.minmax_scan_backward.default, (*gradients, r, s, state, x0, mask, reset, x)
    )


def test_a_compiled_scan_has_the_same_bits_and_gradients():
    def run(r, s, state):
        x, last = minmax_scan(r * 2, s, state)
        return x * 3, last

    leaves = [a.clone().requires_grad_() for a in draw(2, 9, 20)[:3]]
    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    results = []
    for function in (run, compiled):
        x, last = function(*leaves)
        results.append((x, last, *torch.autograd.grad(x.sum() + last.sum(), leaves)))
    for a, b in zip(*results, strict=True):
        assert_same(b, a)


def test_a_compiled_model_equals_the_eager_one():
    model = CascadeLM(CascadeConfig(d_model=12, n_layers=2, n_units=7, dropout=0.0), 11)
    tokens = torch.randint(0, 11, (2, 9))
    compiled = torch.compile(model, backend="aot_eager")
    logits, state = model(tokens)
    again, _ = compiled(tokens)
    torch.testing.assert_close(again, logits, atol=1e-6, rtol=1e-6)
    with torch.no_grad():
        torch.testing.assert_close(compiled(tokens, detach(state))[0], model(tokens, state)[0], atol=1e-6, rtol=1e-6)
