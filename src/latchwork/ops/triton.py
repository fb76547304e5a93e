"""The scan on NVIDIA GPUs, in Triton: one pass over memory forward, one backward.

Scalar units: a program owns some steps of a few columns. It holds them in registers, composes them, waits for the state
before them, hands on the state after them, and only then writes its steps. A state that is handed on is its own flag:
memory is filled with a NaN that no program writes, and whoever waits reads until it is gone. Programs are numbered so
that whoever is waited for has a smaller number, and the hardware starts them in that order. Steps that are masked or
past the end are identities, which for scalar units are exact, NaN included; gradients never look at them.

Gradients are carried in float64. States inside a program's steps are computed again from the one before them, so of x
only every so manieth row is read.

Notation: B batch, T time, D scalar units, U vector units, n degree; a *line* is one block of columns in one row.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_STEPS = 32  # that a program of scalar units holds in registers
_LANES = {1: 128, 2: 64, 4: 32, 8: 32}  # columns of a program by the bytes of an element: a warp reads whole lines


def scan(
    r: Tensor,
    s: Tensor,
    state: Tensor,
    x0: Tensor,
    mask: Tensor | None,
    reset: Tensor | None,
    *,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Arguments and results as in `latchwork.ops.reference.scan`.

    `out` is a contiguous tensor for x; by default a new one is made.
    """
    x = torch.empty(s.shape, dtype=s.dtype, device=s.device) if out is None else out
    if s.numel() == 0:
        return x, state.clone()
    last = torch.empty(state.shape, dtype=state.dtype, device=s.device)
    _scalar_states(r, s, state, x0, mask, reset, x, last, None)
    return x, last


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
    *,
    out: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of r, s, state and x0 from those of x and last; `out` are contiguous tensors for those of r and s."""
    grad_r, grad_s = out or (torch.empty(a.shape, dtype=a.dtype, device=a.device) for a in (r, s))
    if s.numel() == 0:
        return grad_r, grad_s, grad_last.clone(), torch.zeros_like(state)
    exact, starts = None, None
    if x.dtype != state.dtype:  # x may have lost digits of `state` and `x0`; only the device knows
        exact = _fits(state, x.dtype) & _fits(x0, x.dtype)
        starts = _scalar_states(r, s, state, x0, mask, reset, None, None, exact)
    batch, time, units = s.shape
    plan = _plan(s)
    chunks, lines, lanes = plan
    grad_state = torch.empty(state.shape, dtype=state.dtype, device=s.device)
    handed = _nothing_handed(chunks, lines * lanes, torch.float64, s.device)
    to_x0 = None if reset is None else torch.empty(chunks, batch, units, dtype=torch.float64, device=s.device)
    with torch.cuda.device_of(s):
        _scalar_backward[(chunks * lines,)](
            *(r, s, state, x0, _bytes(mask), _bytes(reset), x.contiguous(), exact, starts),
            *(grad_x, grad_last, grad_r, grad_s, grad_state, to_x0, handed),
            *(time, units, chunks, lines, lines // batch),
            *(*r.stride(), *s.stride(), *state.stride(), *x0.stride(), *grad_x.stride(), *grad_last.stride()),
            STEPS=_STEPS,
            LANES=lanes,
            num_warps=1,
        )
    grad_x0 = torch.zeros_like(grad_state) if to_x0 is None else to_x0.sum(dim=0).to(state.dtype)
    return grad_r, grad_s, grad_state, grad_x0


def _scalar_states(r, s, state, x0, mask, reset, x, last, skip) -> Tensor:
    """Run scalar units into `x` and `last`; returns the states that were handed on. Nothing happens if `skip` holds."""
    batch, time, units = s.shape
    chunks, lines, lanes = _plan(s)
    handed = _nothing_handed(chunks, lines * lanes, state.dtype, s.device)
    with torch.cuda.device_of(s):
        _scalar_forward[(chunks * lines,)](
            *(r, s, state, x0, _bytes(mask), _bytes(reset), x, last, handed, skip),
            *(time, units, chunks, lines, lines // batch),
            *(*r.stride(), *s.stride(), *state.stride(), *x0.stride()),
            STEPS=_STEPS,
            LANES=lanes,
            num_warps=1,
        )
    return handed


def _plan(s: Tensor) -> tuple[int, int, int]:
    """Chunks of time, lines, and columns of a line; they depend on the shape and dtype only."""
    batch, time, units = s.shape
    lanes = _LANES[s.element_size()]
    return triton.cdiv(time, _STEPS), batch * triton.cdiv(units, lanes), lanes


def _nothing_handed(chunks: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Room [chunks, width] for what chunks hand on, as the bits of numbers; all ones: a NaN that nobody writes."""
    return torch.full((chunks, width), -1, dtype=torch.int64 if dtype == torch.float64 else torch.int32, device=device)


def _bytes(flags: Tensor | None) -> Any:
    return None if flags is None else flags.view(torch.uint8)


def _fits(a: Tensor, dtype: torch.dtype) -> Tensor:
    """Whether every value of `a` is a number of type `dtype`, known on the device."""
    return torch.isclose(a, a.to(dtype).to(a.dtype), rtol=0, atol=0, equal_nan=True).all()


@triton.jit
def _meet(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _join(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _share(a, b, a_wins):
    """1 where a wins, ½ at a tie, else 0; NaN beats numbers and two NaN tie."""
    nan_a, nan_b = a != a, b != b
    tie = (a == b) | (nan_a & nan_b)
    return tl.where(tie, 0.5, tl.where((a_wins & (nan_b == 0)) | nan_a, 1.0, 0.0))


@triton.jit
def _times(weight, g):
    """weight · g, where a weight of zero takes nothing of an infinite gradient either."""
    return tl.where(weight == 0, 0.0, weight * g)


@triton.jit
def _hand_on(pointers, a):
    """Every NaN becomes the same one, which is not the one that says that nothing was handed on."""
    a = tl.where(a != a, float("nan"), a)
    tl.store(pointers, a.to(pointers.dtype.element_ty, bitcast=True))


@triton.jit
def _receive(pointers, dtype: tl.constexpr):
    bits = tl.load(pointers, volatile=True)
    while tl.max((bits == -1).to(tl.int32), axis=0) != 0:
        bits = tl.load(pointers, volatile=True)
    return bits.to(dtype, bitcast=True)


@triton.jit
def _real(lane, mask, at, inside):
    """The lanes in which the step `at` of all rows is there and not masked."""
    real = tl.where(inside, lane, False)
    if mask is not None:
        real = tl.where(tl.load(mask + at, mask=inside, other=0) != 0, real, False)
    return real


@triton.jit
def _scalar_forward(
    r,
    s,
    state,
    x0,
    mask,
    reset,
    x,
    last,
    handed,
    skip,
    time,
    units,
    chunks,
    lines,
    row_lines,
    r_b,
    r_t,
    r_d,
    s_b,
    s_t,
    s_d,
    state_b,
    state_d,
    x0_b,
    x0_d,
    STEPS: tl.constexpr,  # noqa: N803  (Triton's custom)
    LANES: tl.constexpr,  # noqa: N803
):
    if skip is not None:
        if tl.load(skip):  # noqa: SIM102  (the first is decided when this is compiled)
            return
    chunk, line = tl.program_id(0) // lines, tl.program_id(0) % lines
    row = (line // row_lines).to(tl.int64)
    column = ((line % row_lines) * LANES + tl.arange(0, LANES)).to(tl.int64)
    lane = column < units
    first = chunk.to(tl.int64) * STEPS
    real_type: tl.constexpr = state.dtype.element_ty
    start = tl.load(x0 + row * x0_b + column * x0_d, mask=lane)
    r += row * r_b + first * r_t + column * r_d
    s += row * s_b + first * s_t + column * s_d
    resets = ()
    sets = ()
    fresh = ()
    for t in tl.static_range(STEPS):
        inside = first + t < time
        real = _real(lane, mask, row * time + first + t, inside)
        resets += (tl.load(r, mask=real, other=float("inf")),)
        sets += (tl.load(s, mask=real, other=float("-inf")),)
        r += r_t
        s += s_t
        if reset is not None:
            fresh += (tl.load(reset + row * time + first + t, mask=inside, other=0) != 0,)

    total_r = tl.full((LANES,), float("inf"), real_type)
    total_s = tl.full((LANES,), float("-inf"), real_type)
    known = False  # after a reset the state does not depend on the one before the chunk
    for t in tl.static_range(STEPS):
        if reset is not None:
            total_s = tl.where(fresh[t], start, total_s)
            known = known | fresh[t]
        step_r = resets[t].to(real_type)
        total_r = _meet(step_r, total_r)
        total_s = _join(_meet(step_r, total_s), sets[t].to(real_type))

    width = lines * LANES
    handed += chunk.to(tl.int64) * width + line * LANES + tl.arange(0, LANES)
    if chunk == 0:
        h = tl.load(state + row * state_b + column * state_d, mask=lane)
    else:
        h = _receive(handed - width, real_type)
    if chunk + 1 < chunks:
        after = _join(_meet(total_r, h), total_s)
        if reset is not None:
            after = tl.where(known, total_s, after)
        _hand_on(handed, after)

    if x is not None:
        x += (row * time + first) * units + column
        for t in tl.static_range(STEPS):
            if reset is not None:
                h = tl.where(fresh[t], start, h)
            h = _join(_meet(resets[t].to(real_type), h), sets[t].to(real_type))
            tl.store(x, h.to(x.dtype.element_ty), mask=tl.where(first + t < time, lane, False))
            x += units
        if chunk + 1 == chunks:
            tl.store(last + row * units + column, h, mask=lane)


@triton.jit
def _scalar_backward(
    r,
    s,
    state,
    x0,
    mask,
    reset,
    x,
    exact,
    starts,
    grad_x,
    grad_last,
    grad_r,
    grad_s,
    grad_state,
    to_x0,
    handed,
    time,
    units,
    chunks,
    lines,
    row_lines,
    r_b,
    r_t,
    r_d,
    s_b,
    s_t,
    s_d,
    state_b,
    state_d,
    x0_b,
    x0_d,
    gx_b,
    gx_t,
    gx_d,
    glast_b,
    glast_d,
    STEPS: tl.constexpr,  # noqa: N803
    LANES: tl.constexpr,  # noqa: N803
):
    chunk, line = chunks - 1 - tl.program_id(0) // lines, tl.program_id(0) % lines
    row = (line // row_lines).to(tl.int64)
    lanes = tl.arange(0, LANES)
    column = ((line % row_lines) * LANES + lanes).to(tl.int64)
    lane = column < units
    first = chunk.to(tl.int64) * STEPS
    width = lines * LANES
    kept = chunk.to(tl.int64) * width + line * LANES + lanes
    real_type: tl.constexpr = state.dtype.element_ty
    start = tl.load(x0 + row * x0_b + column * x0_d, mask=lane)
    r += row * r_b + first * r_t + column * r_d
    s += row * s_b + first * s_t + column * s_d
    grad_x += row * gx_b + first * gx_t + column * gx_d
    resets = ()
    sets = ()
    upstream = ()
    reals = ()
    fresh = ()
    for t in tl.static_range(STEPS):
        inside = first + t < time
        real = _real(lane, mask, row * time + first + t, inside)
        reals += (real,)
        resets += (tl.load(r, mask=real, other=float("inf")),)
        sets += (tl.load(s, mask=real, other=float("-inf")),)
        upstream += (tl.load(grad_x, mask=tl.where(inside, lane, False), other=0.0),)
        r += r_t
        s += s_t
        grad_x += gx_t
        if reset is not None:
            fresh += (tl.load(reset + row * time + first + t, mask=inside, other=0) != 0,)

    if chunk == 0:
        h = tl.load(state + row * state_b + column * state_d, mask=lane)
    else:
        h = tl.load(x + (row * time + first - 1) * units + column, mask=lane).to(real_type)
        if exact is not None:
            if tl.load(exact) == 0:  # noqa: SIM102
                h = tl.load(starts + kept - width).to(real_type, bitcast=True)
    of_meets = ()
    of_xs = ()
    for t in tl.static_range(STEPS):
        step_r, step_s = resets[t].to(real_type), sets[t].to(real_type)
        if reset is not None:
            h = tl.where(fresh[t], start, h)
        meet = _meet(step_r, h)
        # a step that is not real hands everything to the state before it
        of_meets += (tl.where(reals[t], _share(meet, step_s, meet > step_s), 1.0),)
        of_xs += (tl.where(reals[t], _share(h, step_r, h < step_r), 1.0),)
        h = _join(meet, step_s)

    product = tl.full((LANES,), 1.0, tl.float64)
    total = tl.zeros((LANES,), tl.float64)
    for t in tl.static_range(STEPS - 1, -1, -1):
        weight = (of_meets[t] * of_xs[t]).to(tl.float64)
        total = _times(weight, upstream[t].to(tl.float64) + total)
        product *= weight
        if reset is not None:
            total = tl.where(fresh[t], 0.0, total)
            product = tl.where(fresh[t], 0.0, product)

    handed += kept
    if chunk + 1 == chunks:
        g = tl.load(grad_last + row * glast_b + column * glast_d, mask=lane, other=0.0).to(tl.float64)
    else:
        g = _receive(handed + width, tl.float64)
    if chunk > 0:
        _hand_on(handed, _times(product, g) + total)

    shared = tl.zeros((LANES,), tl.float64)
    grad_r += (row * time + first + STEPS) * units + column
    grad_s += (row * time + first + STEPS) * units + column
    for t in tl.static_range(STEPS - 1, -1, -1):
        grad_r -= units
        grad_s -= units
        writes = tl.where(first + t < time, lane, False)
        of_meet, of_x = of_meets[t].to(tl.float64), of_xs[t].to(tl.float64)
        g += upstream[t].to(tl.float64)
        to_r, to_s = _times(of_meet * (1 - of_x), g), _times(1 - of_meet, g)
        tl.store(grad_r, to_r.to(real_type).to(grad_r.dtype.element_ty), mask=writes)
        tl.store(grad_s, to_s.to(real_type).to(grad_s.dtype.element_ty), mask=writes)
        g = _times(of_meet * of_x, g)
        if reset is not None:
            shared += tl.where(fresh[t], g, 0.0)
            g = tl.where(fresh[t], 0.0, g)
    if to_x0 is not None:
        tl.store(to_x0 + (chunk.to(tl.int64) * (lines // row_lines) + row) * units + column, shared, mask=lane)
    if chunk == 0:
        tl.store(grad_state + row * units + column, g.to(real_type), mask=lane)
