"""Where inputs and results lie in memory: any strides, NaN all around, and far apart."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from helpers import assert_same
from test_equality import TOLERANCE, every_fast_backend, inputs_of, outcome
from torch import Tensor

from latchwork import minmax_matrix_scan, minmax_scan

SIZES = [1 << 16, pytest.param(1 << 31, marks=pytest.mark.slow)]  # numbers of elements; 32 bits do not count the last


def reordered(a: Tensor, dim: int, other: int) -> Tensor:
    """The same values with two dimensions the other way round in memory."""
    return a.transpose(dim, other).contiguous().transpose(dim, other)


def every_second(a: Tensor, dim: int) -> Tensor:
    """The same values with NaN between any two along a dimension, as of ``[::2]``."""
    return torch.stack([a, torch.full_like(a, torch.nan)], dim + 1).select(dim + 1, 0)


def part(a: Tensor, dim: int) -> Tensor:
    """The same values as a part of a tensor that goes on with NaN at both ends of a dimension."""
    nan = torch.full_like(a, torch.nan)
    return torch.cat([nan, a, nan], dim).narrow(dim, a.shape[dim], a.shape[dim])


def far_apart(a: Tensor, dim: int, elements: int) -> Tensor:
    """The same values with `elements` between the ends of a dimension, in memory that is mostly never touched."""
    strides, gaps = list(a.stride()), a.shape[dim] - 1
    strides[dim] = a.numel() + elements // gaps
    return a.new_empty(strides[dim] * gaps + a.numel()).as_strided(a.shape, strides).copy_(a)


LAYOUTS = {
    "time before the batch": lambda a: reordered(a, 0, 1),
    "units before time": lambda a: reordered(a, 1, 2),
    "the innermost outermost": lambda a: reordered(a, 0, -1),
    "one row for all": lambda a: a[:1].expand_as(a),
    "one step for all": lambda a: a[:, :1].expand_as(a),
    "one unit for all": lambda a: a[:, :, :1].expand_as(a),
    "every second step": lambda a: every_second(a, 1),
    "every second unit": lambda a: every_second(a, 2),
    "a part of longer sequences": lambda a: part(a, 1),
    "a part of wider rows": lambda a: part(a, 2),
}


@every_fast_backend
@pytest.mark.parametrize("degree", [0, 1, 4])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_gives_the_bits_of_contiguous_inputs_and_nothing_around_them_is_read(backend, degree, layout):
    scan, (r, s, state, x0) = inputs_of(degree, 3, 65, 8, torch.float32, 0.0)
    up_x, up_last = torch.randn_like(s), torch.randn_like(state)
    flags = [(torch.rand(65, 3) < share).T for share in (0.8, 0.1)]
    lay = LAYOUTS[layout]
    assert not lay(r).is_contiguous()
    starts = reordered(state, 0, -1), part(x0, 1)
    for given in (
        (lay(r), s, *starts, up_x, every_second(up_last, 1)),
        (r, lay(s), *starts, lay(up_x), reordered(up_last, 0, -1)),
    ):
        before = [a.clone() for a in given]
        actual = outcome(scan, given[:4], flags, backend, given[4:])
        plain = [a.contiguous() for a in given]
        expected = outcome(scan, plain[:4], [a.contiguous() for a in flags], backend, plain[4:])
        for a, e in zip(itertools.chain(*actual), itertools.chain(*expected), strict=True):
            assert bool(a.isfinite().all())
            assert_same(a, e)
        for a, e in zip(given, before, strict=True):
            assert torch.equal(a, e), "an input was modified"


def check_far_apart(degree: int, dim: int, elements: int, backend: str, device: str = "cpu") -> None:
    """Inputs that are spread over `elements` in memory along a dimension give what contiguous ones do."""
    scan, inputs = inputs_of(degree, 2, 3, 5, torch.bfloat16, 0.0)
    r, s, *starts = (a.to(device) for a in inputs)
    far = [far_apart(a, dim, elements) for a in (r, s)]
    assert all(a.stride(dim) * (a.shape[dim] - 1) >= elements for a in far)
    actual, expected = (outcome(scan, (*steps, *starts), (None, None), backend) for steps in (far, (r, s)))
    for a, e in zip(itertools.chain(*actual), itertools.chain(*expected), strict=True):
        assert_same(a, e)


@every_fast_backend
@pytest.mark.parametrize("degree", [0, 2])
@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("elements", SIZES)
def test_inputs_may_lie_further_apart_than_32_bits_count(backend, degree, dim, elements):
    check_far_apart(degree, dim, elements, backend)


def windows(rows: int, time: int, *unit: int, device: str) -> Tensor:
    """[B, T, *unit] numbers in the memory of one line of them: every step sees it moved on by one."""
    width = math.prod(unit)
    line = torch.randn(rows * time + width - 1, device=device).bfloat16()
    return line.unfold(0, width, 1).unflatten(1, unit).unflatten(0, (rows, time))


def check_many(
    degree: int, long: bool, elements: int, backend: str, device: str = "cpu", *, gradients: bool = True
) -> None:
    """The end of the last row is that of the loop, behind more than `elements` values of x, or of the gradient of R.

    These are one long row, or many rows of 64 steps.
    """
    scan, unit = (minmax_scan, (512,)) if degree == 0 else (minmax_matrix_scan, (512 // degree**2, degree))
    steps = elements // 512 + 64
    rows, time = (1, steps) if long else (steps // 64 + 1, 64)
    inputs = [windows(rows, time, *shape, device=device) for shape in ((*unit, *unit[1:]), unit)]
    leaves = [a.requires_grad_(gradients) for a in inputs]
    tails = [a.detach()[-1:, -32:].requires_grad_(gradients) for a in leaves]
    x, last = scan(*leaves, backend=backend)
    y, end = scan(*tails, x.detach()[-1:, -33].float(), backend="reference")
    assert_same(x[-1:, -32:], y)
    assert_same(last[-1:], end)
    if gradients:
        up = torch.randint(-4, 5, (1, 1, *unit), device=device).bfloat16().expand_as(x)
        up_last = torch.randint_like(last[:1], -4, 5).expand_as(last)
        actual = torch.autograd.grad((x, last), leaves, (up, up_last))
        expected = torch.autograd.grad((y, end), tails, (up[-1:, -32:], up_last[-1:]))
        for a, e in zip(actual, expected, strict=True):
            torch.testing.assert_close(a[-1:, -32:], e, rtol=0, atol=TOLERANCE[torch.bfloat16])


@pytest.mark.parametrize(("backend", "long"), [("cpu", True), ("cpu", False), ("torch", True)])
@pytest.mark.parametrize("elements", SIZES)
def test_more_states_than_32_bits_count_are_those_of_the_loop(backend, long, elements):
    check_many(0, long, elements, backend, gradients=False)


@pytest.mark.parametrize("long", [True, False])
@pytest.mark.parametrize("elements", SIZES)
def test_more_gradients_than_32_bits_count_are_those_of_the_loop(long, elements):
    """Of R, which has n times as many values as the states have: all of it fits into 6 GiB."""
    check_many(4, long, elements, "cpu")
