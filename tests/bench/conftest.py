"""Shared by the tests of the benches."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture
def no_libraries(monkeypatch):
    """As where the baselines are not installed."""
    for name in ("transformers", "mambapy", "mambapy.mamba"):
        monkeypatch.setitem(sys.modules, name, None)
