"""The examples do what they say."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

LOG_FILTER = Path(__file__).parents[1] / "examples" / "log_filter.py"
LONG_CONTEXT = LOG_FILTER.with_name("long_context.py")


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


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="limits of POSIX")
def test_a_context_that_one_process_cannot_hold_is_trained_on_by_two():
    def run(*flags, processes=1):
        many = (
            ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)] if processes > 1 else []
        )
        command = [sys.executable, *many, str(LONG_CONTEXT), *flags]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=600, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )

    alone = run("--updates", "1")
    assert alone.returncode == 1
    assert alone.stderr.strip().endswith("524,288 steps a process do not fit in 5.0 GiB")
    two = run("--updates", "1", processes=2)
    assert two.returncode == 0, two.stderr
    short = ["--length", "4096", "--limit", "0", "--updates", "3"]
    losses = [re.findall(r"loss ([0-9.]+)", run(*short, processes=n).stdout) for n in (1, 2)]
    assert [float(a) for a in losses[0]] == pytest.approx([float(a) for a in losses[1]], abs=1e-3)
    assert len(losses[0]) == 3
