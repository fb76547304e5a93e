"""The training loop: a generator of what happens, so that whoever runs it decides what to show."""

from __future__ import annotations

import itertools
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import nn

from latchwork.evaluation.measure import Score, score_streams
from latchwork.runs import checkpoint
from latchwork.runs.run import Run, RunError
from latchwork.training.data import updates
from latchwork.training.learner import Learner
from latchwork.training.progress import Progress

if TYPE_CHECKING:
    from accelerate import Accelerator

T = TypeVar("T")

VALIDATION_CHUNK = 4096
_RECORD_EVERY = 10


class TrainingDivergedError(RuntimeError):
    """The loss is not a number any more; the message says where and what is left."""


@dataclass(frozen=True)
class Resumed:
    """Where a run goes on, and which newer checkpoints were passed over because of what."""

    step: int
    complaints: list[str]


@dataclass(frozen=True)
class Step:
    """An update of the weights."""

    step: int
    total: int
    loss: float
    lr: float
    tokens_per_second: float


@dataclass(frozen=True)
class Validation:
    """A measurement of the held-out set, and the checkpoint written with it."""

    step: int
    epoch: float
    score: Score
    seconds: float
    is_best: bool


@dataclass(frozen=True)
class End:
    """Why training ended: "perfect", "patience", "time", "finished" or "stopped" (by `stop`)."""

    step: int
    reason: str


Event = Resumed | Step | Validation | End


def train(run: Run, *, resume: bool = False, stop: Callable[[], bool] = lambda: False) -> Iterator[Event]:
    """Train a run, from its newest whole checkpoint with `resume`.

    Ends when the task is measured in accuracy and every validation answer is right (unless the recipe goes on then),
    when the validation loss has not fallen for `patience` validations, after the last update, or soon after `stop()` is
    true; a checkpoint is written then as well. Started in several processes (`accelerate launch`, `torchrun`), every
    process calls this and computes its share of every update; the first one writes.

    Raises: TrainingDivergedError when the loss is not finite; the checkpoints up to then stay. ImportError with what to
    install when accelerate is missing.
    """
    accelerator = make_accelerator()
    with run.locked() if accelerator.is_main_process else nullcontext():
        yield from _train(run, accelerator, resume, stop)


def _train(run: Run, accelerator: Accelerator, resume: bool, stop: Callable[[], bool]) -> Iterator[Event]:
    recipe, task = run.recipe, run.task
    torch.manual_seed(recipe.seed)
    learner = Learner(run.build, recipe, accelerator)
    progress = Progress()
    if not resume and checkpoint.all_of(run.checkpoints):
        raise RunError(f"{run.path} has been trained already; resume it, or train in another folder")
    if resume:
        run.check_data()
        complaints = progress.restore(run, learner)
        if accelerator.is_main_process:
            run.write_config()  # the recipe may be another one from here on
        yield Resumed(progress.step, complaints)
    size = task.epoch_size(recipe.train_sequences)
    total = recipe.total_steps(size)
    every = recipe.validate_every or recipe.epoch_steps(size)
    asked = _agreed(accelerator, stop)

    def measure(metrics: _Metrics) -> Iterator[Event]:
        """Validate and save, if it is time to and has not been done at this step."""
        at_end = progress.step >= total or progress.is_late(recipe)
        if progress.step == progress.validated or (progress.step % every and not at_end):
            return
        clock = time.perf_counter()
        score = validate(learner.measured(), run, stop, accelerator.process_index, accelerator.num_processes)
        if asked():
            return  # the score is of a part only
        score = _summed(score, accelerator)
        if not score.scored:
            raise ValueError("the validation set has no scored step: nothing can be measured")
        if not math.isfinite(score.loss):
            raise diverged(metrics, score.loss)
        is_best = progress.take(score, task)
        metrics.record(progress.step, {"validation": score.to_dict()})
        progress.save(run, learner, is_best)
        epoch = progress.step / recipe.epoch_steps(size)
        yield Validation(progress.step, epoch, score, time.perf_counter() - clock, is_best)

    def diverged(metrics: _Metrics, loss: float) -> TrainingDivergedError:
        metrics.record(progress.step, {"end": "diverged"})
        return TrainingDivergedError(_diverged(run, progress.step, loss))

    with _Metrics(run, accelerator.is_main_process, progress.step) as metrics:
        if progress.step:
            yield from measure(metrics)  # an interruption may have come between an update and its validation
        since = time.perf_counter()
        for batches in updates(task, recipe, progress.step, accelerator.process_index, accelerator.num_processes):
            if asked() or progress.ended(recipe, task):
                break
            clock = time.perf_counter()
            lr = recipe.learning_rate(progress.step, size)
            loss = learner.update(batches, lr)
            progress.step += 1
            if not math.isfinite(loss):
                raise diverged(metrics, loss)
            if progress.step % _RECORD_EVERY == 0 or progress.step == total:
                metrics.record(progress.step, {"loss": loss, "lr": lr})
            now = time.perf_counter()
            seconds, tokens = _cost(now - since, sum(t.numel() for t, _ in batches), accelerator)
            progress.seconds += seconds
            progress.tokens += tokens
            yield Step(progress.step, total, loss, lr, tokens / (now - clock))
            if not asked():
                yield from measure(metrics)
            since = time.perf_counter()
        reason = progress.ended(recipe, task)
        if reason in (None, "time"):  # the clock stops nothing where there is nothing left to do
            all_done = progress.step >= total and progress.step == progress.validated
            reason = "finished" if all_done else reason or "stopped"
        if reason == "stopped" and progress.step != progress.saved:
            progress.save(run, learner, is_best=False)
        if reason != "stopped":
            spent = {"seconds": round(progress.seconds, 3), "tokens": progress.tokens}
            metrics.record(progress.step, {"end": reason, **spent})
    yield End(progress.step, reason)


def make_accelerator() -> Accelerator:
    """The devices and processes to train on; the recipe alone decides the precision."""
    try:
        from accelerate import Accelerator
    except ImportError:
        raise ImportError("training needs accelerate: pip install 'latchwork[train]'") from None
    return Accelerator(mixed_precision="no", cpu=not torch.accelerator.is_available())


def first_says(value: T) -> T:
    """What the first process says, in all of them."""
    from accelerate.utils import broadcast_object_list

    return broadcast_object_list([value])[0]


def validate(
    model: nn.Module, run: Run, stop: Callable[[], bool] = lambda: False, process: int = 0, processes: int = 1
) -> Score:
    """The score of one process's share of the validation set."""
    recipe, task = run.recipe, run.task
    streams = task.streams("validation", recipe.seed, recipe.validation_sequences, VALIDATION_CHUNK)
    return score_streams(model, itertools.islice(streams, process, None, processes), task.classes, stop)


def _summed(score: Score, accelerator: Accelerator) -> Score:
    """The score over all processes."""
    if accelerator.num_processes == 1:
        return score
    counts = torch.tensor([score.scored, score.correct, *score.labels.tolist()], device=accelerator.device)
    nats = torch.tensor(score.nats, dtype=torch.float64, device=accelerator.device)
    scored, correct, *labels = accelerator.reduce(counts, "sum").tolist()
    total = float(accelerator.reduce(nats, "sum"))
    return Score(score.classes, scored, correct, total, np.array(labels))


def _agreed(accelerator: Accelerator, stop: Callable[[], bool]) -> Callable[[], bool]:
    """Whether any process is asked to stop, so that all of them stop at the same step."""
    if accelerator.num_processes == 1:
        return stop
    return lambda: bool(accelerator.reduce(torch.tensor(int(stop()), device=accelerator.device), "sum"))


def _cost(seconds: float, tokens: int, accelerator: Accelerator) -> tuple[float, int]:
    """Of an update over all processes: the longest time, the same for all so that theirs is over at the same step, and
    all tokens."""
    if accelerator.num_processes == 1:
        return seconds, tokens
    own = torch.tensor([[seconds, tokens]], dtype=torch.float64, device=accelerator.device)
    every = accelerator.gather(own)
    return float(every[:, 0].max()), int(every[:, 1].sum())


def _diverged(run: Run, step: int, loss: float) -> str:
    whole, _, _ = checkpoint.newest(run.checkpoints)
    left = f"the last good checkpoint is {whole.path}" if whole else "there is no checkpoint yet"
    return f"the loss became {loss} at step {step}; {left}. Try a lower --lr, or --clip 1"


class _Metrics:
    """The records of a run, as JSON lines and, where the recipe wants it, for TensorBoard."""

    def __init__(self, run: Run, writes: bool, step: int) -> None:
        self.lines = run.metrics.open("a", encoding="utf-8") if writes else None
        self.board = _board(run, step) if writes and run.recipe.tensorboard else None

    def __enter__(self) -> _Metrics:
        return self

    def __exit__(self, *_: object) -> None:
        if self.lines is not None:
            self.lines.close()
        if self.board is not None:
            self.board.close()

    def record(self, step: int, values: dict[str, Any]) -> None:
        if self.lines is not None:
            self.lines.write(json.dumps({"step": step, **values}) + "\n")
            self.lines.flush()
            if "loss" not in values:  # before the checkpoint that takes it for recorded
                os.fsync(self.lines.fileno())
        if self.board is not None:
            for name, value in values.items():
                scalars = value if isinstance(value, dict) else {name: value}
                for key, scalar in scalars.items():
                    if not isinstance(scalar, str):
                        self.board.add_scalar(f"{'validation' if scalars is value else 'train'}/{key}", scalar, step)


def _board(run: Run, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ImportError("--tensorboard needs tensorboard: pip install 'latchwork[train]'") from None
    return SummaryWriter(str(run.path / "tensorboard"), purge_step=step + 1)
