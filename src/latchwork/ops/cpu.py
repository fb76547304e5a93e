"""The scan on a CPU: one pass over memory forward, one backward, compiled by numba at first use.

Time goes step by step with the states of a group of units in registers, a few steps at a time so that memory is read
in order. Groups and rows do not interact and are shared among the threads: the bits cannot depend on their number.
Where there are too few of them forward, time is cut into chunks (`chunked_body`). Gradients are carried in float64,
so a float32 gradient is rounded once. Compiled code is cached on disk by numba's rules: beside this file, else in the
user's cache folder, or where `NUMBA_CACHE_DIR` says; without a folder that can be written it is compiled in each
process.

Notation: B batch, T time, D states in a row: scalar units, or the n states of each of U vector units. A *group* is a
few columns of states (see `latchwork.ops.simd`); a *tile* is the work that one thread takes at a time: some groups of
one row, for all of time; a *block* is some steps of a tile.
"""

from __future__ import annotations

import ctypes
import functools
import platform
from array import array
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import llvmlite.binding
import numba
import torch
from numba import float32, float64
from numba.core.ccallback import CFunc
from torch import Tensor

from latchwork.ops import team
from latchwork.ops.cpu_kernels import backward_body, chunked_body, forward_body
from latchwork.ops.simd import bfloat16, float16

_IN_MEMORY = {torch.float32: float32, torch.float64: float64, torch.bfloat16: bfloat16, torch.float16: float16}
_SMALL = 1 << 14  # elements below which waking a second thread costs more than it saves
_BLOCK_ELEMENTS = 1 << 15  # of r, s and x each that a block reads or writes: all of them fit the second-level cache
_SEGMENT_BYTES = 2048  # the part of a step that a thread should have to itself: with less, threads fight over lines
_AHEAD = 16  # steps that the backward kernel asks for in advance where a row is one group: six streams are many
_LANES = 16  # of a column of scalar units: one AVX-512 register of float32 (LLVM maps it to what the machine has)
# How large a group is, enough independent work to hide the latency of a step: columns of scalar units where one group
# holds the row, columns where several do, and matrix values of vector units.
_FORWARD_SIZES, _BACKWARD_SIZES = (8, 2, 128), (5, 2, 64)


def scan(
    r: Tensor,
    s: Tensor,
    state: Tensor,
    x0: Tensor,
    mask: Tensor | None,
    reset: Tensor | None,
    *,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Scalar or vector units; arguments and results as in `latchwork.ops.reference.scan`.

    `out` is a contiguous tensor for x; by default a new one is made.
    """
    if not _in_hardware(r.dtype):
        x, last = scan(r.float(), s.float(), state, x0, mask, reset)
        return (x.to(s.dtype) if out is None else out.copy_(x)), last
    x = _empty(s.shape, s.dtype) if out is None else out
    return x, _forward(r, s, state, x0, mask, reset, x)


def scan_last(r: Tensor, s: Tensor, state: Tensor, x0: Tensor, mask: Tensor | None, reset: Tensor | None) -> Tensor:
    """The last state only, [B, D] or [B, U, n]; no other state is written to memory."""
    if not _in_hardware(r.dtype):
        r, s = r.float(), s.float()
    return _forward(r, s, state, x0, mask, reset, None)


def _forward(r, s, state, x0, mask, reset, x: Tensor | None) -> Tensor:
    states = s.ndim - 2
    r, s, state, x0 = _inner(r, r.ndim - 2), _inner(s, states), _inner(state, states), _inner(x0, states)
    mask, reset = _flags(mask), _flags(reset)
    last = _empty(state.shape, state.dtype)
    if last.numel() == 0:
        return last
    plan = _plan(s, _FORWARD_SIZES)
    flagged = mask is not None or reset is not None
    constants = (r.dtype, plan.lanes, plan.columns, plan.degree, plan.ragged, flagged, x is not None)
    if (chunked := _chunk_plan(plan, r.element_size())) is None:
        kernel, carry, done = _compiled(forward_body, *constants), plan.carry(state.dtype), None
    else:
        plan, kernel = chunked, _compiled(chunked_body, *constants)
        tiles = plan.rows * plan.row_tiles
        carry = _empty((2, tiles, plan.groups * plan.columns * plan.lanes), state.dtype)
        done = _empty((tiles,), torch.int64).zero_()
    plan.run(kernel, r, s, state, x0, mask, reset, x, last.data_ptr(), _address(carry), _address(done))
    return last


def scan_backward(
    grad_x: Tensor,
    grad_last: Tensor,
    r: Tensor,
    s: Tensor,
    state: Tensor,
    x0: Tensor,
    mask: Tensor | None,
    reset: Tensor | None,
    x: Tensor,
    *,
    out: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of r, s, state and x0 from those of x and last; `out` are contiguous tensors for those of r and s."""
    if not (_in_hardware(r.dtype) and _fits(state, r.dtype) and _fits(x0, r.dtype)):
        # x has lost digits of the states that come from `state` and `x0`: do it again with all of them
        r_, s_ = r.float(), s.float()
        x = scan(r_, s_, state, x0, mask, reset)[0]
        out = out or (_empty(r.shape, r.dtype), _empty(s.shape, s.dtype))
        grad_r, grad_s, grad_state, grad_x0 = scan_backward(
            grad_x.float(), grad_last, r_, s_, state, x0, mask, reset, x
        )
        return out[0].copy_(grad_r), out[1].copy_(grad_s), grad_state, grad_x0
    states = s.ndim - 2
    r, s, state, x0 = _inner(r, r.ndim - 2), _inner(s, states), _inner(state, states), _inner(x0, states)
    mask, reset, x = _flags(mask), _flags(reset), x.contiguous()
    grad_x, grad_last = _inner(grad_x, states), _inner(grad_last, grad_last.ndim)
    grad_r, grad_s = out or (_empty(a.shape, a.dtype) for a in (r, s))
    grad_state, grad_x0 = (_empty(state.shape, state.dtype) for _ in range(2))
    if grad_state.numel() == 0:
        return grad_r, grad_s, grad_state, grad_x0
    plan = _plan(s, _BACKWARD_SIZES)
    carry, carry_x0 = plan.carry(torch.float64), plan.carry(torch.float64)
    gradients = (grad_last, grad_r, grad_s, grad_state, grad_x0)
    addresses = [grad_x.data_ptr(), grad_x.stride(0), grad_x.stride(1), *(a.data_ptr() for a in gradients)]
    flagged = mask is not None or reset is not None
    ahead = _AHEAD if plan.groups == 1 else 0
    kernel = _compiled(backward_body, r.dtype, plan.lanes, plan.columns, plan.degree, plan.ragged, flagged, ahead)
    plan.run(kernel, r, s, state, x0, mask, reset, x, *addresses, _address(carry), _address(carry_x0))
    return grad_r, grad_s, grad_state, grad_x0


@functools.cache
def _in_hardware(dtype: torch.dtype) -> bool:
    """Whether the processor that numba compiles for can read numbers of this type; few cannot read float16."""
    if dtype != torch.float16 or platform.machine().lower() not in ("x86_64", "amd64"):
        return True
    config: Any = numba.config
    if config.CPU_NAME or config.CPU_FEATURES is not None:  # chosen by the user: it may be any
        return False
    return bool(llvmlite.binding.get_host_cpu_features().get("f16c"))


def _fits(a: Tensor, dtype: torch.dtype) -> bool:
    """Whether every value of `a` is a number of type `dtype`."""
    return a.dtype == dtype or bool(((a.to(dtype).to(a.dtype) == a) | a.isnan()).all())


def _empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="cpu")  # whatever the default device is


def _flags(flags: Tensor | None) -> Tensor | None:
    return None if flags is None else flags.contiguous()


def _inner(a: Tensor, dimensions: int) -> Tensor:
    """`a` with its last dimensions contiguous; the ones before may have any stride."""
    if a._is_zerotensor():  # autograd's zeros without memory
        a = _empty(a.shape, a.dtype).zero_()
    if a.is_contiguous() and not a.is_neg():
        return a
    a, stride = a.resolve_neg(), 1
    for size, actual in zip(reversed(a.shape[-dimensions:]), reversed(a.stride()[-dimensions:]), strict=True):
        if size != 1 and actual != stride:
            return a.contiguous()
        stride *= size
    return a


def _address(a: Tensor | None) -> int:
    return 0 if a is None else a.data_ptr()


class Plan(NamedTuple):
    """How the work on B rows of D states is cut: lanes in a column, columns in a group, groups in a row and a tile,
    steps in a block."""

    rows: int
    time: int
    states: int
    degree: int
    threads: int
    lanes: int
    columns: int
    ragged: bool
    groups: int
    tile_groups: int
    row_tiles: int
    block: int

    def carry(self, dtype: torch.dtype) -> Tensor:
        """Room for something a state between blocks."""
        return _empty((self.rows, self.groups * self.columns * self.lanes), dtype)

    def run(self, kernel: Any, r, s, state, x0, mask, reset, x, *more: int) -> None:
        """Call a kernel with this plan, these tensors and the addresses and strides that it has of its own."""
        tiles = self.rows * self.row_tiles
        fields = (
            *(0, tiles, self.row_tiles, self.tile_groups, self.groups, self.block, self.time, self.states),
            *(r.data_ptr(), r.stride(0), r.stride(1), s.data_ptr(), s.stride(0), s.stride(1)),
            *(state.data_ptr(), state.stride(0), x0.data_ptr(), x0.stride(0)),
            *(_address(mask), _address(reset), _address(x), *more),
        )
        block = (ctypes.c_int64 * len(fields)).from_buffer(array("q", fields))
        team.run(kernel.address, block, min(self.threads, tiles))


def _plan(s: Tensor, sizes: tuple[int, int, int]) -> Plan:
    rows, time, units, *degree = s.shape
    return _cut(rows, time, units, *(degree or (1,)), team.size(), sizes)


@functools.lru_cache(maxsize=256)
def _cut(rows: int, time: int, units: int, degree: int, threads: int, sizes: tuple[int, int, int]) -> Plan:
    states = units * degree
    if rows * time * states * degree < _SMALL:
        threads = 1

    def largest(candidates: tuple[int, ...], pieces: int) -> int:
        """The largest group that the pieces of a row fill and that leaves work for every thread."""
        return next((n for n in candidates if n <= pieces and rows * -(-pieces // n) >= threads), 1)

    if degree == 1:
        half = states % _LANES == _LANES // 2 and states <= sizes[0] * _LANES // 2  # then no column overlaps
        lanes = min(_LANES // 2 if half else _LANES, 1 << (states.bit_length() - 1))
        pieces = -(-states // lanes)
        columns = largest(tuple(range(sizes[pieces > sizes[0]], 0, -1)), pieces)
    else:
        fit = max(1, sizes[2] // degree**2)
        powers = tuple(n for n in range(fit, 0, -1) if n & (n - 1) == 0 or n == fit)
        lanes, columns = degree * largest(powers, states // degree), 1
    groups = -(-states // (lanes * columns))
    row_tiles = 1 if rows >= 2 * threads or rows == threads else min(groups, threads)
    tile_groups = -(-groups // row_tiles)
    ragged = states < lanes * columns
    row_tiles = -(-groups // tile_groups)
    block = 1 if groups > 1 else max(8, _BLOCK_ELEMENTS // (states * degree))
    return Plan(rows, time, states, degree, threads, lanes, columns, ragged, groups, tile_groups, row_tiles, block)


def _chunk_plan(plan: Plan, element_size: int) -> Plan | None:
    """Chunks of time as tiles and blocks, where rows are so few and short that threads had to share memory's lines."""
    short = plan.states * element_size < _SEGMENT_BYTES * plan.threads
    block = max(8, _BLOCK_ELEMENTS // plan.states)
    chunks = -(-plan.time // block)
    if plan.degree > 1 or plan.threads == 1 or plan.rows >= plan.threads or not short or chunks < 2 * plan.threads:
        return None
    return plan._replace(tile_groups=plan.groups, row_tiles=chunks, block=block)


@functools.cache
def _compiled(body: Callable, dtype: torch.dtype, *constants: int) -> CFunc:
    """A kernel for one type of r and s and one way to cut the work."""
    kernel = body(_IN_MEMORY[dtype], float64 if dtype == torch.float64 else float32, *constants)
    return team.compiled(kernel, body.__name__, str(dtype).removeprefix("torch."), *map(int, constants))
