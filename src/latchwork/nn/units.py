"""Recurrent units: projections to reset and set, the scan, and the way out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from latchwork.nn.config import CascadeConfig
from latchwork.nn.init import even_start, output_init_, reset_set_init_, small_init_
from latchwork.ops.arguments import Boundaries
from latchwork.ops.scan import minmax_matrix_scan, minmax_scan


class Units(nn.Module):
    """x_t = (R_t ⊗ x_{t−1}) ⊕ s_t with R, s = Linear(u); y = W_o(x ⊙ σ(W_g u)), or W_o x without the gate.

    With degree 1 this is x_t = max(min(r_t, x_{t−1}), s_t). The n states of each of U vector units lie side by side:
    D = U·n states in all. Source: arXiv 2605.06384, §4.
    """

    def __init__(self, config: CascadeConfig) -> None:
        super().__init__()
        width, states = config.d_model, config.n_states
        self.degree = config.degree
        self.reset = nn.Linear(width, states * config.degree)
        self.set = nn.Linear(width, states)
        self.gate = nn.Linear(width, states) if config.output_gate else None
        self.out = nn.Linear(states, width)
        self.x0 = nn.Parameter(even_start(states, config.degree)) if config.learned_x0 else None
        reset_set_init_(self.reset, self.set, config)
        if self.gate is not None:
            small_init_(self.gate)
        output_init_(self.out, config.n_layers)

    def start(self, u: Tensor) -> Tensor:
        """The states before the first step, [B, D]."""
        if self.x0 is None:
            return even_start(self.out.in_features, self.degree, u.dtype, u.device).expand(u.shape[0], -1)
        return self.x0.expand(u.shape[0], -1)

    def forward(
        self,
        u: Tensor,
        state: Tensor | None,
        mask: Tensor | None,
        reset: Tensor | None,
        documents: Boundaries | None,
        process_group: Any = None,
    ) -> tuple[Tensor, Tensor]:
        """u [B, T, d_model], state [B, D], mask and reset [B, T] bool -> y [B, T, d_model] and the last states
        [B, D]; with `documents` those of every document, [N, D]."""
        how = {"mask": mask, "reset": reset, "documents": documents, "process_group": process_group}
        x, last = scan_units(self.reset(u), self.set(u), state, self.degree, x0=self.start(u), **how)
        y = x if self.gate is None else x * torch.sigmoid(self.gate(u))
        return self.out(y), last


def scan_units(
    r: Tensor,
    s: Tensor,
    state: Tensor | None,
    degree: int,
    *,
    x0: Tensor | None = None,
    mask: Tensor | None = None,
    reset: Tensor | None = None,
    documents: Boundaries | None = None,
    process_group: Any = None,
) -> tuple[Tensor, Tensor]:
    """The scan of units of any degree n whose states lie side by side, D = U·n of them.

    Arguments: r [B, T, D·n], s [B, T, D], state and x0 [B, D]; the rest as in `minmax_scan`.
    Beside r and s of half precision x0 is rounded as they are: from states that are written in fewer digits than they
    have, gradients need a second pass over everything.

    Returns: x [B, T, D] every state, last [B, D], or [N, D] with `documents`.
    """
    if x0 is not None and s.element_size() < x0.element_size():
        x0 = x0.to(s.dtype)
    how: Any = {"mask": mask, "reset": reset, "cu_seqlens": documents, "process_group": process_group}
    if degree == 1:
        return minmax_scan(r, s, state, x0=x0, **how)

    def vectors(a: Tensor | None) -> Tensor | None:
        return None if a is None else a.unflatten(-1, (-1, degree))

    x, last = minmax_matrix_scan(
        r.unflatten(-1, (-1, degree, degree)),
        s.unflatten(-1, (-1, degree)),
        vectors(state),
        x0=vectors(x0),
        **how,
    )
    return x.flatten(-2), last.flatten(-2)
