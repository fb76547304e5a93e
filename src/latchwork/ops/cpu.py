"""The scan on a CPU: one pass over memory forward, one backward, compiled by numba at first use.

Time goes step by step with the states of a group of units in registers, a few steps at a time so that memory is
read in order. Groups and rows do not interact and are shared among the threads: the bits cannot depend on their
number. Gradients are carried in float64, so a float32 gradient is rounded once. Compiled code is cached on disk by
numba's rules: beside this file, else in the user's cache folder, or where `NUMBA_CACHE_DIR` says; without a folder
that can be written it is compiled in each process.

Notation: B batch, T time, D units. A *group* is a few columns (see `latchwork.ops.simd`); a *tile* is the work that
one thread takes at a time: some groups of one row, for all of time; a *block* is some steps of a tile.
"""

from __future__ import annotations

import ctypes
import functools
from itertools import count
from typing import Any, NamedTuple

import torch
from numba import cfunc, float32, float64, int64, types, uint8, void
from numba.core.ccallback import CFunc
from torch import Tensor

from latchwork.ops import team
from latchwork.ops.simd import LANES, add, as_pointer, fetch_add, load, place, step, step_backward, store, zeros

# The fields of the block of int64 that a kernel gets: sizes, then addresses and their strides in elements.
_field = count()
NEXT, TILES, ROW_TILES, TILE_GROUPS, GROUPS, BLOCK, T, D = (next(_field) for _ in range(8))
R, R_B, R_T, S, S_B, S_T, START, START_B, X0, X0_B, MASK, RESET, X = (next(_field) for _ in range(13))
LAST, CARRY = (X + 1, X + 2)  # of the forward kernel
_field = count(X + 1)  # of the backward kernel
GX, GX_B, GX_T, GLAST, GR, GS, GSTART, GX0, CARRY_G, CARRY_GX0 = (next(_field) for _ in range(10))

_SMALL = 1 << 14  # elements below which waking a second thread costs more than it saves
_BLOCK_ELEMENTS = 1 << 15  # of r, s and x each that a block reads or writes: all of them fit the second-level cache
_FORWARD_COLUMNS, _BACKWARD_COLUMNS = (8, 4, 3, 2, 1), (4, 3, 2, 1)  # sizes of a group


def minmax_scan(
    r: Tensor, s: Tensor, state: Tensor, x0: Tensor, mask: Tensor | None, reset: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Scalar units; arguments and results as in `latchwork.ops.reference.minmax_scan`, float32 or float64."""
    r, s, state, x0 = _rows(r), _rows(s), _rows(state), _rows(x0)
    x, last = torch.empty(r.shape, dtype=r.dtype), torch.empty(state.shape, dtype=r.dtype)
    if last.numel() == 0:
        return x, last
    plan = _plan(r, _FORWARD_COLUMNS)
    carry = plan.carry(LANES, r.dtype)
    plan.run(
        _forward(r.dtype, plan.columns, plan.units < LANES),
        r,
        s,
        state,
        x0,
        mask,
        reset,
        x,
        last.data_ptr(),
        address(carry),
    )
    return x, last


def minmax_scan_backward(
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
    """Gradients of r, s [B, T, D], state and x0 [B, D], from those of x [B, T, D] and last [B, D]."""
    r, s, state, x0 = _rows(r), _rows(s), _rows(state), _rows(x0)
    grad_x, grad_last, x = _rows(grad_x), grad_last.contiguous(), x.contiguous()
    grad_r, grad_s = torch.empty(r.shape, dtype=r.dtype), torch.empty(r.shape, dtype=r.dtype)
    grad_state, grad_x0 = torch.empty(state.shape, dtype=r.dtype), torch.empty(state.shape, dtype=r.dtype)
    if grad_state.numel() == 0:
        return grad_r, grad_s, grad_state, grad_x0
    plan = _plan(r, _BACKWARD_COLUMNS)
    carry, carry_x0 = plan.carry(LANES, torch.float64), plan.carry(LANES, torch.float64)
    gradients = (grad_last, grad_r, grad_s, grad_state, grad_x0)
    addresses = [grad_x.data_ptr(), grad_x.stride(0), grad_x.stride(1), *(a.data_ptr() for a in gradients)]
    plan.run(
        _backward(r.dtype, plan.columns, plan.units < LANES),
        r,
        s,
        state,
        x0,
        mask,
        reset,
        x,
        *addresses,
        address(carry),
        address(carry_x0),
    )
    return grad_r, grad_s, grad_state, grad_x0


def _rows(a: Tensor) -> Tensor:
    """`a` with neighbouring units beside each other; other dimensions may have any stride."""
    return a if a.stride(-1) == 1 else a.contiguous()


def address(a: Tensor | None) -> int:
    return 0 if a is None else a.data_ptr()


class Plan(NamedTuple):
    """How the work on [rows, time, units] is cut: columns in a group, groups in a row and a tile, steps in a block."""

    rows: int
    time: int
    units: int
    threads: int
    columns: int
    groups: int
    tile_groups: int
    block: int

    def carry(self, lanes: int, dtype: torch.dtype) -> Tensor | None:
        """Room for the states between blocks, if there is more than one; a column has `lanes` states."""
        if self.time <= self.block:
            return None
        return torch.empty(self.rows, self.groups * self.columns * lanes, dtype=dtype)

    def run(self, kernel: Any, r, s, state, x0, mask, reset, x, *more: int) -> None:
        """Call a kernel with this plan, these tensors and the addresses and strides that it has of its own."""
        row_tiles = -(-self.groups // self.tile_groups)
        tiles = self.rows * row_tiles
        fields = (
            *(0, tiles, row_tiles, self.tile_groups, self.groups, self.block, self.time, self.units),
            *(r.data_ptr(), r.stride(0), r.stride(1), s.data_ptr(), s.stride(0), s.stride(1)),
            *(state.data_ptr(), state.stride(0), x0.data_ptr(), x0.stride(0)),
            *(address(mask), address(reset), x.data_ptr(), *more),
        )
        block = (ctypes.c_int64 * len(fields))(*fields)
        team.run(kernel.address, block, min(self.threads, tiles))


def make_plan(rows: int, time: int, units: int, columns: int, step_elements: int, sizes: tuple[int, ...]) -> Plan:
    """Cut `columns` columns into groups of one of `sizes`; a step reads `step_elements` elements of r in a row."""
    threads = 1 if rows * time * step_elements < _SMALL else team.size()
    # the largest group that the columns fill and that leaves work for every thread
    size = next((n for n in sizes if n <= columns and rows * -(-columns // n) >= threads), 1)
    groups = -(-columns // size)
    row_tiles = 1 if rows >= 2 * threads or rows == threads else min(groups, 4 * threads)
    tile_groups = max(1, -(-groups // max(1, row_tiles)))
    return Plan(rows, time, units, threads, size, groups, tile_groups, max(8, _BLOCK_ELEMENTS // max(1, step_elements)))


def _plan(r: Tensor, sizes: tuple[int, ...]) -> Plan:
    rows, time, units = r.shape
    return make_plan(rows, time, units, -(-units // LANES), units, sizes)


def _forward_body(real, columns, short):
    width = columns * LANES

    def forward(a):
        r, s, x = as_pointer(a[R], real), as_pointer(a[S], real), as_pointer(a[X], real)
        start, x0, last = as_pointer(a[START], real), as_pointer(a[X0], real), as_pointer(a[LAST], real)
        mask, reset, carry = as_pointer(a[MASK], uint8), as_pointer(a[RESET], uint8), as_pointer(a[CARRY], real)
        time, units, r_time, s_time = a[T], a[D], a[R_T], a[S_T]
        masked, resets = a[MASK] != 0, a[RESET] != 0
        while True:
            tile = fetch_add(a, int64(1))
            if tile >= a[TILES]:
                break
            row = tile // a[ROW_TILES]
            first = (tile - row * a[ROW_TILES]) * a[TILE_GROUPS]
            end = min(first + a[TILE_GROUPS], a[GROUPS])
            for t in range(0, max(time, 1), a[BLOCK]):
                t_end = min(t + a[BLOCK], time)
                for group in range(first, end):
                    at = place(group * width, units, columns, short)
                    kept = place(group * width, a[GROUPS] * width, columns, False)
                    h = load(start, row * a[START_B], at) if t == 0 else load(carry, row * a[GROUPS] * width, kept)
                    r_row, s_row = row * a[R_B] + t * r_time, row * a[S_B] + t * s_time
                    for i in range(row * time + t, row * time + t_end):
                        if resets and reset[i] != 0:
                            h = load(x0, row * a[X0_B], at)
                        if not masked or mask[i] != 0:
                            h = step(load(r, r_row, at), load(s, s_row, at), h)
                        store(x, i * units, at, h)
                        r_row += r_time
                        s_row += s_time
                    if t_end == time:
                        store(last, row * units, at, h)
                    else:
                        store(carry, row * a[GROUPS] * width, kept, h)

    return forward


def _backward_body(real, columns, short):
    width = columns * LANES

    def backward(a):
        r, s, x = as_pointer(a[R], real), as_pointer(a[S], real), as_pointer(a[X], real)
        start, x0, glast = as_pointer(a[START], real), as_pointer(a[X0], real), as_pointer(a[GLAST], real)
        gx, gr, gs = as_pointer(a[GX], real), as_pointer(a[GR], real), as_pointer(a[GS], real)
        gstart, gx0 = as_pointer(a[GSTART], real), as_pointer(a[GX0], real)
        carry, carry_x0 = as_pointer(a[CARRY_G], float64), as_pointer(a[CARRY_GX0], float64)
        mask, reset = as_pointer(a[MASK], uint8), as_pointer(a[RESET], uint8)
        time, units, r_time, s_time, gx_time = a[T], a[D], a[R_T], a[S_T], a[GX_T]
        masked, resets = a[MASK] != 0, a[RESET] != 0
        while True:
            tile = fetch_add(a, int64(1))
            if tile >= a[TILES]:
                break
            row = tile // a[ROW_TILES]
            first = (tile - row * a[ROW_TILES]) * a[TILE_GROUPS]
            end = min(first + a[TILE_GROUPS], a[GROUPS])
            for t_end in range(time, min(time, 1) - 1, -a[BLOCK]):
                t = max(t_end - a[BLOCK], 0)
                for group in range(first, end):
                    at = place(group * width, units, columns, short)
                    kept = place(group * width, a[GROUPS] * width, columns, False)
                    kept_row = row * a[GROUPS] * width
                    if t_end == time:
                        g, g_x0 = add(zeros(at), load(glast, row * units, at)), zeros(at)
                    else:
                        g, g_x0 = load(carry, kept_row, kept), load(carry_x0, kept_row, kept)
                    r_row, s_row = row * a[R_B] + t_end * r_time, row * a[S_B] + t_end * s_time
                    gx_row = row * a[GX_B] + t_end * gx_time
                    for i in range(row * time + t_end - 1, row * time + t - 1, -1):
                        r_row -= r_time
                        s_row -= s_time
                        gx_row -= gx_time
                        is_reset = resets and reset[i] != 0
                        g = add(g, load(gx, gx_row, at))
                        if masked and mask[i] == 0:
                            store(gr, i * units, at, zeros(at))
                            store(gs, i * units, at, zeros(at))
                        else:
                            if is_reset:
                                before = load(x0, row * a[X0_B], at)
                            elif i == row * time:
                                before = load(start, row * a[START_B], at)
                            else:
                                before = load(x, (i - 1) * units, at)
                            g, g_r, g_s = step_backward(load(r, r_row, at), load(s, s_row, at), before, g)
                            store(gr, i * units, at, g_r)
                            store(gs, i * units, at, g_s)
                        if is_reset:
                            g, g_x0 = zeros(at), add(g_x0, g)
                    if t == 0:
                        store(gstart, row * units, at, g)
                        store(gx0, row * units, at, g_x0)
                    else:
                        store(carry, kept_row, kept, g)
                        store(carry_x0, kept_row, kept, g_x0)

    return backward


@functools.cache
def _forward(dtype: torch.dtype, columns: int, short: bool) -> CFunc:
    return compiled(_forward_body, dtype, columns, short)


@functools.cache
def _backward(dtype: torch.dtype, columns: int, short: bool) -> CFunc:
    return compiled(_backward_body, dtype, columns, short)


def compiled(body, dtype: torch.dtype, *constants: int) -> CFunc:
    """The machine code of a kernel, from the cache on disk where there is one."""
    function = body(float32 if dtype == torch.float32 else float64, *constants)
    signature = void(types.CPointer(int64))
    try:
        return cfunc(signature, cache=True)(function)
    except (RuntimeError, OSError):  # no folder that can be written: compile for this process only
        return cfunc(signature)(function)
