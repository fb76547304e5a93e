"""The specification of the scan: a plain loop over time with autograd. Every backend equals it."""

from __future__ import annotations

import torch
from torch import Tensor

from latchwork.algebra import apply


def scan(
    r: Tensor, s: Tensor, state: Tensor, x0: Tensor, mask: Tensor | None, reset: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Scalar units x_t = max(min(r_t, x_{t−1}), s_t), or vector units x_t = (R_t ⊗ x_{t−1}) ⊕ s_t, step by step.

    Arguments: r, s [B, T, D] with state (where the call starts) and x0 (where resets go) [B, D]; or R [B, T, U, n, n],
    s [B, T, U, n], state and x0 [B, U, n]. mask, reset [B, T] bool or None. state and x0 have one dtype, that of r and
    s or a wider one; steps are computed in it.
    Returns: x like s, last like state.
    """
    x, steps = state.clone(), []
    over_units = (slice(None),) + (None,) * (x0.ndim - 1)
    for t in range(s.shape[1]):
        if reset is not None:
            x = torch.where(reset[:, t][over_units], x0, x)
        after = apply((r[:, t].to(x.dtype), s[:, t].to(x.dtype)), x)
        x = after if mask is None else torch.where(mask[:, t][over_units], after, x)
        steps.append(x.to(s.dtype))
    return (torch.stack(steps, dim=1) if steps else torch.empty_like(s)), x
