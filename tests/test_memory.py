"""Memory of the process."""

from __future__ import annotations

import platform

import pytest
from helpers import run_python

from latchwork import memory

_FAULTS = """
import resource
import numpy
from latchwork import memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [numpy.ones(1 << 23, numpy.uint8) for _ in range(20)]  # 8 MiB each
    del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
returned = faults()
kept = memory.keep_freed()
faults()
print(int(kept), returned, faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only the GNU C library can be asked")
def test_freed_memory_is_used_again():
    kept, returned, again = map(int, run_python(_FAULTS).split())
    assert kept
    assert returned > 100 * (again + 1)


def test_where_it_cannot_be_asked_for_nothing_happens(monkeypatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert not memory.keep_freed()
