"""The public scan: checks its arguments, picks a backend, and carries the gradients.

The fast backends are operators of `torch.library`, so autograd, `torch.compile` and the profiler see them as one
operation each.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C import _len_torch_dispatch_stack, _len_torch_function_stack
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import forward_ad

from latchwork.ops import chunked, ranks, reference

BACKENDS = ("auto", "reference", "torch", "cpu", "triton")
_LARGE = 32  # degree above which a kernel, which unrolls a matrix, would take long to compile
_TRITON_DEGREE = 8  # the largest whose matrices fit a program's registers
_STATES = {  # the dtype of states beside that of r and s
    torch.float32: torch.float32,
    torch.float64: torch.float64,
    torch.bfloat16: torch.float32,
    torch.float16: torch.float32,
}


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
    process_group: Any = None,
) -> tuple[Tensor, Tensor]:
    """Run x_t = max(min(r_t, x_{t−1}), s_t) over time for many scalar units at once.

    Arguments:
        r, s: [B, T, D] reset and set values in float32, float64, bfloat16 or float16; any strides.
        state: [B, D] the state before the first step; `x0` by default. With `cu_seqlens` [1, D], it is where the
            first document starts. States are float32, or float64 beside float64; narrower ones are widened.
        x0: [D] or [B, D] the state to which resets go; zeros by default.
        mask: [B, T] bool; at False the state is kept (padding) and x repeats it.
        reset: [B, T] bool; at True the state becomes x0 before the step (with mask False it stays x0).
        cu_seqlens: [N + 1] integers 0 = c_0 < c_1 < … < c_N = T: N documents packed in one row (B = 1). Document i
            holds the steps c_i … c_{i+1} − 1 and nothing of one document reaches another.
        backend: "cpu" (compiled kernels), "torch" (tensor operations on any device), "triton" (kernels for NVIDIA
            GPUs), "reference" (a loop; the specification), or "auto": "cpu" for tensors on the CPU (up to degree 32),
            else "torch". "triton" has run in Triton's interpreter only, so it has to be asked for.
        process_group: a `torch.distributed.ProcessGroup` over which the time of every sequence is split, in the order
            of ranks: r, s, mask and reset hold this rank's steps (T may differ from rank to rank); state and x0 are
            the same on all ranks, and so is `last`, the state after the steps of all of them. Every rank has to call,
            and to go back. Summed over ranks, gradients are those of one process; that of state is on rank 0.

    Returns:
        x [B, T, D] every state in the dtype of r and s; last [B, D] the last one, or [N, D] the last of every
        document, in the dtype of states. No operation rounds: all backends and thread counts return the same values.
        Gradients go step by step to the active operand; ties share evenly.

    Raises:
        TypeError, ValueError: shapes, dtypes or devices that do not fit; an unknown or unavailable backend; no process
            group, or one together with cu_seqlens.

    Source: arXiv 2605.06384, §4. NaN in r, s or the state wins over numbers, as in `torch.maximum`.
    """
    _check_scalar(r, s)
    return _scan(r, s, state, x0, mask, reset, cu_seqlens, backend, process_group)


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
    process_group: Any = None,
) -> tuple[Tensor, Tensor]:
    """Run x_t = (R_t ⊗ x_{t−1}) ⊕ s_t over time for many vector units of degree n at once.

    Row i of the new state is max(max_k min(R[i, k], x[k]), s[i]).

    Arguments:
        R: [B, T, U, n, n] reset matrices; any strides, any degree n, dtypes as in `minmax_scan`.
        s: [B, T, U, n] set vectors.
        state: [B, U, n] the state before the first step; `x0` by default.
        x0: [U, n] or [B, U, n] the state to which resets go; zeros by default.
        mask, reset, cu_seqlens, backend, process_group: as in `minmax_scan`.

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
    return _scan(R, s, state, x0, mask, reset, cu_seqlens, backend, process_group)


def minmax_last(
    r: Tensor,
    s: Tensor,
    state: Tensor | None = None,
    *,
    x0: Tensor | None = None,
    mask: Tensor | None = None,
    reset: Tensor | None = None,
    backend: str = "auto",
) -> Tensor:
    """The last state only, [B, D]: what `minmax_scan` returns second.

    On a CPU and without gradients no other state is written to memory. Arguments and errors as in `minmax_scan`.
    """
    _check_scalar(r, s)
    inputs = _inputs(r, s, state, x0, mask, reset)
    run = _resolve(backend, inputs)
    return _kernel_last(*inputs) if run is _kernel else run(*inputs)[1]


def _scan(r, s, state, x0, mask, reset, cu_seqlens, backend, process_group) -> tuple[Tensor, Tensor]:
    if process_group is not None:
        if cu_seqlens is not None:
            raise ValueError("cu_seqlens packs documents in one process; with process_group use reset")
        ranks.check_group(process_group)
        inputs = _inputs(r, s, state, x0, mask, reset)
        return ranks.scan_split(process_group, *_local(backend, inputs), *inputs)
    if cu_seqlens is None:
        inputs = _inputs(r, s, state, x0, mask, reset)
        return _resolve(backend, inputs)(*inputs)
    reset = join_boundaries(None if reset is None else check_flags(reset, "reset", s), check_cu_seqlens(cu_seqlens, s))
    wide = _STATES[s.dtype]  # the last states of the documents are taken from x, so x must have all of their digits
    inputs = _inputs(r.to(wide), s.to(wide), state, x0, mask, reset)
    x, _ = _resolve(backend, inputs)(*inputs)
    return x.to(s.dtype), x[0, cu_seqlens[1:].long() - 1]


def _local(backend: str, inputs: tuple) -> tuple[Callable, Callable]:
    """What scans one rank's steps with gradients, and their last states alone without."""
    plain = _resolve(backend, tuple(None if a is None else a.detach() for a in inputs))
    if plain is _kernel:
        return _cpu, _kernel_last if inputs[1].ndim == 3 else lambda *a: _kernel(*a)[1]
    return plain, lambda *a: plain(*a)[1]


def _inputs(r, s, state, x0, mask, reset) -> tuple:
    """What the backends take: everything checked, states in full and in their dtype."""
    batch, units = s.shape[0], s.shape[2:]
    if x0 is None:
        x0 = s.new_zeros(units, dtype=_STATES[s.dtype])
    else:
        x0 = _check_state(x0, "x0", s, tuple(units), (batch, *units))
    x0 = x0.expand(batch, *units)
    state = x0 if state is None else _check_state(state, "state", s, (batch, *units))
    mask = None if mask is None else check_flags(mask, "mask", s)
    reset = None if reset is None else check_flags(reset, "reset", s)
    return r, s, state, x0, mask, reset


def _later(module: str, function: str) -> Callable:
    """A function of a module that is imported at the first call: those of kernels import numba or Triton."""

    def call(*inputs):
        return getattr(importlib.import_module(f"latchwork.ops.{module}"), function)(*inputs)

    return call


_kernel, _kernel_last = _later("cpu", "scan"), _later("cpu", "scan_last")


@functools.cache
def has_triton() -> bool:
    """Whether Triton is installed; without a GPU, its interpreter is of use only."""
    return importlib.util.find_spec("triton") is not None


def _operator(name: str, forward: Callable, backward: Callable, device_types: str | None) -> Callable:
    """Register an implementation with PyTorch as one differentiable operator."""
    inputs = "Tensor r, Tensor s, Tensor state, Tensor x0, Tensor? mask, Tensor? reset"
    operator = torch.library.custom_op(
        f"latchwork::{name}",
        forward,
        mutates_args=(),
        device_types=device_types,
        schema=f"({inputs}) -> (Tensor, Tensor)",
    )
    gradient = torch.library.custom_op(
        f"latchwork::{name}_backward",
        backward,
        mutates_args=(),
        device_types=device_types,
        schema=f"(Tensor grad_x, Tensor grad_last, {inputs}, Tensor x) -> (Tensor, Tensor, Tensor, Tensor)",
    )

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

    def refuse(ctx, *_):
        raise RuntimeError('the scan has no second derivatives; use backend="reference"')

    operator.register_autograd(differentiate, setup_context=save)
    gradient.register_autograd(refuse, setup_context=lambda ctx, inputs, output: None)
    for op in (operator, gradient):
        op.register_vmap(functools.partial(_batched, op))

    # The transforms of `torch.func` do not use the gradients of operators.
    class Scan(torch.autograd.Function):
        @staticmethod
        def forward(*inputs):
            return operator(*inputs)

        setup_context = staticmethod(save)

        @staticmethod
        def backward(ctx, grad_x, grad_last):
            return *ScanBackward.apply(grad_x, grad_last, *ctx.saved_tensors), None, None

        @staticmethod
        def vmap(info, in_dims, *inputs):
            return _batched(Scan.apply, info, in_dims, *inputs)

    class ScanBackward(torch.autograd.Function):
        @staticmethod
        def forward(*inputs):
            return gradient(*inputs)

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        backward = staticmethod(refuse)

        @staticmethod
        def vmap(info, in_dims, *inputs):
            return _batched(ScanBackward.apply, info, in_dims, *inputs)

    def scan(*inputs):
        transformed = not torch.compiler.is_compiling() and peek_interpreter_stack() is not None
        return (Scan.apply if transformed else operator)(*inputs)

    return scan


def _batched(op: Callable, info, in_dims: tuple, *inputs: Tensor | None) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    """Under `torch.vmap` the new dimension joins the batch, with which every input begins."""
    size = info.batch_size

    def front(a: Tensor | None, dim: int | None) -> Tensor | None:
        return None if a is None else a.expand(size, *a.shape) if dim is None else a.movedim(dim, 0)

    moved = [front(a, dim) for a, dim in zip(inputs, in_dims, strict=True)]
    batch = next(a.shape[1] for a in moved if a is not None)
    results = op(*(None if a is None else a.flatten(0, 1) for a in moved))
    return tuple(a.unflatten(0, (size, batch)) for a in results), (0,) * len(results)


_cpu = _operator("scan_cpu", _kernel, _later("cpu", "scan_backward"), "cpu")
_torch = _operator("scan_torch", chunked.scan, chunked.scan_backward, None)
_triton = _operator("scan_triton", _later("triton", "scan"), _later("triton", "scan_backward"), None)


def _resolve(backend: str, inputs: tuple) -> Callable:
    if backend not in BACKENDS:
        raise ValueError(
            f"backend {backend!r} is not available in this installation; choose one of {', '.join(BACKENDS)}"
        )
    s = inputs[1]
    if backend == "cpu" and s.device.type != "cpu":
        raise ValueError(f'backend "cpu" needs tensors on the CPU, got s on {s.device}; use backend="auto"')
    if backend == "triton":
        _check_triton(s)
    if forward_ad._current_level >= 0:
        if backend not in ("auto", "reference"):
            raise NotImplementedError(f'backend "{backend}" has no forward-mode derivatives; use backend="reference"')
        return reference.scan
    if backend == "reference":
        return reference.scan
    if backend == "triton":
        return _triton
    if backend == "torch" or s.device.type != "cpu" or (backend == "auto" and s.ndim == 4 and s.shape[-1] > _LARGE):
        return _torch
    return _kernel if _is_plain(inputs) else _cpu


def _check_triton(s: Tensor) -> None:
    if not has_triton():
        raise ValueError('backend "triton" needs Triton: pip install "latchwork[gpu]"; or use backend="auto"')
    if s.device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        raise ValueError(f'backend "triton" needs tensors on an NVIDIA GPU, got s on {s.device}; use backend="auto"')
    if s.ndim == 4 and s.shape[-1] > _TRITON_DEGREE:
        raise ValueError(
            f'backend "triton" has vector units up to degree {_TRITON_DEGREE}, got {s.shape[-1]}; use backend="auto"'
        )


def _is_plain(inputs: tuple) -> bool:
    """Whether nobody watches: no gradient, no tracing, no transform. The operator's layers then cost time only."""
    tensors = [a for a in inputs if a is not None]
    if (
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or (torch.is_grad_enabled() and any(a.requires_grad for a in tensors))
    ):
        return False
    return (
        all(type(a) is Tensor for a in tensors)
        and not _len_torch_dispatch_stack()
        and not _len_torch_function_stack()
        and peek_interpreter_stack() is None
    )


def _check_scalar(r: Tensor, s: Tensor) -> None:
    _check_tensors("r", r, s)
    if r.ndim != 3 or r.shape != s.shape:
        raise ValueError(f"r and s must both be [B, T, D], got r {tuple(r.shape)} and s {tuple(s.shape)}")


def _check_tensors(r_name: str, r: Tensor, s: Tensor) -> None:
    for name, a in ((r_name, r), ("s", s)):
        if not isinstance(a, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(a).__name__}")
        if a.layout != torch.strided or a.is_nested:
            kind = "a nested tensor" if a.is_nested else a.layout
            raise TypeError(f"{name} must be a dense tensor, got {kind}; for sequences of several lengths use mask")
    if r.dtype != s.dtype or r.device != s.device:
        raise TypeError(
            f"{r_name} and s must share dtype and device, got {r.dtype} on {r.device} and {s.dtype} on {s.device}"
        )
    if r.dtype not in _STATES:
        raise TypeError(
            f"{r_name} and s must be float32, float64, bfloat16 or float16, got {r.dtype}; "
            "convert them, for example with .float()"
        )


def _check_state(a: Tensor, name: str, s: Tensor, *shapes: tuple[int, ...]) -> Tensor:
    """`a` in the dtype of states beside s; refuses another shape or device, and a dtype that would lose digits."""
    if not isinstance(a, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(a).__name__}")
    # Of equal length: an exported program would keep what is learned from comparing (B, D) with (D,).
    if tuple(a.shape) not in [shape for shape in shapes if len(shape) == a.ndim]:
        wanted = " or ".join(str(shape) for shape in shapes)
        raise ValueError(f"{name} must be {wanted} beside s of {tuple(s.shape)}, got {tuple(a.shape)}")
    wide = _STATES[s.dtype]
    if a.device != s.device or a.dtype not in _STATES or torch.promote_types(a.dtype, wide) != wide:
        raise TypeError(f"{name} must be {wide} on {s.device} beside s in {s.dtype}, got {a.dtype} on {a.device}")
    return a if a.dtype == wide else a.to(wide)


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
