"""The arithmetic of a step and of its gradient on LLVM vectors: what the compiled kernels do in registers.

A scalar unit is one lane of r, s and x. Vector units of degree n stand side by side: the value of row i, column k of
unit p's reset matrix is in lane (p, i, k), as it lies in memory; states, set values and gradients have lanes (p, i).

NaN is rare and most of the comparisons are there for it: functions with `careful` false expect numbers only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from llvmlite import ir

_INT32 = ir.IntType(32)


def step(builder, n: int, r, s, x, *, careful: bool):
    """max(min(r, x), s), or (R ⊗ x) ⊕ s for n > 1; NaN wins. For scalar units it is always careful."""
    if n > 1:
        return _max(builder, _reached(builder, n, _products(builder, n, r, x, careful), careful), s)
    # One minimum, one maximum and one blend on the chain from state to state. Both return their second operand where
    # one is NaN, so a NaN of x stays; a NaN of r or s is put in at the end.
    join = _larger(builder, s, _smaller(builder, r, x))
    return builder.select(builder.fcmp_unordered("uno", r, s), _nan(s.type), join)


def step_backward(builder, n: int, r, s, x, g, *, careful: bool):
    """Gradients (of x, of r, of s) of `step` for the upstream gradient g in float64; active operands share evenly.

    That of x is float64, the others are rounded to the type of r and s.
    """
    rounded, zero, wide_zero = _narrow(builder, g, s.type), ir.Constant(r.type, None), ir.Constant(g.type, None)
    if n == 1:
        meet = _min(builder, r, x) if careful else _smaller(builder, r, x)
        meets, ties = _contest(builder, ">=", meet, s, careful)
        keeps, x_ties = _contest(builder, "<=", x, r, careful)
        to_x = builder.select(builder.and_(meets, keeps), g, wide_zero)
        to_x = _halved(builder, x_ties, _halved(builder, ties, to_x))
        to_r = _to_second(builder, keeps, x_ties, _to_first(builder, meets, ties, rounded))
        return to_x, to_r, _to_second(builder, meets, ties, rounded)
    products = _products(builder, n, r, x, careful)
    reached = _reached(builder, n, products, careful)
    meets, ties = _contest(builder, ">=", reached, s, careful)
    over_k = _over_columns(builder, n, reached)
    active = builder.fcmp_ordered("==", products, over_k)
    if careful:
        active = builder.or_(active, builder.and_(_is_nan(builder, products), _is_nan(builder, over_k)))
    count = _sum(builder, n, builder.select(active, ir.Constant(r.type, [1.0] * r.type.count), zero), rows=False)
    part = builder.fdiv(_to_first(builder, meets, ties, g), _widen(builder, count, g.type))
    keeps, x_ties = _contest(builder, "<=", _over_rows(builder, n, x), r, careful)
    wide = _over_columns(builder, n, part)
    to_x = builder.select(builder.and_(active, keeps), wide, ir.Constant(wide.type, None))
    to_x = _sum(builder, n, _halved(builder, x_ties, to_x), rows=True)
    to_r = builder.select(active, _over_columns(builder, n, _narrow(builder, part, s.type)), zero)
    return to_x, _to_second(builder, keeps, x_ties, to_r), _to_second(builder, meets, ties, rounded)


def any_nan(builder, *values):
    """Whether any lane of any of these vectors is NaN, one bit."""
    found = ir.Constant(ir.IntType(1), 0)
    for kind in {str(a.type): a.type for a in values}.values():
        alike = [a for a in values if a.type == kind]
        pairs = zip(alike[::2], [*alike[1::2], alike[-1]][: len(alike[::2])], strict=True)
        lanes = functools.reduce(builder.or_, [builder.fcmp_unordered("uno", a, b) for a, b in pairs])
        bits = builder.bitcast(lanes, ir.IntType(kind.count))
        found = builder.or_(found, builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0)))
    return found


def _narrow(builder, value, kind: ir.VectorType):
    """A float64 vector rounded to `kind`."""
    return value if value.type == kind else builder.fptrunc(value, kind)


def _widen(builder, value, kind: ir.VectorType):
    return value if value.type == kind else builder.fpext(value, kind)


# Between two operands a and b of a minimum or maximum: `keeps` says where a wins or ties, `ties` where both are active.


def _contest(builder, compare: str, a, b, careful: bool):
    keeps, ties = builder.fcmp_ordered(compare, a, b), builder.fcmp_ordered("==", a, b)
    if careful:  # NaN beats numbers, and two NaN tie
        nan_a, nan_b = _is_nan(builder, a), _is_nan(builder, b)
        return builder.or_(keeps, nan_a), builder.or_(ties, builder.and_(nan_a, nan_b))
    return keeps, ties


def _to_first(builder, keeps, ties, g):
    return _halved(builder, ties, builder.select(keeps, g, ir.Constant(g.type, None)))


def _to_second(builder, keeps, ties, g):
    return builder.select(ties, _halved(builder, ties, g), builder.select(keeps, ir.Constant(g.type, None), g))


def _halved(builder, where, value):
    half = builder.fmul(value, ir.Constant(value.type, [0.5] * value.type.count))
    return builder.select(where, half, value)


# Matrices.


def _over_rows(builder, n: int, x):
    """Lane (p, i, k) of the result is lane (p, k) of x."""
    return _shuffle(builder, x, [p * n + k for p in range(x.type.count // n) for _ in range(n) for k in range(n)])


def _over_columns(builder, n: int, x):
    """Lane (p, i, k) of the result is lane (p, i) of x."""
    return _shuffle(builder, x, [i for i in range(x.type.count) for _ in range(n)])


def _products(builder, n: int, r, x, careful: bool):
    """min(R[i, k], x[k])."""
    return (_min if careful else _smaller)(builder, r, _over_rows(builder, n, x))


def _reached(builder, n: int, products, careful: bool):
    """The maximum over k, in lanes (p, i)."""
    return _fold(builder, n, products, _max if careful else _larger, rows=False, overlap=True)


def _sum(builder, n: int, value, *, rows: bool):
    """The sum over the rows, in lanes (p, k), or over the columns, in lanes (p, i)."""
    return _fold(builder, n, value, lambda builder, a, b: builder.fadd(a, b), rows=rows, overlap=False)


def _fold(builder, n: int, value, combine: Callable, *, rows: bool, overlap: bool):
    """Combine the rows or the columns of every matrix, half with half.

    Where their number is odd, the one in the middle meets itself (`overlap`, for a maximum) or zero.
    """
    units, left = value.type.count // n**2, n
    while left > 1:
        half = (left + 1) // 2
        first, second = [], []
        for p in range(units):
            for i in range(half if rows else n):
                for k in range(n if rows else half):

                    def lane(shift: int, p=p, i=i, k=k, left=left) -> int:
                        return (p * left + i + shift) * n + k if rows else (p * n + i) * left + k + shift

                    has_partner = (i if rows else k) + half < left
                    first.append(lane(0))
                    second.append(lane(left - half if overlap else half) if overlap or has_partner else None)
        value, left = combine(builder, _shuffle(builder, value, first), _shuffle(builder, value, second)), half
    return value


def _shuffle(builder, value, lanes: list):
    """These lanes of a vector; None is a zero."""
    chosen = [value.type.count if lane is None else lane for lane in lanes]
    zeros = ir.Constant(value.type, None)
    return builder.shuffle_vector(value, zeros, ir.Constant(ir.VectorType(_INT32, len(lanes)), chosen))


# Minima and maxima.


def _is_nan(builder, a):
    return builder.fcmp_unordered("uno", a, a)


def _nan(kind: ir.VectorType):
    return ir.Constant(kind, [float("nan")] * kind.count)


def _smaller(builder, a, b):
    """The minimum of numbers; b where either is NaN."""
    return builder.select(builder.fcmp_ordered("<", a, b), a, b)


def _larger(builder, a, b):
    """The maximum of numbers; b where either is NaN."""
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _min(builder, a, b):
    """The minimum; NaN wins."""
    return builder.select(builder.fcmp_unordered("uno", a, b), _nan(a.type), _smaller(builder, a, b))


def _max(builder, a, b):
    """The maximum; NaN wins."""
    return builder.select(builder.fcmp_unordered("uno", a, b), _nan(a.type), _larger(builder, a, b))
