"""`latchwork task`, and training and evaluating tasks of files and functions, in real processes."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from latchwork.cli.main import main
from latchwork.cli.task import drawn
from latchwork.tasks import TASKS

TINY = "--d-model 8 --n-layers 1 --n-units 4 --threads 1 --batch-size 4 --validation-sequences 6 --steps 2"


def latchwork(arguments: str, cwd) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "latchwork", *arguments.split()]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "data.tsv").write_text("a b c\tx y -\nb a\ty\n" * 20)
    (folder / "coins.py").write_text(
        "def flips(rng, n):\n    t = rng.integers(0, 2, n)\n    return t, t.cumsum() % 2\n"
    )
    return folder


def test_tasks_are_listed(folder):
    result = latchwork("task", folder)
    assert result.returncode == 0, result.stderr
    for name in TASKS:
        assert re.search(rf"^{name} +\w", result.stdout, flags=re.M)
    assert json.loads(latchwork("task --json", folder).stdout).keys() == TASKS.keys()


def test_a_task_is_shown_with_its_numbers_and_examples(folder):
    result = latchwork("task sequences --size 3 --show 2 --steps 9 --split validation --seed 3", folder)
    assert result.returncode == 0, result.stderr
    for words in (
        "(size 3, variant right)",
        "vocabulary   26 tokens: A1 A1' A2",
        "classes      4: none A B A+B",
        "256 … 512 steps",
        "50.0% of the steps",
        "always the commonest label",
        "in 8 sequences of 262,144",
        "validation, sample 1,",
        "steps are left out",
    ):
        assert words in result.stdout
    assert len(re.findall("  floor", result.stdout)) == 3
    tokens, targets = re.findall(r"^  (?:tokens|targets) .*", result.stdout, flags=re.M)[:2]
    assert len(tokens.split()) == len(targets.split()) == 1 + 9 + 1


@pytest.mark.parametrize("task", ["pairs --data data.tsv", "function --function coins:flips", "text --data coins.py"])
def test_json_holds_what_is_shown(folder, task):
    options = " --window 8" if task.startswith("text") else ""
    shown = json.loads(latchwork(f"task {task}{options} --show 4 --json", folder).stdout)
    assert shown["task"] == task.split()[0]
    assert len(shown["examples"]) == 4
    assert shown["facts"].keys() == {"train", "validation", "evaluation"}
    for example in shown["examples"]:
        assert len(example["tokens"]) == len(example["targets"])
        assert set(example["tokens"]) <= set(shown["vocabulary"])
        assert set(example["targets"]) <= {*shown["classes"], None}


def test_long_examples_are_cut_but_for_their_last_step():
    assert drawn(["a", "bcd", "e"], ["x", None, "yz"], 3) == ["  tokens   a bcd e", "  targets  x ·   yz"]
    assert drawn(list("abcdef"), [None, None, "3", "4", "5", "6"], 3) == [
        "  tokens   a b … f",
        "  targets  · · … 6",
        "  … 3 steps are left out, 3 of them scored",
    ]
    assert drawn(list("ab"), [None, "x"], 1)[0] == "  tokens   … b"


def test_files_and_functions_are_trained_evaluated_and_their_changes_noticed(folder, monkeypatch, capsys):
    for task in ("pairs --data data.tsv", "function --function coins:flips --longest 300"):
        name = task.split()[0]
        trained = latchwork(f"train {task} {TINY} --out {name}", folder)
        assert trained.returncode == 0, trained.stderr
        result = latchwork(f"evaluate {name} --threads 1", folder)
        assert result.returncode == 0, result.stderr
        for word in ("accuracy", "floor", "nats an answer"):
            assert word in result.stdout
        written = json.loads((folder / name / "evaluation.json").read_text())
        assert 0 <= written["correct"] <= written["scored"]
        assert "evaluation accuracy" in (folder / name / "report.html").read_text("utf-8")
    monkeypatch.chdir(folder)
    changed = (folder / "data.tsv").read_text()
    (folder / "data.tsv").write_text(changed + "c\tx\n")
    for command in ("evaluate pairs", "train resume pairs"):
        assert main(command.split()) == 1
        (line,) = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
        assert "data.tsv has changed since pairs was created: bytes" in line
    (folder / "data.tsv").write_text(changed)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("train latching --size 0", "size must be at least 2 memory symbols, got 0"),
        ("task latching --size 0", "size must be at least 2 memory symbols, got 0"),
        ("train parity --lr 0", "lr must be a positive number, got 0.0"),
        ("task latching --show -1", "show must be at least 0 examples, got -1"),
        ("task latching --steps 0", "steps must be at least 1 column, got 0"),
        ("task pairs --data coins.py", "coins.py, line 1: 0 tabs"),
        ("task function --function coin:flips", "importing coin raised ModuleNotFoundError"),
        ("train text --data . --window 8", "lies inside the data folder"),
        ("train text --data coins.py", "which need at least 1,139 bytes"),
    ],
)
def test_mistakes_are_one_line(folder, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert main(arguments.split()) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("latchwork: error: ")
    assert message in line
    assert not (folder / "runs").exists()


def test_help_has_the_options_of_a_task(folder):
    result = latchwork("task flipflop --help", folder)
    assert result.returncode == 0
    for word in ("--show", "--split", "--write", "Share of reads"):
        assert word in result.stdout
    result = latchwork("train modularaddition --help", folder)
    for word in ("--size", "The modulus m", "--d-model", "--lr", "--out"):
        assert word in result.stdout
