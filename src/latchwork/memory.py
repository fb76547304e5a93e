"""How much memory this process has, as the system counts it."""

from __future__ import annotations

import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


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


def _status(field: str) -> int | None:
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return None
    sizes = [line.split()[1] for line in lines if line.startswith(f"{field}:")]  # some containers leave fields out
    return int(sizes[0]) << 10 if sizes else None
