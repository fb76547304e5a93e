"""Causal mixing of the previous and the current input: a convolution over two steps with one step of memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from latchwork.nn.config import CascadeConfig
from latchwork.nn.init import small_init_
from latchwork.ops.arguments import Boundaries
from latchwork.ops.ranks import incoming, untouched


class CausalConv(nn.Module):
    """c_t from (u_{t−1}, u_t): `basic` is Linear([u_{t−1}, u_t]), `gated` is σ(g)⊙u_{t−1} + (1−σ(g))⊙u_t.

    Source: arXiv 2605.06384, appendix on the architecture; g starts at 0.
    """

    def __init__(self, config: CascadeConfig) -> None:
        super().__init__()
        width = config.d_model
        self.mix = nn.Linear(2 * width, width) if config.conv == "basic" else nn.Identity()
        self.gate = nn.Parameter(torch.zeros(width)) if config.conv == "gated" else None
        self.first = nn.Parameter(torch.zeros(width)) if config.learned_x0 else None
        if isinstance(self.mix, nn.Linear):
            small_init_(self.mix)

    def start(self, u: Tensor) -> Tensor:
        """The input before the first one, [B, d_model]."""
        first = u.new_zeros(u.shape[-1]) if self.first is None else self.first
        return first.expand(u.shape[0], -1)

    def forward(
        self,
        u: Tensor,
        state: Tensor | None,
        mask: Tensor | None,
        reset: Tensor | None,
        documents: Boundaries | None,
        process_group: Any = None,
    ) -> tuple[Tensor, Tensor]:
        """u [B, T, d_model], state [B, d_model], mask and reset [B, T] bool -> c [B, T, d_model] and the last input
        [B, d_model]; with `documents` that of every document, [N, d_model]."""
        start = self.start(u)
        state = start if state is None else state
        after = None
        if process_group is not None:
            # what this rank's steps leave behind, and whether that is what they found
            _, own = previous_inputs(u, state, start, mask, reset, None)
            own = own + u[:, :0].sum(1)  # nothing; but every rank has to go back, one without steps too
            state, after = incoming(process_group, own, untouched(u, mask, reset), state)
        before, last = previous_inputs(u, state, start, mask, reset, documents)
        last = last if after is None else after
        if self.gate is not None:
            return torch.lerp(u, before, torch.sigmoid(self.gate)), last
        return self.mix(torch.cat([before, u], dim=-1)), last


def previous_inputs(
    u: Tensor, state: Tensor, start: Tensor, mask: Tensor | None, reset: Tensor | None, documents: Boundaries | None
) -> tuple[Tensor, Tensor]:
    """For every step the last real input before it in its document, and the last one of all.

    Arguments and results as in `CausalConv.forward`. Masked steps are skipped; a reset goes back to `start`.
    """
    batch, time = u.shape[:2]
    if time == 0:  # no steps of the state: on a rank that has none the gradient still goes back through it
        return state.unsqueeze(1)[:, :0].to(u.dtype), state
    if mask is None and reset is None:
        return torch.cat([state.unsqueeze(1), u[:, :-1]], dim=1), u[:, -1]
    steps = torch.arange(time, device=u.device).expand(batch, time)
    never = torch.full_like(steps, -1)
    real = steps if mask is None else torch.where(mask, steps, never).cummax(dim=1).values
    since = never if reset is None else torch.where(reset, steps, never).cummax(dim=1).values
    # rows of the table: 0 is start, 1 is state, 2 + t is u_t
    table = torch.cat([start.unsqueeze(1), state.unsqueeze(1), u], dim=1)
    fallback = torch.where(since < 0, 1, 0)
    latest = torch.where((real >= since) & (real >= 0), real + 2, fallback)
    before = torch.cat([torch.ones_like(steps[:, :1]), latest], dim=1)
    if reset is not None:
        before = torch.cat([before[:, :time].masked_fill(reset, 0), before[:, time:]], dim=1)
    last = before[:, time:] if documents is None else latest[:, documents.last]

    def pick(rows: Tensor) -> Tensor:
        return table.gather(1, rows.unsqueeze(-1).expand(-1, -1, u.shape[-1]))

    return pick(before[:, :time]), pick(last)[:, 0] if documents is None else pick(last)[0]
