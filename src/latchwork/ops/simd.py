"""Registers full of neighbouring units inside numba kernels: what numba lacks to keep states out of memory.

A *column* is LANES neighbouring units, one AVX-512 register of float32 (LLVM maps it to what the machine has). A
`Vector` is a group of columns; a `Place` says where in a row of D units they stand. When D is not a multiple of
LANES the last columns overlap: the same lanes are computed twice with the same result. When D < LANES there is one
column and a mask. The functions here are called from kernels only; each acts lane by lane.

Notation: p pointer, i index of an element, at a Place, v a Vector.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import PrimitiveModel
from numba.extending import intrinsic, register_model

LANES = 16
_INT32, _INT64 = ir.IntType(32), ir.IntType(64)
_MASK = ir.VectorType(ir.IntType(1), LANES)
_REAL = {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}


class Vector(types.Type):
    """Columns of one real type; a numba type that lives in registers."""

    def __init__(self, dtype: Any, columns: int) -> None:
        self.dtype, self.columns = dtype, columns
        super().__init__(name=f"Vector({dtype}, {columns})")

    @property
    def column(self) -> ir.VectorType:
        return ir.VectorType(_REAL[self.dtype], LANES)

    @property
    def bytes(self) -> int:
        return self.dtype.bitwidth // 8


class Place(types.Type):
    """Where in a row the columns stand: an offset for each, and which lanes exist if the row is short."""

    def __init__(self, columns: int, short: bool) -> None:
        self.columns, self.short = columns, short
        super().__init__(name=f"Place({columns}, {short})")


@register_model(Vector)
class _VectorModel(PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, ir.ArrayType(kind.column, kind.columns))


@register_model(Place)
class _PlaceModel(PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, ir.LiteralStructType([ir.ArrayType(_INT64, kind.columns), _MASK]))


@intrinsic
def as_pointer(context, address, dtype):
    """The pointer to `dtype` at an address given as an integer."""
    pointer = types.CPointer(dtype.instance_type)

    def generate(context, builder, signature, args):
        return builder.inttoptr(args[0], context.get_value_type(pointer))

    return pointer(types.int64, dtype), generate


@intrinsic
def fetch_add(context, pointer, amount):
    """Add to an int64 in memory in one atomic step and return what it was before."""

    def generate(context, builder, signature, args):
        return builder.atomic_rmw("add", args[0], args[1], "monotonic")

    return types.int64(pointer, types.int64), generate


@intrinsic(prefer_literal=True)
def place(context, first, units, columns, short):
    """The place of `columns` columns from unit `first` on in a row of `units`; `short` says that units < LANES."""
    kind = Place(columns.literal_value, bool(short.literal_value))

    def generate(context, builder, signature, args):
        first, units = args[:2]
        result = ir.Constant(context.get_value_type(kind), ir.Undefined)
        edge = builder.sub(units, ir.Constant(_INT64, LANES))
        for k in range(kind.columns):
            offset = builder.add(first, ir.Constant(_INT64, k * LANES))
            if kind.short:
                offset = ir.Constant(_INT64, 0)
            else:
                offset = builder.select(builder.icmp_signed("<", offset, edge), offset, edge)
            result = builder.insert_value(result, offset, (0, k))
        return builder.insert_value(result, _lanes_below(builder, units), 1)

    return kind(first, units, columns, short), generate


@intrinsic
def load(context, p, i, at):
    """The columns at `at` of the row that starts at p[i]."""
    kind = Vector(p.dtype, at.columns)

    def generate(context, builder, signature, args):
        zeros, alignment = ir.Constant(kind.column, None), ir.Constant(_INT32, kind.bytes)

        def read(address):
            if at.short:
                arguments = [address, alignment, builder.extract_value(args[2], 1), zeros]
                return _masked(builder, kind, "load", kind.column, arguments)
            return builder.load(address, align=kind.bytes)

        return _collect(builder, kind, [read(a) for a in _addresses(builder, kind, args)])

    return kind(p, types.int64, at), generate


@intrinsic
def store(context, p, i, at, v):
    """Write the columns to the row that starts at p[i]."""
    kind = Vector(p.dtype, at.columns)

    def generate(context, builder, signature, args):
        values = [_convert(builder, a, v, kind) for a in _columns(builder, v, args[3])]
        for address, value in zip(_addresses(builder, kind, args), values, strict=True):
            if at.short:
                alignment = ir.Constant(_INT32, kind.bytes)
                arguments = [value, address, alignment, builder.extract_value(args[2], 1)]
                _masked(builder, kind, "store", ir.VoidType(), arguments)
            else:
                builder.store(value, address, align=kind.bytes)
        return context.get_dummy_value()

    return types.void(p, types.int64, at, v), generate


@intrinsic
def zeros(context, at):
    """Float64 zeros."""
    kind = Vector(types.float64, at.columns)

    def generate(context, builder, signature, args):
        return ir.Constant(context.get_value_type(kind), None)

    return kind(at), generate


@intrinsic
def add(context, a, b):
    """a + b in float64."""
    kind = Vector(types.float64, a.columns)

    def generate(context, builder, signature, args):
        pairs = zip(_columns(builder, a, args[0]), _columns(builder, b, args[1]), strict=True)
        sums = [builder.fadd(_convert(builder, x, a, kind), _convert(builder, y, b, kind)) for x, y in pairs]
        return _collect(builder, kind, sums)

    return kind(a, b), generate


@intrinsic
def step(context, r, s, x):
    """max(min(r, x), s); NaN wins."""

    def generate(context, builder, signature, args):
        rows = zip(*(_columns(builder, x, a) for a in args), strict=True)
        return _collect(builder, x, [_step(builder, *row) for row in rows])

    return x(r, s, x), generate


@intrinsic
def step_backward(context, r, s, x, g):
    """Gradients (of x, of r, of s) in float64 of ``max(min(r, x), s)`` for the upstream gradient g in float64.

    Each gradient goes to the active operand; ties halve, and so do two NaN.
    """

    def generate(context, builder, signature, args):
        kinds = (r, s, x, g)
        rows = zip(*(_columns(builder, k, a) for k, a in zip(kinds, args, strict=True)), strict=True)
        gradients = zip(*(_step_backward(builder, *row) for row in rows), strict=True)
        vectors = [_collect(builder, g, columns) for columns in gradients]
        return context.make_tuple(builder, signature.return_type, vectors)

    return types.UniTuple(g, 3)(r, s, x, g), generate


def _columns(builder, kind: Vector, value):
    return [builder.extract_value(value, k) for k in range(kind.columns)]


def _collect(builder, kind: Vector, columns):
    result = ir.Constant(ir.ArrayType(kind.column, kind.columns), ir.Undefined)
    for k, column in enumerate(columns):
        result = builder.insert_value(result, column, k)
    return result


def _addresses(builder, kind: Vector, args):
    """Pointers to the columns; args are a pointer, the index where the row starts, and a Place."""
    pointer, row, at = args[:3]
    for k in range(kind.columns):
        index = builder.add(row, builder.extract_value(at, (0, k)))
        yield builder.bitcast(builder.gep(pointer, [index]), kind.column.as_pointer())


def _masked(builder, kind: Vector, name: str, result, arguments):
    """Call llvm.masked.load or llvm.masked.store."""
    function_type = ir.FunctionType(result, [a.type for a in arguments])
    name = f"llvm.masked.{name}.v{LANES}f{kind.dtype.bitwidth}.p0"
    return builder.call(cgutils.get_or_insert_function(builder.module, function_type, name), arguments)


def _lanes_below(builder, n):
    """The mask of the lanes 0 … n − 1."""
    numbers = ir.VectorType(_INT64, LANES)
    undefined = ir.Constant(numbers, ir.Undefined)
    first = builder.insert_element(undefined, n, ir.Constant(_INT32, 0))
    spread = builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_INT32, LANES), [0] * LANES))
    return builder.icmp_signed("<", ir.Constant(numbers, list(range(LANES))), spread)


def _convert(builder, value, source: Vector, target: Vector):
    if source.dtype == target.dtype:
        return value
    cast = builder.fpext if target.bytes > source.bytes else builder.fptrunc
    return cast(value, target.column)


def _step(builder, r, s, x):
    """One minimum, one maximum and one blend on the chain from state to state.

    Both return their second operand where one is NaN, so a NaN of x stays; a NaN of r or s is put in at the end.
    """
    meet = builder.select(builder.fcmp_ordered("<", r, x), r, x)
    join = builder.select(builder.fcmp_ordered(">", s, meet), s, meet)
    return builder.select(builder.fcmp_unordered("uno", r, s), ir.Constant(s.type, [float("nan")] * LANES), join)


def _step_backward(builder, r, s, x, g):
    meet = builder.select(builder.fcmp_ordered("<", r, x), r, x)
    meet = builder.select(is_nan(builder, r), r, meet)
    to_meet, to_s = share(builder, meet, s, builder.fcmp_unordered("ugt", meet, s), g)
    to_x, to_r = share(builder, x, r, builder.fcmp_unordered("ult", x, r), to_meet)
    return to_x, to_r, to_s


def is_nan(builder, a):
    return builder.fcmp_unordered("uno", a, a)


def share(builder, a, b, a_wins_or_nan, g):
    """Split g between a and b: all to the winner, NaN beats numbers, half to each at a tie.

    `a_wins_or_nan` is true where a wins or either is NaN.
    """
    nan_a, nan_b = is_nan(builder, a), is_nan(builder, b)
    equal = builder.or_(builder.fcmp_ordered("==", a, b), builder.and_(nan_a, nan_b))
    to_a = builder.and_(a_wins_or_nan, builder.not_(nan_b))
    half, zero = builder.fmul(g, ir.Constant(g.type, [0.5] * g.type.count)), ir.Constant(g.type, None)
    share_a = builder.select(equal, half, builder.select(to_a, g, zero))
    share_b = builder.select(equal, half, builder.select(to_a, zero, g))
    return share_a, share_b
