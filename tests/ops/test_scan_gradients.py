"""The scan: gradients (step by step, to the active operand, ties shared evenly)."""

from __future__ import annotations

import pytest
import torch
from helpers import assert_same
from test_scan import STATES, column, draw, every_backend, every_dtype

from latchwork import minmax_scan


@every_backend
@every_dtype
def test_only_the_active_operand_has_a_gradient(backend, dtype):
    r, s = column(0.9, 0.5, 0.8, dtype=dtype), column(0.1, 0.2, 0.3, dtype=dtype)
    x0 = torch.tensor([0.7], dtype=STATES[dtype])
    leaves = [a.requires_grad_() for a in (r, s, x0)]
    x, _ = minmax_scan(r, s, x0=x0, backend=backend)
    gradients = torch.autograd.grad(x[0, 2, 0], leaves)
    assert gradients[0].flatten().tolist() == [0, 1, 0]
    assert gradients[1].flatten().tolist() == [0, 0, 0]
    assert gradients[2].tolist() == [0]
    x, _ = minmax_scan(r, s, x0=x0, backend=backend)
    gradients = torch.autograd.grad(x.sum(), leaves)
    assert gradients[0].flatten().tolist() == [0, 2, 0]
    assert gradients[1].flatten().tolist() == [0, 0, 0]
    assert gradients[2].tolist() == [1]


@every_backend
def test_ties_share_step_by_step_and_not_through_composed_steps(backend):
    r, x0 = column(1.0, 1.0).requires_grad_(), torch.tensor([1.0], requires_grad=True)
    x, _ = minmax_scan(r, torch.full_like(r, -torch.inf), x0=x0, backend=backend)
    by_r, by_x0 = torch.autograd.grad(x[0, 1, 0], (r, x0))
    assert by_r.flatten().tolist() == [0.25, 0.5]
    assert by_x0.tolist() == [0.25]


@every_backend
def test_weights_of_a_step_sum_to_one(backend):
    inputs = draw(4, 1, 60, torch.float64, special=0.3)
    leaves = [a.requires_grad_() for a in inputs[:3]]
    x, _ = minmax_scan(*leaves, backend=backend)
    r, s, state = torch.autograd.grad(x.sum(), leaves)
    assert torch.equal(r[:, 0] + s[:, 0] + state, torch.ones(4, 60, dtype=torch.float64))


@every_backend
def test_gradcheck_on_distinct_values(backend):
    values = torch.randperm(2 * 3 * 7 * 5).double().reshape(2, 3, 7, 5) / 10
    r, s = (a.contiguous().requires_grad_() for a in values)
    state = (torch.rand(3, 5, dtype=torch.float64) * 20).requires_grad_()
    scan = lambda *a: minmax_scan(*a, backend=backend)  # noqa: E731
    assert torch.autograd.gradcheck(lambda *a: scan(*a)[0], (r, s, state))
    assert torch.autograd.gradcheck(lambda *a: scan(*a)[1], (r, s, state))
    assert torch.autograd.gradcheck(scan, (r, s, state))
    weight = torch.randn(5, 5, dtype=torch.float64, requires_grad=True)
    u = torch.randn(3, 7, 5, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda w: scan(u @ w, (u @ w).roll(1, dims=1) - 1)[0], (weight,))
    mask, reset = torch.rand(3, 7) < 0.7, torch.rand(3, 7) < 0.3
    assert torch.autograd.gradcheck(
        lambda r, s, x0: minmax_scan(r, s, x0=x0, mask=mask, reset=reset, backend=backend), (r, s, state)
    )


def test_second_derivatives_are_right_or_refused():
    r, s, state, _ = (a.double().requires_grad_() for a in draw(2, 5, 3))

    def first(backend):
        x, _ = minmax_scan(r**2, s, state, backend=backend)
        return torch.autograd.grad((x**3).sum(), r, create_graph=True)[0]

    (second,) = torch.autograd.grad(first("reference").sum(), r)
    assert second.abs().sum() > 0
    for backend in ("cpu", "torch"):
        with pytest.raises(RuntimeError, match='no second derivatives; use backend="reference"'):
            torch.autograd.grad(first(backend).sum(), r)


@every_backend
def test_gradients_flow_through_two_calls_and_stop_at_detached_states(backend):
    r, s, state, _ = draw(2, 12, 5)
    leaves = [a.clone().requires_grad_() for a in (r, s, state)]
    x, _ = minmax_scan(*leaves, backend=backend)
    whole = torch.autograd.grad((x * x).sum(), leaves)
    first, between = minmax_scan(leaves[0][:, :5], leaves[1][:, :5], leaves[2], backend=backend)
    second, _ = minmax_scan(leaves[0][:, 5:], leaves[1][:, 5:], between, backend=backend)
    pieces = torch.autograd.grad((first**2).sum() + (second**2).sum(), leaves)
    for a, b in zip(whole, pieces, strict=True):
        assert_same(a, b)
    start = state.clone()
    carried = start
    for part in (slice(0, 4), slice(4, 8), slice(8, 12)):
        before = carried.clone()
        leaf = carried.detach().requires_grad_()
        y, after = minmax_scan(leaves[0][:, part], leaves[1][:, part], leaf, backend=backend)
        (y.sum() + after.sum()).backward()
        assert torch.equal(carried, before)
        carried = after.detach()
    assert torch.equal(start, state)


@pytest.mark.parametrize("backend", ["torch", "cpu"])
@pytest.mark.parametrize("time", [512, 1 << 16])
def test_float32_gradients_are_within_a_millionth_of_the_upstream_sum(time, backend):
    """Long sums of gradients of one sign, as where a state is held and read at every step."""
    r, s = torch.full((1, time, 4), 2.0), torch.full((1, time, 4), -2.0)
    r[0, time // 3], s[0, time // 2] = 0.5, 0.75
    up = torch.rand(1, time, 4)
    results = []
    for dtype in (torch.float32, torch.float64):
        leaves = [a.to(dtype).requires_grad_() for a in (r, s, torch.ones(1, 4))]
        x, _ = minmax_scan(*leaves, backend=backend)
        results.append(torch.autograd.grad(x, leaves, up.to(dtype)))
    for single, double in zip(*results, strict=True):
        assert (single.double() - double).abs().max() <= 1e-6 * up.double().sum(dim=1).max()


def test_the_state_gradient_is_exactly_one_for_a_million_steps():
    time = 1 << 20
    r, s = torch.full((1, 1, 2), 3.0).expand(1, time, 2), torch.full((1, 1, 2), -3.0).expand(1, time, 2)
    state = torch.tensor([[1.0, -2.0]], requires_grad=True)
    x, last = minmax_scan(r, s, state)
    last.sum().backward()
    assert torch.equal(x[0, -1], state[0].detach())
    assert state.grad.tolist() == [[1.0, 1.0]]


def test_gradient_of_x0_shared_by_the_batch_and_by_resets():
    r, s = torch.full((3, 4, 2), 9.0), torch.full((3, 4, 2), -9.0)
    x0 = torch.zeros(2, requires_grad=True)
    reset = torch.tensor([[False, False, True, False]] * 3)
    x, _ = minmax_scan(r, s, x0=x0, reset=reset)
    x.sum().backward()
    assert x0.grad.tolist() == [12.0, 12.0]


def test_inference_saves_nothing_and_training_saves_inputs_and_outputs_only():
    r, s = torch.randn(2, 8, 3, requires_grad=True), torch.randn(2, 8, 3, requires_grad=True)
    saved: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda a: saved.append(a) or a, lambda a: a):
        with torch.no_grad():
            assert not minmax_scan(r, s)[0].requires_grad
        assert not saved
        x, _ = minmax_scan(r, s)
    known = {a.untyped_storage().data_ptr() for a in (r, s, x)}
    large = [a for a in saved if a.numel() >= x.numel()]
    assert {a.untyped_storage().data_ptr() for a in large} <= known


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch's own forward mode
def test_forward_mode_is_right_or_refused():
    r, s, state = torch.tensor([[[-1.0], [2.0]]]), torch.tensor([[[-2.0], [-2.0]]]), torch.tensor([[1.0]])
    _, tangent = torch.func.jvp(lambda a: minmax_scan(a, s, state)[0], (r,), (torch.ones_like(r),))
    assert tangent.flatten().tolist() == [1.0, 1.0]
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(r, torch.ones_like(r))
        x, _ = minmax_scan(dual, s, state)
        assert torch.autograd.forward_ad.unpack_dual(x).tangent.flatten().tolist() == [1.0, 1.0]
        for backend in ("cpu", "torch"):
            with pytest.raises(NotImplementedError, match="forward-mode"):
                minmax_scan(dual, s, state, backend=backend)
