"""Does a training step of a cascade cost more than one of an LSTM with as many parameters?"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from latchwork.bench.peers import lstm_of_size
from latchwork.bench.timing import interleaved, median
from latchwork.models.cascade_lm import CascadeLM
from latchwork.nn.config import CascadeConfig

BATCH, LENGTH, VOCABULARY = 8, 512, 50


def bench_step(repeats: int = 40) -> list[dict[str, Any]]:
    """One row: the small model against a 2-layer `torch.nn.LSTM` with embedding and head, Adam step included."""
    cascade = CascadeLM(CascadeConfig.small(), VOCABULARY)
    size = _size(cascade)
    lstm = lstm_of_size(size, VOCABULARY, layers=2)
    tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH))
    steps = {
        "cascade": _step(cascade, lambda t: cascade(t)[0], tokens),
        "lstm": _step(lstm, lstm, tokens),
    }
    seconds = interleaved(steps, repeats)
    ours, theirs = median(seconds["cascade"]), median(seconds["lstm"])
    return [
        {
            "what": f"training step, small model ({size:,} parameters)",
            "shape": (BATCH, LENGTH),
            "ours": f"{1e3 * ours:.1f} ms",
            "against": f"torch.nn.LSTM ({_size(lstm):,} parameters)",
            "theirs": f"{1e3 * theirs:.1f} ms",
            "ratio": ours / theirs,
        }
    ]


def _size(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def _step(model: nn.Module, logits_of, tokens: Tensor):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(logits_of(tokens).flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()

    return step
