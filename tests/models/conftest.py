"""Fixtures of tests of models."""

from __future__ import annotations

import pytest

from latchwork.ops import cpu_step


@pytest.fixture
def kernel(monkeypatch):
    """Counts the calls of the kernel."""
    calls = []
    run = cpu_step.Program.run
    monkeypatch.setattr(cpu_step.Program, "run", lambda self, table: calls.append(1) or run(self, table))
    return calls
