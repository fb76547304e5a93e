"""What the scan and the models are measured against."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def hillis_steele(r: Tensor, s: Tensor) -> Tensor:
    """The scan as log₂ T levels of tensor operations: what one gets from autograd without a kernel.

    Arguments: r, s [B, T, D]. Returns: x [B, T, D] from a state of zeros.
    Source: Hillis and Steele, Data parallel algorithms, CACM 1986.
    """
    shift = 1
    while shift < r.shape[1]:
        pad = r.new_full((r.shape[0], shift, r.shape[2]), torch.inf)
        earlier_r = torch.cat([pad, r[:, :-shift]], dim=1)
        earlier_s = torch.cat([-pad, s[:, :-shift]], dim=1)
        s = torch.maximum(torch.minimum(r, earlier_s), s)
        r = torch.minimum(r, earlier_r)
        shift *= 2
    return torch.maximum(torch.minimum(r, torch.zeros_like(r[:, :1])), s)


class LSTMLanguageModel(nn.Module):
    """Embedding, `torch.nn.LSTM`, head."""

    def __init__(self, vocab_size: int, width: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, vocab_size)

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens [B, T] -> logits [B, T, V]."""
        return self.head(self.lstm(self.embedding(tokens))[0])


def lstm_of_size(parameters: int, vocab_size: int, layers: int) -> LSTMLanguageModel:
    """The LSTM language model whose number of parameters is nearest to `parameters`."""

    def count(width: int) -> int:
        return 2 * vocab_size * width + vocab_size + layers * (8 * width * width + 8 * width)

    width = min(range(4, 4096), key=lambda w: abs(count(w) - parameters))
    return LSTMLanguageModel(vocab_size, width, layers)
