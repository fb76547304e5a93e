"""Mamba-2 of `transformers`.

Source: Dao and Gu, Transformers are SSMs, arXiv 2405.21060.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from latchwork.models.baselines.base import Baseline, Body, check_heads


@dataclass(frozen=True)
class Mamba2Config(Baseline):
    """Sizes of Mamba-2."""

    d_model: int = 90
    d_state: int = 64
    """States of a channel."""
    expand: int = 2
    """Channels over d_model."""
    n_heads: int = 9
    """Groups of channels that decay alike."""
    chunk: int = 64
    """Steps that the library computes as one matrix product."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads("expand · d_model", self.expand * self.d_model, self.n_heads)

    def body(self) -> Body:
        library = self.library("transformers")
        config = library.Mamba2Config(
            vocab_size=1,
            hidden_size=self.d_model,
            num_hidden_layers=self.n_layers,
            state_size=self.d_state,
            expand=self.expand,
            num_heads=self.n_heads,
            head_dim=self.expand * self.d_model // self.n_heads,
            n_groups=1,
            chunk_size=self.chunk,
        )
        return _Mamba2(library.Mamba2Model(config), library.DynamicCache)


class _Mamba2(Body):
    """State: a pair a layer, the last inputs of the convolution [B, channels, d_conv] and the states [B, heads,
    head_dim, d_state]. Chunks equal one call within 1e-4."""

    def __init__(self, model: Any, cache: Any) -> None:
        super().__init__()
        model.set_input_embeddings(nn.Identity())
        self.model, self._cache = model, cache

    def forward(self, u: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        config = self.model.config
        cache = self._cache(config=config)  # a new one, since a call writes into it
        for i, (conv, units) in enumerate(state or ()):
            cache.update_conv_state(conv, i, conv_kernel_size=config.conv_kernel)
            cache.update_recurrent_state(units, i)
        # for one token the library writes over what the way back needs, so that is copied
        keeps = saved_tensors_hooks(torch.clone, lambda a: a) if u.shape[1] == 1 else nullcontext()
        with keeps:
            y = self.model(inputs_embeds=u, cache=cache, use_cache=True).last_hidden_state
        layers = range(config.num_hidden_layers)
        return y, tuple((cache.get_conv_state(i), cache.get_recurrent_state(i)) for i in layers)
