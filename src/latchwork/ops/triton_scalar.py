"""Triton kernels for scalar units; see `latchwork.ops.triton`."""

from __future__ import annotations

import triton
import triton.language as tl

from latchwork.ops.triton_steps import hand_on, is_real, join, meet, receive, share, times

_ANY = ["time", "chunks", "lines", "row_lines"]  # what differs from batch to batch is not compiled again


@triton.jit(do_not_specialize=_ANY)
def scalar_forward(
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
        real = tl.where(is_real(mask, row * time + first + t, inside), lane, False)
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
        total_r = meet(step_r, total_r)
        total_s = join(meet(step_r, total_s), sets[t].to(real_type))

    width = lines * LANES
    handed += chunk.to(tl.int64) * width + line * LANES + tl.arange(0, LANES)
    if chunk == 0:
        h = tl.load(state + row * state_b + column * state_d, mask=lane)
    else:
        h = receive(handed - width, real_type)
    if chunk + 1 < chunks:
        after = join(meet(total_r, h), total_s)
        if reset is not None:
            after = tl.where(known, total_s, after)
        hand_on(handed, after)

    if x is not None:
        x += (row * time + first) * units + column
        for t in tl.static_range(STEPS):
            if reset is not None:
                h = tl.where(fresh[t], start, h)
            h = join(meet(resets[t].to(real_type), h), sets[t].to(real_type))
            tl.store(x, h.to(x.dtype.element_ty), mask=tl.where(first + t < time, lane, False))
            x += units
        if chunk + 1 == chunks:
            tl.store(last + row * units + column, h, mask=lane)


@triton.jit(do_not_specialize=_ANY)
def scalar_backward(
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
        real = tl.where(is_real(mask, row * time + first + t, inside), lane, False)
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
        met = meet(step_r, h)
        after = join(met, step_s)
        # a step that is not real hands everything to the state before it
        of_meets += (tl.where(reals[t], share(met, step_s, after), 1.0),)
        of_xs += (tl.where(reals[t], share(h, step_r, met), 1.0),)
        h = after

    product = tl.full((LANES,), 1.0, tl.float32)  # of powers of two: exact
    total = tl.zeros((LANES,), tl.float64)
    for t in tl.static_range(STEPS - 1, -1, -1):
        weight = of_meets[t] * of_xs[t]
        total = times(weight, upstream[t].to(tl.float64) + total)
        product *= weight
        if reset is not None:
            total = tl.where(fresh[t], 0.0, total)
            product = tl.where(fresh[t], 0.0, product)

    handed += kept
    if chunk + 1 == chunks:
        g = tl.load(grad_last + row * glast_b + column * glast_d, mask=lane, other=0.0).to(tl.float64)
    else:
        g = receive(handed + width, tl.float64)
    if chunk > 0:
        hand_on(handed, times(product, g) + total)

    shared = tl.zeros((LANES,), tl.float64)
    grad_r += (row * time + first + STEPS) * units + column
    grad_s += (row * time + first + STEPS) * units + column
    for t in tl.static_range(STEPS - 1, -1, -1):
        grad_r -= units
        grad_s -= units
        writes = tl.where(first + t < time, lane, False)
        of_meet, of_x = of_meets[t], of_xs[t]
        g += upstream[t].to(tl.float64)
        rounded = g.to(real_type)  # once: the weights are powers of two
        to_r, to_s = times(of_meet * (1 - of_x), rounded), times(1 - of_meet, rounded)
        tl.store(grad_r, to_r.to(grad_r.dtype.element_ty), mask=writes)
        tl.store(grad_s, to_s.to(grad_s.dtype.element_ty), mask=writes)
        g = times(of_meet * of_x, g)
        if reset is not None:
            shared += tl.where(fresh[t], g, 0.0)
            g = tl.where(fresh[t], 0.0, g)
    if to_x0 is not None:
        tl.store(to_x0 + (chunk.to(tl.int64) * (lines // row_lines) + row) * units + column, shared, mask=lane)
    if chunk == 0:
        tl.store(grad_state + row * units + column, g.to(real_type), mask=lane)
