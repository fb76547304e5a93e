"""LSTM, GRU and Elman network of PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from latchwork.models.baselines.base import Baseline, Body


@dataclass(frozen=True)
class LSTMConfig(Baseline):
    """Sizes of `torch.nn.LSTM`."""

    cells: ClassVar[Any] = nn.LSTM

    d_model: int = 89

    def body(self) -> Body:
        return _Recurrent(self.cells(self.d_model, self.d_model, self.n_layers, batch_first=True))


@dataclass(frozen=True)
class GRUConfig(LSTMConfig):
    """Sizes of `torch.nn.GRU`."""

    cells: ClassVar[Any] = nn.GRU

    d_model: int = 103


@dataclass(frozen=True)
class ElmanConfig(LSTMConfig):
    """Sizes of `torch.nn.RNN`: x_t = tanh(W u_t + V x_{t−1} + b)."""

    cells: ClassVar[Any] = nn.RNN

    d_model: int = 178


class _Recurrent(Body):
    """State: [B, layers, d_model], of an LSTM a pair of them, h and c. Chunks are exact."""

    def __init__(self, cells: nn.RNNBase) -> None:
        super().__init__()
        self.cells = cells

    def forward(self, u: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        y, state = self.cells(u, None if state is None else _swapped(state))
        return y, _swapped(state)


def _swapped(state: Any) -> Any:
    """Layers first <-> batch first."""
    if isinstance(state, tuple):
        return tuple(map(_swapped, state))
    return state.transpose(0, 1).contiguous()
