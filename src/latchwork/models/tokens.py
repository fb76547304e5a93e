"""From token ids to vectors."""

from __future__ import annotations

from torch import Tensor, nn


def check_sizes(vocab_size: int, n_outputs: int | None) -> None:
    """Refuse numbers of tokens and of classes that no model can have."""
    for name, value in (("vocab_size", vocab_size), ("n_outputs", 1 if n_outputs is None else n_outputs)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


def check_tokens(tokens: Tensor, vocab_size: int) -> None:
    """Refuse what are no tokens [B, T] in 0 … vocab_size − 1; on a GPU this waits for it."""
    _check_kind(tokens)
    if tokens.numel() and not (tokens.min() >= 0 and tokens.max() < vocab_size):
        low, high = int(tokens.min()), int(tokens.max())
        raise ValueError(f"tokens must be in 0 … {vocab_size - 1}, got values from {low} to {high}")


def embed(embedding: nn.Module, tokens: Tensor, vocab_size: int) -> Tensor:
    """tokens [B, T] -> [B, T, d_model]; raises ValueError for what are no tokens of this embedding (on a CPU)."""
    _check_kind(tokens)
    tokens = tokens.long()
    try:
        return embedding(tokens)
    except IndexError:
        check_tokens(tokens, vocab_size)
        raise


def _check_kind(tokens: Tensor) -> None:
    if not isinstance(tokens, Tensor) or tokens.ndim != 2 or tokens.is_floating_point() or tokens.is_complex():
        got = f"{tokens.dtype} {tuple(tokens.shape)}" if isinstance(tokens, Tensor) else type(tokens).__name__
        raise ValueError(f"tokens must be an integer tensor [B, T], got {got}")
