"""Shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

if "PYTEST_XDIST_WORKER_COUNT" in os.environ:  # the cores are shared, also with the processes that tests start
    share = (os.cpu_count() or 1) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, share)))

import torch


@pytest.fixture(autouse=True)
def _same_chance_everywhere():
    torch.manual_seed(0)


@pytest.fixture
def threads():
    """Set the number of threads in a test; put back afterwards."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real data that is not part of the project; tests that need it are skipped where it is absent."""
    path = Path(os.environ.get("LATCHWORK_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not path.is_dir():
        pytest.skip(f"no shared data at {path}; set LATCHWORK_DATA to its folder")
    return path
