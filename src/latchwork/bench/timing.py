"""Interleaved timing, peak memory, and where a result was measured."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

import latchwork
from latchwork.memory import peak_resident_bytes, resident_bytes

NOT_SAID = "this system does not say how much memory is used"
T = TypeVar("T")


def interleaved(functions: Mapping[str, Callable[[], Any]], repeats: int, in_a_row: int = 1) -> dict[str, list[float]]:
    """Seconds of at least `repeats` calls of each function, in turns of `in_a_row` calls.

    Each function is called three times before, and results are dropped before the next call.
    """
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        for _ in range(3):
            function()
    for _ in range(-(-repeats // in_a_row)):
        for name, function in functions.items():
            for _ in range(in_a_row):
                clock = time.perf_counter()
                result = function()
                seconds[name].append(time.perf_counter() - clock)
                del result
    return seconds


def compare(
    ours: Callable[[], Any], theirs: Callable[[], Any] | None, repeats: int, in_a_row: int = 1
) -> tuple[float, float | None]:
    """Median seconds of a call of each by `interleaved`; with nothing on their side, ours alone."""
    if theirs is None:
        return median(interleaved({"ours": ours}, repeats, in_a_row)["ours"]), None
    seconds = interleaved({"theirs": theirs, "ours": ours}, repeats, in_a_row)
    return median(seconds["ours"]), median(seconds["theirs"])


def median(seconds: list[float]) -> float:
    return float(np.median(seconds))


def attempt(function: Callable[[], T]) -> tuple[T | None, str]:
    """The result of trying a peer, or why it cannot be measured here: that costs its row, not the whole run."""
    try:
        return function(), ""
    except ModuleNotFoundError as error:
        name = (error.name or str(error)).partition(".")[0]
        return None, f"{name} is not installed: pip install 'latchwork[baselines]'"
    except NotImplementedError as error:
        return None, f"not run: {error}"
    except Exception as error:  # other people's code in whatever version is installed: any error can come
        return None, f"failed with {type(error).__name__}: {error}"


def peak_bytes(function: Callable[[], Any]) -> int | None:
    """How much resident memory grows at most while `function` runs; None where the system does not say (Linux does)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    before = resident_bytes()
    result = function()
    peak = peak_resident_bytes()
    del result
    return None if before is None or peak is None else peak - before


def machine() -> dict[str, Any]:
    """Where and with what a result was measured."""
    return {
        "processor": _processor(),
        **({"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}),
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
