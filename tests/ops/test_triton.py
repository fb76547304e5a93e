"""Triton's kernels: on a GPU where there is one, else in Triton's interpreter, in a process of its own."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from functools import partial

import pytest
import torch
from helpers import assert_same
from test_equality import assert_outcome, check_identities, check_padding, inputs_of, outcome
from test_packing import check_packed
from test_scan import DTYPES
from test_scan_gradients import check_carried, check_derivatives, check_no_second_derivatives

from latchwork import minmax_matrix_scan, minmax_scan
from latchwork.ops.scan import TRITON_NEEDED, has_triton

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
LONG = partial(pytest.param, marks=() if DEVICE == "cuda" else pytest.mark.slow)  # in the interpreter
RUNS = has_triton() and (DEVICE == "cuda" or INTERPRETED)

needs_triton = pytest.mark.skipif(not has_triton(), reason=f"needs {TRITON_NEEDED}")


def on_kernels(test):
    """A test that runs kernels. The interpreter computes with NumPy, which warns of NaN and of what overflows."""
    runs = pytest.mark.skipif(not RUNS, reason="runs on a GPU, or in a process of its own in Triton's interpreter")
    return runs(pytest.mark.filterwarnings("ignore::RuntimeWarning")(test))


@needs_triton
@pytest.mark.skipif(DEVICE == "cuda" or INTERPRETED, reason="the other tests here run already")
@pytest.mark.parametrize("which", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_everything_here_holds_in_the_interpreter(which):
    code = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", which, __file__]
    result = subprocess.run(code, capture_output=True, text=True, env={**os.environ, "TRITON_INTERPRET": "1"})
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.skipif(INTERPRETED, reason="the interpreter takes tensors on the CPU")
def test_what_triton_lacks_is_named():
    r = torch.zeros(1, 2, 3)
    with pytest.raises(ValueError, match=r'"triton" needs .*; (or )?use backend="auto"'):
        minmax_scan(r, r, backend="triton")


@on_kernels
def test_a_degree_that_is_too_large_is_refused():
    s = torch.zeros(1, 2, 3, 9, device=DEVICE)
    with pytest.raises(ValueError, match=r'up to degree 8, got 9; use backend="auto"'):
        minmax_matrix_scan(torch.zeros(1, 2, 3, 9, 9, device=DEVICE), s, backend="triton")


def check(degree: int, time: int, units: int, dtype: torch.dtype, special: float, flagged: bool) -> None:
    """Values and gradients are those of the loop; degree 0 stands for scalar units."""
    scan, inputs = inputs_of(degree, 2, time, units, dtype, special)
    flags = (torch.rand(2, time) < 0.7, torch.rand(2, time) < 0.2) if flagged else (None, None)
    there = [a.to(DEVICE) for a in inputs], [None if a is None else a.to(DEVICE) for a in flags]
    assert_outcome(outcome(scan, *there, "triton"), outcome(scan, inputs, flags, "reference"))


@on_kernels
@pytest.mark.parametrize(("special", "flagged"), [(0.0, False), (0.1, True)])
@pytest.mark.parametrize(
    ("time", "units"), [(1, 1), (2, 3), (3, 33), (31, 16), (33, 7), (63, 3), LONG(65, 40), LONG(98, 3)]
)
def test_scalar_units_have_the_values_and_gradients_of_the_loop(time, units, special, flagged):
    check(0, time, units, torch.float32, special, flagged)


@on_kernels
@pytest.mark.parametrize(("special", "flagged"), [(0.0, False), (0.1, True)])
@pytest.mark.parametrize(("time", "units"), [(1, 1), (9, 5)])
@pytest.mark.parametrize("degree", [1, 2, 3, 4, LONG(8)])
def test_vector_units_have_the_values_and_gradients_of_the_loop(degree, time, units, special, flagged):
    check(degree, time, units, torch.float32, special, flagged)


@pytest.fixture
def cut_time(monkeypatch):
    """Set how many steps a program holds at once, so that a few steps are many programs."""

    def cut(steps: int, vector_steps: int = 2) -> None:
        kernels = importlib.import_module("latchwork.ops.triton")
        forward, (_, lanes) = kernels._FORWARD, kernels._BACKWARD
        monkeypatch.setattr(kernels, "_FORWARD", {size: (steps, wide) for size, (_, wide) in forward.items()})
        monkeypatch.setattr(kernels, "_BACKWARD", (steps, lanes))
        monkeypatch.setattr(kernels, "_VECTOR_STEPS", vector_steps)

    return cut


@on_kernels
@pytest.mark.parametrize(("degree", "steps"), [(0, 1), (0, 3), (0, 32), (2, 2), (2, 8)])
def test_every_short_length_in_pieces_of_every_length_has_the_values_and_gradients_of_the_loop(degree, steps, cut_time):
    cut_time(steps, steps)
    for time in range(1, 17):
        check(degree, time, 3, torch.float32, 0.1, flagged=time % 2 == 0)


@on_kernels
@pytest.mark.parametrize("time", [1, 2, 3, 31, 33, 63, 65, LONG(1000)])
@pytest.mark.parametrize("degree", [0, 2])
def test_identity_steps_keep_any_state_at_every_length(degree, time):
    for x0 in (torch.inf, -torch.inf, 5.0):
        check_identities(degree, time, x0, "triton", DEVICE)


@on_kernels
@pytest.mark.parametrize(("degree", "steps"), [(0, 1), (0, 2), (2, 2), (3, 2)])
def test_packed_documents_equal_separate_runs_and_do_not_reach_each_other(degree, steps, cut_time):
    cut_time(steps)  # documents begin where a program does, and inside of what it holds
    check_packed(degree, torch.float32, "triton", DEVICE)


@on_kernels
@pytest.mark.parametrize("degree", [0, 2])
def test_gradients_flow_through_calls_that_are_joined_and_stop_at_detached_states(degree, cut_time):
    cut_time(4)
    check_carried(degree, (0, 4, 9, 12), "triton", DEVICE)


@on_kernels
@pytest.mark.parametrize("degree", [0, 2])
def test_gradients_are_those_of_small_differences(degree, cut_time):
    cut_time(2)
    check_derivatives(degree, "triton", DEVICE, fast_mode=True)


@on_kernels
@pytest.mark.parametrize("degree", [0, 2])
def test_second_derivatives_are_refused(degree):
    check_no_second_derivatives(degree, "triton", DEVICE)


@on_kernels
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("degree", [0, 2])
def test_chunks_of_padding_return_a_float32_state_beside_half_inputs(degree, dtype):
    check_padding(degree, dtype, 20 if INTERPRETED else 1000, "triton", DEVICE)


@on_kernels
@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype != torch.float32])
@pytest.mark.parametrize("degree", [0, 2])
def test_every_dtype_has_the_values_and_gradients_of_the_loop(degree, dtype):
    for flagged in (False, True):
        check(degree, 35 if degree == 0 else 11, 3, dtype, 0.1, flagged)


@on_kernels
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("degree", [0, LONG(2)])
def test_the_winner_against_a_state_that_half_inputs_cannot_hold_is_the_real_one(degree, dtype):
    """x holds the state rounded to 1, where it would tie with r."""
    shape = (1, 70, 4) if degree == 0 else (1, 70, 2, degree)
    s = torch.full(shape, -9.0, dtype=dtype, device=DEVICE)
    r = torch.full((*shape, *shape[3:]), 9.0, dtype=dtype, device=DEVICE)
    r[:, 60] = 1
    state = torch.full((1, *shape[2:]), 1 + 2**-14, device=DEVICE)
    leaves = r.requires_grad_(), state.requires_grad_()
    scan = minmax_scan if degree == 0 else minmax_matrix_scan
    assert torch.equal(scan(r[:, :60], s[:, :60], state, backend="triton")[1], state)
    x, last = scan(r, s, state, backend="triton")
    to_r, to_state = torch.autograd.grad(last.sum(), leaves)
    assert bool((x == 1).all())
    assert to_r[:, 60].sum().item() == last.numel()
    assert not to_state.any()


@on_kernels
@pytest.mark.parametrize("degree", [LONG(0), 2])
def test_any_strides_give_the_values_of_contiguous_inputs(degree):
    scan, inputs = inputs_of(degree, 2, 35 if degree == 0 else 11, 3, torch.float32, 0.0)
    r, s, state, x0 = (a.to(DEVICE) for a in inputs)

    def results(r, s, state, x0, up):
        leaves = [a.detach().requires_grad_() for a in (r, s, state, x0)]
        x, last = scan(*leaves[:3], x0=leaves[3], backend="triton")
        return x, last, *torch.autograd.grad(x, leaves[:3], up)

    wide = lambda a: torch.stack([a, torch.full_like(a, torch.nan)], dim=2).flatten(1, 2)[:, ::2]  # noqa: E731
    turned = lambda a: a.transpose(0, -1).contiguous().transpose(0, -1)  # noqa: E731
    ones = torch.ones_like(s, device=DEVICE)
    expected = results(r, s, state, x0, ones)
    for change in (wide, turned):
        changed = results(change(r), change(s), turned(state), turned(x0), torch.ones((), device=DEVICE).expand_as(s))
        for a, e in zip(changed, expected, strict=True):
            assert_same(a, e)
    one_step = [a[:, :1].expand(a.shape) for a in (r, s)]
    for a, e in zip(
        results(*one_step, state, x0, ones), results(*(a.contiguous() for a in one_step), state, x0, ones), strict=True
    ):
        assert_same(a, e)


@on_kernels
def test_ties_share_step_by_step_and_not_through_composed_steps():
    r = torch.ones(1, 2, 1, device=DEVICE, requires_grad=True)
    x0 = torch.ones(1, device=DEVICE, requires_grad=True)
    x, _ = minmax_scan(r, torch.full_like(r, -torch.inf), x0=x0, backend="triton")
    by_r, by_x0 = torch.autograd.grad(x[0, 1, 0], (r, x0))
    assert by_r.flatten().tolist() == [0.25, 0.5]
    assert by_x0.tolist() == [0.25]


@on_kernels
def test_float32_gradients_are_within_a_millionth_of_the_upstream_sum():
    time = 1 << (8 if INTERPRETED else 16)
    r, s = torch.full((1, time, 4), 2.0, device=DEVICE), torch.full((1, time, 4), -2.0, device=DEVICE)
    r[0, time // 3], s[0, time // 2] = 0.5, 0.75
    up = torch.rand(1, time, 4, device=DEVICE)
    results = []
    for dtype in (torch.float32, torch.float64):
        leaves = [a.to(dtype).requires_grad_() for a in (r, s, torch.ones(1, 4, device=DEVICE))]
        x, _ = minmax_scan(*leaves, backend="triton")
        results.append(torch.autograd.grad(x, leaves, up.to(dtype)))
    for single, double in zip(*results, strict=True):
        assert (single.double() - double).abs().max() <= 1e-6 * up.double().sum(dim=1).max()


@on_kernels
@pytest.mark.parametrize("shape", [(0, 5, 3), (2, 0, 3), (2, 5, 0)])
def test_nothing_in_gives_nothing_out_and_the_state_back(shape):
    r = torch.zeros(shape, device=DEVICE, requires_grad=True)
    state = torch.randn(shape[0], shape[2], device=DEVICE, requires_grad=True)
    x, last = minmax_scan(r, r, state, backend="triton")
    assert x.shape == shape
    assert torch.equal(last, state)
    assert torch.autograd.grad(last.sum(), state)[0].eq(1).all()
