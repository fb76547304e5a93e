"""Tasks of Python functions, and classes of one's own."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import ClassVar

import numpy as np
import pytest
from helpers import run_python

from latchwork import tasks
from latchwork.tasks import IGNORE, TASKS, Latching, register

SOURCE = """
import numpy as np

def last(rng, length):
    tokens = rng.integers(0, 4, length)
    return tokens, [-100] * (length - 1) + [int(tokens[0])]

class Nested:
    @staticmethod
    def make(rng, length):
        return [0] * length, np.zeros(length, dtype=np.uint8)

def short(rng, length): return [0] * length, [0] * (length - 2)
def lone(rng, length): return [0] * length
def far(rng, length): return [7] * length, [0] * length
def wrong(rng, length): return [0] * length, [-1] * length
def real(rng, length): return [0.5] * length, [0] * length
def flat(rng, length): return np.zeros((length, 1), int), [0] * length
def ragged(rng, length): return [[0], [0, 1]], [0] * length
def fails(rng, length): return 1 / 0
number = 3
"""
LENGTHS = {"shortest": 5, "longest": 9, "validation_shortest": 10, "validation_longest": 20}


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module in the current directory that Python does not look into by itself."""
    monkeypatch.chdir(tmp_path)
    name = f"generator_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    yield name
    sys.modules.pop(name, None)


def make(module, function="last", **options):
    return tasks.get("function", function=f"{module}:{function}", **{"vocab_size": 4, **LENGTHS, **options})


def test_samples_are_those_of_the_function_and_padded(module):
    task = make(module)
    batch = task.batch("train", 0, range(50))
    assert batch.tokens.shape == batch.targets.shape == (50, 9)
    ends = []
    for tokens, targets in zip(*batch, strict=True):
        (scored,) = np.flatnonzero(targets != IGNORE)
        assert targets[scored] == tokens[0]
        assert not tokens[scored + 1 :].any()
        ends.append(int(scored) + 1)
    assert set(ends) == {5, 6, 7, 8, 9}
    assert set(np.unique(batch.tokens)) == {0, 1, 2, 3}
    lengths = {b.tokens.shape[1] for i in range(60) for b in [task.batch("validation", 0, [i])]}
    assert min(lengths) >= 10
    assert max(lengths) <= 20


def test_a_sample_is_the_same_in_every_batch_and_process(module):
    task = make(module)
    whole = task.batch("train", 3, range(6))
    for i in range(6):
        alone = task.batch("train", 3, [i])
        size = alone.tokens.shape[1]
        for a, b in zip(alone, whole, strict=True):
            assert np.array_equal(a[0], b[i, :size])
    code = f"from latchwork import tasks; print(tasks.get('function', **{dataclasses.asdict(task)}).batch('train', 3, "
    assert run_python(code + "[4]).tokens.tolist())").strip() == str(task.batch("train", 3, [4]).tokens.tolist())
    rows = {make(module).batch(split, seed, [i]).tokens[0, :5].tobytes() for split, seed, i in PLACES}
    assert len(rows) > len(PLACES) - 2  # five tokens may coincide


PLACES = [(split, seed, i) for split in ("train", "validation") for seed in (0, 1) for i in (0, 1, 2)]


def test_workers_give_the_same_batches(module):
    code = (
        f"from latchwork import tasks\nfrom latchwork.training.data import updates\n"
        f"from latchwork.runs.recipe import Recipe\n"
        f"if __name__ == '__main__':\n"
        f"    task = tasks.get('function', function='{module}:last', vocab_size=4)\n"
        f"    for workers in (0, 2):\n"
        f"        recipe = Recipe(train_sequences=12, batch_size=4, epochs=1, workers=workers)\n"
        f"        print([t.sum().item() for batches in updates(task, recipe) for t, _ in batches])\n"
    )
    alone, together = run_python(code, PYTHONWARNINGS="ignore").splitlines()
    assert alone == together


def test_streams_hold_every_sample_once_and_facts_are_lengths(module):
    task = make(module)
    whole = task.batch("validation", 0, range(30))
    scored = sum((b.targets != IGNORE).sum() for stream in task.streams("validation", 0, 30, 7) for b in stream)
    assert scored == (whole.targets != IGNORE).sum() == 30
    assert task.facts("validation") == {"lengths": "10 … 20 steps"}
    assert task.label_distribution("train", 0).sum() == pytest.approx(1)
    assert make(module, "Nested.make", n_outputs=1).batch("train", 0, [0]).targets.max() == 0


def test_functions_may_be_given_themselves_if_they_can_be_found_again(module):
    __import__("sys").path.insert(0, ".")
    found = __import__(module)
    assert tasks.get("function", function=found.last).function == f"{module}:last"
    assert tasks.get("function", function=found.Nested.make).function == f"{module}:Nested.make"
    for lost in (lambda rng, length: ([], []), run_python.__get__(3), 5):
        with pytest.raises(ValueError, match="cannot be imported by its name, so a run could not be opened again"):
            tasks.FunctionTask(lost)


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        ("short", {}, r"sample 0 of train \(seed 0\): \w+:short must return \d targets for length \d, got \d"),
        ("lone", {}, "must return a pair of tokens and targets, got list"),
        ("far", {}, r"gave the token 7; vocab_size 4 allows 0 … 3$"),
        ("wrong", {}, r"gave the target -1; vocab_size 4 allows 0 … 3, or -100 for a step that is not scored"),
        ("last", {"n_outputs": 1}, r"gave the target [1-3]; n_outputs 1 allows 0 … 0"),
        ("real", {}, "must return integers as tokens, got float64"),
        ("flat", {}, r"must return \d tokens for length \d, got an array of shape \(\d, 1\)"),
        ("ragged", {}, "must return a sequence of integers as tokens"),
        ("fails", {}, r"sample 0 of train \(seed 0\): \w+:fails raised ZeroDivisionError: division by zero"),
    ],
)
def test_what_a_function_gives_is_checked(module, function, options, message):
    with pytest.raises(ValueError, match=message):
        make(module, function, **options).batch("train", 0, range(20))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"function": "last"}, "function must be package.module:name, got 'last'"),
        ({"function": "no_such_module:f"}, "importing no_such_module raised ModuleNotFoundError"),
        ({"function": "math:nothing"}, "math has no nothing"),
        ({"function": "math:pi"}, "is not a function but float"),
        ({"function": "math:sin", "vocab_size": 0}, "vocab_size must be at least 1"),
        ({"function": "math:sin", "n_outputs": 0}, "n_outputs must be at least 1 or None, got 0"),
        ({"function": "math:sin", "shortest": 9, "longest": 3}, "shortest must be at least 1 and at most longest"),
        ({"function": "math:sin", "vocab_size": "4"}, "vocab_size must be an integer, got '4'"),
        ({}, "task function needs function"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        tasks.get("function", **options)


def test_registered_classes_are_found_and_checked():
    @register
    @dataclasses.dataclass(frozen=True)
    class Mine(Latching):
        """Mine: as Latching."""

        name: ClassVar[str] = "mine"

    try:
        assert tasks.get("mine", size=3) == Mine(3)
        assert register(Mine) is Mine
        with pytest.raises(ValueError, match=r"there is a task 'mine' already: .*Mine"):
            register(dataclasses.make_dataclass("Other", [], bases=(Mine,), frozen=True))
        with pytest.raises(ValueError, match="Bare needs a name"):
            register(type("Bare", (tasks.Task,), {}))
        with pytest.raises(ValueError, match="has to be a frozen dataclass"):
            register(type("Plain", (tasks.Task,), {"name": "plain"}))
    finally:
        TASKS.pop("mine")


def test_the_command_line_takes_classes_of_ones_own(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import sys\nfrom dataclasses import dataclass\nfrom typing import ClassVar\n"
        "from latchwork.cli.main import main\nfrom latchwork.tasks import Latching, register\n\n"
        "@register\n@dataclass(frozen=True)\nclass Mine(Latching):\n"
        '    """Mine: as Latching."""\n\n    name: ClassVar[str] = "mine"\n\nsys.exit(main())\n'
    )
    command = [sys.executable, "mine.py", "task", "mine", "--size", "3", "--show", "1"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("Mine: as Latching. (size 3)")
