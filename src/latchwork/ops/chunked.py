"""The scan in plain tensor operations, for devices without a kernel of their own.

Steps compose, so time is cut into about √T chunks of about √T steps, and each operation works on all chunks at once:
first the steps of every chunk are composed, then the state goes from chunk to chunk, then every chunk runs from its
state. Work is linear in T. Gradients go step by step from the stored states, by the same three passes over the weights
that the active operands of each step have.

Notation: B batch, C chunks, T time or the steps of a chunk; [...] is [D] for scalar units, [U, n] for vector units.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


def scan(
    r: Tensor, s: Tensor, state: Tensor, x0: Tensor, mask: Tensor | None, reset: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Arguments and results as in `latchwork.ops.reference.scan`."""
    x = torch.empty(s.shape, dtype=s.dtype, device=s.device)
    last = state.clone()
    if s.numel() == 0:
        return x, last
    length, cut = _cut(s.shape[1])
    if cut:
        parts = _chunks(r, length), _chunks(s, length), _chunks(mask, length), _chunks(reset, length)
        starts = _starts(*parts, state, x0)
        last = _run(*parts, starts, x0.unsqueeze(1), _chunks(x, length))[:, -1].contiguous()
    return x, _run(_rest(r, cut), _rest(s, cut), _rest(mask, cut), _rest(reset, cut), last, x0, _rest(x, cut))


def scan_backward(
    grad_x: Tensor,
    grad_last: Tensor,
    r: Tensor,
    s: Tensor,
    state: Tensor,
    x0: Tensor,
    mask: Tensor | None,
    reset: Tensor | None,
    x: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of r, s, state and x0, from those of x and last; carried in float64 where the device has it."""
    if s.numel() == 0:
        return torch.zeros_like(r), torch.zeros_like(s), grad_last.clone(), torch.zeros_like(x0)
    if x.dtype != state.dtype:  # x may have lost digits of the states that come from `state` and `x0`
        r_, s_ = r.to(state.dtype), s.to(state.dtype)
        x = scan(r_, s_, state, x0, mask, reset)[0]
    else:
        r_, s_ = r, s
    wide = torch.float32 if s.device.type == "mps" else torch.float64
    before = torch.cat([state.unsqueeze(1), x[:, :-1]], dim=1)[:, : s.shape[1]]
    if reset is not None:
        before = torch.where(_over(reset, before), x0.unsqueeze(1), before)
    to_x, to_r, to_s = _weights(r_, s_, before, wide)
    if mask is not None:  # a masked step hands everything to the state before it
        keep = torch.ones_like(to_x) if to_x.ndim == s.ndim else torch.eye(to_x.shape[-1], device=s.device)
        to_x = torch.where(_over(mask, to_x), to_x, keep.to(wide))
        to_r, to_s = (torch.where(_over(mask, a), a, 0) for a in (to_r, to_s))
    chain = to_x if reset is None else torch.where(_over(reset, to_x), 0, to_x)
    total, grad_state = _reverse(chain, grad_x.to(wide), grad_last.to(wide))
    over_rows = total.unsqueeze(-1) if r.ndim > s.ndim else total
    grad_x0 = torch.zeros_like(grad_state)
    if reset is not None:
        grad_x0 = torch.where(_over(reset, total), _back(to_x, total), 0).sum(dim=1)
    grad_r, grad_s = _times(to_r, over_rows).to(r.dtype), _times(to_s, total).to(s.dtype)
    to_state, to_x0 = grad_state.to(state.dtype), grad_x0.to(x0.dtype)
    # contiguous, as whoever compiles this is told
    return grad_r.contiguous(), grad_s.contiguous(), to_state.contiguous(), to_x0.contiguous()


def _cut(time: int) -> tuple[int, int]:
    """Steps in a chunk, and the steps that all chunks have together; too few steps are not cut."""
    length = math.isqrt(time)
    return (length, time - time % length) if length > 1 else (1, 0)


def _chunks(a: Any, length: int) -> Any:
    """[B, T, ...] as [T, B, C, ...] without what is left over; None stays None."""
    if a is None:
        return None
    count = a.shape[1] // length
    return a[:, : count * length].unflatten(1, (count, length)).movedim(2, 0)


def _rest(a: Any, cut: int) -> Any:
    """What is left over, [T, B, ...]."""
    return None if a is None else a[:, cut:].movedim(1, 0)


def _over(flags: Tensor, values: Tensor) -> Tensor:
    """Flags with as many dimensions as the values that they choose among."""
    return flags.reshape(flags.shape + (1,) * (values.ndim - flags.ndim))


def _apply(r: Tensor, s: Tensor, x: Tensor) -> Tensor:
    if r.ndim > s.ndim:
        return torch.maximum(torch.minimum(r, x.unsqueeze(-2)).amax(dim=-1), s)
    return torch.maximum(torch.minimum(r, x), s)


def _compose(r: Tensor, s: Tensor, first_r: Tensor, first_s: Tensor) -> tuple[Tensor, Tensor]:
    """The step that does (first_r, first_s), then (r, s)."""
    if r.ndim > s.ndim:
        return torch.minimum(r.unsqueeze(-1), first_r.unsqueeze(-3)).amax(dim=-2), _apply(r, s, first_s)
    return torch.minimum(r, first_r), _apply(r, s, first_s)


def _run(r, s, mask, reset, x: Tensor, x0: Tensor, out: Tensor) -> Tensor:
    """Go through the steps [T, ...] from x, write every state to `out`, and return the last one."""
    for t in range(s.shape[0]):
        if reset is not None:
            x = torch.where(_over(reset[t], x), x0, x)
        after = _apply(r[t].to(x.dtype), s[t].to(x.dtype), x)
        x = after if mask is None else torch.where(_over(mask[t], x), after, x)
        out[t] = x
    return x


def _starts(r, s, mask, reset, state: Tensor, x0: Tensor) -> Tensor:
    """The state before each chunk of steps [T, B, C, ...], [B, C, ...]."""
    none = torch.zeros(s.shape[1:3], dtype=torch.bool, device=s.device)
    fresh, started = none, none  # whether a reset came, and whether a real step came after it
    total_r, total_s = r[0].to(state.dtype), s[0].to(state.dtype)
    for t in range(s.shape[0]):
        if reset is not None:
            fresh, started = fresh | reset[t], started & ~reset[t]
        step_r, step_s = r[t].to(state.dtype), s[t].to(state.dtype)
        # Before the first real step there is nothing to compose with; an identity in its place would spread NaN.
        both = _compose(step_r, step_s, total_r, total_s)
        next_r, next_s = (torch.where(_over(started, a), a, b) for a, b in zip(both, (step_r, step_s), strict=True))
        real = ~none if mask is None else mask[t]
        total_r, total_s = (
            torch.where(_over(real, next_r), next_r, total_r),
            torch.where(_over(real, next_s), next_s, total_s),
        )
        started = started | real
    states = []
    for c in range(s.shape[2]):
        states.append(state)
        state = torch.where(_over(fresh[:, c], state), x0, state)
        after = _apply(total_r[:, c], total_s[:, c], state)
        state = torch.where(_over(started[:, c], state), after, state)
    return torch.stack(states, dim=1)


def _weights(r: Tensor, s: Tensor, x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """The shares (of x, of r, of s) in the gradient of a step from x; of x and r a matrix for vector units."""
    if r.ndim == s.ndim:
        meet = torch.minimum(r, x)
        of_meet = _share(meet, s, meet > s, dtype)
        of_x = _share(x, r, x < r, dtype)
        return of_meet * of_x, of_meet * (1 - of_x), 1 - of_meet
    products = torch.minimum(r, x.unsqueeze(-2))
    reached = products.amax(dim=-1)
    of_meet = _share(reached, s, reached > s, dtype)
    active = (products == reached.unsqueeze(-1)) | (products.isnan() & reached.isnan().unsqueeze(-1))
    of_product = of_meet.unsqueeze(-1) * active / active.sum(dim=-1, keepdim=True)
    of_x = _share(x.unsqueeze(-2), r, x.unsqueeze(-2) < r, dtype)
    return of_product * of_x, of_product * (1 - of_x), 1 - of_meet


def _share(a: Tensor, b: Tensor, a_wins: Tensor, dtype: torch.dtype) -> Tensor:
    """1 where a wins, ½ at a tie, else 0; NaN beats numbers and two NaN tie."""
    nan_a, nan_b = a.isnan(), b.isnan()
    tie = (a == b) | (nan_a & nan_b)
    return torch.where(tie, 0.5, (a_wins | nan_a) & ~(nan_b & ~nan_a)).to(dtype)


def _times(weight: Tensor, g: Tensor) -> Tensor:
    """weight · g, where a weight of zero takes nothing of an infinite gradient either."""
    return torch.where(weight == 0, 0, weight * g)


def _back(weight: Tensor, g: Tensor) -> Tensor:
    """The gradient of the state before a step, from that of the state after it."""
    return _times(weight, g) if weight.ndim == g.ndim else _times(weight, g.unsqueeze(-1)).sum(dim=-2)


def _reverse(chain: Tensor, upstream: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """Run g_{t−1} = chain_tᵀ (upstream_t + g_t) backwards from g = g_T.

    Returns: upstream_t + g_t at every step, [B, T, ...], and g_0.
    """
    total = torch.empty_like(upstream)
    length, cut = _cut(upstream.shape[1])
    g = _run_back(_rest(chain, cut), _rest(upstream, cut), g, _rest(total, cut))
    if cut:
        parts = _chunks(chain, length), _chunks(upstream, length)
        g = _run_back(*parts, _ends(*parts, g), _chunks(total, length))[:, 0]
    return total, g


def _run_back(chain: Tensor, upstream: Tensor, g: Tensor, out: Tensor) -> Tensor:
    """Go backwards through the steps [T, ...], write each step's gradient to `out`, and return that before them."""
    for t in reversed(range(upstream.shape[0])):
        g = upstream[t] + g
        out[t] = g
        g = _back(chain[t], g)
    return g


def _ends(chain: Tensor, upstream: Tensor, g: Tensor) -> Tensor:
    """The gradient after each chunk of steps [T, B, C, ...], [B, C, ...], if it is g after the last."""
    matrix, sums = chain.ndim > upstream.ndim, torch.zeros_like(upstream[0])
    product: Any = (
        None  # of the chunk's steps so far: the gradient before them is productᵀ·(gradient after them) + sums
    )
    for t in reversed(range(upstream.shape[0])):
        sums = _back(chain[t], upstream[t] + sums)
        product = chain[t] if product is None else product @ chain[t] if matrix else product * chain[t]
    ends = []
    for c in reversed(range(upstream.shape[2])):
        ends.append(g)
        g = sums[:, c] + _back(product[:, c], g)
    return torch.stack(ends[::-1], dim=1)
