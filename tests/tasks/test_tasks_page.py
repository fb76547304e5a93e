"""What docs/tasks.md shows is true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from latchwork import tasks
from latchwork.tasks import IGNORE, TASKS, registry

PAGE = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text("utf-8")
FILE, FUNCTION, CLASS, *_ = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.S | re.M)


def test_every_task_is_in_the_table():
    assert re.findall(r"^\| `(\w+)`", PAGE, flags=re.M) == list(TASKS)


def test_the_rates_are_those_in_the_table():
    rows = re.findall(r"^\| (\d+) \| ([\d.]+) \| ([\d.]+)% \| ([\d.]+) \|", PAGE, flags=re.M)
    assert [int(row[0]) for row in rows] == [2, 3, 4, 8, 16]
    for n, guided, complete, resets in rows:
        task = tasks.get("sequences", size=int(n))
        assert task.rates("train").guided == float(guided)
        share, lost = task.expected("train")
        assert (f"{share:.1%}", f"{lost:.2f}") == (f"{complete}%", resets)


def test_the_file_in_the_page_is_a_task(tmp_path):
    (example,) = re.findall(r"^((?:    .*\t.*\n)+)", PAGE, flags=re.M)
    lines = [line.removeprefix("    ") for line in example.splitlines()]
    (tmp_path / "data.tsv").write_text("\n".join(["# is the number of ones so far odd?", *lines * 5]))
    task = tasks.get("pairs", data=tmp_path / "data.tsv")
    assert task.token_names == ["0", "1"]
    assert task.class_names == ["even", "odd"]
    scored = {int((task.batch("train", 0, [i]).targets != IGNORE).sum()) for i in range(task.epoch_size(0))}
    assert scored == {1, 3}


def test_the_file_that_the_page_writes_is_a_task(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(FILE, "page", "exec", dont_inherit=True), {})
    task = tasks.get("pairs", data=tmp_path / "data.tsv")
    assert task.epoch_size(0) == 800
    tokens, targets = task.batch("validation", 0, [0])
    for step, target in enumerate(targets[0]):
        assert task.class_names[target] == ("odd" if tokens[0, : step + 1].sum() % 2 else "even")


def test_the_function_in_the_page_is_a_task(tmp_path):
    (tmp_path / "brackets.py").write_text(FUNCTION)
    (command,) = re.findall(r"latchwork (task function .*)", PAGE)
    result = subprocess.run(
        [sys.executable, "-m", "latchwork", *command.split()], cwd=tmp_path, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert "classes      6: 0 1 2 3 4 5" in result.stdout


def test_the_class_in_the_page_is_a_task(monkeypatch):
    monkeypatch.setattr(registry, "TASKS", dict(TASKS))
    exec(compile(CLASS, "page", "exec", dont_inherit=True), {})
    task = tasks.get("lift", size=3)
    tokens, targets = task.batch("validation", 1, [0])
    floor = 0
    for token, target in zip(tokens[0], targets[0], strict=True):
        floor = min(2, floor + 1) if token else max(0, floor - 1)
        assert target == floor
