"""A Transformer of GPT-2's shape, of `transformers`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from latchwork.models.baselines.base import Baseline, Body, check_heads


@dataclass(frozen=True)
class TransformerConfig(Baseline):
    """Sizes of a Transformer."""

    d_model: int = 72
    n_heads: int = 4
    """Heads of attention."""
    window: int = 512
    """Positions that there are, and so steps that can be seen at once; even."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads("d_model", self.d_model, self.n_heads)
        if self.window % 2:
            raise ValueError(f"window must be even, got {self.window}")

    def body(self) -> Body:
        library = self.library("transformers")
        config = library.GPT2Config(
            vocab_size=1,
            n_embd=self.d_model,
            n_layer=self.n_layers,
            n_head=self.n_heads,
            n_positions=self.window,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=None,
            eos_token_id=None,
        )
        return _Transformer(library.GPT2Model(config), self.window)


class _Transformer(Body):
    """Has no memory but its window: when that is full, its later half becomes the first half of the next one.

    So every step sees the last window/2 steps at least and `window` at most, at positions that were trained. State: the
    inputs in the window [B, 0 … window, d_model]. Chunks equal one call within 1e-4.
    """

    def __init__(self, model: Any, window: int) -> None:
        super().__init__()
        model.set_input_embeddings(nn.Identity())
        self.model, self.window = model, window

    def forward(self, u: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        seen = u[:, :0] if state is None else state
        outputs = []
        for piece in self._pieces(u, seen.shape[1]):
            if seen.shape[1] == self.window:
                seen = seen[:, self.window // 2 :]
            seen = torch.cat([seen, piece], dim=1)
            y = self.model(inputs_embeds=seen, use_cache=False).last_hidden_state
            outputs.append(y[:, y.shape[1] - piece.shape[1] :])
        return torch.cat(outputs, dim=1), seen

    def _pieces(self, u: Tensor, filled: int) -> tuple[Tensor, ...]:
        """u cut where the window is full."""
        first, half = self.window - filled, self.window // 2
        rest = max(u.shape[1] - first, 0)
        sizes = [u.shape[1] - rest, *[half] * (rest // half), rest % half]
        return u.split([size for size in sizes if size] or [0], dim=1)
