"""The scan of vector units on a CPU; the plan of the work is that of `latchwork.ops.cpu`.

Notation: B batch, T time, U units of degree n. A *group* is a few units whose matrices fill some registers; where U is
not a multiple of it the last groups overlap and compute the same values twice.
"""

from __future__ import annotations

import functools

import torch
from numba import float64, int64, uint8
from numba.core.ccallback import CFunc
from torch import Tensor

from latchwork.ops.cpu import (
    BLOCK,
    CARRY,
    CARRY_G,
    CARRY_GX0,
    GLAST,
    GR,
    GROUPS,
    GS,
    GSTART,
    GX,
    GX0,
    GX_B,
    GX_T,
    LAST,
    MASK,
    R_B,
    R_T,
    RESET,
    ROW_TILES,
    S_B,
    S_T,
    START,
    START_B,
    TILE_GROUPS,
    TILES,
    X0,
    X0_B,
    D,
    Plan,
    R,
    S,
    T,
    X,
    address,
    compiled,
    make_plan,
)
from latchwork.ops.simd import as_pointer, fetch_add
from latchwork.ops.simd_matrix import add, load_matrix, load_row, step, step_backward, store, zeros

U = D  # the field that counts units
_REGISTER_LANES = 64  # matrix values of a group: enough independent work to hide the latency of a step


def minmax_matrix_scan(
    r: Tensor, s: Tensor, state: Tensor, x0: Tensor, mask: Tensor | None, reset: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Vector units; arguments and results as in `latchwork.ops.reference.minmax_matrix_scan`."""
    r, s, state, x0 = _inner(r, 3), _inner(s, 2), _inner(state, 2), _inner(x0, 2)
    x, last = torch.empty(s.shape, dtype=s.dtype), torch.empty(state.shape, dtype=s.dtype)
    if last.numel() == 0:
        return x, last
    plan, degree = _plan(r), s.shape[-1]
    carry = plan.carry(degree, s.dtype)
    kernel = _forward(s.dtype, degree, plan.columns)
    plan.run(kernel, r, s, state, x0, mask, reset, x, last.data_ptr(), address(carry))
    return x, last


def minmax_matrix_scan_backward(
    grad_x: Tensor,
    grad_last: Tensor,
    r: Tensor,
    s: Tensor,
    state: Tensor,
    x0: Tensor,
    mask: Tensor | None,
    reset: Tensor | None,
    x: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of R, s, state and x0 from those of x [B, T, U, n] and last [B, U, n]."""
    r, s, state, x0 = _inner(r, 3), _inner(s, 2), _inner(state, 2), _inner(x0, 2)
    grad_x, grad_last, x = _inner(grad_x, 2), grad_last.contiguous(), x.contiguous()
    grad_r, grad_s = torch.empty(r.shape, dtype=r.dtype), torch.empty(s.shape, dtype=s.dtype)
    grad_state, grad_x0 = torch.empty(state.shape, dtype=s.dtype), torch.empty(state.shape, dtype=s.dtype)
    if grad_state.numel() == 0:
        return grad_r, grad_s, grad_state, grad_x0
    plan, degree = _plan(r), s.shape[-1]
    carry, carry_x0 = plan.carry(degree, torch.float64), plan.carry(degree, torch.float64)
    gradients = (grad_last, grad_r, grad_s, grad_state, grad_x0)
    addresses = [grad_x.data_ptr(), grad_x.stride(0), grad_x.stride(1), *(a.data_ptr() for a in gradients)]
    kernel = _backward(s.dtype, degree, plan.columns)
    plan.run(kernel, r, s, state, x0, mask, reset, x, *addresses, address(carry), address(carry_x0))
    return grad_r, grad_s, grad_state, grad_x0


def _inner(a: Tensor, dimensions: int) -> Tensor:
    """`a` with its last dimensions contiguous; the ones before may have any stride."""
    stride = 1
    for size, actual in zip(reversed(a.shape[-dimensions:]), reversed(a.stride()[-dimensions:]), strict=True):
        if size != 1 and actual != stride:
            return a.contiguous()
        stride *= size
    return a


def _plan(r: Tensor) -> Plan:
    """The plan; its columns are units here."""
    batch, time, units, degree, _ = r.shape
    fit = max(1, _REGISTER_LANES // degree**2)
    sizes = tuple(n for n in range(fit, 0, -1) if n & (n - 1) == 0 or n == fit)
    return make_plan(batch, time, units, units, units * degree**2, sizes)


def _forward_body(real, n, group):
    width = group * n

    def forward(a):
        r, s, x = as_pointer(a[R], real), as_pointer(a[S], real), as_pointer(a[X], real)
        start, x0, last = as_pointer(a[START], real), as_pointer(a[X0], real), as_pointer(a[LAST], real)
        mask, reset, carry = as_pointer(a[MASK], uint8), as_pointer(a[RESET], uint8), as_pointer(a[CARRY], real)
        time, units, r_time, s_time = a[T], a[U], a[R_T], a[S_T]
        masked, resets, states = a[MASK] != 0, a[RESET] != 0, a[U] * n
        while True:
            tile = fetch_add(a, int64(1))
            if tile >= a[TILES]:
                break
            row = tile // a[ROW_TILES]
            first = (tile - row * a[ROW_TILES]) * a[TILE_GROUPS]
            end = min(first + a[TILE_GROUPS], a[GROUPS])
            for t in range(0, max(time, 1), a[BLOCK]):
                t_end = min(t + a[BLOCK], time)
                for g in range(first, end):
                    unit = min(g * group, units - group)
                    at, kept = unit * n, (row * a[GROUPS] + g) * width
                    h = load_row(start, row * a[START_B] + at, n, group) if t == 0 else load_row(carry, kept, n, group)
                    r_row = row * a[R_B] + t * r_time + at * n
                    s_row = row * a[S_B] + t * s_time + at
                    for i in range(row * time + t, row * time + t_end):
                        if resets and reset[i] != 0:
                            h = load_row(x0, row * a[X0_B] + at, n, group)
                        if not masked or mask[i] != 0:
                            h = step(load_matrix(r, r_row, n, group), load_row(s, s_row, n, group), h)
                        store(x, i * states + at, h)
                        r_row += r_time
                        s_row += s_time
                    if t_end == time:
                        store(last, row * states + at, h)
                    else:
                        store(carry, kept, h)

    return forward


def _backward_body(real, n, group):
    width, area = group * n, group * n * n

    def backward(a):
        r, s, x = as_pointer(a[R], real), as_pointer(a[S], real), as_pointer(a[X], real)
        start, x0, glast = as_pointer(a[START], real), as_pointer(a[X0], real), as_pointer(a[GLAST], real)
        gx, gr, gs = as_pointer(a[GX], real), as_pointer(a[GR], real), as_pointer(a[GS], real)
        gstart, gx0 = as_pointer(a[GSTART], real), as_pointer(a[GX0], real)
        carry, carry_x0 = as_pointer(a[CARRY_G], float64), as_pointer(a[CARRY_GX0], float64)
        mask, reset = as_pointer(a[MASK], uint8), as_pointer(a[RESET], uint8)
        time, units, r_time, s_time, gx_time = a[T], a[U], a[R_T], a[S_T], a[GX_T]
        masked, resets, states = a[MASK] != 0, a[RESET] != 0, a[U] * n
        while True:
            tile = fetch_add(a, int64(1))
            if tile >= a[TILES]:
                break
            row = tile // a[ROW_TILES]
            first = (tile - row * a[ROW_TILES]) * a[TILE_GROUPS]
            end = min(first + a[TILE_GROUPS], a[GROUPS])
            for t_end in range(time, min(time, 1) - 1, -a[BLOCK]):
                t = max(t_end - a[BLOCK], 0)
                for c in range(first, end):
                    unit = min(c * group, units - group)
                    at, kept = unit * n, (row * a[GROUPS] + c) * width
                    if t_end == time:
                        g, g_x0 = add(zeros(n, group), load_row(glast, row * states + at, n, group)), zeros(n, group)
                    else:
                        g, g_x0 = load_row(carry, kept, n, group), load_row(carry_x0, kept, n, group)
                    r_row = row * a[R_B] + t_end * r_time + at * n
                    s_row = row * a[S_B] + t_end * s_time + at
                    gx_row = row * a[GX_B] + t_end * gx_time + at
                    for i in range(row * time + t_end - 1, row * time + t - 1, -1):
                        r_row -= r_time
                        s_row -= s_time
                        gx_row -= gx_time
                        is_reset = resets and reset[i] != 0
                        g = add(g, load_row(gx, gx_row, n, group))
                        here = i * states + at
                        if masked and mask[i] == 0:
                            for j in range(area):
                                gr[here * n + j] = 0.0
                            store(gs, here, zeros(n, group))
                        else:
                            if is_reset:
                                before = load_row(x0, row * a[X0_B] + at, n, group)
                            elif i == row * time:
                                before = load_row(start, row * a[START_B] + at, n, group)
                            else:
                                before = load_row(x, here - states, n, group)
                            matrix, set_ = load_matrix(r, r_row, n, group), load_row(s, s_row, n, group)
                            g, g_r, g_s = step_backward(matrix, set_, before, g)
                            store(gr, here * n, g_r)
                            store(gs, here, g_s)
                        if is_reset:
                            g, g_x0 = zeros(n, group), add(g_x0, g)
                    if t == 0:
                        store(gstart, row * states + at, g)
                        store(gx0, row * states + at, g_x0)
                    else:
                        store(carry, kept, g)
                        store(carry_x0, kept, g_x0)

    return backward


@functools.cache
def _forward(dtype: torch.dtype, degree: int, group: int) -> CFunc:
    return compiled(_forward_body, dtype, degree, group)


@functools.cache
def _backward(dtype: torch.dtype, degree: int, group: int) -> CFunc:
    return compiled(_backward_body, dtype, degree, group)
