"""Compile a kernel, and run it on all threads that PyTorch may use.

A kernel is a C function ``void body(void *block)``; every thread of the team calls it with the same block and they
share the work through a counter inside it. On Linux the team is PyTorch's own OpenMP team, entered through the
OpenMP library that PyTorch has loaded: a second pool would fight with PyTorch's threads, which spin for a while
after each of its operations (docs/decisions/0002-threads.md has the figures). Elsewhere it is a pool of Python
threads; kernels are called without the interpreter's lock.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from numba import cfunc, types
from numba.core.ccallback import CFunc
from numba.core.registry import cpu_target

_SIGNATURE = types.void(types.CPointer(types.int64))


def compiled(function: Callable[[Any], None], *constants: object) -> CFunc:
    """The machine code of a kernel written for numba, from the cache on disk where there is one.

    Arguments: constants tell kernels apart that are made by one function. They become part of its name, as numba keeps
    all kernels of one name in one index, in which two processes that add to it at the same time exchange their code.
    """
    function.__qualname__ = "_".join([function.__name__, *map(str, constants), _machine()])
    try:
        return cfunc(_SIGNATURE, cache=True)(function)
    except (RuntimeError, OSError):  # no folder that can be written: compile for this process only
        return cfunc(_SIGNATURE)(function)


@functools.cache
def _machine() -> str:
    """What tells processors apart for which numba's code differs."""
    return hashlib.sha256(repr(cpu_target.target_context.codegen().magic_tuple()).encode()).hexdigest()[:8]


_forked = False


def _after_fork() -> None:
    """OpenMP's threads and ours do not exist in a forked child: work there is done by its only thread."""
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def size() -> int:
    """How many threads a kernel may use now: `torch.get_num_threads()`, or 1 in a forked process."""
    return 1 if _forked else torch.get_num_threads()


def run(body: int, block: ctypes.Array, threads: int) -> None:
    """Call the C function at address `body` with `block` from `threads` threads and wait for all of them."""
    if threads <= 1:
        _call(body)(ctypes.addressof(block))
    elif (openmp := _openmp()) is not None:
        openmp(body, ctypes.addressof(block), threads, 0)
    else:
        call, address = _call(body), ctypes.addressof(block)
        others = [_pool(threads - 1).submit(call, address) for _ in range(threads - 1)]
        call(address)
        for other in others:
            other.result()


@functools.cache
def _call(body: int):
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(body)


@functools.cache
def _openmp():
    """`GOMP_parallel` of the library that PyTorch itself uses, or None where PyTorch has another thread pool."""
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        function = ctypes.CDLL(str(library)).GOMP_parallel
    except (OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    function.restype = None
    return function


_pools: dict[int, ThreadPoolExecutor] = {}
_pools_lock = threading.Lock()


def _pool(workers: int) -> ThreadPoolExecutor:
    with _pools_lock:
        if workers not in _pools:
            _pools[workers] = ThreadPoolExecutor(workers, thread_name_prefix="latchwork")
        return _pools[workers]
