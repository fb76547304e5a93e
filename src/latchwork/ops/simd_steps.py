"""The arithmetic of a step and of its gradient on LLVM vectors: what the compiled kernels do in registers.

A scalar unit is one lane of r, s and x. Vector units of degree n stand side by side: the value of row i, column k of
unit p's reset matrix is in lane (p, i, k), as it lies in memory; states, set values and gradients have lanes (p, i).

Maxima over k are taken by rotating lanes within a row: after shifts of 1, 2, 4, … every lane has the maximum of its
row, for any n, since max may count an operand twice. Gradients are float64.
"""

from __future__ import annotations

from llvmlite import ir

_INT32 = ir.IntType(32)


def step(builder, n: int, r, s, x):
    """max(min(r, x), s), or (R ⊗ x) ⊕ s for n > 1; NaN wins."""
    if n > 1:
        reached = _products(builder, n, r, x)[1]
        return _max(builder, _pick(builder, n, reached, row=1, column=0), s)
    # One minimum, one maximum and one blend on the chain from state to state. Both return their second operand where
    # one is NaN, so a NaN of x stays; a NaN of r or s is put in at the end.
    meet = builder.select(builder.fcmp_ordered("<", r, x), r, x)
    join = builder.select(builder.fcmp_ordered(">", s, meet), s, meet)
    return builder.select(builder.fcmp_unordered("uno", r, s), _nan(s.type), join)


def step_backward(builder, n: int, r, s, x, g):
    """Gradients (of x, of r, of s) of `step` for the upstream gradient g in float64; active operands share evenly.

    That of x is float64, the others are rounded to the type of r and s.
    """
    if n > 1:
        to_x, to_r, to_s = _matrix_backward(builder, n, r, s, x, g)
        return to_x, narrow(builder, to_r, r.type), narrow(builder, to_s, s.type)
    meet = builder.select(builder.fcmp_ordered("<", r, x), r, x)
    meet = builder.select(_is_nan(builder, r), r, meet)
    to_meet, to_s = _share(builder, meet, s, builder.fcmp_unordered("ugt", meet, s), g)
    to_x, to_r = _share(builder, x, r, builder.fcmp_unordered("ult", x, r), to_meet)
    return to_x, narrow(builder, to_r, r.type), narrow(builder, to_s, s.type)


def step_backward_of_numbers(builder, r, s, x, g):
    """`step_backward` of scalar units where nothing is NaN."""
    rounded = narrow(builder, g, r.type)
    zero, wide_zero = ir.Constant(r.type, None), ir.Constant(g.type, None)
    meet = builder.select(builder.fcmp_ordered("<", r, x), r, x)
    s_loses, s_ties = builder.fcmp_ordered(">=", meet, s), builder.fcmp_ordered("==", meet, s)
    r_wins, r_ties = builder.fcmp_ordered("<", r, x), builder.fcmp_ordered("==", r, x)
    to_s = _halved(builder, s_ties, rounded, builder.select(s_loses, zero, rounded))
    to_meet = _halved(builder, s_ties, rounded, builder.select(s_loses, rounded, zero))
    to_r = _halved(builder, r_ties, to_meet, builder.select(r_wins, to_meet, zero))
    to_x = builder.select(builder.and_(s_loses, builder.not_(r_wins)), g, wide_zero)
    to_x = _halved(builder, s_ties, to_x, to_x)
    to_x = _halved(builder, r_ties, to_x, to_x)
    return to_x, to_r, to_s


def _halved(builder, ties, value, otherwise):
    """Half of `value` at ties."""
    return builder.select(ties, builder.fmul(value, ir.Constant(value.type, [0.5] * value.type.count)), otherwise)


def narrow(builder, value, kind: ir.VectorType):
    """A float64 vector rounded to `kind`."""
    return value if value.type == kind else builder.fptrunc(value, kind)


def some_nan(builder, r, s, x):
    """Whether any lane of a scalar step's operands is NaN, one bit."""
    lanes = builder.or_(builder.fcmp_unordered("uno", r, s), _is_nan(builder, x))
    bits = ir.IntType(lanes.type.count)
    return builder.icmp_unsigned("!=", builder.bitcast(lanes, bits), ir.Constant(bits, 0))


def _matrix_backward(builder, n: int, r, s, x, g):
    lanes = s.type.count
    product, reached = _products(builder, n, r, x)
    over_k = [i for i in range(lanes) for _ in range(n)]
    set_, upstream = _shuffle(builder, s, over_k), _shuffle(builder, g, over_k)
    to_meet, to_s = _share(builder, reached, set_, builder.fcmp_unordered("ugt", reached, set_), upstream)
    both_nan = builder.and_(_is_nan(builder, product), _is_nan(builder, reached))
    active = builder.or_(builder.fcmp_ordered("==", product, reached), both_nan)
    one, zero = ir.Constant(upstream.type, [1.0] * upstream.type.count), ir.Constant(upstream.type, None)
    count = _sum(builder, n, builder.select(active, one, zero), rows=0, columns=1)
    part = builder.select(active, builder.fdiv(to_meet, count), zero)
    state = _over_rows(builder, n, x)
    to_x, to_r = _share(builder, state, r, builder.fcmp_unordered("ult", state, r), part)
    over_rows = _sum(builder, n, to_x, rows=1, columns=0)
    return _pick(builder, n, over_rows, row=0, column=1), to_r, _pick(builder, n, to_s, row=1, column=0)


def _over_rows(builder, n: int, x):
    """Lane (p, i, k) of the result is lane (p, k) of x."""
    return _shuffle(builder, x, [p * n + k for p in range(x.type.count // n) for _ in range(n) for k in range(n)])


def _products(builder, n: int, r, x):
    """min(R[i, k], x[k]) in every lane, and its maximum over k in every lane of the row."""
    product = reached = _min(builder, r, _over_rows(builder, n, x))
    shift = 1
    while shift < n:
        reached = _max(builder, reached, _rotate(builder, n, reached, rows=0, columns=shift))
        shift *= 2
    return product, reached


def _sum(builder, n: int, value, *, rows: int, columns: int):
    """In every lane the sum over all rotations by (rows, columns)."""
    total = value
    for j in range(1, n):
        total = builder.fadd(total, _rotate(builder, n, value, rows=rows * j, columns=columns * j))
    return total


def _rotate(builder, n: int, value, *, rows: int, columns: int):
    """Lane (p, i, k) takes what lane (p, i + rows, k + columns) has, modulo n."""
    places = [(p, i, k) for p in range(value.type.count // n**2) for i in range(n) for k in range(n)]
    return _shuffle(builder, value, [(p * n + (i + rows) % n) * n + (k + columns) % n for p, i, k in places])


def _pick(builder, n: int, value, *, row: int, column: int):
    """Lanes (p, i, 0) of a matrix with ``row=1``, lanes (p, 0, i) with ``column=1``."""
    units = value.type.count // n**2
    return _shuffle(builder, value, [(p * n + i * row) * n + i * column for p in range(units) for i in range(n)])


def _shuffle(builder, value, lanes: list[int]):
    undefined = ir.Constant(value.type, ir.Undefined)
    return builder.shuffle_vector(value, undefined, ir.Constant(ir.VectorType(_INT32, len(lanes)), lanes))


def _share(builder, a, b, a_wins_or_nan, g):
    """Split g between a and b: all to the winner, NaN beats numbers, half to each at a tie and to two NaN.

    `a_wins_or_nan` is true where a wins or either is NaN.
    """
    nan_a, nan_b = _is_nan(builder, a), _is_nan(builder, b)
    equal = builder.or_(builder.fcmp_ordered("==", a, b), builder.and_(nan_a, nan_b))
    to_a = builder.and_(a_wins_or_nan, builder.not_(nan_b))
    half, zero = builder.fmul(g, ir.Constant(g.type, [0.5] * g.type.count)), ir.Constant(g.type, None)
    share_a = builder.select(equal, half, builder.select(to_a, g, zero))
    share_b = builder.select(equal, half, builder.select(to_a, zero, g))
    return share_a, share_b


def _is_nan(builder, a):
    return builder.fcmp_unordered("uno", a, a)


def _nan(kind: ir.VectorType):
    return ir.Constant(kind, [float("nan")] * kind.count)


def _min(builder, a, b):
    smaller = builder.select(builder.fcmp_ordered("<", a, b), a, b)
    return builder.select(builder.fcmp_unordered("uno", a, b), _nan(a.type), smaller)


def _max(builder, a, b):
    larger = builder.select(builder.fcmp_ordered(">", a, b), a, b)
    return builder.select(builder.fcmp_unordered("uno", a, b), _nan(a.type), larger)
