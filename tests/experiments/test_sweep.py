"""Sweeps: what a file declares, and running it in real processes."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from latchwork.experiments.sweep import Evaluation, read_sweep
from latchwork.experiments.workers import cores, gpus, least_used, most_at_once
from latchwork.runs.recipe import Recipe
from latchwork.runs.run import Run
from latchwork.runs.settings import SettingsError, assigned
from latchwork.tasks import get

STUDY = """
[task]
name = "latching"
[model]
d_model = 8
n_units = 4
[recipe]
steps = 40
batch_size = 4
train_sequences = 8
validation_sequences = 2
validate_every = 5
[grid]
task.size = [4, 8]
recipe.seed = [0, 1]
"""


@pytest.fixture
def study(tmp_path):
    file = tmp_path / "study.toml"
    file.write_text(STUDY, "utf-8")
    return file


@pytest.mark.skipif(sys.version_info < (3, 11), reason="needs PYTHONSAFEPATH")
def test_files_that_are_called_like_libraries_do_not_take_their_place(study, tmp_path):
    (tmp_path / "filelock.py").write_text("raise SystemExit('not the library')", "utf-8")
    script = shutil.which("latchwork", path=os.path.dirname(sys.executable))
    assert script
    flags = ["--set", "recipe.steps=5", "--workers", "2"]
    result = subprocess.run(
        [script, "sweep", str(study), "--out", "out", *flags], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr
    assert "4 of 4 runs done" in result.stderr


def test_runs_are_shared_among_gpus(monkeypatch):
    assert least_used(["0"], []) is None
    assert least_used(["3", "5"], ["3"]) == "5"
    assert least_used(["3", "5"], ["3", "5", "5"]) == "3"
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert gpus() == ["3", "5"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert gpus() == ["0", "1"]
    assert most_at_once() == min(cores(), 8)


def sweep(study, *flags) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(study, *flags), cwd=study.parent, capture_output=True, text=True, timeout=300)


def command(study, *flags) -> list[str]:
    return [sys.executable, "-m", "latchwork", "sweep", str(study), "--out", "out", *flags]


def test_every_combination_is_a_run_with_what_all_share(study, tmp_path):
    sweep = read_sweep(study, tmp_path / "out", assigned(["recipe.lr=0.5"]))
    assert all(planned.evaluation is None for planned in sweep)
    found = [planned.run for planned in sweep]
    expected = {f"size-{size}_seed-{seed}": (size, seed) for size, seed in itertools.product((4, 8), (0, 1))}
    assert [run.path.name for run in found] == list(expected)
    for run in found:
        size, seed = expected[run.path.name]
        assert run.task == get("latching", size=size)
        assert run.model.d_model == 8
        assert run.model.n_layers == 2
        assert run.recipe == Recipe(
            seed=seed,
            lr=0.5,
            steps=40,
            batch_size=4,
            train_sequences=8,
            validation_sequences=2,
            validate_every=5,
        )


def test_toml_yaml_and_json_declare_the_same(tmp_path):
    content = {
        "task": {"name": "latching"},
        "grid": [{"task": {"size": [4, 8]}}, {"recipe.lr": [0.1], "task.size": [16], "recipe.steps": 9}],
        "evaluate": {"length": 2048},
    }
    (tmp_path / "a.json").write_text(json.dumps(content))
    (tmp_path / "a.yaml").write_text(
        "task: {name: latching}\ngrid:\n- task: {size: [4, 8]}\n- recipe.lr: [0.1]\n  task: {size: [16]}\n"
        "  recipe.steps: 9\nevaluate: {length: 2048}\n"
    )
    (tmp_path / "a.toml").write_text(
        '[task]\nname = "latching"\n[[grid]]\ntask.size = [4, 8]\n[[grid]]\n"recipe.lr" = [0.1]\ntask.size = [16]\n'
        '"recipe.steps" = 9\n'
        "[evaluate]\nlength = 2048\n"
    )
    one, *others = [read_sweep(tmp_path / f"a.{kind}", tmp_path) for kind in ("json", "yaml", "toml")]
    assert [planned.run.path.name for planned in one] == ["size-4", "size-8", "lr-0.1_size-16"]
    assert one[0].evaluation == Evaluation(length=2048)
    assert [planned.run.recipe.steps for planned in one] == [None, None, 9]
    assert all(other == one for other in others)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("seed = [0, 1]", "sede = [0, 1]"),
            r"study.toml, size-4_sede-0: there is no recipe.sede; did you mean recipe.seed",
        ),
        (("[0, 1]", "[]"), "the list of grid key recipe.seed is empty"),
        (("[0, 1]", '"x"'), "size-4: seed must be an integer, got 'x'"),
        (("[0, 1]", "[1, 1]"), "two runs would be called size-4_seed-1"),
        (("[4, 8]", "[4, 1]"), "study.toml, size-1_seed-0: size must be at least 2"),
        (('"latching"', '"laching"'), "there is no task 'laching'.*did you mean latching"),
        (("[grid]", "[gird]"), "there is no section 'gird'; did you mean grid"),
        (("task.size", "size"), "grid key size has no section, which is one of task, model, recipe"),
        (("steps = 40", "steps = 0"), "steps must be an integer of at least 1"),
        (("steps = 40", "steps = "), r"study.toml: .*line 8"),
        (("[task]", "[evaluate]\nlenght = 3\n[task]"), "section evaluate has length, .*, not 'lenght'"),
        (("[task]", "[evaluate]\nlength = 1000\n[task]"), "evaluate: length must be a multiple of the chunk"),
        (("[task]", "[evaluate]\nseed = -1\n[task]"), r"evaluate: seed must be in 0 … 2\^63"),
        (("steps = 40", f"lr = 1{'0' * 400}"), "study.toml, size-4_seed-0: lr must be a number of at most"),
        (("[0, 1]", "[0]\nrecipe.lr = [1, 1.0]"), "_lr-1 and .*_lr-1.0 would be the same run twice"),
        (("recipe.seed", "recipe.lr = 1\n'recipe.lr'"), "grid key recipe.lr is there twice"),
        (("[task]\nname", "[model]\nname"), "study.toml: "),
        (("[grid]", "grid = []\n[recipe.x]"), "study.toml: "),
    ],
)
def test_mistakes_are_named_before_anything_runs(study, tmp_path, change, message):
    study.write_text(STUDY.replace(*change), "utf-8")
    with pytest.raises((SettingsError, ValueError), match=message):
        read_sweep(study, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def metrics(folder) -> dict[str, str]:
    """What the runs recorded, but for the seconds they took."""
    return {
        path.parent.name: re.sub(r'"seconds": [\d.]+', "", path.read_text("utf-8"))
        for path in sorted(folder.glob("*/metrics.jsonl"))
    }


def wait_for(condition, process):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_a_sweep_that_is_killed_or_interrupted_goes_on_to_the_same_results(study, tmp_path):
    study.write_text(STUDY.replace("[4, 8]", "[4]") + "[evaluate]\nlength = 2048\nsequences = 2\n", "utf-8")
    whole = sweep(study, "--json")
    assert whole.returncode == 0, whole.stderr
    rows = json.loads(whole.stdout)["runs"]
    assert [(row["run"], row["ended"], row["updates"]) for row in rows] == [
        ("size-4_seed-0", "finished", 40),
        ("size-4_seed-1", "finished", 40),
    ]
    assert all(row["long"].endswith("%") for row in rows)
    expected = metrics(tmp_path / "out")
    (tmp_path / "out").rename(tmp_path / "whole")
    for number in (signal.SIGKILL, signal.SIGINT):
        before = "".join(metrics(tmp_path / "out").values())
        process = subprocess.Popen(
            command(study, "--set", "recipe.steps=40"), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        wait_for(lambda before=before: "".join(metrics(tmp_path / "out").values()) != before, process)
        process.send_signal(number)
        process.communicate(timeout=60)
        if number == signal.SIGINT:
            assert process.returncode == 130
        # workers that lost their sweep end by themselves, and nobody else trains a run meanwhile
        wait_until_free(tmp_path / "out")
    done = sweep(study)
    assert done.returncode == 0, done.stderr
    assert metrics(tmp_path / "out") == expected
    assert "2 of 2 runs done" in done.stderr
    again = sweep(study)
    assert again.returncode == 0
    assert " in " not in again.stderr.replace("2 of 2 runs done", ""), "nothing is done twice"


def wait_until_free(folder):
    from filelock import FileLock

    for lock in folder.glob("*/run.lock"):
        with FileLock(lock, timeout=60):
            pass


def test_a_broken_run_is_reported_and_the_others_go_on(study, tmp_path):
    study.write_text(STUDY.replace("[4, 8]", "[4]").replace("[0, 1]", "[0, 1]\nrecipe.lr = [0.001, 1e30]"), "utf-8")
    result = sweep(study, "--set", "recipe.steps=5", "--workers", "2")
    assert result.returncode == 1
    assert "size-4_seed-0_lr-1e+30: failed: the loss became" in result.stderr
    assert "2 of 4 runs done" in result.stderr
    for seed in (0, 1):
        assert Run.open(tmp_path / "out" / f"size-4_seed-{seed}_lr-0.001").ended == "finished"
        assert Run.open(tmp_path / "out" / f"size-4_seed-{seed}_lr-1e+30").ended == "diverged"
    again = sweep(study, "--set", "recipe.steps=5")
    assert again.returncode == 1
    assert "lr-1e+30: failed: its loss is not a number any more" in again.stderr
    changed = sweep(study, "--set", "recipe.steps=6")
    assert changed.returncode == 1
    assert "holds a run with other settings" in changed.stderr
