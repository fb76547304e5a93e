"""The specification of the scan: a plain loop over time with autograd. Every backend equals it."""

from __future__ import annotations

import torch
from torch import Tensor

from latchwork.algebra import apply


def minmax_scan(
    r: Tensor, s: Tensor, state: Tensor, x0: Tensor, mask: Tensor | None, reset: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Scalar units, step by step: x_t = max(min(r_t, x_{t−1}), s_t).

    Arguments: r, s [B, T, D]; state [B, D] where the call starts; x0 [B, D] where resets go;
    mask, reset [B, T] bool or None.
    Returns: x [B, T, D], last [B, D].
    """
    return _loop(r, s, state, x0, mask, reset)


def minmax_matrix_scan(
    r: Tensor, s: Tensor, state: Tensor, x0: Tensor, mask: Tensor | None, reset: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Vector units of degree n, step by step: x_t = (R_t ⊗ x_{t−1}) ⊕ s_t.

    Arguments: R [B, T, U, n, n]; s [B, T, U, n]; state, x0 [B, U, n]; mask, reset [B, T] bool or None.
    Returns: x [B, T, U, n], last [B, U, n].
    """
    return _loop(r, s, state, x0, mask, reset)


def _loop(r, s, state, x0, mask, reset):
    x, steps = state, []
    over_units = (slice(None),) + (None,) * (x0.ndim - 1)
    for t in range(s.shape[1]):
        if reset is not None:
            x = torch.where(reset[:, t][over_units], x0, x)
        after = apply((r[:, t], s[:, t]), x)
        x = after if mask is None else torch.where(mask[:, t][over_units], after, x)
        steps.append(x)
    return (torch.stack(steps, dim=1) if steps else torch.empty_like(s)), x
