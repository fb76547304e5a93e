"""The training loop: a generator of what happens, so that whoever runs it decides what to show."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from latchwork.evaluation.measure import Score, score_streams
from latchwork.models.cascade_lm import CascadeLM
from latchwork.tasks.task import IGNORE, Task
from latchwork.training import checkpoint
from latchwork.training.checkpoint import CheckpointError
from latchwork.training.data import batches
from latchwork.training.recipe import Recipe
from latchwork.training.run import Run

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
    """Why training ended: "perfect", "patience", "finished" or "stopped" (by `stop`)."""

    step: int
    reason: str


Event = Resumed | Step | Validation | End


def train(run: Run, *, resume: bool = False, stop: Callable[[], bool] = lambda: False) -> Iterator[Event]:
    """Train a run, from its newest whole checkpoint with `resume`.

    Ends when the task is measured in accuracy and every validation answer is right, when the validation loss has
    not fallen for `patience` validations, after the last update, or soon after `stop()` is true; a checkpoint is
    written then as well.

    Raises: TrainingDivergedError when the loss is not finite; the checkpoints up to then stay.
    """
    recipe, task = run.recipe, run.task
    torch.manual_seed(recipe.seed)
    model = run.build()
    optimizer = make_optimizer(model, recipe)
    progress = _Progress()
    if resume:
        complaints = progress.restore(run, model, optimizer)
        yield Resumed(progress.step, complaints)
    size = task.epoch_size(recipe.train_sequences)
    total = recipe.total_steps(size)
    every = recipe.validate_every or recipe.epoch_steps(size)

    def measure() -> Iterator[Event]:
        """Validate and save, if it is time to and has not been done at this step."""
        at_end = progress.step == total
        if progress.step == progress.validated or (progress.step % every and not at_end):
            return
        clock = time.perf_counter()
        score = validate(model, run, stop)
        if stop():
            return  # the score is of a part only
        if not math.isfinite(score.loss):
            raise TrainingDivergedError(_diverged(run, progress.step, score.loss))
        is_best = progress.take(score, task)
        _record(metrics, {"step": progress.step, "validation": score.to_dict()})
        _save(run, progress, model, optimizer, is_best)
        epoch = progress.step / recipe.epoch_steps(size)
        yield Validation(progress.step, epoch, score, time.perf_counter() - clock, is_best)

    model.train()
    with run.metrics.open("a", encoding="utf-8") as metrics:
        if progress.step:
            yield from measure()  # an interruption may have come between an update and its validation
        for tokens, targets in batches(task, recipe, progress.step):
            if stop() or progress.ended(recipe, task):
                break
            clock = time.perf_counter()
            lr = recipe.learning_rate(progress.step, size)
            with _matmul_in(recipe.matmul):
                loss = _update(model, optimizer, tokens, targets, lr, recipe.clip)
            if not math.isfinite(loss):
                raise TrainingDivergedError(_diverged(run, progress.step, loss))
            progress.step += 1
            if progress.step % _RECORD_EVERY == 0 or progress.step == total:
                _record(metrics, {"step": progress.step, "loss": loss, "lr": lr})
            yield Step(progress.step, total, loss, lr, tokens.numel() / (time.perf_counter() - clock))
            if not stop():
                yield from measure()
        reason = progress.ended(recipe, task) or (
            "finished" if progress.step == progress.validated == total else "stopped"
        )
        if reason == "stopped":
            _save(run, progress, model, optimizer, is_best=False)
    yield End(progress.step, reason)


def make_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Adam as in the paper, or AdamW with weight decay on matrices only."""
    parameters = list(model.parameters())
    if recipe.optimizer == "adam":
        return torch.optim.Adam(parameters, lr=recipe.lr, weight_decay=recipe.weight_decay, fused=True)
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": recipe.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=recipe.lr, fused=True)


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy over scored steps; 0 with zero gradients where no step is scored."""
    total = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="sum")
    return total / (targets != IGNORE).sum().clamp(min=1)


def validate(model: CascadeLM, run: Run, stop: Callable[[], bool] = lambda: False) -> Score:
    """The score on the validation set of the run."""
    recipe, task = run.recipe, run.task
    streams = task.streams("validation", recipe.seed, recipe.validation_sequences, VALIDATION_CHUNK)
    return score_streams(model, streams, task.classes, stop)


@contextmanager
def _matmul_in(precision: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium" if precision == "bfloat16" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _update(
    model: CascadeLM,
    optimizer: torch.optim.Optimizer,
    tokens: Tensor,
    targets: Tensor,
    lr: float,
    clip: float | None,
) -> float:
    for group in optimizer.param_groups:
        group["lr"] = lr
    logits, _ = model(tokens)
    loss = loss_of(logits, targets)
    optimizer.zero_grad()
    loss.backward()
    if clip is not None:
        nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return loss.item()


@dataclass
class _Progress:
    """The counters of a run, saved with every checkpoint."""

    step: int = 0
    validated: int = 0
    best: list[float] | None = None
    best_checkpoint: str | None = None
    since_best: int = 0
    perfect: bool = False

    def take(self, score: Score, task: Task) -> bool:
        """Count a validation; true if it is the best one so far.

        The best has the most right answers, then the lowest loss; where the task is measured in bits, the loss alone.
        """
        merit = [-score.loss] if task.measure == "bits per byte" else [score.correct, -score.loss]
        is_best = self.best is None or merit > self.best
        self.best = merit if is_best else self.best
        self.since_best = 0 if is_best else self.since_best + 1
        self.perfect = score.correct == score.scored
        self.validated = self.step
        return is_best

    def ended(self, recipe: Recipe, task: Task) -> str | None:
        if task.measure == "accuracy" and self.perfect:
            return "perfect"
        return "patience" if recipe.patience is not None and self.since_best >= recipe.patience else None

    def restore(self, run: Run, model: nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
        """Go back to the newest whole checkpoint, if any; returns what is wrong with newer ones."""
        found, complaints = checkpoint.newest(run.checkpoints)
        if found is None:
            if complaints:
                raise CheckpointError(f"{run.path} has no whole checkpoint to go on from: {'; '.join(complaints)}")
            run.metrics.write_text("", "utf-8")  # killed before the first checkpoint: it starts again
            return complaints
        state = found.check()
        found.load_weights(model)
        found.load_training(optimizer)
        for name, value in state["progress"].items():
            setattr(self, name, value)
        kept = [record for record in run.records() if record["step"] <= self.step]
        run.metrics.write_text("".join(json.dumps(record) + "\n" for record in kept), "utf-8")
        return complaints


def _save(run: Run, progress: _Progress, model: nn.Module, optimizer: torch.optim.Optimizer, is_best: bool) -> None:
    name = f"step-{progress.step:08d}"
    if is_best:
        progress.best_checkpoint = name
    saved = checkpoint.save(run.checkpoints, progress.step, model, optimizer, {"progress": vars(progress)})
    if is_best:
        run.set_best(saved)
    checkpoint.prune(run.checkpoints, keep={progress.best_checkpoint or name})


def _diverged(run: Run, step: int, loss: float) -> str:
    whole, _ = checkpoint.newest(run.checkpoints)
    left = f"the last good checkpoint is {whole.path}" if whole else "there is no checkpoint yet"
    return f"the loss became {loss} at step {step + 1}; {left}. Try a lower --lr, or --clip 1"


def _record(metrics: Any, record: dict[str, Any]) -> None:
    metrics.write(json.dumps(record) + "\n")
    metrics.flush()
