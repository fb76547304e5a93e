"""The kernels of the scan on a CPU, as numba compiles them; `latchwork.ops.cpu` says how the work is cut.

A kernel gets the address of a block of int64. The constants make machine code of their own: the types of numbers in
memory and of states, the shape of a group (lanes, columns, degree, `ragged` as in `latchwork.ops.simd.place`), whether
there may be a mask or resets (`flagged`), whether x is written (`stored`), and how many steps are asked for in advance
(`ahead`).
"""

from __future__ import annotations

from itertools import count

from numba import float64, int64, uint8

from latchwork.ops.simd import (
    add,
    as_pointer,
    fetch_add,
    is_published,
    load,
    load_reset,
    meet,
    place,
    prefetch,
    prefetch_reset,
    publish,
    step,
    step_backward,
    store,
    store_reset,
    zeros,
    zeros_reset,
)

# The fields of the block of int64 that a kernel gets: sizes, then addresses and their strides in elements.
_field = count()
NEXT, TILES, ROW_TILES, TILE_GROUPS, GROUPS, BLOCK, T, D = (next(_field) for _ in range(8))
R, R_B, R_T, S, S_B, S_T, START, START_B, X0, X0_B, MASK, RESET, X = (next(_field) for _ in range(13))
LAST, CARRY, FLAGS = (X + 1, X + 2, X + 3)  # of the forward kernels
_field = count(X + 1)  # of the backward kernel
GX, GX_B, GX_T, GLAST, GR, GS, GSTART, GX0, CARRY_G, CARRY_GX0 = (next(_field) for _ in range(10))


def forward_body(memory, real, lanes, columns, degree, ragged, flagged, stored):
    width = lanes * columns

    def forward(a):
        r, s, x = as_pointer(a[R], memory), as_pointer(a[S], memory), as_pointer(a[X], memory)
        start, x0, last = as_pointer(a[START], real), as_pointer(a[X0], real), as_pointer(a[LAST], real)
        mask, reset, carry = as_pointer(a[MASK], uint8), as_pointer(a[RESET], uint8), as_pointer(a[CARRY], real)
        time, states, r_time, s_time = a[T], a[D], a[R_T], a[S_T]
        masked, resets = flagged and a[MASK] != 0, flagged and a[RESET] != 0
        while True:
            tile = fetch_add(a, int64(1))
            if tile >= a[TILES]:
                break
            row = tile // a[ROW_TILES]
            first = (tile - row * a[ROW_TILES]) * a[TILE_GROUPS]
            end = min(first + a[TILE_GROUPS], a[GROUPS])
            for t in range(0, max(time, 1), a[BLOCK]):
                t_end = min(t + a[BLOCK], time)
                for group in range(first, end):
                    at = place(group, states, lanes, columns, degree, ragged)
                    kept, kept_row = place(group, a[GROUPS] * width, lanes, columns, degree, 0), row * a[GROUPS] * width
                    h = load(start, row * a[START_B], at) if t == 0 else load(carry, kept_row, kept)
                    r_row, s_row = row * a[R_B] + t * r_time, row * a[S_B] + t * s_time
                    for i in range(row * time + t, row * time + t_end):
                        if resets and reset[i] != 0:
                            h = load(x0, row * a[X0_B], at)
                        if not masked or mask[i] != 0:
                            h = step(load_reset(r, r_row, at), load(s, s_row, at), h)
                        if stored:
                            store(x, i * states, at, h)
                        r_row += r_time
                        s_row += s_time
                    if t_end == time:
                        store(last, row * states, at, h)
                    else:
                        store(carry, kept_row, kept, h)

    return forward


def chunked_body(memory, real, lanes, columns, degree, ragged, flagged, stored):
    """The forward kernel with chunks of time as tiles: all rows and groups together keep too few threads busy.

    A thread composes the steps of its chunk, waits for the state before it, hands on the state after it, and only then
    runs through the chunk, which its cache still holds: chunks wait for each other's composed step only. Tiles are
    taken in order, so whoever is waited for is at work. After a reset a chunk's last state is known at once.
    """

    def forward(a):
        r, s, x = as_pointer(a[R], memory), as_pointer(a[S], memory), as_pointer(a[X], memory)
        start, x0, last = as_pointer(a[START], real), as_pointer(a[X0], real), as_pointer(a[LAST], real)
        mask, reset, done = as_pointer(a[MASK], uint8), as_pointer(a[RESET], uint8), as_pointer(a[FLAGS], int64)
        after = as_pointer(a[CARRY], real)  # a chunk's composed s, then the state after it; the composed r far behind
        time, states, r_time, s_time = a[T], a[D], a[R_T], a[S_T]
        masked, resets = flagged and a[MASK] != 0, flagged and a[RESET] != 0
        row_states = a[GROUPS] * lanes * columns
        total_r = a[TILES] * row_states
        while True:
            tile = fetch_add(a, int64(1))
            if tile >= a[TILES]:
                break
            row = tile // a[ROW_TILES]
            chunk = tile - row * a[ROW_TILES]
            t = chunk * a[BLOCK]
            t_end = min(t + a[BLOCK], time)
            base, here = row * time, tile * row_states
            handed_on = chunk + 1 == a[ROW_TILES]  # nobody needs the last state of all
            begin = t
            if resets:
                begin = t_end
                while begin > t and reset[base + begin - 1] == 0:
                    begin -= 1
            fresh = resets and begin > t
            if fresh:
                begin -= 1
            elif masked:  # steps before the first real one do not belong to what is composed
                while begin < t_end and mask[base + begin] == 0:
                    begin += 1
            empty = not fresh and begin == t_end
            if not handed_on and not empty:
                for group in range(a[GROUPS]):
                    at = place(group, states, lanes, columns, degree, ragged)
                    kept = place(group, row_states, lanes, columns, degree, 0)
                    r_row, s_row = row * a[R_B] + begin * r_time, row * a[S_B] + begin * s_time
                    meets = load_reset(r, r_row, at)
                    h = load(x0, row * a[X0_B], at) if fresh else load(s, s_row, at)
                    for i in range(base + begin, base + t_end):
                        if not masked or mask[i] != 0:
                            meets = meet(load_reset(r, r_row, at), meets)
                            h = step(load_reset(r, r_row, at), load(s, s_row, at), h)
                        r_row += r_time
                        s_row += s_time
                    store(after, here, kept, h)
                    store(after, here + total_r, kept, meets)
            if fresh and not handed_on:
                publish(done, tile)
                handed_on = True
            while chunk > 0 and not is_published(done, tile - 1):
                pass
            if not handed_on:
                for group in range(a[GROUPS]):
                    at = place(group, states, lanes, columns, degree, ragged)
                    kept = place(group, row_states, lanes, columns, degree, 0)
                    h = load(start, row * a[START_B], at) if chunk == 0 else load(after, here - row_states, kept)
                    if not empty:
                        h = step(load(after, here + total_r, kept), load(after, here, kept), h)
                    store(after, here, kept, h)
                publish(done, tile)
            for group in range(a[GROUPS]):
                at = place(group, states, lanes, columns, degree, ragged)
                kept = place(group, row_states, lanes, columns, degree, 0)
                h = load(start, row * a[START_B], at) if chunk == 0 else load(after, here - row_states, kept)
                r_row, s_row = row * a[R_B] + t * r_time, row * a[S_B] + t * s_time
                for i in range(base + t, base + t_end):
                    if resets and reset[i] != 0:
                        h = load(x0, row * a[X0_B], at)
                    if not masked or mask[i] != 0:
                        h = step(load_reset(r, r_row, at), load(s, s_row, at), h)
                    if stored:
                        store(x, i * states, at, h)
                    r_row += r_time
                    s_row += s_time
                if t_end == time:
                    store(last, row * states, at, h)

    return forward


def backward_body(memory, real, lanes, columns, degree, ragged, flagged, ahead):
    width = lanes * columns

    def backward(a):
        r, s, x = as_pointer(a[R], memory), as_pointer(a[S], memory), as_pointer(a[X], memory)
        start, x0, glast = as_pointer(a[START], real), as_pointer(a[X0], real), as_pointer(a[GLAST], real)
        gx, gr, gs = as_pointer(a[GX], memory), as_pointer(a[GR], memory), as_pointer(a[GS], memory)
        gstart, gx0 = as_pointer(a[GSTART], real), as_pointer(a[GX0], real)
        carry, carry_x0 = as_pointer(a[CARRY_G], float64), as_pointer(a[CARRY_GX0], float64)
        mask, reset = as_pointer(a[MASK], uint8), as_pointer(a[RESET], uint8)
        time, states, r_time, s_time, gx_time = a[T], a[D], a[R_T], a[S_T], a[GX_T]
        masked, resets = flagged and a[MASK] != 0, flagged and a[RESET] != 0
        while True:
            tile = fetch_add(a, int64(1))
            if tile >= a[TILES]:
                break
            row = tile // a[ROW_TILES]
            first = (tile - row * a[ROW_TILES]) * a[TILE_GROUPS]
            end = min(first + a[TILE_GROUPS], a[GROUPS])
            for t_end in range(time, min(time, 1) - 1, -a[BLOCK]):
                t = max(t_end - a[BLOCK], 0)
                for group in range(end - 1, first - 1, -1):
                    at = place(group, states, lanes, columns, degree, ragged)
                    kept, kept_row = place(group, a[GROUPS] * width, lanes, columns, degree, 0), row * a[GROUPS] * width
                    if t_end == time:
                        g = add(zeros(at), load(glast, row * states, at))
                        store(carry_x0, kept_row, kept, zeros(at))
                    else:
                        g = load(carry, kept_row, kept)
                    r_row, s_row = row * a[R_B] + t_end * r_time, row * a[S_B] + t_end * s_time
                    gx_row = row * a[GX_B] + t_end * gx_time
                    for i in range(row * time + t_end - 1, row * time + t - 1, -1):
                        r_row -= r_time
                        s_row -= s_time
                        gx_row -= gx_time
                        if ahead:
                            prefetch_reset(r, r_row - ahead * r_time, at, 0)
                            prefetch(s, s_row - ahead * s_time, at, 0)
                            prefetch(gx, gx_row - ahead * gx_time, at, 0)
                            prefetch(x, (i - ahead) * states, at, 0)
                        is_reset = resets and reset[i] != 0
                        g = add(g, load(gx, gx_row, at))
                        if masked and mask[i] == 0:
                            store_reset(gr, i * states * degree, at, zeros_reset(at))
                            store(gs, i * states, at, zeros(at))
                        else:
                            if is_reset:
                                before = load(x0, row * a[X0_B], at)
                            elif i == row * time:
                                before = load(start, row * a[START_B], at)
                            else:
                                before = load(x, (i - 1) * states, at)
                            g, g_r, g_s = step_backward(load_reset(r, r_row, at), load(s, s_row, at), before, g)
                            store_reset(gr, i * states * degree, at, g_r)
                            store(gs, i * states, at, g_s)
                        if is_reset:
                            store(carry_x0, kept_row, kept, add(load(carry_x0, kept_row, kept), g))
                            g = zeros(at)
                    if t == 0:
                        store(gstart, row * states, at, g)
                        store(gx0, row * states, at, load(carry_x0, kept_row, kept))
                    else:
                        store(carry, kept_row, kept, g)

    return backward
