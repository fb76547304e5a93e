"""Interleaved timing, peak memory, and how a result is kept."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

import latchwork


def interleaved(functions: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Seconds of `repeats` calls of each function, taken in turns; results are dropped before the next call."""
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        for _ in range(3):
            function()
    for _ in range(repeats):
        for name, function in functions.items():
            clock = time.perf_counter()
            result = function()
            seconds[name].append(time.perf_counter() - clock)
            del result
    return seconds


def median(seconds: list[float]) -> float:
    return float(np.median(seconds))


def peak_bytes(function: Callable[[], Any]) -> int | None:
    """How much resident memory grows at most while `function` runs; None where the system does not say (Linux does)."""
    status, reset = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    try:
        reset.write_text("5")
        before = _kibibytes(status, "VmRSS")
        result = function()
        peak = _kibibytes(status, "VmHWM")
    except OSError:
        return None
    del result
    return (peak - before) << 10


def _kibibytes(status: Path, field: str) -> int:
    line = next(line for line in status.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1])


def machine() -> dict[str, Any]:
    """Where and with what a result was measured."""
    return {
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "latchwork": latchwork.__version__,
        "command": " ".join(["latchwork", *sys.argv[1:]]),
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"
