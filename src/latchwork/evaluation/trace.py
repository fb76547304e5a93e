"""What goes on inside a model: reset, set and state of every unit at every step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from latchwork.models.cascade_lm import CascadeLM
from latchwork.nn.units import Units, scan_units
from latchwork.state import State


class LayerTrace(NamedTuple):
    """One layer of U units over T steps; with degree n > 1 every unit has n states."""

    r: Tensor
    """[B, T, U] reset, or [B, T, U, n, n]."""
    s: Tensor
    """[B, T, U] set, or [B, T, U, n]."""
    x: Tensor
    """[B, T, U] state after the step, or [B, T, U, n]."""
    start: Tensor
    """[B, U] state before the first step, or [B, U, n]."""

    @property
    def before(self) -> Tensor:
        """The state before every step, in the shape of x."""
        return torch.cat([self.start.to(self.x.dtype).unsqueeze(1), self.x], dim=1)[:, :-1]

    @property
    def kept(self) -> Tensor:
        """Where x_t is x_{t−1}: bool in the shape of x."""
        return self.x == self.before

    @property
    def was_set(self) -> Tensor:
        """Where x_t is s_t and not x_{t−1}: bool in the shape of x."""
        return (self.x == self.s) & ~self.kept

    @property
    def was_lowered(self) -> Tensor:
        """Where x_t is r_t and neither x_{t−1} nor s_t, in scalar units: bool in the shape of x.

        A state of a vector unit may come from another one of the unit; for those this is False everywhere.
        """
        if self.x.ndim == 4:
            return torch.zeros_like(self.x, dtype=torch.bool)
        return (self.x == self.r) & ~self.kept & ~self.was_set


class Trace(NamedTuple):
    """A pass of a model over tokens [B, T]."""

    layers: tuple[LayerTrace, ...]
    """From the first to the last."""
    logits: Tensor
    """[B, T, classes]"""
    state: State
    """After the last step."""


@torch.no_grad()
def trace(model: CascadeLM, tokens: Tensor, state: State | None = None) -> Trace:
    """Run a model as it is and keep what its units did.

    Arguments:
        model: in evaluation mode, unless dropout shall act. It must not be used elsewhere meanwhile.
        tokens: [B, T] integers.
        state: from an earlier call; the model's start by default.

    Returns: the result of ``model(tokens, state)`` with r, s and x of each layer; x is the scan of these r and s. The
    logits of a single token may differ from those of the call in rounding, which takes a shorter way for it.

    Raises: ValueError as the model does.
    """
    layers: list[LayerTrace] = []
    with _watched(model, layers):
        logits, after = model(tokens, state)
    return Trace(tuple(layers), logits, after)


@contextmanager
def _watched(model: CascadeLM, layers: list[LayerTrace]) -> Iterator[None]:
    """While this is open, every layer that runs adds its trace to `layers`."""
    hooks = []
    for unit in (module for module in model.modules() if isinstance(module, Units)):
        projected: dict[str, Tensor] = {}
        for name in ("reset", "set"):
            hooks.append(unit.get_submodule(name).register_forward_hook(_keep(projected, name)))
        hooks.append(unit.register_forward_hook(_add_layer(projected, layers)))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _keep(projected: dict[str, Tensor], name: str) -> Any:
    def hook(module: Any, arguments: Any, output: Tensor) -> None:
        projected[name] = output

    return hook


def _add_layer(projected: dict[str, Tensor], layers: list[LayerTrace]) -> Any:
    def hook(unit: Units, arguments: Any, output: Any) -> None:
        u, state, mask, reset, documents, *_ = arguments
        r, s, n = projected["reset"], projected["set"], unit.degree
        start = unit.start(u)
        # What the unit itself computes, once more: a scan never rounds, so the bits are those of the unit.
        x, _ = scan_units(r, s, state, n, x0=start, mask=mask, reset=reset, documents=documents)
        before = start if state is None else state
        if n > 1:
            r, s = r.unflatten(-1, (-1, n, n)), s.unflatten(-1, (-1, n))
            x, before = x.unflatten(-1, (-1, n)), before.unflatten(-1, (-1, n))
        layers.append(LayerTrace(r, s, x, before))

    return hook
