"""The state of a cascade: a tuple with one `LayerState` a layer. It is returned by every call and never mutated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from torch import Tensor


class LayerState(NamedTuple):
    """What one layer remembers."""

    conv: Tensor
    """[B, d_model] the last input of the convolution."""
    unit: Tensor
    """[B, D] the states of the units."""


State: TypeAlias = tuple[LayerState, ...]

__all__ = ["LayerState", "State", "detach", "select", "to"]


def detach(state: State) -> State:
    """The same values cut off from the graph: gradients stop here (truncated backpropagation through time)."""
    return _map(state, Tensor.detach)


def select(state: State, rows: Tensor) -> State:
    """The state of the batch rows `rows` [N] (integers, in any order and with repeats, or a bool mask [B])."""
    return _map(state, lambda a: a[rows])


def to(state: State, *args: Any, **kwargs: Any) -> State:
    """The state on another device or in another dtype; arguments as for `torch.Tensor.to`."""
    return _map(state, lambda a: a.to(*args, **kwargs))


def _map(state: State, function: Callable[[Tensor], Tensor]) -> State:
    return tuple(LayerState(*(function(a) for a in layer)) for layer in state)
