"""What the README promises, measured in whole: minutes each, so run by hand with `make slow`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def latchwork(arguments: str, cwd) -> dict:
    command = [sys.executable, "-m", "latchwork", *arguments.split(), "--json"]
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=1800)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


def assert_perfect(result: dict, answers: int) -> None:
    assert result["correct"] == result["scored"] == answers
    assert result["length"] == 1 << 20
    assert result["worst_chunk"]["correct"] == result["worst_chunk"]["scored"]


def test_the_demo_holds_for_a_million_steps_in_constant_memory(tmp_path):
    assert_perfect(latchwork("demo --out run", tmp_path), 8 << 20)
    memory = [
        latchwork(f"evaluate run --length {length} --sequences 8", tmp_path)["peak_memory_mib"]
        for length in (1 << 16, 1 << 20)
    ]
    assert memory[1] <= 1.1 * memory[0]


def test_induction_heads_are_right_after_a_million_steps(tmp_path):
    result = latchwork("train inductionheads --size 16 --out run", tmp_path)
    assert result["reason"] == "perfect"
    assert_perfect(latchwork("evaluate run --length 1048576 --sequences 8", tmp_path), 8 << 10)


def test_parity_is_learned_for_nine_of_ten_seeds_and_held(tmp_path):
    command = [sys.executable, str(Path(__file__).parents[1] / "examples" / "parity.py")]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=1800)
    assert result.returncode == 0, result.stderr
    rows = json.loads(result.stdout)["rows"]
    assert [row["model"] for row in rows] == ["rnn", "cascade-1", "cascade-2"]
    for row in rows:
        assert row["seeds"] == 10
        assert row["perfect"] >= 9


def test_text_is_learned_below_two_point_one_bits(tmp_path, shared_data):
    latchwork(f"train text --data {shared_data / 'tinyshakespeare.txt'} --out run", tmp_path)
    assert latchwork("evaluate run", tmp_path)["bits"] < 2.1
