"""How much of a first state is left in the last one: the gradient of states over millions of steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from latchwork.models.cascade_lm import CascadeLM
from latchwork.nn.mode import device_of, evaluating
from latchwork.nn.units import Units, scan_units
from latchwork.state import State


@dataclass(frozen=True)
class StateGradient:
    """∂x_T/∂x_0 of the units of every layer.

    Arguments:
        length: T, how many steps.
        layers: for every layer [B, U, n, n], row i and column k: of state i with respect to first state k.
    """

    length: int
    layers: tuple[Tensor, ...]

    def kept(self) -> tuple[Tensor, ...]:
        """For every layer which units [B, U] have a gradient of exactly 1: a state is a first state, and it alone."""
        return tuple(((layer == 1).any(3) & (layer.abs().sum(3) == 1)).any(2) for layer in self.layers)


def state_gradient(
    model: CascadeLM,
    tokens: Tensor,
    lengths: Sequence[int] | None = None,
    *,
    state: State | None = None,
    chunk: int = 1024,
) -> Iterator[StateGradient]:
    """The gradient of every unit's state with respect to its own first state, in memory that does not grow with T.

    The way through the unit itself counts: R and s, which depend on the input and the layers below, are taken as they
    are. The gradient of a chunk is found by the backward pass of the scan and multiplied, in float64, with that of the
    chunks before; a state that is kept has exactly 1 at every length, since 1 · 1 is 1.

    Arguments:
        model: in evaluation mode for the time of the call.
        tokens: [B, T] integers.
        lengths: when to give an answer, rising; by default at powers of two, and at T.
        state: where the sequences start, so x_0; by default the first state of the model.
        chunk: steps that are computed together.

    Yields: a `StateGradient` for each length, as soon as it is there.
    Raises: ValueError for lengths that do not rise from at least 1 to at most T; TypeError for other models.

    Source: arXiv 2605.06384, §4 (the state gradient can stay 1).
    """
    if not isinstance(model, CascadeLM):
        raise TypeError(f"model must be a CascadeLM, got {type(model).__name__}")
    if tokens.ndim != 2:
        raise ValueError(f"tokens must be [B, T], got {tuple(tokens.shape)}")
    total = tokens.shape[1]
    wanted = doubling(total) if lengths is None else list(lengths)
    if not wanted or any(b <= a for a, b in zip([0, *wanted], wanted, strict=False)) or wanted[-1] > total:
        raise ValueError(f"lengths must rise from at least 1 to at most T = {total}, got {wanted}")
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    tokens = tokens.to(device_of(model))
    return _measured(model, tokens, wanted, model.initial_state(len(tokens)) if state is None else state, chunk)


def doubling(total: int) -> list[int]:
    """1, 2, 4 … and `total` at last; nothing of 0."""
    return sorted({*(1 << i for i in range(total.bit_length())), total} - {0})


def _measured(
    model: CascadeLM, tokens: Tensor, lengths: list[int], state: State, chunk: int
) -> Iterator[StateGradient]:
    units = [cast("Units", layer.unit) for layer in cast("list[nn.Module]", list(model.cascade.layers))]
    products: list[Tensor] = []
    done = 0
    for length in lengths:
        while done < length:
            end = min(done + chunk, length)
            with _watched(units) as found, evaluating(model), torch.no_grad():
                _, state = model.cascade(model._embed(tokens[:, done:end]), state)
            products = [new @ old for new, old in zip(found, products, strict=True)] if products else found
            done = end
        yield StateGradient(length, tuple(products))


@contextmanager
def _watched(units: list[Units]) -> Iterator[list[Tensor]]:
    """Collects the gradient of every call of the units, in their order."""
    found: list[Tensor] = []

    def watch(unit: nn.Module, arguments: tuple[Tensor, Tensor], _: object) -> None:
        u, state = arguments[:2]
        found.append(_gradient(cast("Units", unit), u, state))

    hooks = [unit.register_forward_hook(watch) for unit in units]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


@torch.enable_grad()
def _gradient(unit: Units, u: Tensor, state: Tensor) -> Tensor:
    """[B, U, n, n] of the last states with respect to those before u [B, T, d_model]."""
    with torch.no_grad():
        r, s = unit.reset(u), unit.set(u)
    state = state.detach().requires_grad_()
    _, last = scan_units(r, s, state, unit.degree)
    rows = []
    for place in range(unit.degree):
        # Units do not meet, so the gradient of a sum over them is that of each.
        (row,) = torch.autograd.grad(last[:, place :: unit.degree].sum(), state, retain_graph=True)
        rows.append(row.unflatten(1, (-1, unit.degree)))
    return torch.stack(rows, 2).double()
