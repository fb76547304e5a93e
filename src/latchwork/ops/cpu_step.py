# mypy: no-check-untyped-defs
# numba types the kernel.
"""One token through a network of vectors on a CPU: a kernel that runs a list of instructions, compiled by numba.

One token is little arithmetic: a model of 130,000 weights needs 10 µs, and PyTorch takes twenty times as long to start
the operations. So a caller writes down once what is to be done (`Instruction`) and the kernel does all of it in one
call. Threads go through the list together: they claim tiles of an instruction's rows by a counter and wait for each
other only until all of its tiles are done. One thread alone finishes everything, so it does not matter how many come,
and a row is computed in one piece, so the bits do not depend on their number.

Notation: a *slot* is a place in the table of addresses that comes with each call; every vector and matrix is a slot.
"""

from __future__ import annotations

import ctypes
import functools
import math
from array import array
from collections.abc import Sequence
from itertools import count
from typing import Any, NamedTuple

from llvmlite import ir
from numba import float32, int64, njit, types
from numba.extending import intrinsic

from latchwork.ops import team
from latchwork.ops.simd import as_pointer, fetch_add

_code = count()
# What an instruction does; out, x, y, z are vectors of `rows` elements where nothing else is said.
LINEAR, PROJECT = next(_code), next(_code)  # out = y·x + z and out = y·x, with a matrix y [rows, columns]
LAYER_NORM, RMS_NORM = next(_code), next(_code)  # out = norm(x)⊙y + z and out = norm(x)⊙y, with the usual epsilons
COPY, ADD, MULTIPLY = next(_code), next(_code), next(_code)  # out = x, x + y, x⊙y
JOIN = next(_code)  # out = [x, y] with x [columns]
LERP = next(_code)  # out = x + z⊙(y − x)
UPDATE = next(_code)  # out = max(min(x, z), y): reset x, set y, state z
RELU, GELU, SILU, TANH, SIGMOID = (next(_code) for _ in range(5))  # out = activation(x)

LAYER_NORM_EPSILON = 1e-5
"""As `torch.nn.LayerNorm` has it."""
RMS_NORM_EPSILON = 2.0**-23
"""As `torch.nn.RMSNorm` has it in float32."""


class Instruction(NamedTuple):
    """What to do with which slots; `out` must not be `x` of a product or norm."""

    code: int
    rows: int
    columns: int
    out: int
    x: int
    y: int
    z: int


# The block of int64 that the kernel gets: where the program is, its length, where two counters for each instruction
# are (tiles claimed, tiles done; all start at 0), and the table.
_PROGRAM, _LENGTH, _COUNTERS, _TABLE = range(4)
_WIDTH = len(Instruction._fields)
_TILE_WEIGHTS = 1 << 14  # that a thread claims at a time
_TILE_ROWS = 128  # of an instruction without weights
_SMALL = 1 << 20  # weights below which waking a second thread costs more than it saves


class Program:
    """Instructions as the kernel reads them."""

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        self._length = len(instructions)
        self._fields = (ctypes.c_int64 * (_WIDTH * self._length))(*(field for i in instructions for field in i))
        self._large = sum(i.rows * i.columns for i in instructions if i.code in (LINEAR, PROJECT)) >= _SMALL

    def run(self, table: Sequence[int]) -> None:
        """Do it, with the addresses of the slots. What is written must be shared with no other call at this time."""
        counters = (ctypes.c_int64 * (2 * self._length))()
        fields = array("q", (ctypes.addressof(self._fields), self._length, ctypes.addressof(counters), *table))
        block = (ctypes.c_int64 * len(fields)).from_buffer(fields)  # filled by `array` in a third of the time
        team.run(_kernel().address, block, team.size() if self._large else 1)


@intrinsic
def _arrive(context, counter):
    """Add 1 to a counter, after all that this thread has written."""

    def generate(context, builder, signature, args):
        builder.atomic_rmw("add", args[0], ir.Constant(ir.IntType(64), 1), "release")
        return context.get_dummy_value()

    return types.void(counter), generate


@intrinsic
def _read(context, counter):
    """A counter as other threads see it; what they wrote before is there as well."""

    def generate(context, builder, signature, args):
        return builder.load_atomic(args[0], "acquire", 8)

    return types.int64(counter), generate


# Sums may be taken in any order, which lets the compiler keep them in vector registers. Nothing else is relaxed: NaN
# and infinities are as IEEE has them.
_sums = njit(fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")
_plain = njit(error_model="numpy")


@_sums
def _dot(matrix, first, x, columns):
    total = float32(0)
    for j in range(columns):
        total += matrix[first + j] * x[j]
    return total


# In float64: where values hardly differ, the norm multiplies what their mean has lost by 300.


@_sums
def _mean(x, n):
    total = 0.0
    for i in range(n):
        total += x[i]
    return total / n


@_sums
def _mean_square(x, centre, n):
    total = 0.0
    for i in range(n):
        total += (x[i] - centre) * (x[i] - centre)
    return total / n


@_plain
def _sigmoid(x):
    return float32(1) / (float32(1) + math.exp(-x))


@_plain
def _lerp(x, y, weight):
    # from the nearer end, so that a weight of 1 gives y exactly
    return x + weight * (y - x) if weight < float32(0.5) else y - (y - x) * (float32(1) - weight)


@_plain
def _update(r, s, state):
    meet = state if state < r or state != state else r
    return s if s > meet or s != s else meet


@_plain
def _activate(code, x):
    if code == RELU:
        return float32(0) if x < float32(0) else x
    if code == GELU:
        return float32(0.5) * x * (float32(1) + math.erf(x * float32(math.sqrt(0.5))))
    if code == SILU:
        return x / (float32(1) + math.exp(-x))
    if code == TANH:
        return math.tanh(x)
    return _sigmoid(x)


@_plain
def _rows(code, first, end, columns, out, x, y, z):
    """The rows first … end − 1 of one instruction."""
    if code == LINEAR:
        for i in range(first, end):
            out[i] = _dot(y, i * columns, x, columns) + z[i]
    elif code == PROJECT:
        for i in range(first, end):
            out[i] = _dot(y, i * columns, x, columns)
    elif code == LAYER_NORM:
        centre = _mean(x, end)
        scale = 1.0 / math.sqrt(_mean_square(x, centre, end) + LAYER_NORM_EPSILON)
        for i in range(end):
            out[i] = (x[i] - centre) * scale * y[i] + z[i]
    elif code == RMS_NORM:
        scale = 1.0 / math.sqrt(_mean_square(x, 0.0, end) + RMS_NORM_EPSILON)
        for i in range(end):
            out[i] = x[i] * scale * y[i]
    elif code == COPY:
        for i in range(first, end):
            out[i] = x[i]
    elif code == ADD:
        for i in range(first, end):
            out[i] = x[i] + y[i]
    elif code == MULTIPLY:
        for i in range(first, end):
            out[i] = x[i] * y[i]
    elif code == JOIN:
        for i in range(first, end):
            out[i] = x[i] if i < columns else y[i - columns]
    elif code == LERP:
        for i in range(first, end):
            out[i] = _lerp(x[i], y[i], z[i])
    elif code == UPDATE:
        for i in range(first, end):
            out[i] = _update(x[i], y[i], z[i])
    else:
        for i in range(first, end):
            out[i] = _activate(code, x[i])


@_plain
def _tile_rows(code, rows, columns):
    """How many rows a thread claims at a time; a norm needs all of them."""
    if code in (LINEAR, PROJECT):
        return max(int64(1), _TILE_WEIGHTS // columns)
    return rows if code in (LAYER_NORM, RMS_NORM) else int64(_TILE_ROWS)


def _run(a):
    program = as_pointer(a[_PROGRAM], int64)
    for i in range(a[_LENGTH]):
        at = i * _WIDTH
        code, rows, columns = program[at], program[at + 1], program[at + 2]
        out, x = as_pointer(a[_TABLE + program[at + 3]], float32), as_pointer(a[_TABLE + program[at + 4]], float32)
        y, z = as_pointer(a[_TABLE + program[at + 5]], float32), as_pointer(a[_TABLE + program[at + 6]], float32)
        claimed = as_pointer(a[_COUNTERS] + 16 * i, int64)
        done = as_pointer(a[_COUNTERS] + 16 * i + 8, int64)
        size = _tile_rows(code, rows, columns)
        tiles = (rows + size - 1) // size
        while True:
            tile = fetch_add(claimed, int64(1))
            if tile >= tiles:
                break
            _rows(code, tile * size, min((tile + 1) * size, rows), columns, out, x, y, z)
            _arrive(done)
        while _read(done) < tiles:
            pass


@functools.cache
def _kernel() -> Any:
    return team.compiled(_run)
