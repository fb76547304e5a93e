"""Is the scan on a GPU as fast as its memory lets it be?

The limit is a copy from device to device that moves as many bytes, so a ratio of 1.25 means 80% of the bandwidth of
a copy. Only what the device does is timed; tensors are much larger than its cache, so every byte comes from memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from latchwork.bench.rows import Row
from latchwork.bench.timing import median
from latchwork.ops.scan import TRITON_NEEDED, has_triton

Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Sizes:
    """Shapes [B, T, D] of scalar units; [B, T, U·n²] of vector units, so that every degree n reads as much of R."""

    scalar: tuple[Shape, ...]
    vector: Shape


FULL = Sizes(scalar=((8, 4096, 1456), (16, 4096, 1456), (1, 1 << 20, 64)), vector=(8, 4096, 4096))
QUICK = Sizes(scalar=((2, 100, 40),), vector=(2, 100, 64))
DEGREES = (2, 4, 8)


def bench_gpu(sizes: Sizes = FULL, repeats: int = 50) -> Iterator[Row]:
    """Seconds of the scan forward and backward against a copy of as many bytes.

    Raises:
        RuntimeError: there is no NVIDIA GPU, or Triton is not installed.
    """
    if not torch.cuda.is_available():
        raise RuntimeError("bench gpu needs an NVIDIA GPU that PyTorch can use; bench scan measures the CPU")
    if not has_triton():
        raise RuntimeError(f"bench gpu needs {TRITON_NEEDED}")
    for dtype in (torch.float32, torch.bfloat16):
        for shape in sizes.scalar:
            yield from _rows("", shape, (), dtype, repeats)
        batch, time, values = sizes.vector
        for degree in DEGREES:
            yield from _rows(f", degree {degree}", (batch, time, values // degree**2), (degree,), dtype, repeats)


def _rows(suffix: str, shape: Shape, degree: tuple[int, ...], dtype: torch.dtype, repeats: int) -> Iterator[Row]:
    from latchwork.ops import triton

    r, grad_r = (torch.randn(*shape, *degree, *degree, device="cuda").to(dtype) for _ in range(2))
    s, grad_x, grad_s, x = (torch.randn(*shape, *degree, device="cuda").to(dtype) for _ in range(4))
    zeros = torch.zeros(shape[0], shape[2], *degree, device="cuda")
    states = (zeros, zeros, None, None)
    ways = (
        ("forward", lambda: triton.scan(r, s, *states, out=x), (r, s, x)),
        (
            "backward",
            lambda: triton.scan_backward(grad_x, zeros, r, s, *states, x, out=(grad_r, grad_s)),
            (r, s, x, grad_x, grad_r, grad_s),
        ),
    )
    for what, scan, moved in ways:
        ours, theirs = compare_on_device(scan, copy_of(moved), repeats)
        yield Row(
            what=what + suffix,
            shape=(*shape, *degree),
            dtype=str(dtype).removeprefix("torch."),
            ours=ours,
            against="a copy of as many bytes",
            theirs=theirs,
        )


def copy_of(moved: Sequence[Tensor]) -> Callable[[], object]:
    """A copy that reads and writes as many bytes as these tensors have, on their device."""
    half = sum(a.numel() * a.element_size() for a in moved) // 2
    source, target = (torch.randint(0, 99, (half,), dtype=torch.uint8, device=moved[0].device) for _ in range(2))
    return lambda: target.copy_(source)


def compare_on_device(ours: Callable[[], object], theirs: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Median seconds of a call of each by the clock of the device, in turns; the first three calls do not count."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for turn in range(repeats + 3):
        for function, kept in zip((ours, theirs), seconds, strict=True):
            before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(2_000_000)  # about a millisecond, in which the host gets ahead of the device
            before.record()
            function()
            after.record()
            after.synchronize()
            if turn >= 3:
                kept.append(before.elapsed_time(after) / 1000)
    return median(seconds[0]), median(seconds[1])
