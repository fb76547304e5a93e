"""A sequence that is split over processes: what each rank hands on to the later ones, and what it gets back.

Rank k holds piece k of the time of every sequence. Steps compose, so a whole piece is one map x ↦ (R ⊗ x) ⊕ s of the
state before it (of scalar units max(min(r, x), s)). Every rank composes its own piece; an exclusive scan over the
ranks, in as many rounds as the logarithm of their number, gives each the map of all pieces before its own. On the way
back the gradient of a piece's first state is A · (that of its last state) + b, with a matrix A of weights of the active
operands; these maps are scanned in the other direction.
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
    if group is dist.GroupMember.NON_GROUP_MEMBER:  # what new_group() returns where the process is not among its ranks
        raise ValueError(f"process {dist.get_rank()} is not in the process group")
    if not isinstance(group, dist.ProcessGroup):
        raise TypeError(f"process_group must be a torch.distributed.ProcessGroup, got {type(group).__name__}")


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
        own = _composed(last_of, r, s, state, x0, mask, reset)
        earlier = _exclusive(own, _then, group)
        before = state if earlier is None else _applied(earlier, state)
        with torch.enable_grad():
            leaves = [a.detach().requires_grad_() for a in (r, s, before, x0)]
            x, last = scan(*leaves, mask, reset)
        ctx.group, ctx.graph = group, (leaves, x, last)
        return x.detach(), _from_last(last.detach(), group)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_x, grad_after):
        leaves, x, last = ctx.graph
        own = _gradients((x, last), leaves, (grad_x, torch.zeros_like(last)))
        columns = range(last.shape[2]) if last.ndim == 3 else (slice(None),)
        units = []
        for column in columns:
            one = torch.zeros_like(last)
            one[..., column] = 1
            units.append(_gradients((last,), leaves, (one,)))
        # [B, …, rows of the last state] of this rank's first state, and its constant part
        weights = torch.stack([unit[2] for unit in units], -1)
        later = _exclusive(torch.cat([weights, own[2].unsqueeze(-1)], -1), _then_back, ctx.group, reverse=True)
        grad_last = _summed(grad_after, ctx.group)
        if later is not None:
            grad_last = _pulled(later[..., :-1], grad_last) + later[..., -1]
        total = [_joined(i, own[i], [unit[i] for unit in units], grad_last) for i in (0, 1, 3)]
        first = dist.get_rank(ctx.group) == 0
        grad_state = own[2] + _pulled(weights, grad_last) if first else torch.zeros_like(grad_last)
        return None, None, None, total[0], total[1], grad_state, total[2], None, None


def _gradients(outputs: tuple[Tensor, ...], leaves: list[Tensor], upstream: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Of outputs that may depend on nothing: those of no steps do not."""
    pairs = [(a, grad) for a, grad in zip(outputs, upstream, strict=True) if a.requires_grad]
    if not pairs:
        return tuple(torch.zeros_like(leaf) for leaf in leaves)
    kept, grads = zip(*pairs, strict=True)
    return torch.autograd.grad(kept, leaves, grads, retain_graph=True, allow_unused=True, materialize_grads=True)


def _composed(last_of, r, s, state, x0, mask, reset) -> Tensor:
    """[B, …, n + 2] of all steps as one map: the columns of R ⊕ s, then s, then what becomes of the first state.

    The map is known from what it does to the state -inf and to those that are +inf in one place and -inf elsewhere.
    The last column is 1 where a reset forgets the first state and -1 where no step touches it: the map alone would
    spread a NaN in one value of a vector unit over the others.
    """
    low = torch.full_like(state, -torch.inf)
    found = []
    for column in range(state.shape[2]) if state.ndim == 3 else (slice(None),):
        start = low.clone()
        start[..., column] = torch.inf
        found.append(last_of(r, s, start, x0, mask, reset))
    found.append(last_of(r, s, low, x0, mask, reset))
    fate = torch.zeros_like(low)
    fate[untouched(r, mask, reset)] = -1
    if reset is not None:
        fate[reset.any(1)] = 1
    return torch.stack([*found, fate], -1)


def untouched(steps: Tensor, mask: Tensor | None, reset: Tensor | None) -> Tensor:
    """Where [B] bool none of the steps [B, T, …] is real and none a reset, so that a state stays what it was."""
    found = steps.new_full((len(steps),), not steps.shape[1], dtype=torch.bool) if mask is None else ~mask.any(1)
    return found if reset is None else found & ~reset.any(1)


def _applied(composed: Tensor, state: Tensor) -> Tensor:
    """The state after a composed piece; a reset forgets even NaN."""
    columns, low, fate = composed[..., :-2], composed[..., -2], composed[..., -1]
    if state.ndim == 3:
        moved = torch.minimum(columns, state.unsqueeze(-2)).amax(-1)
    else:
        moved = torch.minimum(columns.squeeze(-1), state)
    return torch.where(fate < 0, state, torch.where(fate > 0, low, torch.maximum(moved, low)))


def _then(first: Tensor, second: Tensor) -> Tensor:
    """Two composed pieces as one."""
    *columns, fate = first.unbind(-1)
    return torch.stack([*(_applied(second, column) for column in columns), torch.maximum(fate, second[..., -1])], -1)


def _pulled(weights: Tensor, grad: Tensor) -> Tensor:
    """The gradient of the first state of a piece from that of its last one; weights [B, …, rows]."""
    if weights.shape[-1] == 1:
        return weights.squeeze(-1) * grad
    return (weights @ grad.unsqueeze(-1)).squeeze(-1)


def _then_back(first: Tensor, second: Tensor) -> Tensor:
    """The way back through the second piece and then the first one, [B, …, rows and the constant part]."""
    weights = first[..., :-1]
    found = [_pulled(weights, column) for column in second.unbind(-1)]
    found[-1] = found[-1] + first[..., -1]
    return torch.stack(found, -1)


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
        keeps = keeps.view(-1, *(1,) * (last.ndim - 1)).expand_as(last).to(last.dtype)
        earlier = _exclusive(torch.stack([last, keeps], -1), _then_left, group)
        before = state if earlier is None else torch.where(earlier[..., 1] > 0, state, earlier[..., 0])
        ctx.group, ctx.keeps = group, keeps
        return before, _from_last(torch.where(keeps > 0, before, last), group)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_before, grad_after):
        # what stood before this rank's steps has the gradient of what was read there, and of what is kept
        later = _exclusive(torch.stack([ctx.keeps, grad_before], -1), _then_back, ctx.group, reverse=True)
        grad = _summed(grad_after, ctx.group)
        if later is not None:
            grad = later[..., 0] * grad + later[..., 1]
        first = dist.get_rank(ctx.group) == 0
        grad_state = ctx.keeps * grad + grad_before if first else torch.zeros_like(grad)
        return None, (1 - ctx.keeps) * grad, None, grad_state


def _then_left(first: Tensor, second: Tensor) -> Tensor:
    """What stands behind two pieces: what the second one leaves, or what the first one does where the second keeps."""
    keeps = second[..., 1]
    return torch.stack([torch.where(keeps > 0, first[..., 0], second[..., 0]), first[..., 1] * keeps], -1)


def _exclusive(
    value: Tensor, combine: Callable[[Tensor, Tensor], Tensor], group: Any, reverse: bool = False
) -> Tensor | None:
    """The values of all ranks before this one (after it, with `reverse`) combined in their order; None if it has none.

    In every round a rank sends what it has combined so far twice as far as in the round before (Hillis and Steele).
    """
    rank, size, way = dist.get_rank(group), dist.get_world_size(group), -1 if reverse else 1
    shift = 1
    while shift < size:
        found = _shifted(value, way * shift, rank, size, group)
        if found is not None:
            value = combine(value, found) if reverse else combine(found, value)
        shift *= 2
    return _shifted(value, way, rank, size, group)


def _shifted(value: Tensor, shift: int, rank: int, size: int, group: Any) -> Tensor | None:
    """Send a value `shift` ranks on, and return what comes from as far before; None where there is no such rank."""
    value, found, operations = value.contiguous(), None, []
    if 0 <= rank + shift < size:
        operations.append(dist.P2POp(dist.isend, value, dist.get_global_rank(group, rank + shift), group))
    if 0 <= rank - shift < size:
        found = torch.empty_like(value)
        operations.append(dist.P2POp(dist.irecv, found, dist.get_global_rank(group, rank - shift), group))
    if operations:
        for work in dist.batch_isend_irecv(operations):
            work.wait()
    return found


def _from_last(value: Tensor, group: Any) -> Tensor:
    """The value of the last rank, on all of them."""
    value = value.clone(memory_format=torch.contiguous_format)
    dist.broadcast(value, dist.get_global_rank(group, dist.get_world_size(group) - 1), group=group)
    return value


def _summed(value: Tensor, group: Any) -> Tensor:
    value = value.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(value, group=group)
    return value
