"""A sequence that is split over processes: what each rank hands on to the later ones, and what it gets back.

Rank k holds piece k of the time of every sequence. Steps compose, so a whole piece is one map x ↦ (R ⊗ x) ⊕ s of the
state before it (of scalar units max(min(r, x), s)); every rank composes its own, all are gathered, and each rank
applies those before it to the first state. On the way back the gradient of a piece's first state is A · (that of its
last state) + b, with a matrix A of weights of the active operands; A and b are gathered in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

Scan = Callable[..., tuple[Tensor, Tensor]]


def check_group(group: Any) -> None:
    """Refuse what is no process group that this process is in."""
    if not dist.is_available() or not dist.is_initialized():
        raise ValueError("process_group needs torch.distributed.init_process_group() first")
    if not isinstance(group, dist.ProcessGroup):
        raise TypeError(f"process_group must be a torch.distributed.ProcessGroup, got {type(group).__name__}")
    if dist.get_rank(group) < 0:
        raise ValueError(f"process {dist.get_rank()} is not in the process group")


def scan_split(
    group: Any,
    scan: Scan,
    last_of: Callable[..., Tensor],
    r: Tensor,
    s: Tensor,
    state: Tensor,
    x0: Tensor,
    mask: Tensor | None,
    reset: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The states x of this rank's steps, and the last state after the steps of all ranks.

    Arguments: the process group, a scan and a function for its last states alone; r, s, mask and reset of this rank's
    steps, state and x0 the same on all ranks. Gradients of state are complete on rank 0 and zero elsewhere; those of x0
    are of the rank's own resets.
    """
    return _Split.apply(group, scan, last_of, r, s, state, x0, mask, reset)


def incoming(group: Any, last: Tensor, keeps: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """What stands before this rank's steps, and after those of all ranks.

    Arguments: last [B, …] what stands after this rank's steps, keeps [B] bool: that is what stood before them; state
    [B, …] what stands before the first rank's, the same on all ranks (its gradient is complete on rank 0).
    """
    return _Incoming.apply(group, last, keeps, state)


class _Split(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, scan, last_of, r, s, state, x0, mask, reset):
        maps = _gather(_composed(last_of, r, s, state, x0, mask, reset), group)
        before, rank = state, dist.get_rank(group)
        after = state
        for k, composed in enumerate(maps):
            if k == rank:
                before = after
            after = _applied(composed, after)
        with torch.enable_grad():
            leaves = [a.detach().requires_grad_() for a in (r, s, before, x0)]
            x, last = scan(*leaves, mask, reset)
        ctx.group, ctx.graph = group, (leaves, x, last)
        return x.detach(), after

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_x, grad_after):
        leaves, x, last = ctx.graph
        rank = dist.get_rank(ctx.group)
        own = _gradients((x, last), leaves, (grad_x, torch.zeros_like(last)))
        columns = range(last.shape[2]) if last.ndim == 3 else (slice(None),)
        units = []
        for column in columns:
            one = torch.zeros_like(last)
            one[..., column] = 1
            units.append(_gradients((last,), leaves, (one,)))
        # [B, …, rows of the last state] of this rank's first state, its constant part, and the upstream gradient
        weights = torch.stack([unit[2] for unit in units], -1)
        every = _gather(torch.cat([weights, own[2].unsqueeze(-1), grad_after.unsqueeze(-1)], -1), ctx.group)
        grad_last = grad = torch.stack([piece[..., -1] for piece in every]).sum(0)
        for k in reversed(range(len(every))):
            if k == rank:
                grad_last = grad
            grad = every[k][..., -2] + _pulled(every[k][..., :-2], grad)
        total = [_joined(i, own[i], [unit[i] for unit in units], grad_last) for i in (0, 1, 3)]
        grad_state = grad if rank == 0 else torch.zeros_like(grad)
        return None, None, None, total[0], total[1], grad_state, total[2], None, None


def _gradients(outputs: tuple[Tensor, ...], leaves: list[Tensor], upstream: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Of outputs that may depend on nothing: those of no steps do not."""
    pairs = [(a, grad) for a, grad in zip(outputs, upstream, strict=True) if a.requires_grad]
    if not pairs:
        return tuple(torch.zeros_like(leaf) for leaf in leaves)
    kept, grads = zip(*pairs, strict=True)
    return torch.autograd.grad(kept, leaves, grads, retain_graph=True, allow_unused=True, materialize_grads=True)


def _composed(last_of, r, s, state, x0, mask, reset) -> Tensor:
    """[B, …, n + 2] of all steps as one map: the columns of R ⊕ s, then s, then 1 where the first state is forgotten.

    The map is known from what it does to the state -inf and to those that are +inf in one place and -inf elsewhere.
    """
    low = torch.full_like(state, -torch.inf)
    found = []
    for column in range(state.shape[2]) if state.ndim == 3 else (slice(None),):
        start = low.clone()
        start[..., column] = torch.inf
        found.append(last_of(r, s, start, x0, mask, reset))
    found.append(last_of(r, s, low, x0, mask, reset))
    forgets = torch.zeros_like(low)
    if reset is not None:
        forgets[reset.any(1)] = 1
    return torch.stack([*found, forgets], -1)


def _applied(composed: Tensor, state: Tensor) -> Tensor:
    """The state after a composed piece; a reset forgets even NaN."""
    columns, low, forgets = composed[..., :-2], composed[..., -2], composed[..., -1]
    if state.ndim == 3:
        moved = torch.minimum(columns, state.unsqueeze(-2)).amax(-1)
    else:
        moved = torch.minimum(columns.squeeze(-1), state)
    return torch.where(forgets > 0, low, torch.maximum(moved, low))


def _pulled(weights: Tensor, grad: Tensor) -> Tensor:
    """The gradient of the first state of a piece from that of its last one; weights [B, …, rows]."""
    if grad.ndim == 2:
        return weights.squeeze(-1) * grad
    return (weights @ grad.unsqueeze(-1)).squeeze(-1)


def _joined(which: int, own: Tensor, units: list[Tensor], grad_last: Tensor) -> Tensor:
    """The gradient of r, s or x0: that of the rank's own outputs, and of its last state's."""
    total = own.to(grad_last.dtype)
    for row, unit in enumerate(units):
        part = grad_last if grad_last.ndim == 2 else grad_last[..., row].unsqueeze(-1)
        if which < 2:  # r and s have a time, and r a matrix
            part = part.unsqueeze(1)
        while part.ndim < unit.ndim:
            part = part.unsqueeze(-1)
        total = total + part * unit
    return total.to(own.dtype)


class _Incoming(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, last, keeps, state):
        shape = (-1, *(1,) * (last.ndim - 1))
        flagged = torch.cat([last.flatten(1), keeps.unsqueeze(1).to(last.dtype)], 1)
        pieces = _gather(flagged, group)
        keeping = [piece[:, -1].view(shape) > 0 for piece in pieces]
        before, after, rank = state, state, dist.get_rank(group)
        for k, (piece, kept) in enumerate(zip(pieces, keeping, strict=True)):
            if k == rank:
                before = after
            after = torch.where(kept, after, piece[:, :-1].view_as(last))
        ctx.group, ctx.keeping = group, keeping
        return before, after

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_before, grad_after):
        rank = dist.get_rank(ctx.group)
        every = _gather(torch.stack([grad_before, grad_after]), ctx.group)
        grad = torch.stack([piece[1] for piece in every]).sum(0)
        grad_last = torch.zeros_like(grad)
        for k in reversed(range(len(every))):
            if k == rank:
                grad_last = torch.where(ctx.keeping[k], 0, grad)
            grad = torch.where(ctx.keeping[k], grad, 0) + every[k][0]
        return None, grad_last, None, grad if rank == 0 else torch.zeros_like(grad)


def _gather(value: Tensor, group: Any) -> list[Tensor]:
    """The values of all ranks, in their order."""
    value = value.contiguous()
    every = [torch.empty_like(value) for _ in range(dist.get_world_size(group))]
    dist.all_gather(every, value, group=group)
    return every
