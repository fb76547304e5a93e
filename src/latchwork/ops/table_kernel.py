"""The kernel of `latchwork.ops.table`, as numba compiles it: a thread takes a word at a time and follows it.

It gets the address of a block of int64: what is to be done next, B, T, n, then the addresses of what is left of R
(where the entries of each row begin [A·n + 1], their columns, their values), of s [A, n], letters [B, T], the states
before [B, n], x [B, T, n], and the mask [B, T] or 0.
"""

from __future__ import annotations

import torch
from numba import float32, float64, int64, uint8
from numba.core.ccallback import CFunc

from latchwork.ops import team
from latchwork.ops.simd import as_pointer, fetch_add


def table_kernel(dtype: torch.dtype) -> CFunc:
    """The machine code for states in float32 or float64."""
    real = float64 if dtype == torch.float64 else float32
    return team.compiled(_body(real), real)


def _body(real):
    def table(a):
        batch, time, n = a[1], a[2], a[3]
        begins, columns, values = as_pointer(a[4], int64), as_pointer(a[5], int64), as_pointer(a[6], real)
        sets, letters = as_pointer(a[7], real), as_pointer(a[8], int64)
        start, x, mask = as_pointer(a[9], real), as_pointer(a[10], real), as_pointer(a[11], uint8)
        while True:
            row = fetch_add(a, int64(1))
            if row >= batch:
                break
            for t in range(time):
                at = row * time + t
                new, old = at * n, (at - 1) * n
                kept = a[11] != 0 and mask[at] == 0
                first = letters[at] * n
                for i in range(n):
                    if kept:
                        joined = start[row * n + i] if t == 0 else x[old + i]
                    else:
                        joined = sets[first + i]
                        for entry in range(begins[first + i], begins[first + i + 1]):
                            k = columns[entry]
                            before = start[row * n + k] if t == 0 else x[old + k]
                            met = values[entry] if values[entry] < before else before
                            joined = met if met > joined else joined
                    x[new + i] = joined

    return table
