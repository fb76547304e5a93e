"""The public scan: checks its arguments, picks a backend, and carries the gradients.

The fast backends are operators of `torch.library`, so autograd, `torch.compile` and the profiler see them as one
operation each.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch._C import _len_torch_dispatch_stack
from torch._C._functorch import peek_interpreter_stack

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
    _check(r, s)
    batch, _, units = r.shape
    x0 = r.new_zeros(units) if x0 is None else _like(x0, "x0", r, (units,), (batch, units))
    x0 = x0.expand(batch, units)
    state = x0 if state is None else _like(state, "state", r, (batch, units))
    mask = None if mask is None else check_flags(mask, "mask", r)
    reset = None if reset is None else check_flags(reset, "reset", r)
    if cu_seqlens is not None:
        reset = join_boundaries(reset, check_cu_seqlens(cu_seqlens, r))
    scan = _resolve(backend, r, (r, s, state, x0))
    x, last = scan(r, s, state, x0, mask, reset)
    if cu_seqlens is not None:
        last = x[0, cu_seqlens[1:].long() - 1]
    return x, last


def _kernel(
    r: Tensor, s: Tensor, state: Tensor, x0: Tensor, mask: Tensor | None, reset: Tensor | None
) -> tuple[Tensor, Tensor]:
    from latchwork.ops import cpu  # imports numba, so not before it is needed

    return cpu.minmax_scan(r, s, state, x0, mask, reset)


def _kernel_backward(
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


_operator = torch.library.custom_op("latchwork::minmax_scan", _kernel, mutates_args=(), device_types="cpu")
_operator_backward = torch.library.custom_op(
    "latchwork::minmax_scan_backward", _kernel_backward, mutates_args=(), device_types="cpu"
)


@_operator.register_fake
def _(r, s, state, x0, mask, reset):
    return r.new_empty(r.shape), state.new_empty(state.shape)


@_operator_backward.register_fake
def _(grad_x, grad_last, r, s, state, x0, mask, reset, x):
    return r.new_empty(r.shape), r.new_empty(r.shape), r.new_empty(state.shape), r.new_empty(state.shape)


def _save(ctx, inputs, output):
    ctx.save_for_backward(*inputs, output[0])


def _differentiate(ctx, grad_x, grad_last):
    return *_operator_backward(grad_x, grad_last, *ctx.saved_tensors), None, None


_operator.register_autograd(_differentiate, setup_context=_save)


def _resolve(backend: str, r: Tensor, inputs: tuple[Tensor, ...]) -> Callable:
    if backend not in BACKENDS:
        raise ValueError(
            f"backend {backend!r} is not available in this installation; choose one of {', '.join(BACKENDS)}"
        )
    on_cpu = r.device.type == "cpu"
    if backend == "cpu" and not on_cpu:
        raise ValueError(f'backend "cpu" needs tensors on the CPU, got r on {r.device}; use backend="auto"')
    if backend == "reference" or not on_cpu:
        return reference.minmax_scan
    return _kernel if _is_plain(inputs) else _operator


def _is_plain(inputs: tuple[Tensor, ...]) -> bool:
    """Whether nobody watches: no gradient, no tracing, no transform. The operator's layers then cost time only."""
    if torch.compiler.is_compiling() or (torch.is_grad_enabled() and any(a.requires_grad for a in inputs)):
        return False
    return (
        all(type(a) is Tensor for a in inputs) and not _len_torch_dispatch_stack() and peek_interpreter_stack() is None
    )


def _check(r: Tensor, s: Tensor) -> None:
    for name, a in (("r", r), ("s", s)):
        if not isinstance(a, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(a).__name__}")
    if r.ndim != 3 or r.shape != s.shape:
        raise ValueError(f"r and s must both be [B, T, D], got r {tuple(r.shape)} and s {tuple(s.shape)}")
    if r.dtype != s.dtype or r.device != s.device:
        raise TypeError(
            f"r and s must share dtype and device, got r {r.dtype} on {r.device} and s {s.dtype} on {s.device}"
        )
    if r.dtype not in _DTYPES:
        raise TypeError(f"r and s must be float32 or float64, got {r.dtype}; convert them, for example with .float()")


def _like(a: Tensor, name: str, r: Tensor, *shapes: tuple[int, ...]) -> Tensor:
    if not isinstance(a, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(a).__name__}")
    if tuple(a.shape) not in shapes:
        wanted = " or ".join(str(shape) for shape in shapes)
        raise ValueError(f"{name} must be {wanted} beside r {tuple(r.shape)}, got {tuple(a.shape)}")
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
