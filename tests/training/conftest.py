"""Fixtures of tests of training."""

from __future__ import annotations

import pytest

from latchwork.tasks import get


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(bytes(i * i % 251 for i in range(4000)))
    return get("text", data=path, window=32)
