"""Training in real processes: several at once, killed at any moment, two for one run."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from filelock import FileLock

from latchwork.runs.run import Run

TINY = (
    "--d-model 8 --n-layers 2 --n-units 4 --batch-size 8 --validation-sequences 40 --train-sequences 30 --threads 1 "
    "--validate-every 10"
)


def launch(arguments: str, cwd, processes: int = 1) -> subprocess.CompletedProcess[str]:
    many = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes)] if processes > 1 else []
    command = [sys.executable, *many, "-m", "latchwork", *arguments.split()]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr
    return result


def records(folder) -> list[dict]:
    """What a run recorded, but for the seconds it took."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


def same(found: list[dict], expected: list[dict]) -> None:
    """Losses and validations up to the rounding of sums."""
    for one, other in zip(expected, found, strict=True):
        assert one.keys() == other.keys()
        if "validation" in one:
            one, other = one["validation"], other["validation"]
            assert other["scored"] == one["scored"]
        for name in one.keys() & {"loss", "accuracy", "floor"}:
            assert other[name] == pytest.approx(one[name], abs=1e-5)


@pytest.mark.skipif(os.name != "posix", reason="gloo in processes of POSIX")
def test_weights_in_shards_train_as_one_process_and_checkpoints_move_between_numbers_of_processes(tmp_path):
    options = f"train sequences --size 2 {TINY} --dropout 0 --clip 1 --micro-batches 2 --ema 0.9"
    launch(f"{options} --steps 20 --out one", tmp_path)
    launch(f"{options} --steps 20 --parallel shard --out two", tmp_path, processes=2)
    expected = records(tmp_path / "one")
    same(records(tmp_path / "two"), expected)
    for name in ("one", "two"):  # in one process each
        launch(f"train resume {name} --set recipe.steps=30 --threads 1", tmp_path)
    same(records(tmp_path / "two"), records(tmp_path / "one"))


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("parallel", [pytest.param("replicate", marks=pytest.mark.slow), "shard"])
def test_a_killed_rank_is_reported_and_the_run_goes_on(tmp_path, parallel):
    options = f"train sequences --size 2 {TINY} --steps 2000 --parallel {parallel} --out run"
    many = ["-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command = [sys.executable, *many, "-m", "latchwork", *options.split()]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not list((tmp_path / "run" / "checkpoints").glob("step-*")):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True).stdout
    os.kill(int(children.split()[-1]), signal.SIGKILL)
    _, errors = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "SIGKILL" in errors
    reached = records(tmp_path / "run")[-1]["step"]
    after = reached - reached % 10 + 20
    launch(f"train resume run --set recipe.steps={after} --threads 1", tmp_path, processes=2)
    assert records(tmp_path / "run")[-1]["step"] == after


@pytest.mark.skipif(os.name != "posix", reason="gloo in processes of POSIX")
def test_two_processes_train_as_one(tmp_path):
    """The last update of an epoch has 6 sequences, and the validation set is shared too; dropout is off, since every
    process drops out other outputs."""
    options = f"train sequences --size 2 {TINY} --steps 20 --dropout 0 --clip 1 --micro-batches 2 --ema 0.9"
    launch(f"{options} --out one", tmp_path)
    two = launch(f"{options} --out two", tmp_path, processes=2)
    assert two.stderr.count("finished after 20 updates") == 1, "only the first process speaks"
    same(records(tmp_path / "two"), records(tmp_path / "one"))
    weights = [dict(Run.open(tmp_path / name).trained()[0].named_parameters()) for name in ("one", "two")]
    for name, value in weights[0].items():
        np.testing.assert_allclose(value.detach(), weights[1][name].detach(), atol=1e-4)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="gloo in processes of POSIX")
def test_a_run_of_two_processes_goes_on_with_two_or_one(tmp_path):
    options = f"train sequences --size 2 {TINY} --dropout 0.3"
    launch(f"{options} --steps 20 --out whole", tmp_path, processes=2)
    launch(f"{options} --steps 10 --out cut", tmp_path, processes=2)
    launch("train resume cut --set recipe.steps=20 --threads 1", tmp_path, processes=2)
    assert records(tmp_path / "cut") == records(tmp_path / "whole")
    launch("train resume cut --set recipe.steps=30 --threads 1", tmp_path)
    assert records(tmp_path / "cut")[-1].items() >= {"step": 30, "end": "finished"}.items()


def test_a_run_is_trained_by_one_process_at_a_time(tmp_path):
    launch(f"train latching --size 4 {TINY} --steps 2 --out run", tmp_path)
    before = records(tmp_path / "run")
    with FileLock(tmp_path / "run" / "run.lock"):
        command = [sys.executable, "-m", "latchwork", "train", "resume", "run"]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == "latchwork: error: run is being trained by another process"
    assert records(tmp_path / "run") == before


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="kill -9")
def test_killed_at_twenty_random_moments_every_loss_is_that_of_the_uninterrupted_run(tmp_path):
    options = f"train inductionheads --size 4 {TINY} --steps 2000 --dropout 0.3 --patience None --ema 0.99 --out"
    launch(f"{options} whole", tmp_path)
    expected = records(tmp_path / "whole")
    chance, kills = random.Random(0), 0
    command = [sys.executable, "-m", "latchwork", *f"{options} cut".split()]
    while kills < 20:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        metrics = tmp_path / "cut" / "metrics.jsonl"
        seen = metrics.read_text("utf-8") if metrics.exists() else ""
        while process.poll() is None and (not metrics.exists() or metrics.read_text("utf-8") == seen):
            time.sleep(0.01)  # a kill before anything happened would tell nothing
        time.sleep(chance.uniform(0, 1))
        process.send_signal(signal.SIGKILL)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL, f"{kills} kills: it ended before: {errors}"
        kills += 1
        command = [sys.executable, "-m", "latchwork", "train", "resume", "cut", "--threads", "1"]
    launch("train resume cut --threads 1", tmp_path)
    assert records(tmp_path / "cut") == expected
