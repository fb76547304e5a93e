"""Triton kernels for vector units; see `latchwork.ops.triton`."""

from __future__ import annotations

import triton
import triton.language as tl

from latchwork.ops.triton_steps import is_real, join, meet, share, times

_ANY = ["time", "blocks"]  # what differs from batch to batch is not compiled again


@triton.jit(do_not_specialize=_ANY)
def vector_forward(
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
    i = tl.arange(0, N)[None, :].to(tl.int64)
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
            reals += (is_real(mask, at + t, inside),)
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
            products = meet(resets[t].to(real_type), over_k)
            products = tl.where(tl.where(reals[t], entry, False), products, kept)
            h = join(tl.reduce(products, 2 - t % 2, join), sets[t].to(real_type))
            tl.store(x, h.to(x.dtype.element_ty), mask=tl.where(first + t < time, lane, False))
            x += units * DEGREE
    tl.store(last + (row * units + unit) * DEGREE + i, h, mask=lane)


@triton.jit(do_not_specialize=_ANY)
def vector_backward(
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
    i = tl.arange(0, N)[None, :].to(tl.int64)
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
            reals += (is_real(mask, row * time + t, inside),)
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
            products = tl.where(entry, meet(matrix, over_k), float("-inf"))
            reached = tl.reduce(products, 2 - j % 2, join)
            step_s = sets[j].to(real_type)
            of_meet = share(reached, step_s, join(reached, step_s)).to(tl.float64)
            best = tl.expand_dims(reached, 2 - j % 2)
            active = entry & ((products == best) | ((products != products) & (best != best)))
            count = tl.maximum(tl.sum(active.to(tl.int32), 2 - j % 2), 1)
            of_product = tl.where(active, tl.expand_dims(of_meet / count.to(tl.float64), 2 - j % 2), 0.0)
            of_x = share(over_k, matrix, meet(matrix, over_k)).to(tl.float64)
            g += upstream[j].to(tl.float64)
            over_i = tl.expand_dims(g, 2 - j % 2)
            real_entry = tl.where(reals[j], entry, False)
            to_r = tl.where(real_entry, times(of_product * (1 - of_x), over_i), 0.0)
            to_s = tl.where(reals[j], times(1 - of_meet, g), 0.0)
            kept = tl.where(diagonal, over_i, 0.0)
            g = tl.sum(tl.where(real_entry, times(of_product * of_x, over_i), tl.where(reals[j], 0.0, kept)), 1 + j % 2)
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
