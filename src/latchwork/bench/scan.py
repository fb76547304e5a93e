"""Is the scan as fast as memory lets it be, and how much faster than a scan through autograd?"""

from __future__ import annotations

from typing import Any

import torch

from latchwork.bench.peers import hillis_steele
from latchwork.bench.timing import interleaved, median, peak_bytes
from latchwork.ops.scan import minmax_scan

FORWARD_SHAPES = ((64, 512, 40), (8, 1024, 1456))
TRAINING_SHAPE = (8, 1024, 1456)


def bench_scan(repeats: int = 40, slow_repeats: int = 3) -> list[dict[str, Any]]:
    """Rows of results: forward against `torch.add` (both allocate their output), forward and backward against
    Hillis–Steele through autograd, and peak memory against the sum of inputs, outputs and gradients."""
    rows = [_forward(shape, repeats) for shape in FORWARD_SHAPES]
    r, s = (torch.randn(TRAINING_SHAPE, requires_grad=True) for _ in range(2))
    upstream = torch.randn(TRAINING_SHAPE)

    def ours() -> object:
        return torch.autograd.grad(minmax_scan(r, s)[0], (r, s), upstream)

    def theirs() -> object:
        return torch.autograd.grad(hillis_steele(r, s), (r, s), upstream)

    rows.append(_memory(ours, r))
    mine = median(interleaved({"scan": ours}, max(10, slow_repeats))["scan"])
    other = median(interleaved({"autograd": theirs}, slow_repeats)["autograd"])
    return [
        *rows,
        {
            "what": "forward and backward",
            "shape": TRAINING_SHAPE,
            "ours": f"{1e3 * mine:.2f} ms",
            "against": "Hillis–Steele through autograd",
            "theirs": f"{1e3 * other:.0f} ms",
            "ratio": mine / other,
            "times_faster": other / mine,
        },
    ]


def _forward(shape: tuple[int, int, int], repeats: int) -> dict[str, Any]:
    r, s = torch.randn(shape), torch.randn(shape)
    seconds = interleaved({"add": lambda: torch.add(r, s), "scan": lambda: minmax_scan(r, s)}, repeats)
    add, scan = median(seconds["add"]), median(seconds["scan"])
    return {
        "what": "forward",
        "shape": shape,
        "ours": f"{1e3 * scan:.3f} ms",
        "against": "torch.add(r, s)",
        "theirs": f"{1e3 * add:.3f} ms",
        "ratio": scan / add,
    }


def _memory(run, r: torch.Tensor) -> dict[str, Any]:
    run()
    peak, tensor = peak_bytes(run), r.numel() * r.element_size()
    expected = 6 * tensor  # r, s; x; the gradients of x, r and s
    held = 3 * tensor  # r, s and the gradient of x are there before the call
    return {
        "what": "peak memory, forward and backward",
        "shape": tuple(r.shape),
        "ours": "–" if peak is None else f"{(held + peak) / 2**20:.0f} MiB",
        "against": "inputs + outputs + gradients",
        "theirs": f"{expected / 2**20:.0f} MiB",
        "ratio": None if peak is None else (held + peak) / expected,
    }
