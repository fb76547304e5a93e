"""Vector units inside numba kernels: reset matrices and states of a few units side by side in registers.

A `Matrix` holds the n × n values of P units, lane (p, i, k) of row i and column k of unit p, as they lie in memory; a
`Row` holds the n values of P units, lane (p, i). Maxima over k are taken by rotating lanes within a row: after shifts
of 1, 2, 4, … every lane has the maximum of its row, for any n, since max may count an operand twice. The functions
here are called from kernels only.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.datamodel import PrimitiveModel
from numba.extending import intrinsic, register_model

from latchwork.ops.simd import is_nan, share

_INT32 = ir.IntType(32)
_REAL = {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}


class Row(types.Type):
    """The states (or set values, or gradients) of P units of degree n."""

    per_unit = 1

    def __init__(self, dtype: Any, degree: int, units: int) -> None:
        self.dtype, self.degree, self.units = dtype, degree, units
        super().__init__(name=f"{type(self).__name__}({dtype}, {degree}, {units})")

    @property
    def lanes(self) -> int:
        return self.units * self.degree

    @property
    def llvm(self) -> ir.VectorType:
        return ir.VectorType(_REAL[self.dtype], self.lanes)

    def like(self, kind: type[Row], dtype: Any = None) -> Any:
        """The row or matrix type for the same units."""
        return kind(self.dtype if dtype is None else dtype, self.degree, self.units)


class Matrix(Row):
    """The reset matrices of P units of degree n."""

    @property
    def lanes(self) -> int:
        return self.units * self.degree**2


@register_model(Row)
@register_model(Matrix)
class _Model(PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, kind.llvm)


def _loader(kind_of: type[Row]):
    @intrinsic(prefer_literal=True)
    def load(context, p, i, degree, units):
        kind = kind_of(p.dtype, degree.literal_value, units.literal_value)

        def generate(context, builder, signature, args):
            pointer = builder.bitcast(builder.gep(args[0], [args[1]]), kind.llvm.as_pointer())
            return builder.load(pointer, align=p.dtype.bitwidth // 8)

        return kind(p, types.int64, degree, units), generate

    return load


load_row, load_matrix = _loader(Row), _loader(Matrix)


@intrinsic
def store(context, p, i, v):
    """Write a row or a matrix from p[i] on, in the type that p points to."""
    kind = v.like(type(v), p.dtype)

    def generate(context, builder, signature, args):
        pointer = builder.bitcast(builder.gep(args[0], [args[1]]), kind.llvm.as_pointer())
        builder.store(_convert(builder, args[2], v, kind), pointer, align=p.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(p, types.int64, v), generate


@intrinsic(prefer_literal=True)
def zeros(context, degree, units):
    """A row of float64 zeros."""
    kind = Row(types.float64, degree.literal_value, units.literal_value)

    def generate(context, builder, signature, args):
        return ir.Constant(kind.llvm, None)

    return kind(degree, units), generate


@intrinsic
def add(context, a, b):
    """a + b in float64, rows or matrices."""
    kind = a.like(type(a), types.float64)

    def generate(context, builder, signature, args):
        return builder.fadd(_convert(builder, args[0], a, kind), _convert(builder, args[1], b, kind))

    return kind(a, b), generate


@intrinsic
def step(context, r, s, x):
    """(R ⊗ x) ⊕ s: row i is max(max_k min(R[i, k], x[k]), s[i]); NaN wins."""

    def generate(context, builder, signature, args):
        matrix, s_, x_ = args
        _, reached = _products(builder, x, matrix, x_)
        return _max(builder, _pick(builder, x, reached, 0, 1), s_)

    return x(r, s, x), generate


@intrinsic
def step_backward(context, r, s, x, g):
    """Gradients (of x, of R, of s) in float64 of `step` for the upstream gradient g, a float64 row.

    Each gradient goes to the active operands; ties share evenly, and so do NaN.
    """
    wide = r.like(Matrix, types.float64)

    def generate(context, builder, signature, args):
        matrix, s_, x_, g_ = args
        n, p = x.degree, x.units
        over_k = [i for i in range(p * n) for _ in range(n)]
        product, reached = _products(builder, x, matrix, x_)
        set_, upstream = _shuffle(builder, s_, over_k), _shuffle(builder, g_, over_k)
        to_meet, to_s = share(builder, reached, set_, builder.fcmp_unordered("ugt", reached, set_), upstream)
        both_nan = builder.and_(is_nan(builder, product), is_nan(builder, reached))
        active = builder.or_(builder.fcmp_ordered("==", product, reached), both_nan)
        one, zero = ir.Constant(wide.llvm, [1.0] * wide.lanes), ir.Constant(wide.llvm, None)
        count = _sum(builder, x, builder.select(active, one, zero), rows=0, columns=1)
        part = builder.select(active, builder.fdiv(to_meet, count), zero)
        state = _shuffle(builder, x_, _columns_of(x))
        to_x, to_r = share(builder, state, matrix, builder.fcmp_unordered("ult", state, matrix), part)
        over_rows = _sum(builder, x, to_x, rows=1, columns=0)
        return context.make_tuple(
            builder,
            signature.return_type,
            [_pick(builder, x, over_rows, 1, 0), to_r, _pick(builder, x, to_s, 0, 1)],
        )

    return types.Tuple((g, wide, g))(r, s, x, g), generate


def _columns_of(x: Row) -> list[int]:
    """For lane (p, i, k) of a matrix the lane (p, k) of a row."""
    return [p * x.degree + k for p in range(x.units) for _ in range(x.degree) for k in range(x.degree)]


def _products(builder, x: Row, matrix, state):
    """min(R[i, k], x[k]) in every lane, and its maximum over k in every lane of the row."""
    product = reached = _min(builder, matrix, _shuffle(builder, state, _columns_of(x)))
    shift = 1
    while shift < x.degree:
        reached = _max(builder, reached, _rotate(builder, x, reached, rows=0, columns=shift))
        shift *= 2
    return product, reached


def _sum(builder, x: Row, value, *, rows: int, columns: int):
    """In every lane the sum over all rotations by (rows, columns)."""
    total = value
    for j in range(1, x.degree):
        total = builder.fadd(total, _rotate(builder, x, value, rows=rows * j, columns=columns * j))
    return total


def _rotate(builder, x: Row, value, *, rows: int, columns: int):
    """Lane (p, i, k) takes what lane (p, i + rows, k + columns) has, modulo n."""
    n = x.degree
    places = [(p, i, k) for p in range(x.units) for i in range(n) for k in range(n)]
    return _shuffle(builder, value, [(p * n + (i + rows) % n) * n + (k + columns) % n for p, i, k in places])


def _pick(builder, x: Row, value, column: int, row: int):
    """A row from lanes (p, i, 0) of a matrix with ``row=1``, from lanes (p, 0, k) with ``column=1``."""
    n = x.degree
    return _shuffle(builder, value, [(p * n + i * row) * n + i * column for p in range(x.units) for i in range(n)])


def _shuffle(builder, value, lanes: list[int]):
    undefined = ir.Constant(value.type, ir.Undefined)
    return builder.shuffle_vector(value, undefined, ir.Constant(ir.VectorType(_INT32, len(lanes)), lanes))


def _convert(builder, value, source: Row, target: Row):
    if source.dtype == target.dtype:
        return value
    cast = builder.fpext if target.dtype.bitwidth > source.dtype.bitwidth else builder.fptrunc
    return cast(value, target.llvm)


def _nan(kind: ir.VectorType):
    return ir.Constant(kind, [float("nan")] * kind.count)


def _min(builder, a, b):
    smaller = builder.select(builder.fcmp_ordered("<", a, b), a, b)
    return builder.select(builder.fcmp_unordered("uno", a, b), _nan(a.type), smaller)


def _max(builder, a, b):
    larger = builder.select(builder.fcmp_ordered(">", a, b), a, b)
    return builder.select(builder.fcmp_unordered("uno", a, b), _nan(a.type), larger)
