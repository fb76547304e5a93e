"""Mamba: weights and wiring of `mambapy`, with a scan of our own that carries its state and is fast on a CPU.

Source: Gu and Dao, Mamba: linear-time sequence modeling with selective state spaces, arXiv 2312.00752.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from latchwork.models.baselines.base import Baseline, Body


@dataclass(frozen=True)
class MambaConfig(Baseline):
    """Sizes of Mamba."""

    d_model: int = 92
    d_state: int = 16
    """States of a channel."""
    expand: int = 2
    """Channels over d_model."""
    d_conv: int = 4
    """Steps that the convolution sees."""

    def body(self) -> Body:
        library = self.library("mambapy.mamba")
        config = library.MambaConfig(
            d_model=self.d_model,
            n_layers=self.n_layers,
            d_state=self.d_state,
            expand_factor=self.expand,
            d_conv=self.d_conv,
        )
        return _Mamba(library.Mamba(config), self.d_model)


class _Mamba(Body):
    """State: a pair a layer, the last d_conv − 1 inputs of the convolution [B, d_conv − 1, E] and the states [B, E, N].

    The library itself carries a state token by token only. Here chunks equal one call within 1e-4.
    """

    def __init__(self, mamba: Any, d_model: int) -> None:
        super().__init__()
        self.layers = mamba.layers
        self.norm = nn.RMSNorm(d_model)

    def forward(self, u: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        after = []
        for i, layer in enumerate(self.layers):
            y, carried = _mix(layer.mixer, layer.norm(u), None if state is None else state[i])
            u = u + y
            after.append(carried)
        return self.norm(u), tuple(after)


def _mix(mixer: Any, u: Tensor, state: Any) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """What `mambapy.mamba.MambaBlock` computes, from a state."""
    config = mixer.config
    x, z = mixer.in_proj(u).chunk(2, dim=-1)
    if state is None:
        inner = torch.zeros(len(x), *mixer.A_log.shape, dtype=mixer.A_log.dtype, device=x.device)
        state = x.new_zeros(len(x), config.d_conv - 1, config.d_inner), inner
    x = torch.cat([state[0], x], dim=1)
    inputs = x[:, x.shape[1] - (config.d_conv - 1) :].clone()
    conv = mixer.conv1d
    x = F.silu(F.conv1d(x.transpose(1, 2), conv.weight, conv.bias, groups=conv.groups).transpose(1, 2))
    delta, b, c = mixer.x_proj(x).split([config.dt_rank, config.d_state, config.d_state], dim=-1)
    delta = F.softplus(mixer.dt_proj(delta))
    with torch.autocast(x.device.type, enabled=False):  # the state has the precision of the weights
        wide = mixer.A_log.dtype
        a = -torch.exp(mixer.A_log)
        y, last = selective_scan(x.to(wide), delta.to(wide), a, b.to(wide), c.to(wide), state[1])
    return mixer.out_proj((y + mixer.D * x) * F.silu(z)), (inputs, last)


def selective_scan(x: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """h_t = exp(Δ_t a) ⊙ h_{t−1} + Δ_t x_t b_t, y_t = h_t · c_t.

    Arguments: x, delta [B, T, E]; a [E, N]; b, c [B, T, N]; state [B, E, N], h before the first step.
    Returns: y [B, T, E] and the last h [B, E, N].
    """
    along_time = [each.transpose(0, 1).contiguous() for each in (x, delta, b, c)]
    y, last = _SelectiveScan.apply(*along_time, a, state)
    return y.transpose(0, 1), last


class _SelectiveScan(torch.autograd.Function):
    """A loop over time whose working set stays in the processor's cache, where a parallel scan passes through [B, T, E,
    N] again and again; the way back computes exp(Δ a) once more instead of keeping it."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, delta: Tensor, b: Tensor, c: Tensor, a: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        keeps = any(ctx.needs_input_grad)
        h, y, dx = state.clone(), torch.empty_like(x), delta * x
        history = x.new_empty(len(x), *state.shape) if keeps else None
        for t in range(len(x)):
            if history is not None:
                history[t] = h
            h.mul_(torch.exp(delta[t].unsqueeze(-1) * a)).baddbmm_(dx[t].unsqueeze(-1), b[t].unsqueeze(1))
            torch.bmm(h, c[t].unsqueeze(-1), out=y[t].unsqueeze(-1))
        ctx.save_for_backward(x, delta, b, c, a, history, h)
        return y, h.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_y: Tensor, grad_last: Tensor) -> tuple[Tensor, ...]:
        x, delta, b, c, a, history, h = ctx.saved_tensors
        g, dx, grad_y = grad_last.clone(), delta * x, grad_y.contiguous()
        grad_dx, grad_delta, grad_b = torch.empty_like(x), torch.empty_like(x), torch.empty_like(b)
        grad_c, grad_a = torch.empty_like(c), torch.zeros_like(a)
        for t in reversed(range(len(x))):
            torch.bmm(grad_y[t].unsqueeze(1), h, out=grad_c[t].unsqueeze(1))
            g.baddbmm_(grad_y[t].unsqueeze(-1), c[t].unsqueeze(1))
            torch.bmm(g, b[t].unsqueeze(-1), out=grad_dx[t].unsqueeze(-1))
            torch.bmm(dx[t].unsqueeze(1), g, out=grad_b[t].unsqueeze(1))
            h = history[t]
            g.mul_(torch.exp(delta[t].unsqueeze(-1) * a))
            through = g * h
            torch.sum(through * a, dim=-1, out=grad_delta[t])
            grad_a += through.mul_(delta[t].unsqueeze(-1)).sum(dim=0)
        return grad_dx * delta, grad_delta.addcmul_(grad_dx, x), grad_b, grad_c, grad_a, g
