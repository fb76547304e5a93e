"""Memory of this process: how much it has, as the system counts it, and what becomes of what is freed."""

from __future__ import annotations

import ctypes
import platform
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of mallopt(3)


def resident_bytes() -> int | None:
    """Resident memory of this process now; None where the system does not say (Linux does)."""
    return _status("VmRSS")


def peak_resident_bytes() -> int | None:
    """The most resident memory this process has had; None where the system does not say (Linux and macOS do).

    On Linux `getrusage` is not asked: its figure begins with the peak of the process that started this one.
    """
    peak = _status("VmHWM")
    if peak is None and sys.platform == "darwin":
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak


def keep_freed() -> bool:
    """Have this process keep memory that is freed and use it again, from now on; False where that cannot be asked for.

    The GNU C library returns large blocks to the system at once and gets them back empty, page by page, at every
    training step. Kept, they are as large as the most that was in use at a time. docs/decisions/0015-freed-memory.md
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all([mallopt(_M_TRIM_THRESHOLD, -1), mallopt(_M_MMAP_MAX, 0)])


def _status(field: str) -> int | None:
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return None
    sizes = [line.split()[1] for line in lines if line.startswith(f"{field}:")]  # some containers leave fields out
    return int(sizes[0]) << 10 if sizes else None
