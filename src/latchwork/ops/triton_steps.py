"""What the Triton kernels share: the algebra, the weights of gradients, and handing values on between programs."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def meet(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def join(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def share(a, b, a_wins):
    """1 where a wins, ½ at a tie, else 0; NaN beats numbers and two NaN tie."""
    nan_a, nan_b = a != a, b != b
    tie = (a == b) | (nan_a & nan_b)
    return tl.where(tie, 0.5, tl.where((a_wins & (nan_b == 0)) | nan_a, 1.0, 0.0))


@triton.jit
def times(weight, g):
    """weight · g, where a weight of zero takes nothing of an infinite gradient either."""
    return tl.where(weight == 0, 0.0, weight.to(g.dtype) * g)


@triton.jit
def is_real(mask, at, inside):
    """Whether the step `at` of all rows is there and not masked."""
    real = inside
    if mask is not None:
        real = tl.load(mask + at, mask=inside, other=0) != 0
    return real


@triton.jit
def hand_on(pointers, a):
    """Every NaN becomes the same one, which is not the one that says that nothing was handed on."""
    a = tl.where(a != a, float("nan"), a)
    tl.store(pointers, a.to(pointers.dtype.element_ty, bitcast=True))


@triton.jit
def receive(pointers, dtype: tl.constexpr):
    bits = tl.load(pointers, volatile=True)
    while tl.max((bits == -1).to(tl.int32), axis=0) != 0:
        bits = tl.load(pointers, volatile=True)
    return bits.to(dtype, bitcast=True)
