"""Many runs at once: a process each, as many at a time as there are workers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from latchwork.evaluation.outcome import current_evaluation
from latchwork.experiments.sweep import Evaluation, Planned
from latchwork.runs.run import Run, RunError
from latchwork.tasks import RegularTask

_POLL_SECONDS = 0.2
WORKER = "LATCHWORK_WORKER"
"""Environment variable of a worker: it stops, as after a Ctrl-C, when its standard input ends. That is how a sweep asks
for it, and what the system does when the sweep is gone."""


@dataclass(frozen=True)
class Done:
    """A run is trained and measured, now or (with seconds 0) before."""

    run: Run
    seconds: float


@dataclass(frozen=True)
class Failed:
    """A run could not be trained or measured; `message` is the last line it said."""

    run: Run
    message: str


@dataclass(frozen=True)
class Working:
    """What is being worked on at the moment; sent every few moments."""

    runs: tuple[Run, ...]


@dataclass
class _Job:
    run: Run
    commands: list[list[str]]
    """What is left to do, one process after another."""
    gpu: str | None = None
    """As CUDA_VISIBLE_DEVICES names it, where there are several to choose from."""
    process: subprocess.Popen | None = None
    began: float = field(default_factory=time.monotonic)


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    count = torch.cuda.device_count()
    return named.split(",")[:count] if named else [str(i) for i in range(count)]


def most_at_once() -> int:
    """Runs that are worked on together where nobody says how many: one a core, but no more than four a GPU."""
    return min(cores(), 4 * len(gpus()) or cores())


def least_used(names: Sequence[str], used: Sequence[str | None]) -> str | None:
    """Which of several GPUs a run gets while others are in use; None where there is no choice."""
    return min(names, key=used.count) if len(names) > 1 else None


def run_sweep(
    sweep: Sequence[Planned], workers: int, threads: int, stop: Callable[[], bool] = lambda: False
) -> Iterator[Done | Failed | Working]:
    """Train and measure every run that is not done yet; what is done is only reported.

    Raises: RunError when a folder holds another run than the sweep declares; before anything is started.
    When `stop()` is true the runs at work write a checkpoint and end; the same call later goes on from there.
    """
    waiting: list[_Job] = []
    for planned in sweep:
        run = planned.run
        if (run.path / "config.json").exists():
            if Run.open(run.path) != run:
                raise RunError(f"{run.path} holds a run with other settings; choose another folder")
        else:
            run.create()
        waiting.append(_Job(run, _commands(run, planned.evaluation, threads)))
    working: list[_Job] = []
    cards = gpus()
    try:
        while waiting or working:
            while waiting and len(working) < workers and not stop():
                job = waiting.pop(0)
                if job.run.ended == "diverged":
                    yield Failed(job.run, "its loss is not a number any more; remove its folder to try again")
                    continue
                if not job.commands:
                    yield Done(job.run, 0.0)
                    continue
                job.began, job.gpu = time.monotonic(), least_used(cards, [other.gpu for other in working])
                working.append(job)
            if stop():
                waiting.clear()
                _ask_to_stop(working)
            for job in list(working):
                if (outcome := _advance(job, threads, stop)) is not None:
                    working.remove(job)
                    if not isinstance(outcome, str):
                        yield outcome
            if working:
                yield Working(tuple(job.run for job in working))
                time.sleep(_POLL_SECONDS)
    finally:
        for job in working:
            if job.process is not None:
                job.process.kill()
                job.process.wait()


def _commands(run: Run, evaluation: Evaluation | None, threads: int) -> list[list[str]]:
    """What is left to do for a run."""
    commands = [] if run.ended else [["train", "resume", str(run.path), f"--threads={threads}"]]
    if evaluation is not None and (commands or not _is_measured(run, evaluation)):
        names = vars(evaluation) if isinstance(run.task, RegularTask) else ["seed"]  # what ends is read whole
        flags = [f"--{name}={getattr(evaluation, name)}" for name in names]
        commands.append(["evaluate", str(run.path), f"--threads={threads}", *flags])
    return commands


def _is_measured(run: Run, evaluation: Evaluation) -> bool:
    """Whether the best model has been measured like this."""
    found, _ = current_evaluation(run)
    return found is not None and evaluation.matches(found) and "checkpoint" in found


def _advance(job: _Job, threads: int, stop: Callable[[], bool]) -> Done | Failed | str | None:
    """Start what comes next when the last process has ended; the outcome if there is one, None while it works."""
    if job.process is not None:
        status = job.process.poll()
        if status is None:
            return None
        if job.process.stdin is not None:
            job.process.stdin.close()
        job.process = None
        if stop():
            return "stopped"
        if status:
            return Failed(job.run, _last_line(_log(job.run)) or f"ended with status {status}")
    if stop():
        return "stopped"
    if not job.commands:
        return Done(job.run, time.monotonic() - job.began)
    # a file of the user's that is called like a library is not to be imported in its place
    environment = {**os.environ, WORKER: "1", "OMP_NUM_THREADS": str(threads), "PYTHONSAFEPATH": "1"}
    if job.gpu is not None:
        environment["CUDA_VISIBLE_DEVICES"] = job.gpu
    with _log(job.run).open("ab") as log:
        job.process = subprocess.Popen(
            [sys.executable, "-m", "latchwork", *job.commands.pop(0)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=environment,
            # a Ctrl-C comes to the sweep first, and is handed on
            start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
    return None


def _log(run: Run) -> Path:
    return run.path / "log.txt"


def _last_line(log: Path) -> str:
    lines = log.read_text("utf-8", errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1].removeprefix("latchwork: error: ") if lines else ""


def _ask_to_stop(jobs: Sequence[_Job]) -> None:
    for job in jobs:
        if job.process is not None and job.process.stdin is not None:
            job.process.stdin.close()
