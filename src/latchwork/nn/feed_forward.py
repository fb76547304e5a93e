"""The feed-forward part of a layer."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from latchwork.nn.config import CascadeConfig
from latchwork.nn.init import output_init_, small_init_

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}


class FeedForward(nn.Module):
    """`gated`: W2(act(W_gate x) ⊙ W_value x); `basic`: W2 act(W1 x). Biases everywhere, dropout at the end.

    x [B, T, d_model] -> [B, T, d_model]. Source: Shazeer, arXiv 2002.05202 (gated variants).
    """

    def __init__(self, config: CascadeConfig, dropout: float) -> None:
        super().__init__()
        self.activation = _ACTIVATIONS[config.activation]
        self.inner = nn.Linear(config.d_model, config.hidden)
        self.value = nn.Linear(config.d_model, config.hidden) if config.ffn == "gated" else None
        self.outer = nn.Linear(config.hidden, config.d_model)
        self.dropout = nn.Dropout(dropout)
        small_init_(self.inner)
        if self.value is not None:
            small_init_(self.value)
        output_init_(self.outer, config.n_layers)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.activation(self.inner(x))
        if self.value is not None:
            hidden = hidden * self.value(x)
        return self.dropout(self.outer(hidden))
