"""The examples do what they say."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

LOG_FILTER = Path(__file__).parents[1] / "examples" / "log_filter.py"


def test_the_log_filter_prints_the_lines_that_its_pattern_matches(tmp_path):
    command = [sys.executable, str(LOG_FILTER), "--lines", "1500", "--log", "access.log", "--filter", "f.safetensors"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    pattern = runpy.run_path(str(LOG_FILTER))["FAILED"]
    lines = (tmp_path / "access.log").read_text().splitlines()
    expected = [line for line in lines if re.fullmatch(pattern, line)]
    assert 20 < len(expected) < 500
    assert result.stdout.splitlines() == expected
    filter = [sys.executable, "-m", "latchwork", "run", "f.safetensors", "access.log"]
    assert subprocess.run(filter, cwd=tmp_path, capture_output=True, text=True).stdout == result.stdout
