"""The scan on NVIDIA GPUs, in Triton: one pass over memory forward, one backward.

Scalar units: a program owns some steps of a few columns. It holds them in registers, composes them, waits for the state
before them, hands on the state after them, and only then writes its steps. A state that is handed on is its own flag:
memory is filled with a NaN that no program writes, and whoever waits reads until it is gone. Programs are numbered so
that whoever is waited for has a smaller number, and the hardware starts them in that order
(docs/decisions/0014-gpu.md). Steps that are masked or past the end are identities, which for scalar units are exact,
NaN included; gradients never look at them.

Gradients are carried in float64. States inside a program's steps are computed again from the one before them, so of x
only the last row before those steps is read.

Notation: B batch, T time, D scalar units, U vector units, n degree; a *line* is one block of columns in one row.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from latchwork.ops.triton_scalar import scalar_backward, scalar_forward
from latchwork.ops.triton_vector import vector_backward, vector_forward

# Steps and columns that a program of scalar units holds in registers, forward by the bytes of an element. A warp reads
# whole lines of memory, but backward there is too much to hold beside a line of small elements.
_FORWARD, _BACKWARD = {2: (32, 64), 4: (32, 32), 8: (32, 32)}, (32, 32)
_BUILD = {"num_warps": 1, "enable_fp_fusion": False}
_TILE, _VECTOR_STEPS = 64, 8  # matrix values of a program of vector units; steps, an even number, read at once


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
    if r.ndim == s.ndim:
        _scalar_states(r, s, state, x0, mask, reset, x, last, None, _FORWARD[s.element_size()])
    else:
        _vector_states(r, s, state, x0, mask, reset, x, last, None)
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
    exact = None if x.dtype == state.dtype else _fits(state, x.dtype) & (x0 is state or _fits(x0, x.dtype))
    gradients = _scalar_gradients if r.ndim == s.ndim else _vector_gradients
    to_x0 = gradients(
        *(grad_x, grad_last, r, s, state, x0, mask, reset, x.contiguous(), exact), *(grad_r, grad_s, grad_state)
    )
    return grad_r, grad_s, grad_state, torch.zeros_like(grad_state) if to_x0 is None else to_x0.to(state.dtype)


def _scalar_states(r, s, state, x0, mask, reset, x, last, skip, cut: tuple[int, int]) -> Tensor:
    """Run scalar units into `x` and `last`; returns the states that were handed on. Nothing happens if `skip` holds."""
    batch, time, units = s.shape
    (steps, lanes), (chunks, lines) = cut, _plan(s, cut)
    handed = _nothing_handed(chunks, lines * lanes, state.dtype, s.device)
    with torch.cuda.device_of(s):
        scalar_forward[(chunks * lines,)](
            *(r, s, state, x0, _bytes(mask), _bytes(reset), x, last, handed, skip),
            *(time, units, chunks, lines, lines // batch),
            *(*r.stride(), *s.stride(), *state.stride(), *x0.stride()),
            STEPS=steps,
            LANES=lanes,
            **_BUILD,
        )
    return handed


def _scalar_gradients(
    grad_x, grad_last, r, s, state, x0, mask, reset, x, exact, grad_r, grad_s, grad_state
) -> Tensor | None:
    """Write the gradients of r, s and state; returns that of x0, or None without resets.

    Where `exact` does not hold, x has lost digits of `state` or `x0`, and is computed again.
    """
    batch, time, units = s.shape
    (steps, lanes), (chunks, lines) = _BACKWARD, _plan(s, _BACKWARD)
    starts = None if exact is None else _scalar_states(r, s, state, x0, mask, reset, None, None, exact, _BACKWARD)
    handed = _nothing_handed(chunks, lines * lanes, torch.float64, s.device)
    to_x0 = None if reset is None else torch.empty(chunks, batch, units, dtype=torch.float64, device=s.device)
    with torch.cuda.device_of(s):
        scalar_backward[(chunks * lines,)](
            *(r, s, state, x0, _bytes(mask), _bytes(reset), x, exact, starts),
            *(grad_x, grad_last, grad_r, grad_s, grad_state, to_x0, handed),
            *(time, units, chunks, lines, lines // batch),
            *(*r.stride(), *s.stride(), *state.stride(), *x0.stride(), *grad_x.stride(), *grad_last.stride()),
            STEPS=steps,
            LANES=lanes,
            **_BUILD,
        )
    return None if to_x0 is None else to_x0.sum(dim=0)


def _vector_states(r, s, state, x0, mask, reset, x, last, skip) -> None:
    """Run vector units into `x` and `last`. Nothing happens if `skip` holds."""
    batch, time, units, degree = s.shape
    blocks, sizes = _vector_plan(units, degree)
    with torch.cuda.device_of(s):
        vector_forward[(batch * blocks,)](
            *(r, s, state, x0, _bytes(mask), _bytes(reset), x, last, skip),
            *(time, units, blocks),
            *(*r.stride(), *s.stride(), *state.stride(), *x0.stride()),
            **sizes,
            **_BUILD,
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
        vector_backward[(batch * blocks,)](
            *(r, s, state, x0, _bytes(mask), _bytes(reset), x, exact, wide),
            *(grad_x, grad_last, grad_r, grad_s, grad_state, to_x0),
            *(time, units, blocks),
            *(*r.stride(), *s.stride(), *state.stride(), *x0.stride(), *grad_x.stride(), *grad_last.stride()),
            **sizes,
            **_BUILD,
        )
    return to_x0


def _plan(s: Tensor, cut: tuple[int, int]) -> tuple[int, int]:
    """Chunks of time, and lines; they depend on the shape and dtype only."""
    (batch, time, units), (steps, lanes) = s.shape, cut
    return triton.cdiv(time, steps), batch * triton.cdiv(units, lanes)


def _vector_plan(units: int, degree: int) -> tuple[int, dict[str, int]]:
    """Blocks of units in a row, and how a program is cut: units, and n rounded up to a power of two."""
    padded = triton.next_power_of_2(degree)
    block = max(1, _TILE // padded**2)
    return triton.cdiv(units, block), {"UNITS": block, "N": padded, "DEGREE": degree, "STEPS": _VECTOR_STEPS}


def _nothing_handed(chunks: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Room [chunks, width] for what chunks hand on, as the bits of numbers: all ones, a NaN that nobody writes."""
    return torch.full((chunks, width), -1, dtype=torch.int64 if dtype == torch.float64 else torch.int32, device=device)


def _bytes(flags: Tensor | None) -> Any:
    return None if flags is None else flags.view(torch.uint8)


def _fits(a: Tensor, dtype: torch.dtype) -> Tensor:
    """Whether every value of `a` is a number of type `dtype`, known on the device."""
    return torch.isclose(a, a.to(dtype).to(a.dtype), rtol=0, atol=0, equal_nan=True).all()
