"""The public scan: checks its arguments, picks a backend, and carries the gradients.

The fast backends are operators of `torch.library`, so autograd, `torch.compile` and the profiler see them as one
operation each.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._C import _len_torch_dispatch_stack, _len_torch_function_stack
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import forward_ad

from latchwork.ops import chunked, ranks, reference
from latchwork.ops.arguments import (
    STATES,
    check_cu_seqlens,
    check_flags,
    check_scalar,
    check_vector,
    scan_inputs,
)
from latchwork.ops.operator import scan_operator

BACKENDS = ("auto", "reference", "torch", "cpu", "triton")
_LARGE = 32  # degree above which a kernel, which unrolls a matrix, would take long to compile
_LEAST_TRITON = (3, 3)  # earlier ones cannot join tuples in a loop
TRITON_NEEDED = f"Triton {'.'.join(map(str, _LEAST_TRITON))} or newer: pip install 'latchwork[gpu]'"
_LEAST_CAPABILITY = 75
_TRITON_DEGREE = 8  # the largest whose matrices fit a program's registers


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
            "triton" on NVIDIA GPUs (up to degree 8) where Triton is installed, else "torch".
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
    check_scalar(r, s)
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
    check_vector(R, s)
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
    check_scalar(r, s)
    inputs = scan_inputs(r, s, state, x0, mask, reset)
    run = _resolve(backend, inputs)
    return _kernel_last(*inputs) if run is _kernel else run(*inputs)[1]


def _scan(r, s, state, x0, mask, reset, cu_seqlens, backend, process_group) -> tuple[Tensor, Tensor]:
    if process_group is not None:
        if cu_seqlens is not None:
            raise ValueError("cu_seqlens packs documents in one process; with process_group use reset")
        ranks.check_group(process_group)
        inputs = scan_inputs(r, s, state, x0, mask, reset)
        return ranks.scan_split(process_group, *_local(backend, inputs), *inputs)
    if cu_seqlens is None:
        inputs = scan_inputs(r, s, state, x0, mask, reset)
        return _resolve(backend, inputs)(*inputs)
    documents = check_cu_seqlens(cu_seqlens, s)
    reset = documents.resets(None if reset is None else check_flags(reset, "reset", s))
    wide = STATES[s.dtype]  # the last states of the documents are taken from x, so x must have all of their digits
    inputs = scan_inputs(r.to(wide), s.to(wide), state, x0, mask, reset)
    x, _ = _resolve(backend, inputs)(*inputs)
    return x.to(s.dtype), x[0, documents.last]


def _local(backend: str, inputs: tuple) -> tuple[Callable, Callable]:
    """What scans one rank's steps with gradients, and their last states alone without."""
    plain = _resolve(backend, tuple(None if a is None else a.detach() for a in inputs))
    if plain is _kernel:
        return _cpu, _kernel_last if inputs[1].ndim == 3 else lambda *a: _kernel(*a)[1]
    return plain, lambda *a: plain(*a)[1]


def _later(module: str, function: str) -> Callable:
    """A function of a module that is imported at the first call: those of kernels import numba or Triton."""

    def call(*inputs):
        return getattr(importlib.import_module(f"latchwork.ops.{module}"), function)(*inputs)

    return call


_kernel, _kernel_last = _later("cpu", "scan"), _later("cpu", "scan_last")


def _triton_version() -> tuple[int, ...]:
    """Of the Triton that is installed, without importing it, which takes long; () where there is none."""
    found = importlib.util.find_spec("triton")
    if found is None or found.origin is None:
        return ()
    said = re.search(r"__version__ = ['\"](\d+)\.(\d+)", Path(found.origin).read_text("utf-8"))
    return tuple(map(int, said.groups())) if said else ()


_TRITON = _triton_version()  # read once: torch.compile need not look at it


def has_triton() -> bool:
    """Whether a Triton that knows the kernels' language is installed; without a GPU, its interpreter is of use only."""
    return _TRITON >= _LEAST_TRITON


_cpu = scan_operator("scan_cpu", _kernel, _later("cpu", "scan_backward"), "cpu")
_torch = scan_operator("scan_torch", chunked.scan, chunked.scan_backward, None)
_triton = scan_operator("scan_triton", _later("triton", "scan"), _later("triton", "scan_backward"), None)


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
    if backend == "triton" or (backend == "auto" and _suits_triton(s)):
        return _triton
    if backend == "torch" or s.device.type != "cpu" or (backend == "auto" and s.ndim == 4 and s.shape[-1] > _LARGE):
        return _torch
    return _kernel if _is_plain(inputs) else _cpu


_runs: list[bool] = []


def _triton_runs() -> bool:
    """Whether Triton can build kernels for the GPU that is here; where it cannot, it is said why, once."""
    if not _runs:
        try:
            target = importlib.import_module("triton.runtime").driver.active.get_current_target()
            _runs.append(target.arch >= _LEAST_CAPABILITY)
        except Exception as error:  # no C compiler, no headers of Python, no place for what is built …
            warnings.warn(f"Triton's kernels are not used, since it cannot build them: {error}", stacklevel=2)
            _runs.append(False)
    return _runs[0]


# as torch.compiler.assume_constant_result does it, which would import the compiler now
_triton_runs._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _suits_triton(s: Tensor) -> bool:
    small = s.ndim == 3 or s.shape[-1] <= _TRITON_DEGREE
    return s.device.type == "cuda" and torch.version.hip is None and has_triton() and small and _triton_runs()


def _check_triton(s: Tensor) -> None:
    if not has_triton():
        there = f" (here is {'.'.join(map(str, _TRITON))})" if _TRITON else ""
        raise ValueError(f'backend "triton" needs {TRITON_NEEDED}{there}; or use backend="auto"')
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
