"""The public scan: checks its arguments, picks a backend, and carries the gradients.

The fast backends are operators of `torch.library`, so autograd, `torch.compile` and the profiler see them as one
operation each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch._C import _len_torch_dispatch_stack
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import forward_ad

from latchwork.ops import reference

BACKENDS = ("auto", "reference", "cpu")
_DTYPES = (torch.float32, torch.float64)


def minmax_scan(
    r: Tensor,
    s: Tensor,
    state: Tensor | None = None,
    *,
    x0: Tensor | None = None,
    mask: Tensor | None = None,
    reset: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """Run x_t = max(min(r_t, x_{t−1}), s_t) over time for many scalar units at once.

    Arguments:
        r, s: [B, T, D] reset and set values, float32 or float64; any strides.
        state: [B, D] the state before the first step; `x0` by default. With `cu_seqlens` [1, D], it is where the
            first document starts.
        x0: [D] or [B, D] the state to which resets go; zeros by default.
        mask: [B, T] bool; at False the state is kept (padding) and x repeats it.
        reset: [B, T] bool; at True the state becomes x0 before the step (with mask False it stays x0).
        cu_seqlens: [N + 1] integers 0 = c_0 < c_1 < … < c_N = T: N documents packed in one row (B = 1). Document i
            holds the steps c_i … c_{i+1} − 1 and nothing of one document reaches another.
        backend: "cpu" (compiled kernels), "reference" (a loop; the specification), or "auto": "cpu" for tensors on
            the CPU and "reference" elsewhere.

    Returns:
        x [B, T, D] every state; last [B, D] the last one, or [N, D] the last of every document. No operation
        rounds: all backends and thread counts return the same values. Gradients go step by step to the active
        operand; ties share evenly.

    Raises:
        TypeError, ValueError: shapes, dtypes or devices that do not fit; an unknown or unavailable backend.

    Source: arXiv 2605.06384, §4. NaN in r, s or the state wins over numbers, as in `torch.maximum`.
    """
    _check_tensors("r", r, s)
    if r.ndim != 3 or r.shape != s.shape:
        raise ValueError(f"r and s must both be [B, T, D], got r {tuple(r.shape)} and s {tuple(s.shape)}")
    return _scan(_SCALAR, r, s, state, x0, mask, reset, cu_seqlens, backend)


def minmax_matrix_scan(
    R: Tensor,  # noqa: N803  (the paper's name)
    s: Tensor,
    state: Tensor | None = None,
    *,
    x0: Tensor | None = None,
    mask: Tensor | None = None,
    reset: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """Run x_t = (R_t ⊗ x_{t−1}) ⊕ s_t over time for many vector units of degree n at once.

    Row i of the new state is max(max_k min(R[i, k], x[k]), s[i]).

    Arguments:
        R: [B, T, U, n, n] reset matrices, float32 or float64; any strides, any degree n.
        s: [B, T, U, n] set vectors.
        state: [B, U, n] the state before the first step; `x0` by default.
        x0: [U, n] or [B, U, n] the state to which resets go; zeros by default.
        mask, reset, cu_seqlens, backend: as in `minmax_scan`.

    Returns:
        x [B, T, U, n] every state; last [B, U, n] the last one, or [N, U, n] the last of every document. Gradients
        go step by step to the active operands; ties over k share evenly, as do ties with s.

    Raises:
        TypeError, ValueError: as in `minmax_scan`.

    Source: arXiv 2605.06384, §4.
    """
    _check_tensors("R", R, s)
    if R.ndim != 5 or s.ndim != 4 or R.shape != (*s.shape, s.shape[-1]):
        raise ValueError(f"R must be [B, T, U, n, n] and s [B, T, U, n], got R {tuple(R.shape)} and s {tuple(s.shape)}")
    return _scan(_VECTOR, R, s, state, x0, mask, reset, cu_seqlens, backend)


def _scan(kind: _Kind, r, s, state, x0, mask, reset, cu_seqlens, backend) -> tuple[Tensor, Tensor]:
    batch, units = s.shape[0], s.shape[2:]
    x0 = s.new_zeros(units) if x0 is None else _like(x0, "x0", s, tuple(units), (batch, *units))
    x0 = x0.expand(batch, *units)
    state = x0 if state is None else _like(state, "state", s, (batch, *units))
    mask = None if mask is None else check_flags(mask, "mask", s)
    reset = None if reset is None else check_flags(reset, "reset", s)
    if cu_seqlens is not None:
        reset = join_boundaries(reset, check_cu_seqlens(cu_seqlens, s))
    scan = _resolve(kind, backend, s, (r, s, state, x0))
    x, last = scan(r, s, state, x0, mask, reset)
    if cu_seqlens is not None:
        last = x[0, cu_seqlens[1:].long() - 1]
    return x, last


class _Kind(NamedTuple):
    """The implementations for one kind of unit; all share their arguments and results with the reference."""

    reference: Callable
    kernel: Callable
    operator: Callable


def _operators(name: str, forward: Callable, backward: Callable) -> Callable:
    """Register kernels with PyTorch as one differentiable operator."""
    operator = torch.library.custom_op(f"latchwork::{name}", forward, mutates_args=(), device_types="cpu")
    gradient = torch.library.custom_op(f"latchwork::{name}_backward", backward, mutates_args=(), device_types="cpu")

    @operator.register_fake
    def _(r, s, state, x0, mask, reset):
        return s.new_empty(s.shape), state.new_empty(state.shape)

    @gradient.register_fake
    def _(grad_x, grad_last, r, s, state, x0, mask, reset, x):
        return r.new_empty(r.shape), s.new_empty(s.shape), state.new_empty(state.shape), state.new_empty(state.shape)

    def save(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output[0])

    def differentiate(ctx, grad_x, grad_last):
        return *gradient(grad_x, grad_last, *ctx.saved_tensors), None, None

    operator.register_autograd(differentiate, setup_context=save)
    return operator


# The kernels are imported inside: they import numba, which is not to be loaded before it is needed.


def _scalar(
    r: Tensor, s: Tensor, state: Tensor, x0: Tensor, mask: Tensor | None, reset: Tensor | None
) -> tuple[Tensor, Tensor]:
    from latchwork.ops import cpu

    return cpu.minmax_scan(r, s, state, x0, mask, reset)


def _scalar_backward(
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
    from latchwork.ops import cpu

    return cpu.minmax_scan_backward(grad_x, grad_last, r, s, state, x0, mask, reset, x)


def _vector(
    r: Tensor, s: Tensor, state: Tensor, x0: Tensor, mask: Tensor | None, reset: Tensor | None
) -> tuple[Tensor, Tensor]:
    from latchwork.ops import cpu_matrix

    return cpu_matrix.minmax_matrix_scan(r, s, state, x0, mask, reset)


def _vector_backward(
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
    from latchwork.ops import cpu_matrix

    return cpu_matrix.minmax_matrix_scan_backward(grad_x, grad_last, r, s, state, x0, mask, reset, x)


_SCALAR = _Kind(reference.minmax_scan, _scalar, _operators("minmax_scan", _scalar, _scalar_backward))
_VECTOR = _Kind(reference.minmax_matrix_scan, _vector, _operators("minmax_matrix_scan", _vector, _vector_backward))


def _resolve(kind: _Kind, backend: str, r: Tensor, inputs: tuple[Tensor, ...]) -> Callable:
    if backend not in BACKENDS:
        raise ValueError(
            f"backend {backend!r} is not available in this installation; choose one of {', '.join(BACKENDS)}"
        )
    on_cpu = r.device.type == "cpu"
    if backend == "cpu" and not on_cpu:
        raise ValueError(f'backend "cpu" needs tensors on the CPU, got r on {r.device}; use backend="auto"')
    if forward_ad._current_level >= 0 and backend == "cpu":
        raise NotImplementedError('backend "cpu" has no forward-mode derivatives; use backend="reference"')
    if backend == "reference" or not on_cpu or forward_ad._current_level >= 0:
        return kind.reference
    return kind.kernel if _is_plain(inputs) else kind.operator


def _is_plain(inputs: tuple[Tensor, ...]) -> bool:
    """Whether nobody watches: no gradient, no tracing, no transform. The operator's layers then cost time only."""
    if torch.compiler.is_compiling() or (torch.is_grad_enabled() and any(a.requires_grad for a in inputs)):
        return False
    return (
        all(type(a) is Tensor for a in inputs) and not _len_torch_dispatch_stack() and peek_interpreter_stack() is None
    )


def _check_tensors(r_name: str, r: Tensor, s: Tensor) -> None:
    for name, a in ((r_name, r), ("s", s)):
        if not isinstance(a, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(a).__name__}")
    if r.dtype != s.dtype or r.device != s.device:
        raise TypeError(
            f"{r_name} and s must share dtype and device, got {r.dtype} on {r.device} and {s.dtype} on {s.device}"
        )
    if r.dtype not in _DTYPES:
        raise TypeError(
            f"{r_name} and s must be float32 or float64, got {r.dtype}; convert them, for example with .float()"
        )


def _like(a: Tensor, name: str, r: Tensor, *shapes: tuple[int, ...]) -> Tensor:
    if not isinstance(a, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(a).__name__}")
    if tuple(a.shape) not in shapes:
        wanted = " or ".join(str(shape) for shape in shapes)
        raise ValueError(f"{name} must be {wanted} beside r and s of {tuple(r.shape)}, got {tuple(a.shape)}")
    if a.dtype != r.dtype or a.device != r.device:
        raise TypeError(f"{name} must be {r.dtype} on {r.device} like r, got {a.dtype} on {a.device}")
    return a


def check_flags(flags: Tensor, name: str, like: Tensor) -> Tensor:
    """Refuse a mask or reset that is not bool [B, T] beside `like` [B, T, …]."""
    if not isinstance(flags, Tensor) or flags.dtype != torch.bool:
        kind = flags.dtype if isinstance(flags, Tensor) else type(flags).__name__
        raise TypeError(f"{name} must be a bool tensor, got {kind}")
    if flags.shape != like.shape[:2]:
        raise ValueError(f"{name} must be [B, T] = {tuple(like.shape[:2])}, got {tuple(flags.shape)}")
    if flags.device != like.device:
        raise TypeError(f"{name} must be on {like.device}, got {flags.device}")
    return flags.contiguous()


def check_cu_seqlens(cu_seqlens: Tensor, like: Tensor) -> Tensor:
    """The first steps [B, T] bool of the documents but the first; refuses boundaries that do not fit `like`."""
    batch, time = like.shape[:2]
    if not isinstance(cu_seqlens, Tensor) or cu_seqlens.dtype not in (torch.int32, torch.int64):
        raise TypeError("cu_seqlens must be an int32 or int64 tensor [N + 1] of document boundaries")
    if batch != 1:
        raise ValueError(f"cu_seqlens packs documents in one row, so B must be 1, got {batch}")
    c = cu_seqlens
    if c.ndim != 1 or len(c) < 2 or c[0] != 0 or c[-1] != time or bool((c[1:] <= c[:-1]).any()):
        raise ValueError(f"cu_seqlens must rise from 0 to T = {time} without empty documents, got {c.tolist()}")
    first = torch.zeros(1, time, dtype=torch.bool, device=like.device)
    first[0, c[1:-1].long()] = True
    return first


def join_boundaries(reset: Tensor | None, first: Tensor) -> Tensor:
    """Document boundaries are resets, beside those that are asked for."""
    return first if reset is None else reset | first
