"""Drawing tokens from logits."""

from __future__ import annotations

import torch
from torch import Tensor


def sample(
    logits: Tensor,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Draw one token a row.

    Arguments:
        logits: [B, V].
        temperature: divides the logits; 0 takes the likeliest token.
        top_k: keep the k likeliest tokens only.
        top_p: keep the likeliest tokens that together have at least this probability.
        generator: the source of chance.

    Returns: [B] tokens.
    """
    check_sampling(temperature, top_k, top_p)
    if temperature == 0:
        return logits.argmax(dim=-1)
    logits = logits.float() / temperature
    if top_k is not None and top_k < logits.shape[-1]:
        smallest = logits.topk(top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < smallest, -torch.inf)
    if top_p is not None:
        ordered, tokens = logits.sort(dim=-1, descending=True)
        probability = ordered.softmax(dim=-1)
        beyond = probability.cumsum(dim=-1) - probability >= top_p
        logits = logits.masked_fill(beyond.gather(-1, tokens.argsort(dim=-1)), -torch.inf)
    return torch.multinomial(logits.softmax(dim=-1), 1, generator=generator).squeeze(-1)


def check_sampling(temperature: float, top_k: int | None, top_p: float | None) -> None:
    """Refuse settings of `sample` that mean nothing."""
    if not 0 <= temperature < torch.inf:
        raise ValueError(f"temperature must be 0 or more and finite, got {temperature}")
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k must be at least 1, got {top_k}")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p must be in (0, 1], got {top_p}")
