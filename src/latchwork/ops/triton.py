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
_TILE, _VECTOR_STEPS = 64, 8  # matrix values of a program of vector units; steps, an even number, read at once
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
    states = _scalar_states if r.ndim == s.ndim else _vector_states
    states(r, s, state, x0, mask, reset, x, last, None)
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
    grad_state = torch.empty(state.shape, dtype=state.dtype, device=s.device)
    exact = None if x.dtype == state.dtype else _fits(state, x.dtype) & _fits(x0, x.dtype)
    gradients = _scalar_gradients if r.ndim == s.ndim else _vector_gradients
    to_x0 = gradients(
        *(grad_x, grad_last, r, s, state, x0, mask, reset, x.contiguous(), exact), *(grad_r, grad_s, grad_state)
    )
    return grad_r, grad_s, grad_state, torch.zeros_like(grad_state) if to_x0 is None else to_x0.to(state.dtype)


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


def _scalar_gradients(
    grad_x, grad_last, r, s, state, x0, mask, reset, x, exact, grad_r, grad_s, grad_state
) -> Tensor | None:
    """Write the gradients of r, s and state; returns that of x0, or None without resets.

    Where `exact` does not hold, x has lost digits of `state` or `x0`, and is computed again.
    """
    batch, time, units = s.shape
    chunks, lines, lanes = _plan(s)
    starts = None if exact is None else _scalar_states(r, s, state, x0, mask, reset, None, None, exact)
    handed = _nothing_handed(chunks, lines * lanes, torch.float64, s.device)
    to_x0 = None if reset is None else torch.empty(chunks, batch, units, dtype=torch.float64, device=s.device)
    with torch.cuda.device_of(s):
        _scalar_backward[(chunks * lines,)](
            *(r, s, state, x0, _bytes(mask), _bytes(reset), x, exact, starts),
            *(grad_x, grad_last, grad_r, grad_s, grad_state, to_x0, handed),
            *(time, units, chunks, lines, lines // batch),
            *(*r.stride(), *s.stride(), *state.stride(), *x0.stride(), *grad_x.stride(), *grad_last.stride()),
            STEPS=_STEPS,
            LANES=lanes,
            num_warps=1,
        )
    return None if to_x0 is None else to_x0.sum(dim=0)


def _vector_states(r, s, state, x0, mask, reset, x, last, skip) -> None:
    """Run vector units into `x` and `last`. Nothing happens if `skip` holds."""
    batch, time, units, degree = s.shape
    blocks, sizes = _vector_plan(units, degree)
    with torch.cuda.device_of(s):
        _vector_forward[(batch * blocks,)](
            *(r, s, state, x0, _bytes(mask), _bytes(reset), x, last, skip),
            *(time, units, blocks),
            *(*r.stride(), *s.stride(), *state.stride(), *x0.stride()),
            **sizes,
            num_warps=1,
        )


def _vector_gradients(
    grad_x, grad_last, r, s, state, x0, mask, reset, x, exact, grad_r, grad_s, grad_state
) -> Tensor | None:
    """As `_scalar_gradients`."""
    batch, time, units, degree = s.shape
    blocks, sizes = _vector_plan(units, degree)
    wide = None
    if exact is not None:
        wide = torch.empty(x.shape, dtype=state.dtype, device=s.device)
        _vector_states(r, s, state, x0, mask, reset, wide, torch.empty_like(grad_state), exact)
    to_x0 = None if reset is None else torch.empty(state.shape, dtype=torch.float64, device=s.device)
    with torch.cuda.device_of(s):
        _vector_backward[(batch * blocks,)](
            *(r, s, state, x0, _bytes(mask), _bytes(reset), x, exact, wide),
            *(grad_x, grad_last, grad_r, grad_s, grad_state, to_x0),
            *(time, units, blocks),
            *(*r.stride(), *s.stride(), *state.stride(), *x0.stride(), *grad_x.stride(), *grad_last.stride()),
            **sizes,
            num_warps=1,
        )
    return to_x0


def _plan(s: Tensor) -> tuple[int, int, int]:
    """Chunks of time, lines, and columns of a line; they depend on the shape and dtype only."""
    batch, time, units = s.shape
    lanes = _LANES[s.element_size()]
    return triton.cdiv(time, _STEPS), batch * triton.cdiv(units, lanes), lanes


def _vector_plan(units: int, degree: int) -> tuple[int, dict[str, int]]:
    """Blocks of units in a row, and how a program is cut: units, and n rounded up to a power of two."""
    padded = triton.next_power_of_2(degree)
    block = max(1, _TILE // padded**2)
    return triton.cdiv(units, block), {"UNITS": block, "N": padded, "DEGREE": degree, "STEPS": _VECTOR_STEPS}


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
def _is_real(mask, at, inside):
    """Whether the step `at` of all rows is there and not masked."""
    real = inside
    if mask is not None:
        real = tl.load(mask + at, mask=inside, other=0) != 0
    return real


@triton.jit
def _vector_forward(
    r,
    s,
    state,
    x0,
    mask,
    reset,
    x,
    last,
    skip,
    time,
    units,
    blocks,
    r_b,
    r_t,
    r_u,
    r_i,
    r_k,
    s_b,
    s_t,
    s_u,
    s_i,
    state_b,
    state_u,
    state_i,
    x0_b,
    x0_u,
    x0_i,
    UNITS: tl.constexpr,  # noqa: N803
    N: tl.constexpr,  # noqa: N803
    DEGREE: tl.constexpr,  # noqa: N803
    STEPS: tl.constexpr,  # noqa: N803
):
    if skip is not None:  # noqa: SIM102
        if tl.load(skip):
            return
    row = (tl.program_id(0) // blocks).to(tl.int64)
    unit = ((tl.program_id(0) % blocks) * UNITS + tl.arange(0, UNITS)).to(tl.int64)[:, None]
    i = tl.arange(0, N)[None, :]
    lane = (unit < units) & (i < DEGREE)
    block, axis_1, axis_2 = unit[:, :, None], i[:, :, None], i[:, None, :]
    entry = (block < units) & (axis_1 < DEGREE) & (axis_2 < DEGREE)
    diagonal = axis_1 == axis_2
    real_type: tl.constexpr = state.dtype.element_ty
    start = tl.load(x0 + row * x0_b + unit * x0_u + i * x0_i, mask=lane, other=float("-inf"))
    h = tl.load(state + row * state_b + unit * state_u + i * state_i, mask=lane, other=float("-inf"))
    r += row * r_b + block * r_u
    s += row * s_b + unit * s_u + i * s_i
    x += row * time * units * DEGREE + unit * DEGREE + i
    for first in range(0, time, STEPS):
        at = row * time + first
        resets = ()
        sets = ()
        reals = ()
        fresh = ()
        for t in tl.static_range(STEPS):
            inside = first + t < time
            reals += (_is_real(mask, at + t, inside),)
            # what a step gives lies along the axis that it does not reduce, where the next one has its k
            place = axis_1 * r_i + axis_2 * r_k if t % 2 == 0 else axis_1 * r_k + axis_2 * r_i
            resets += (tl.load(r + place, mask=tl.where(reals[t], entry, False), other=0.0),)
            sets += (tl.load(s, mask=tl.where(reals[t], lane, False), other=float("-inf")),)
            if reset is not None:
                fresh += (tl.load(reset + at + t, mask=inside, other=0) != 0,)
            r += r_t
            s += s_t
        for t in tl.static_range(STEPS):
            if reset is not None:
                h = tl.where(fresh[t], start, h)
            over_k = tl.expand_dims(h, 1 + t % 2)
            kept = tl.where(diagonal, over_k, float("-inf"))
            products = _meet(resets[t].to(real_type), over_k)
            products = tl.where(tl.where(reals[t], entry, False), products, kept)
            h = _join(tl.reduce(products, 2 - t % 2, _join), sets[t].to(real_type))
            tl.store(x, h.to(x.dtype.element_ty), mask=tl.where(first + t < time, lane, False))
            x += units * DEGREE
    tl.store(last + (row * units + unit) * DEGREE + i, h, mask=lane)


@triton.jit
def _vector_backward(
    r,
    s,
    state,
    x0,
    mask,
    reset,
    x,
    exact,
    wide,
    grad_x,
    grad_last,
    grad_r,
    grad_s,
    grad_state,
    to_x0,
    time,
    units,
    blocks,
    r_b,
    r_t,
    r_u,
    r_i,
    r_k,
    s_b,
    s_t,
    s_u,
    s_i,
    state_b,
    state_u,
    state_i,
    x0_b,
    x0_u,
    x0_i,
    gx_b,
    gx_t,
    gx_u,
    gx_i,
    glast_b,
    glast_u,
    glast_i,
    UNITS: tl.constexpr,  # noqa: N803
    N: tl.constexpr,  # noqa: N803
    DEGREE: tl.constexpr,  # noqa: N803
    STEPS: tl.constexpr,  # noqa: N803
):
    row = (tl.program_id(0) // blocks).to(tl.int64)
    unit = ((tl.program_id(0) % blocks) * UNITS + tl.arange(0, UNITS)).to(tl.int64)[:, None]
    i = tl.arange(0, N)[None, :]
    lane = (unit < units) & (i < DEGREE)
    block, axis_1, axis_2 = unit[:, :, None], i[:, :, None], i[:, None, :]
    entry = (block < units) & (axis_1 < DEGREE) & (axis_2 < DEGREE)
    diagonal = axis_1 == axis_2
    real_type: tl.constexpr = state.dtype.element_ty
    start = tl.load(x0 + row * x0_b + unit * x0_u + i * x0_i, mask=lane)
    initial = tl.load(state + row * state_b + unit * state_u + i * state_i, mask=lane)
    g = tl.load(grad_last + row * glast_b + unit * glast_u + i * glast_i, mask=lane, other=0.0).to(tl.float64)
    shared = tl.zeros((UNITS, N), tl.float64)
    states = units * DEGREE
    chunks = (time + STEPS - 1) // STEPS
    for chunk in range(chunks):
        first = (chunks - 1 - chunk) * STEPS
        resets = ()
        sets = ()
        befores = ()
        upstream = ()
        reals = ()
        fresh = ()
        for j in tl.static_range(STEPS):
            t = (first + STEPS - 1 - j).to(tl.int64)
            inside = t < time
            reals += (_is_real(mask, row * time + t, inside),)
            takes = tl.where(reals[j], lane, False)
            place = axis_1 * r_i + axis_2 * r_k if j % 2 == 0 else axis_1 * r_k + axis_2 * r_i
            matrix = r + row * r_b + t * r_t + block * r_u + place
            resets += (tl.load(matrix, mask=tl.where(reals[j], entry, False), other=0.0),)
            sets += (tl.load(s + row * s_b + t * s_t + unit * s_u + i * s_i, mask=takes, other=0.0),)
            upstream += (
                tl.load(
                    grad_x + row * gx_b + t * gx_t + unit * gx_u + i * gx_i,
                    mask=tl.where(inside, lane, False),
                    other=0.0,
                ),
            )
            place_x = (row * time + t - 1) * states + unit * DEGREE + i
            takes = tl.where(t > 0, takes, False)
            if exact is None:
                before = tl.load(x + place_x, mask=takes)
            else:
                narrow = tl.load(exact) != 0
                before = tl.where(
                    narrow,
                    tl.load(x + place_x, mask=tl.where(narrow, takes, False)).to(real_type),
                    tl.load(wide + place_x, mask=tl.where(narrow, False, takes)),
                )
            before = tl.where(t > 0, before, initial)
            if reset is not None:
                fresh += (tl.load(reset + row * time + t, mask=inside, other=0) != 0,)
                before = tl.where(fresh[j], start, before)
            befores += (before,)
        for j in tl.static_range(STEPS):
            # rows i lie along axis 1 + j % 2 and columns k along the other one, the next step the other way round
            t = (first + STEPS - 1 - j).to(tl.int64)
            matrix, over_k = resets[j].to(real_type), tl.expand_dims(befores[j], 1 + j % 2)
            products = tl.where(entry, _meet(matrix, over_k), float("-inf"))
            reached = tl.reduce(products, 2 - j % 2, _join)
            step_s = sets[j].to(real_type)
            of_meet = _share(reached, step_s, reached > step_s).to(tl.float64)
            best = tl.expand_dims(reached, 2 - j % 2)
            active = entry & ((products == best) | ((products != products) & (best != best)))
            count = tl.maximum(tl.sum(active.to(tl.int32), 2 - j % 2), 1)
            of_product = tl.where(active, tl.expand_dims(of_meet / count.to(tl.float64), 2 - j % 2), 0.0)
            of_x = _share(over_k, matrix, over_k < matrix).to(tl.float64)
            g += upstream[j].to(tl.float64)
            over_i = tl.expand_dims(g, 2 - j % 2)
            real_entry = tl.where(reals[j], entry, False)
            to_r = tl.where(real_entry, _times(of_product * (1 - of_x), over_i), 0.0)
            to_s = tl.where(reals[j], _times(1 - of_meet, g), 0.0)
            kept = tl.where(diagonal, over_i, 0.0)
            g = tl.sum(
                tl.where(real_entry, _times(of_product * of_x, over_i), tl.where(reals[j], 0.0, kept)), 1 + j % 2
            )
            place = axis_1 * DEGREE + axis_2 if j % 2 == 0 else axis_2 * DEGREE + axis_1
            writes = t < time
            place_s = (row * time + t) * states + unit * DEGREE + i
            place_r = ((row * time + t) * units + block) * (DEGREE * DEGREE) + place
            tl.store(
                grad_r + place_r, to_r.to(real_type).to(grad_r.dtype.element_ty), mask=tl.where(writes, entry, False)
            )
            tl.store(
                grad_s + place_s, to_s.to(real_type).to(grad_s.dtype.element_ty), mask=tl.where(writes, lane, False)
            )
            if reset is not None:
                shared += tl.where(fresh[j], g, 0.0)
                g = tl.where(fresh[j], 0.0, g)
    kept_at = (row * units + unit) * DEGREE + i
    tl.store(grad_state + kept_at, g.to(real_type), mask=lane)
    if to_x0 is not None:
        tl.store(to_x0 + kept_at, shared, mask=lane)


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
    if skip is not None:  # noqa: SIM102  (decided when this is compiled)
        if tl.load(skip):
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
        real = tl.where(_is_real(mask, row * time + first + t, inside), lane, False)
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
        real = tl.where(_is_real(mask, row * time + first + t, inside), lane, False)
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
        if exact is not None:  # noqa: SIM102
            if tl.load(exact) == 0:
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
