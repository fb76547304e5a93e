"""The (max, min) algebra: what every scan, compiler and proof in this package is built from.

Scalars are the extended reals with join ``a ⊕ b = max(a, b)`` and meet ``a ⊙ b = min(a, b)``. No operation
rounds: every result is a copy of one of its inputs. A *step* is the pair ``(r, s)`` that maps a state ``x`` to
``(r ⊙ x) ⊕ s``; for vector units of degree n it is ``(R, s)`` with ``R`` a matrix and ``x -> (R ⊗ x) ⊕ s``.

Gradients go to the active operand; ties share evenly, and so do two NaN. Source: arXiv 2605.06384, §3.
"""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor

Step: TypeAlias = "tuple[Tensor, Tensor]"

__all__ = ["Step", "apply", "compose", "identity", "join", "matmul", "meet"]


def join(a: Tensor, b: Tensor) -> Tensor:
    """Elementwise maximum ``a ⊕ b``; NaN wins.

    Arguments: a, b [...] broadcastable tensors of one dtype.
    Returns: [...] the larger operand. Its gradient goes to the larger operand, half to each at a tie.
    """
    return _nan_takes_gradient(a, b, torch.maximum(a, b))


def meet(a: Tensor, b: Tensor) -> Tensor:
    """Elementwise minimum ``a ⊙ b``; NaN wins.

    Arguments: a, b [...] broadcastable tensors of one dtype.
    Returns: [...] the smaller operand. Its gradient goes to the smaller operand, half to each at a tie.
    """
    return _nan_takes_gradient(a, b, torch.minimum(a, b))


def _nan_takes_gradient(a: Tensor, b: Tensor, result: Tensor) -> Tensor:
    """Same values as `result`, with gradient weights that sum to 1 also where an operand is NaN.

    `torch.maximum` and `torch.minimum` hand the *whole* gradient to both operands there.
    """
    nan_a, nan_b = torch.isnan(a), torch.isnan(b)
    result = torch.where(nan_a, a, torch.where(nan_b, b, result))
    return torch.where(nan_a & nan_b, 0.5 * a + 0.5 * b, result)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Matrix product of the algebra, ``(A ⊗ B)[i, j] = max_k min(A[i, k], B[k, j])``.

    Arguments: a [..., i, k], b [..., k, j].
    Returns: [..., i, j]. NaN wins. Ties over k share the gradient evenly, and so do NaN.
    """
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(
            f"matmul needs a [..., i, k] and b [..., k, j] with one k, got {tuple(a.shape)} and {tuple(b.shape)}"
        )
    products = meet(a.unsqueeze(-1), b.unsqueeze(-3))
    nan = torch.isnan(products)
    count = nan.sum(dim=-2)
    largest = products.masked_fill(nan, -torch.inf).amax(dim=-2)
    poisoned = torch.where(nan, products, 0).sum(dim=-2) / count.clamp(min=1)  # as `amax`, whose gradient is NaN there
    return torch.where(count > 0, poisoned, largest)


def apply(step: Step, x: Tensor) -> Tensor:
    """The state after one step: ``(r ⊙ x) ⊕ s``, or ``(R ⊗ x) ⊕ s`` for vector units.

    Arguments: step (r [..., D], s [..., D]) with x [..., D]; or (R [..., n, n], s [..., n]) with x [..., n].
    """
    r, s = step
    if _is_vector(step):
        return join(matmul(r, x.unsqueeze(-1)).squeeze(-1), s)
    return join(meet(r, x), s)


def compose(first: Step, second: Step) -> Step:
    """The one step that does `first`, then `second`. Associative, not commutative.

    Arguments: two steps of one kind, see `apply`.
    Returns: ``(min(r1, r2), max(min(r2, s1), s2))``, or ``(R2 ⊗ R1, (R2 ⊗ s1) ⊕ s2)`` for vector units.
    """
    r1, s1 = first
    r2, _ = second
    r = matmul(r2, r1) if _is_vector(second) else meet(r1, r2)
    return r, apply(second, s1)


def identity(*shape: int, vector: bool = False, dtype: torch.dtype | None = None, device=None) -> Step:
    """The step that keeps every state: r = +inf, s = −inf (vector: +inf on the diagonal of R, −inf off it).

    Arguments: shape of s, ending in D, or in the degree n with ``vector=True``.
    """
    s = torch.full(shape, -torch.inf, dtype=dtype, device=device)
    if not vector:
        return -s, s
    eye = torch.eye(shape[-1], dtype=torch.bool, device=device)
    return torch.where(eye, torch.inf, s.unsqueeze(-1).expand(*shape, shape[-1])), s


def _is_vector(step: Step) -> bool:
    r, s = step
    if r.ndim == s.ndim + 1:
        return True
    if r.ndim == s.ndim:
        return False
    raise ValueError(
        "a step is (r, s) of one shape, or (R, s) with one more dimension in R, "
        f"got {tuple(r.shape)} and {tuple(s.shape)}"
    )
