"""The state of a cascade: a tuple with one `LayerState` a layer. It is returned by every call and never mutated.

The functions take states of baselines too: any tuples of tensors in tuples, the batch first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, TypeVar

from torch import Tensor


class LayerState(NamedTuple):
    """What one layer remembers."""

    conv: Tensor
    """[B, d_model] the last input of the convolution."""
    unit: Tensor
    """[B, D] the states of the units."""


State: TypeAlias = tuple[LayerState, ...]
S = TypeVar("S")
"""A state, in whatever structure its model has it."""

__all__ = ["LayerState", "State", "detach", "select", "to"]


def detach(state: S) -> S:
    """The same values cut off from the graph: gradients stop here (truncated backpropagation through time)."""
    return map_state(state, Tensor.detach)


def select(state: S, rows: Tensor) -> S:
    """The state of the batch rows `rows` [N] (integers, in any order and with repeats, or a bool mask [B])."""
    return map_state(state, lambda a: a[rows])


def to(state: S, *args: Any, **kwargs: Any) -> S:
    """The state on another device or in another dtype; arguments as for `torch.Tensor.to`."""
    return map_state(state, lambda a: a.to(*args, **kwargs))


def leaves(state: Any) -> list[Tensor]:
    """The tensors of a state, in their order."""
    return [state] if isinstance(state, Tensor) else [leaf for part in state for leaf in leaves(part)]


def map_state(state: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """The state with every tensor replaced."""
    if isinstance(state, Tensor):
        return function(state)
    parts = (map_state(part, function) for part in state)
    return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)
