"""Recurrent units: projections to reset and set, the scan, and the way out."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from latchwork.nn.config import CascadeConfig
from latchwork.nn.init import output_init_, reset_set_init_, small_init_
from latchwork.ops.scan import minmax_scan


class ScalarUnits(nn.Module):
    """x_t = max(min(r_t, x_{t−1}), s_t) with r, s = Linear(u); y = W_o(x ⊙ σ(W_g u)), or W_o x without the gate.

    Source: arXiv 2605.06384, §4.
    """

    def __init__(self, config: CascadeConfig) -> None:
        super().__init__()
        width, units = config.d_model, config.n_units
        self.reset = nn.Linear(width, units)
        self.set = nn.Linear(width, units)
        self.gate = nn.Linear(width, units) if config.output_gate else None
        self.out = nn.Linear(units, width)
        self.x0 = nn.Parameter(torch.zeros(units)) if config.learned_x0 else None
        reset_set_init_(self.reset, self.set, config)
        if self.gate is not None:
            small_init_(self.gate)
        output_init_(self.out, config.n_layers)

    def start(self, u: Tensor) -> Tensor:
        """The states before the first step, [B, D]."""
        x0 = u.new_zeros(self.out.in_features) if self.x0 is None else self.x0
        return x0.expand(u.shape[0], -1)

    def forward(
        self, u: Tensor, state: Tensor | None, mask: Tensor | None, reset: Tensor | None, ends: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """u [B, T, d_model], state [B, D], mask and reset [B, T] bool -> y [B, T, d_model] and the last states
        [B, D]; with `ends` [N], the states after each of these steps of row 0, [N, D]."""
        x, last = minmax_scan(self.reset(u), self.set(u), state, x0=self.x0, mask=mask, reset=reset)
        y = x if self.gate is None else x * torch.sigmoid(self.gate(u))
        return self.out(y), last if ends is None else x[0, ends]
