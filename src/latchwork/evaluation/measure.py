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

from latchwork.tasks.task import IGNORE, IntArray, Stream, count_labels


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
        """Count the steps of logits [B, T, classes] and targets [B, T]; returns how many were right."""
        wanted = targets != IGNORE
        logits, targets = logits[wanted], targets[wanted]
        correct = int((logits.argmax(dim=-1) == targets).sum())
        self.scored += len(targets)
        self.correct += correct
        self.nats += float(F.cross_entropy(logits.float(), targets, reduction="sum"))
        self.labels += count_labels(targets.numpy(), self.classes)
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


@torch.inference_mode()
def score_streams(
    model: nn.Module, streams: Iterable[Stream], classes: int, stop: Callable[[], bool] = lambda: False
) -> Score:
    """Run a language model over streams, the state carried from chunk to chunk, in evaluation mode.

    `stop` is asked after every chunk; when it is true the score so far is returned.
    """
    score = Score(classes)
    training = model.training
    model.eval()
    try:
        for stream in streams:
            state = None
            for tokens, targets in stream:
                logits, state = model(torch.from_numpy(tokens), state)
                score.add(logits, torch.from_numpy(targets))
                if stop():
                    return score
    finally:
        model.train(training)
    return score


def percent(correct: int, scored: int) -> str:
    """A percentage that says 100.0% only when everything is right, and 0.0% only when nothing is."""
    if not scored:
        return "–"
    tenths = correct * 1000 // scored
    tenths = max(tenths, 1) if correct else 0
    return f"{tenths // 10}.{tenths % 10}%"
