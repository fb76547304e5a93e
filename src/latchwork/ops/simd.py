"""Registers full of neighbouring units inside numba kernels: what numba lacks to keep states out of memory.

A `Vector` is a few *columns*, each some *lanes* of neighbouring states. A `Place` says where in a row of states they
stand, one beside the other; where they do not fill a row exactly, the last column or the last group overlaps the one
before: the same lanes are computed twice with the same result. Values are computed in float32 or float64; bfloat16 and
float16 are widened when they are read and rounded when they are written. The functions here are called from kernels
only; each acts lane by lane.

Notation: p pointer, row the index of a row's first element, at a Place, v a Vector, n the degree of the units.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import PrimitiveModel
from numba.extending import intrinsic, register_model

from latchwork.ops import simd_steps

_INT16, _INT32, _INT64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)


class Half(types.Type):
    """A number of 16 bits in memory; numba has none on a CPU."""


bfloat16, float16 = Half("bfloat16"), Half("float16")
_IN_MEMORY = {types.float32: ir.FloatType(), types.float64: ir.DoubleType(), bfloat16: _INT16, float16: _INT16}


class Vector(types.Type):
    """Columns of float32 or float64 in registers."""

    def __init__(self, dtype: Any, lanes: int, columns: int) -> None:
        self.dtype, self.lanes, self.columns = dtype, lanes, columns
        super().__init__(name=f"Vector({dtype}, {lanes}, {columns})")

    @property
    def column(self) -> ir.VectorType:
        return ir.VectorType(_IN_MEMORY[self.dtype], self.lanes)


class Place(types.Type):
    """Where in a row the columns stand: the offset of the first, and of the last if that overlaps (`ragged`)."""

    def __init__(self, lanes: int, columns: int, degree: int, ragged: bool) -> None:
        self.lanes, self.columns, self.degree, self.ragged = lanes, columns, degree, ragged
        super().__init__(name=f"Place({lanes}, {columns}, {degree}, {ragged})")


@register_model(Half)
class _HalfModel(PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, _INT16)


@register_model(Vector)
class _VectorModel(PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, ir.ArrayType(kind.column, kind.columns))


@register_model(Place)
class _PlaceModel(PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, ir.ArrayType(_INT64, 2))


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


@intrinsic
def publish(context, pointer, i):
    """Set the int64 pointer[i] to 1; what this thread wrote before is then seen by those that saw it."""

    def generate(context, builder, signature, args):
        address = builder.gep(args[0], [args[1]])
        builder.store_atomic(ir.Constant(_INT64, 1), address, ordering="release", align=8)
        return context.get_dummy_value()

    return types.void(pointer, types.int64), generate


@intrinsic
def is_published(context, pointer, i):
    """Whether another thread has published pointer[i]."""

    def generate(context, builder, signature, args):
        flag = builder.load_atomic(builder.gep(args[0], [args[1]]), ordering="acquire", align=8)
        return builder.icmp_signed("!=", flag, ir.Constant(_INT64, 0))

    return types.boolean(pointer, types.int64), generate


@intrinsic(prefer_literal=True)
def place(context, group, states, lanes, columns, degree, ragged):
    """The place of group number `group` in a row of `states` states; `ragged` if one group holds more than the row."""
    kind = Place(lanes.literal_value, columns.literal_value, degree.literal_value, bool(ragged.literal_value))

    def generate(context, builder, signature, args):
        group, states = args[:2]
        width = ir.Constant(_INT64, kind.columns * kind.lanes)
        first, edge = builder.mul(group, width), builder.sub(states, width)
        first = builder.select(builder.icmp_signed("<", first, edge), first, edge)
        if kind.ragged:
            first = ir.Constant(_INT64, 0)
        result = ir.Constant(context.get_value_type(kind), ir.Undefined)
        result = builder.insert_value(result, first, 0)
        return builder.insert_value(result, builder.sub(states, ir.Constant(_INT64, kind.lanes)), 1)

    return kind(group, states, lanes, columns, degree, ragged), generate


def _loader(reset: bool):
    @intrinsic
    def load(context, p, row, at):
        times = at.degree if reset else 1
        kind = Vector(types.float64 if p.dtype == types.float64 else types.float32, at.lanes * times, at.columns)
        memory = ir.VectorType(_IN_MEMORY[p.dtype], kind.lanes)

        def generate(context, builder, signature, args):
            addresses = _addresses(builder, at, memory, times, args)
            values = [builder.load(address, align=_bytes(p.dtype)) for address in addresses]
            return _collect(builder, kind, [_convert(builder, v, p.dtype, kind.dtype) for v in values])

        return kind(p, types.int64, at), generate

    return load


def _storer(reset: bool):
    @intrinsic
    def store(context, p, row, at, v):
        times = at.degree if reset else 1
        memory = ir.VectorType(_IN_MEMORY[p.dtype], at.lanes * times)

        def generate(context, builder, signature, args):
            values = [_convert(builder, a, v.dtype, p.dtype) for a in _columns(builder, v, args[3])]
            for address, value in zip(_addresses(builder, at, memory, times, args), values, strict=True):
                builder.store(value, address, align=_bytes(p.dtype))
            return context.get_dummy_value()

        return types.void(p, types.int64, at, v), generate

    return store


def _prefetcher(reset: bool):
    @intrinsic(prefer_literal=True)
    def prefetch(context, p, row, at, writes):
        times = at.degree if reset else 1
        memory = ir.VectorType(_IN_MEMORY[p.dtype], at.lanes * times)

        def generate(context, builder, signature, args):
            address_type = ir.IntType(8).as_pointer()
            function_type = ir.FunctionType(ir.VoidType(), [address_type, _INT32, _INT32, _INT32])
            function = cgutils.get_or_insert_function(builder.module, function_type, "llvm.prefetch.p0")
            nearest_cache, data = ir.Constant(_INT32, 3), ir.Constant(_INT32, 1)
            for address in _addresses(builder, at, memory, times, args):
                write = ir.Constant(_INT32, writes.literal_value)
                builder.call(function, [builder.bitcast(address, address_type), write, nearest_cache, data])
            return context.get_dummy_value()

        return types.void(p, types.int64, at, writes), generate

    return prefetch


def _zero_maker(reset: bool):
    @intrinsic
    def zeros(context, at):
        kind = Vector(types.float64, at.lanes * (at.degree if reset else 1), at.columns)

        def generate(context, builder, signature, args):
            return ir.Constant(context.get_value_type(kind), None)

        return kind(at), generate

    return zeros


# Read, write, ask for in advance (to be read with 0, to be written with 1), or make float64 zeros: states at their
# place, and the n reset values that belong to each of them.
load, load_reset = _loader(False), _loader(True)
store, store_reset = _storer(False), _storer(True)
prefetch, prefetch_reset = _prefetcher(False), _prefetcher(True)
zeros, zeros_reset = _zero_maker(False), _zero_maker(True)


@intrinsic
def add(context, a, b):
    """a + b in float64."""
    kind = Vector(types.float64, a.lanes, a.columns)

    def generate(context, builder, signature, args):
        pairs = zip(_columns(builder, a, args[0]), _columns(builder, b, args[1]), strict=True)
        wide = [
            (_convert(builder, x, a.dtype, kind.dtype), _convert(builder, y, b.dtype, kind.dtype)) for x, y in pairs
        ]
        return _collect(builder, kind, [builder.fadd(x, y) for x, y in wide])

    return kind(a, b), generate


@intrinsic
def step(context, r, s, x):
    """The states after a step."""
    degree = r.lanes // x.lanes

    def generate(context, builder, signature, args):
        rows = _rows(builder, (r, s, x), args)

        def after(careful: bool):
            return [_collect(builder, x, [simd_steps.step(builder, degree, *row, careful=careful) for row in rows])]

        if degree == 1:
            return after(True)[0]
        return _careful_if(builder, [row[0] for row in rows] + [row[2] for row in rows], after)[0]

    return x(r, s, x), generate


@intrinsic
def meet(context, a, b):
    """min(a, b) for the reset part of two scalar steps; where either is NaN their set part is, too, and decides."""

    def generate(context, builder, signature, args):
        pairs = zip(_columns(builder, a, args[0]), _columns(builder, b, args[1]), strict=True)
        return _collect(builder, a, [builder.select(builder.fcmp_ordered("<", x, y), x, y) for x, y in pairs])

    return a(a, b), generate


@intrinsic
def step_backward(context, r, s, x, g):
    """Gradients (of x in float64, of r, of s) of `step` for the upstream gradient g in float64."""
    degree = r.lanes // x.lanes

    def generate(context, builder, signature, args):
        rows = _rows(builder, (r, s, x, g), args)

        def gradients(careful: bool):
            columns = [simd_steps.step_backward(builder, degree, *row, careful=careful) for row in rows]
            return [_collect(builder, k, c) for k, c in zip((g, r, s), zip(*columns, strict=True), strict=True)]

        operands = [operand for row in rows for operand in row[:3]]
        return context.make_tuple(builder, signature.return_type, _careful_if(builder, operands, gradients))

    return types.Tuple((g, r, s))(r, s, x, g), generate


def _rows(builder, kinds, args) -> list[tuple]:
    """The columns of several vectors, side by side."""
    return list(zip(*(_columns(builder, k, a) for k, a in zip(kinds, args, strict=True)), strict=True))


def _careful_if(builder, operands, compute):
    """The values of ``compute(careful)``: careful where any lane of the operands is NaN."""
    with builder.if_else(simd_steps.any_nan(builder, *operands), likely=False) as (then, otherwise):
        with then:
            rarely, rare_block = compute(True), builder.block
        with otherwise:
            usually, usual_block = compute(False), builder.block
    results = []
    for left, right in zip(rarely, usually, strict=True):
        result = builder.phi(left.type)
        result.add_incoming(left, rare_block)
        result.add_incoming(right, usual_block)
        results.append(result)
    return results


def _bytes(dtype: Any) -> int:
    return 2 if isinstance(dtype, Half) else dtype.bitwidth // 8


def _columns(builder, kind: Vector, value):
    return [builder.extract_value(value, k) for k in range(kind.columns)]


def _collect(builder, kind: Vector, columns):
    result = ir.Constant(ir.ArrayType(kind.column, kind.columns), ir.Undefined)
    for k, column in enumerate(columns):
        result = builder.insert_value(result, column, k)
    return result


def _addresses(builder, at: Place, memory: ir.VectorType, times: int, args):
    """Pointers to the columns in a row that has `times` values for each state; args begin with p, row, at."""
    pointer, row, place_ = args[:3]

    def start(which: int):
        offset = builder.mul(builder.extract_value(place_, which), ir.Constant(_INT64, times))
        return builder.gep(pointer, [builder.add(row, offset)])

    first = start(0)
    for k in range(at.columns):
        overlaps = at.ragged and k == at.columns - 1
        address = start(1) if overlaps else builder.gep(first, [ir.Constant(_INT64, k * at.lanes * times)])
        yield builder.bitcast(address, memory.as_pointer())


def _convert(builder, value, source: Any, target: Any):
    """A vector of one type as another; halves are exact when widened and rounded to nearest even when narrowed."""
    if source == target:
        return value
    lanes = value.type.count
    single, half = ir.VectorType(ir.FloatType(), lanes), ir.VectorType(ir.HalfType(), lanes)
    bits = ir.VectorType(_INT32, lanes)
    if source == types.float64:
        return _convert(builder, builder.fptrunc(value, single), types.float32, target)
    if target == types.float64:
        return builder.fpext(_convert(builder, value, source, types.float32), ir.VectorType(ir.DoubleType(), lanes))
    if source == float16:
        return builder.fpext(builder.bitcast(value, half), single)
    if target == float16:
        return builder.bitcast(builder.fptrunc(value, half), ir.VectorType(_INT16, lanes))

    def constant(number: int):
        return ir.Constant(bits, [number] * lanes)

    if source == bfloat16:
        return builder.bitcast(builder.shl(builder.zext(value, bits), constant(16)), single)
    whole = builder.bitcast(value, bits)
    odd = builder.and_(builder.lshr(whole, constant(16)), constant(1))
    rounded = builder.add(builder.add(whole, constant(0x7FFF)), odd)
    quiet = builder.or_(whole, constant(0x400000))
    chosen = builder.select(builder.fcmp_unordered("uno", value, value), quiet, rounded)
    return builder.trunc(builder.lshr(chosen, constant(16)), ir.VectorType(_INT16, lanes))
