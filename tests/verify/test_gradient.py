"""State gradients are those of autograd, in pieces of any size, and exactly 1 where a state is kept."""

from __future__ import annotations

import pytest
import torch

from latchwork import CascadeConfig, CascadeLM
from latchwork.ops import reference
from latchwork.verify import state_gradient

SMALL = {"d_model": 12, "n_layers": 2, "n_units": 8, "init": "keep"}


def model(degree: int = 1, **changes) -> CascadeLM:
    return CascadeLM(CascadeConfig(**{**SMALL, **changes}, degree=degree), 5)


@pytest.mark.parametrize("degree", [1, 3])
@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_they_are_those_of_autograd_through_each_unit(degree, chunk):
    net, tokens = model(degree), torch.randint(5, (3, 40))
    seen = {}
    hooks = [
        layer.unit.register_forward_hook(lambda unit, inputs, _, i=i: seen.update({i: (unit, inputs[0])}))
        for i, layer in enumerate(net.cascade.layers)
    ]
    with torch.no_grad():
        net.eval()(tokens)
    for hook in hooks:
        hook.remove()
    *_, last = state_gradient(net.train(), tokens, chunk=chunk)
    assert net.training
    assert last.length == 40
    for i, layer in enumerate(last.layers):
        unit, u = seen[i]
        start = unit.start(u).detach().clone().requires_grad_()
        shape = (-1, 8, degree)
        r, s = unit.reset(u).detach(), unit.set(u).detach()
        if degree > 1:
            r, s = r.unflatten(2, (8, degree, degree)), s.unflatten(2, (8, degree))
            x = reference.scan(r, s, start.view(shape), start.view(shape), None, None)[1]
        else:
            x = reference.scan(r, s, start, start, None, None)[1].view(shape)
        for place in range(degree):
            (wanted,) = torch.autograd.grad(x[..., place].sum(), start, retain_graph=True)
            torch.testing.assert_close(layer[:, :, place], wanted.view(shape).double())


def test_lengths_are_answered_in_turn():
    net, tokens = model(), torch.randint(5, (2, 20))
    found = list(state_gradient(net, tokens, chunk=6))
    assert [g.length for g in found] == [1, 2, 4, 8, 16, 20]
    for got, alone in zip(found, (1, 2, 4, 8, 16, 20), strict=True):
        *_, wanted = state_gradient(net, tokens[:, :alone])
        assert all(torch.equal(a, b) for a, b in zip(got.layers, wanted.layers, strict=True))
    assert [g.length for g in state_gradient(net, tokens, [3, 5])] == [3, 5]


@pytest.mark.parametrize("degree", [1, 2])
def test_kept_states_have_exactly_one_after_a_hundred_thousand_steps(degree):
    net = model(degree, n_layers=1)
    with torch.no_grad():
        unit = net.cascade.layers[0].unit
        unit.reset.weight.zero_()
        unit.set.weight.zero_()
        unit.set.bias.fill_(-5.0)
        # Every second unit keeps, or swaps its states at every step; the others forget.
        keep = torch.tensor([[0.0, 1.0], [1.0, 0.0]]) if degree == 2 else torch.ones(1, 1)
        bias = unit.reset.bias.view(8, degree, degree)
        bias[::2], bias[1::2] = 10 * keep - 5, -4.0
    *_, last = state_gradient(net, torch.randint(5, (1, 100_001)), [100_001])
    kept = last.kept()[0][0]
    assert kept[::2].all()
    assert not kept[1::2].any()
    if degree == 2:
        assert torch.equal(last.layers[0][0, 0], torch.tensor([[0.0, 1.0], [1.0, 0.0]]).double())


def test_what_does_not_fit_is_refused():
    net, tokens = model(), torch.randint(5, (2, 20))
    for lengths in ([], [0], [5, 5], [21]):
        with pytest.raises(ValueError, match="lengths must rise from at least 1 to at most T = 20"):
            state_gradient(net, tokens, lengths)
    with pytest.raises(ValueError, match="chunk must be at least 1"):
        state_gradient(net, tokens, chunk=0)
    with pytest.raises(ValueError, match=r"tokens must be \[B, T\]"):
        state_gradient(net, tokens[0])
    with pytest.raises(TypeError, match="must be a CascadeLM, got Linear"):
        state_gradient(torch.nn.Linear(2, 2), tokens)


def test_they_can_begin_in_the_middle_of_a_sequence():
    net, tokens = model().eval(), torch.randint(5, (2, 30))
    with torch.no_grad():
        _, state = net(tokens[:, :10])
    *_, whole = state_gradient(net, tokens)
    *_, begin = state_gradient(net, tokens[:, :10])
    *_, end = state_gradient(net, tokens[:, 10:], state=state)
    for product, first, second in zip(whole.layers, begin.layers, end.layers, strict=True):
        torch.testing.assert_close(product, second @ first)
