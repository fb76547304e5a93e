"""Scoring a model on streams of chunks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from latchwork.nn.mode import device_of, evaluating
from latchwork.tasks.task import IGNORE, IntArray, Stream, Task, count_labels


@dataclass
class Score:
    """Counts over scored steps, in exact integers but for the loss."""

    classes: int
    scored: int = 0
    correct: int = 0
    nats: float = 0.0
    labels: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def __post_init__(self) -> None:
        if not self.labels.size:
            self.labels = np.zeros(self.classes, dtype=np.int64)

    def add(self, logits: Tensor, targets: Tensor) -> int:
        """Count the steps of logits [B, T, classes] and targets [B, T]; returns how many were right.

        The two may be on different devices. Losses of logits below float32 are computed in float32.
        """
        wanted = targets != IGNORE
        targets = targets[wanted]
        logits = logits[wanted.to(logits.device)]
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        there = targets.to(logits.device)
        correct = int((logits.argmax(dim=-1) == there).sum())
        self.scored += len(targets)
        self.correct += correct
        self.nats += float(F.cross_entropy(logits, there, reduction="sum"))
        self.labels += count_labels(targets.cpu().numpy(), self.classes)
        return correct

    @property
    def accuracy(self) -> float:
        """Share of scored steps that are right; NaN if there are none."""
        return self.correct / self.scored if self.scored else math.nan

    @property
    def floor(self) -> float:
        """The accuracy of always answering the commonest label."""
        return int(self.labels.max()) / self.scored if self.scored else math.nan

    @property
    def loss(self) -> float:
        """Cross-entropy in nats a scored step."""
        return self.nats / self.scored if self.scored else math.nan

    @property
    def bits(self) -> float:
        """Cross-entropy in bits a scored step."""
        return self.loss / math.log(2)

    def to_dict(self) -> dict[str, Any]:
        return {
            "accuracy": self.accuracy,
            "floor": self.floor,
            "loss": self.loss,
            "bits": self.bits,
            "correct": self.correct,
            "scored": self.scored,
        }


def merit(score: Score, task: Task) -> list[float]:
    """What makes one validation better than another, compared in this order.

    The most right answers, then the lowest loss; where the task is measured in bits, the loss alone.
    """
    return [-score.loss] if task.measure == "bits per byte" else [score.accuracy, -score.loss]


@torch.inference_mode()
def score_streams(
    model: nn.Module, streams: Iterable[Stream], classes: int, stop: Callable[[], bool] = lambda: False
) -> Score:
    """Run a model over streams on its own device, the state carried from chunk to chunk, in evaluation mode.

    `model` is called with tokens [B, T] and a state, None at the start of a stream, and returns logits [B, T, classes]
    and the state after them, in whatever structure it has. `stop` is asked after every chunk; when it is true the
    score so far is returned.
    """
    score, device = Score(classes), device_of(model)
    with evaluating(model):
        for stream in streams:
            state = None
            for tokens, targets in stream:
                logits, state = model(torch.from_numpy(tokens).to(device), state)
                score.add(logits, torch.from_numpy(targets))
                if stop():
                    return score
    return score


def percent(correct: int, scored: int) -> str:
    """A percentage that says 100.0% only when everything is right, and 0.0% only when nothing is."""
    return _tenths(correct * 1000 // scored, correct > 0) if scored else "–"


def share_percent(share: float) -> str:
    """As `percent`, of a share in [0, 1]: 100.0% only if it is 1, and 0.0% only if it is 0."""
    if not 0 <= share <= 1:
        raise ValueError(f"a share must be in [0, 1], got {share}")
    # a share that is a whole number of tenths may lie just below it, as 0.57 * 1000 does
    tenths = 1000 if share == 1 else min(int(share * 1000 + 1e-9), 999)
    return _tenths(tenths, share > 0)


def _tenths(tenths: int, above_zero: bool) -> str:
    tenths = max(tenths, 1) if above_zero else 0
    return f"{tenths // 10}.{tenths % 10}%"
