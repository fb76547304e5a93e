"""How far a run is, and how that is kept."""

from __future__ import annotations

import json
from dataclasses import dataclass

from latchwork.evaluation.measure import Score, merit
from latchwork.files import write_text
from latchwork.runs import checkpoint
from latchwork.runs.checkpoint import Checkpoint, CheckpointError
from latchwork.runs.recipe import Recipe
from latchwork.runs.run import Run
from latchwork.tasks.task import Task
from latchwork.training.learner import Learner


@dataclass
class Progress:
    """The counters of a run, saved with every checkpoint."""

    step: int = 0
    validated: int = 0
    best: list[float] | None = None
    best_checkpoint: str | None = None
    lowest: float | None = None
    since_lowest: int = 0
    saved: int = 0
    perfect: bool = False
    seconds: float = 0.0
    """Spent on updates."""
    tokens: int = 0
    """Read in updates, padding included."""

    def take(self, score: Score, task: Task) -> bool:
        """Count a validation; true if it is the best one so far."""
        own = merit(score, task)
        is_best = self.best is None or own > self.best
        self.best = own if is_best else self.best
        is_lower = self.lowest is None or score.loss < self.lowest
        self.lowest = score.loss if is_lower else self.lowest
        self.since_lowest = 0 if is_lower else self.since_lowest + 1
        self.perfect = score.correct == score.scored
        self.validated = self.step
        return is_best

    def is_late(self, recipe: Recipe) -> bool:
        """Whether the time for updates is over."""
        return recipe.minutes is not None and self.seconds >= 60 * recipe.minutes

    def ended(self, recipe: Recipe, task: Task) -> str | None:
        """Why there is nothing left to do before the last update, if so."""
        if task.measure == "accuracy" and self.perfect and recipe.stop_when_perfect:
            return "perfect"
        if recipe.patience is not None and self.since_lowest >= recipe.patience:
            return "patience"
        return "time" if self.is_late(recipe) and self.step == self.validated else None

    def restore(self, run: Run, learner: Learner) -> list[str]:
        """Go back to the newest whole checkpoint, if any; returns what is wrong with newer ones."""
        found, state, complaints = checkpoint.newest(run.checkpoints)
        main = learner.accelerator.is_main_process
        if found is None:
            if complaints:
                raise CheckpointError(f"{run.path} has no whole checkpoint to go on from: {'; '.join(complaints)}")
            if (run.path / "best.json").exists():  # what it has recorded must not be lost
                raise CheckpointError(f"{run.path} has been trained and its checkpoints are gone")
            if main:
                run.metrics.write_text("", "utf-8")  # killed before the first checkpoint: it starts again
            return complaints
        for name, value in state["progress"].items():
            setattr(self, name, value)
        learner.restore(found, self.step)
        if learner.scaler.is_enabled():
            learner.scaler.load_state_dict(state["scaler"])
        kept = [record for record in run.records() if record["step"] <= self.step and "end" not in record]
        if not any(record["step"] == self.validated and "validation" in record for record in kept):
            self.validated = 0  # its record is lost, so it is to be measured again where that is still possible
        if main:
            write_text(run.metrics, "".join(json.dumps(record) + "\n" for record in kept))
            if self.best_checkpoint is not None:  # it was killed, maybe, before it could say so
                run.set_best(Checkpoint(run.checkpoints / self.best_checkpoint))
        return complaints

    def save(self, run: Run, learner: Learner, is_best: bool) -> None:
        """Write a checkpoint; every process has to call it, and the first one writes."""
        name = f"step-{self.step:08d}"
        if is_best:
            self.best_checkpoint = name
        self.saved = self.step
        tensors, model = learner.tensors(), learner.measured()
        if learner.accelerator.is_main_process:
            state = {"progress": vars(self), "scaler": learner.scaler.state_dict()}
            saved = checkpoint.save(run.checkpoints, self.step, model, tensors, state)
            if is_best:
                run.set_best(saved)
            checkpoint.prune(run.checkpoints, keep={self.best_checkpoint or name})
        learner.accelerator.wait_for_everyone()
