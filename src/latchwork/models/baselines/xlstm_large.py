"""xLSTM Large of `transformers`: mLSTM cells without convolution, each followed by a gated feed-forward part.

Source: Beck et al., xLSTM 7B: a recurrent LLM for fast and efficient inference, arXiv 2503.13427.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from latchwork.models.baselines.base import Baseline, Body, check_heads


@dataclass(frozen=True)
class XLSTMLargeConfig(Baseline):
    """Sizes of xLSTM Large."""

    d_model: int = 64
    """Width; the library takes multiples of 64."""
    n_heads: int = 4
    """Memories of a layer."""
    hidden: int = 220
    """Hidden width of the feed-forward part."""
    chunk: int = 64
    """Steps that the library computes as one matrix product."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d_model % 64:  # keys and values would be rounded up to that, and not fit
            raise ValueError(f"d_model must be a multiple of 64, got {self.d_model}")
        check_heads("d_model", self.d_model, self.n_heads)

    def body(self) -> Body:
        library = self.library("transformers")
        config = library.xLSTMConfig(
            vocab_size=1,
            hidden_size=self.d_model,
            num_hidden_layers=self.n_layers,
            num_heads=self.n_heads,
            qk_dim_factor=1.0,
            ffn_proj_factor=self.hidden / self.d_model,
            ffn_round_up_to_multiple_of=1,
            chunk_size=self.chunk,
            pad_token_id=None,
            bos_token_id=None,
            eos_token_id=None,
            mode="inference",  # the mode that returns the state; it has gradients too
            autocast_kernel_dtype="float32",
        )
        return _XLSTMLarge(library.xLSTMModel(config))


class _XLSTMLarge(Body):
    """State: a triple a layer, matrix [B, heads, d, d], normalizer [B, heads, d] and stabilizer [B, heads, 1] of the
    cells. Chunks equal one call within 1e-4."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        model.set_input_embeddings(nn.Identity())
        self.model = model

    def forward(self, u: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        after = []
        for i, block in enumerate(self.model.blocks):
            u, carried = block(u, None if state is None else tuple(part.clone() for part in state[i]))
            after.append(tuple(carried))
        return self.model.out_norm(u), tuple(after)
