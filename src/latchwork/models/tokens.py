"""From token ids to vectors."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


def embed(embedding: nn.Embedding, tokens: Tensor) -> Tensor:
    """tokens [B, T] -> [B, T, d_model]; raises ValueError for what are no tokens of this embedding."""
    if not isinstance(tokens, Tensor) or tokens.ndim != 2 or tokens.is_floating_point() or tokens.is_complex():
        got = f"{tokens.dtype} {tuple(tokens.shape)}" if isinstance(tokens, Tensor) else type(tokens).__name__
        raise ValueError(f"tokens must be an integer tensor [B, T], got {got}")
    try:
        return F.embedding(tokens.long(), embedding.weight)
    except IndexError:
        low, high, size = int(tokens.min()), int(tokens.max()), embedding.num_embeddings
        raise ValueError(f"tokens must be in 0 … {size - 1}, got values from {low} to {high}") from None
