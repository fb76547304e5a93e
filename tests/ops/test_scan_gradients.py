"""The scan: gradients (step by step, to the active operand, ties shared evenly)."""

from __future__ import annotations

import itertools

import pytest
import torch
from test_equality import FAST, assert_outcome, inputs_of
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


def check_derivatives(degree: int, backend: str, device: str = "cpu", **options) -> None:
    """Gradients are those of small differences, where no two values are equal, whatever is used of the results."""
    scan, inputs = inputs_of(degree, 2, 5, 1 if degree else 3, torch.float64, 0.0)
    sizes = [a.numel() for a in inputs]
    distinct = (torch.randperm(sum(sizes)).double() / 10).split(sizes)
    r, s, state, _ = (a.reshape(like.shape).to(device) for a, like in zip(distinct, inputs, strict=True))
    leaves = [a.requires_grad_() for a in (r, s - s.mean() / 4, state)]
    mask, reset = (torch.rand(2, 5, device=device) < share for share in (0.7, 0.3))
    u, weight = (torch.randn(*shape, dtype=r.dtype, device=device) for shape in ((2, 5, 3), (3, r[0, 0].numel())))

    def shared(weight):
        y = u @ weight
        return scan(y.reshape(r.shape), y[..., : s[0, 0].numel()].roll(1, 1).reshape(s.shape) - 1, backend=backend)[0]

    for function, arguments in (
        (lambda *a: scan(*a, backend=backend)[0], leaves),
        (lambda *a: scan(*a, backend=backend)[1], leaves),
        (lambda *a: scan(*a, backend=backend), leaves),
        (lambda r, s, x0: scan(r, s, x0=x0, mask=mask, reset=reset, backend=backend), leaves),
        (shared, [weight.requires_grad_()]),
    ):
        assert torch.autograd.gradcheck(function, arguments, **options)


@every_backend
@pytest.mark.parametrize("degree", [0, 3])
def test_gradcheck_on_distinct_values(backend, degree):
    check_derivatives(degree, backend)


def second_derivatives(degree: int, backend: str, device: str = "cpu") -> torch.Tensor:
    """Of a sum of powers of the states, by the square root of r."""
    scan, inputs = inputs_of(degree, 2, 5, 3, torch.float64, 0.0)
    r, s, state, _ = (a.to(device).requires_grad_() for a in inputs)
    x, _ = scan(r**2, s, state, backend=backend)
    (first,) = torch.autograd.grad((x**3).sum(), r, create_graph=True)
    return torch.autograd.grad(first.sum(), r)[0]


def check_no_second_derivatives(degree: int, backend: str, device: str = "cpu") -> None:
    """They are refused clearly, not zero."""
    with pytest.raises(RuntimeError, match='no second derivatives; use backend="reference"'):
        second_derivatives(degree, backend, device)


@pytest.mark.parametrize("degree", [0, 2])
def test_second_derivatives_are_right_or_refused(degree):
    assert second_derivatives(degree, "reference").abs().sum() > 0
    for backend in FAST:
        check_no_second_derivatives(degree, backend)


def in_segments(scan, inputs, cuts, backend, detached=False):
    """x, last, and gradients of a sum of both, of calls that carry the state on from one cut to the next."""
    r, s, state, _ = leaves = [a.detach().requires_grad_() for a in inputs]
    pieces = []
    for part in (slice(*ends) for ends in itertools.pairwise(cuts)):
        carried = state.detach() if detached else state
        before = carried.clone()
        x, state = scan(r[:, part], s[:, part], carried, backend=backend)
        assert torch.equal(carried, before), "the state that was passed in is another one now"
        pieces.append(x)
    x = torch.cat(pieces, dim=1)
    loss = (x * x).sum() + state.sum()
    return (x, state), torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)


def check_carried(degree: int, cuts: tuple[int, ...], backend: str, device: str = "cpu") -> None:
    """Calls that are joined by their states are one call; what is detached between them stops gradients only."""
    scan, inputs = inputs_of(degree, 2, cuts[-1], 5, torch.float64, 0.0)
    there = [a.to(device) for a in inputs]
    whole = in_segments(scan, inputs, (0, cuts[-1]), "reference")
    assert_outcome(in_segments(scan, there, (0, cuts[-1]), backend), whole)
    assert_outcome(in_segments(scan, there, cuts, backend), whole)
    _, gradients = in_segments(scan, inputs, cuts, "reference", detached=True)
    assert not torch.equal(gradients[0], whole[1][0])
    assert_outcome(in_segments(scan, there, cuts, backend, detached=True), (whole[0], gradients))


@every_backend
@pytest.mark.parametrize("degree", [0, 2, 3])
def test_gradients_flow_through_calls_that_are_joined_and_stop_at_detached_states(backend, degree):
    check_carried(degree, (0, 4, 9, 12), backend)


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
