"""One layer of a cascade."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from latchwork.nn.config import CascadeConfig
from latchwork.nn.conv import CausalConv
from latchwork.nn.feed_forward import FeedForward
from latchwork.nn.units import Units
from latchwork.ops.arguments import Boundaries
from latchwork.state import LayerState


def make_norm(config: CascadeConfig) -> nn.Module:
    """The normalisation that the configuration names."""
    if config.norm == "none":
        return nn.Identity()
    return (nn.LayerNorm if config.norm == "layernorm" else nn.RMSNorm)(config.d_model)


class CascadeLayer(nn.Module):
    """Convolution, feed-forward and units before a residual connection; only the units' output joins the stream.

    c = conv(norm(u)), f = ffn(norm(u + c)), y = unit(norm(u + c + f)), out = u + y.
    """

    def __init__(self, config: CascadeConfig, index: int) -> None:
        super().__init__()
        self.conv_norm, self.conv = make_norm(config), CausalConv(config)
        self.ffn_norm, self.ffn = make_norm(config), FeedForward(config, config.dropout if index else 0.0)
        self.unit_norm, self.unit = make_norm(config), Units(config)

    def start(self, u: Tensor) -> LayerState:
        """The state before the first step for a batch like u [B, …]."""
        return LayerState(self.conv.start(u), self.unit.start(u))

    def forward(
        self,
        u: Tensor,
        state: LayerState | None,
        mask: Tensor | None,
        reset: Tensor | None,
        documents: Boundaries | None,
        process_group: Any = None,
    ) -> tuple[Tensor, LayerState]:
        """u [B, T, d_model] -> [B, T, d_model] and the state after the last step (of every document)."""
        conv_state, unit_state = state or (None, None)
        c, conv_state = self.conv(self.conv_norm(u), conv_state, mask, reset, documents, process_group)
        mixed = u + c
        mixed = mixed + self.ffn(self.ffn_norm(mixed))
        y, unit_state = self.unit(self.unit_norm(mixed), unit_state, mask, reset, documents, process_group)
        return u + y, LayerState(conv_state, unit_state)
