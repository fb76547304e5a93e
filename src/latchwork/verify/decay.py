"""How the gradient of the last state shrinks on its way back, for any model with a state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from latchwork.nn.mode import device_of, evaluating
from latchwork.state import leaves, map_state
from latchwork.verify.gradient import doubling


class Decay(NamedTuple):
    """Of the gradient over the last `length` steps."""

    length: int
    norms: Tensor
    """[B] log10 of the length of v · ∂x_T/∂x_{T-length}, for a unit vector v of its own in each row; -inf for 0."""


def state_decay(model: nn.Module, tokens: Tensor, *, chunk: int = 1024, seed: int = 0) -> Iterator[Decay]:
    """What is left of a random direction of the last state, 1, 2, 4 … and all steps earlier.

    The state x is everything that a model carries from one call to the next, flattened; every row of the batch has a
    random unit vector v, and v · ∂x_T/∂x_{T-k} is found by going back chunk after chunk, each from the state that was
    stored before it. Its length is 1 where the whole state is kept, and the root of the share that is kept where some
    of it is. The gradient is brought back to length 1 after every chunk, so that nothing underflows between chunks; a
    copy of the model in float64 (`model.double()`) sees down to 10^-308 within one. Memory is that of one chunk, and
    one state a chunk.

    Arguments:
        model: called with tokens [B, T] and a state, None at first, it returns anything and the state after them:
            tensors in tuples, the batch first. In evaluation mode for the time of the call.
        tokens: [B, T + 1] integers; the first one makes the first state.
        chunk: steps that are computed together.
        seed: of the directions.

    Yields: a `Decay` for each length, shortest first. Raises: ValueError for tokens of another shape; OverflowError
    where a gradient grows beyond all floats within a chunk.
    """
    if tokens.ndim != 2 or tokens.shape[1] < 2:
        raise ValueError(f"tokens must be [B, T + 1] with at least one step, got {tuple(tokens.shape)}")
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    return _measured(model, tokens.to(device_of(model)), chunk, seed)


def _measured(model: nn.Module, tokens: Tensor, chunk: int, seed: int) -> Iterator[Decay]:
    total = tokens.shape[1] - 1
    lengths = set(doubling(total))
    cuts = sorted({*lengths, *range(chunk, total, chunk)})  # where the way back stops, in steps before the end
    pieces = list(_pieces(tokens, cuts))
    generator, vector = torch.Generator().manual_seed(seed), None
    logs = torch.zeros(len(tokens), dtype=torch.float64)
    with _quiet(model):
        states = _states(model, tokens, pieces)
    for cut, piece in zip(cuts, pieces, strict=True):
        with _quiet(model):
            before = [leaf.detach().requires_grad_() for leaf in leaves(states[-1])]
            with torch.enable_grad():
                after = _flat(leaves(model(piece, _like(states.pop(), iter(before)))[1]))
            if vector is None:
                vector = torch.randn(after.shape, generator=generator, dtype=torch.float64).to(after)
                vector = vector / vector.norm(dim=1, keepdim=True)
            if after.requires_grad:
                parts = torch.autograd.grad(after, before, vector, allow_unused=True, materialize_grads=True)
            else:  # nothing of the state before is in the state after
                parts = tuple(torch.zeros_like(leaf) for leaf in before)
        vector = _flat(parts)
        # in two steps: the squares of small numbers are 0 long before the numbers are
        for size in (lambda a: a.abs().amax(1, keepdim=True), lambda a: a.norm(dim=1, keepdim=True)):
            norm = size(vector)
            logs = logs + norm[:, 0].double().log10().cpu()
            vector = vector / norm.where(norm > 0, torch.ones_like(norm))
        if not (logs < torch.inf).all():
            raise OverflowError(f"the gradient over {cut} steps is no finite number; try chunks shorter than {chunk}")
        if cut in lengths:
            yield Decay(cut, logs)


@contextmanager
def _quiet(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without cuDNN, which goes back through an LSTM in training mode only."""
    with evaluating(model), torch.backends.cudnn.flags(enabled=False):
        yield


def _pieces(tokens: Tensor, cuts: Sequence[int]) -> Iterator[Tensor]:
    """The last steps, those before them, and so on."""
    end = tokens.shape[1]
    for cut in cuts:
        start = tokens.shape[1] - cut
        yield tokens[:, start:end]
        end = start


@torch.no_grad()
def _states(model: nn.Module, tokens: Tensor, pieces: Sequence[Tensor]) -> list[Any]:
    """The states before each of the pieces, the last piece's first."""
    _, state = model(tokens[:, :1], None)
    found = [state]
    for piece in pieces[:0:-1]:
        _, state = model(piece, state)
        found.append(state)
    return found


def _flat(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat([part.flatten(1) for part in parts], 1)


def _like(state: Any, leaves: Iterator[Tensor]) -> Any:
    """A state of the same structure that has these tensors."""
    return map_state(state, lambda _: next(leaves))
