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
def share(a, b, best):
    """The share of a in the gradient of `best`, the join or meet of a and b: ½ at a tie; NaN beats numbers."""
    from_a, from_b = (a == best) | (a != a), (b == best) | (b != b)
    return tl.where(from_a, tl.where(from_b, 0.5, 1.0), 0.0)


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
    """Write the bits of `a`; the NaN that says that nothing was handed on becomes another one."""
    bits = a.to(pointers.dtype.element_ty, bitcast=True)
    tl.store(pointers, tl.where(bits == -1, -2, bits))


@triton.jit
def receive(pointers, dtype: tl.constexpr):
    """Wait for what another program hands on."""
    bits = tl.load(pointers, volatile=True)
    while tl.max((bits == -1).to(tl.int32), axis=0) != 0:
        bits = tl.load(pointers, volatile=True)
    return bits.to(dtype, bitcast=True)
