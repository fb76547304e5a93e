"""Accuracy far beyond the training lengths: sequences in chunks, the state carried from one to the next."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from latchwork.evaluation.measure import Score
from latchwork.nn.mode import device_of, evaluating
from latchwork.tasks.task import RegularTask, check_seed


@dataclass
class Extrapolation:
    """What was right in every chunk so far, and over all of them."""

    task: str
    sequences: int
    chunk: int
    seed: int
    total: Score
    correct: list[int] = field(default_factory=list)
    """Right answers in each chunk."""
    scored: list[int] = field(default_factory=list)
    """Scored answers in each chunk."""
    seconds: float = 0.0

    @property
    def length(self) -> int:
        """Steps that each sequence has gone."""
        return self.chunk * len(self.correct)

    @property
    def worst(self) -> int:
        """The index of the chunk with the lowest accuracy (the first such chunk) among those with answers."""
        correct, scored = np.array(self.correct), np.array(self.scored)
        return int(np.argmin(np.where(scored > 0, correct / np.maximum(scored, 1), np.inf)))

    @property
    def tokens_per_second(self) -> float:
        return self.sequences * self.length / self.seconds

    def to_dict(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "length": self.length,
            "sequences": self.sequences,
            "chunk": self.chunk,
            "seed": self.seed,
            **self.total.to_dict(),
            "worst_chunk": {
                "index": self.worst,
                "correct": self.correct[self.worst],
                "scored": self.scored[self.worst],
            },
            "tokens_per_second": self.tokens_per_second,
            "chunks": {"correct": self.correct, "scored": self.scored},
        }


def check_extent(length: int, chunk: int, sequences: int, seed: int) -> None:
    """Refuse what `extrapolate` cannot measure."""
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1 step, got {chunk}")
    if length < chunk or length % chunk:
        raise ValueError(f"length must be a multiple of the chunk of {chunk} steps, got {length}")
    if sequences < 1:
        raise ValueError(f"sequences must be at least 1, got {sequences}")
    check_seed(seed)


@torch.inference_mode()
def extrapolate(
    model: nn.Module, task: RegularTask, *, seed: int, sequences: int, length: int, chunk: int = 1024
) -> Iterator[Extrapolation]:
    """Run `sequences` fresh sequences for `length` steps and yield the result after every chunk.

    `model` is called with tokens [B, T] and a state, None at first, and returns logits [B, T, classes] and the state
    after them, in whatever structure it has: one named tuple a layer, (h, c) of an LSTM … It runs on its own device, in
    evaluation mode. Where the task scores its last token only, a copy of the carried state is probed after every chunk
    and the sequence goes on as if nothing had been asked. Memory does not grow with the length. Length has to be a
    multiple of the chunk.
    """
    check_extent(length, chunk, sequences, seed)
    result = Extrapolation(task.name, sequences, chunk, seed, Score(task.classes))
    device, state = device_of(model), None
    pieces = task.endless("evaluation", seed, range(sequences), chunk)
    clock = time.perf_counter()
    for _ in range(length // chunk):
        batch, answers = next(pieces)
        scored = result.total.scored
        with evaluating(model):
            logits, state = model(torch.from_numpy(batch.tokens).to(device), state)
            if task.probe is None or answers is None:
                correct = result.total.add(logits, torch.from_numpy(batch.targets))
            else:
                probe = torch.full((sequences, 1), task.probe, device=device)
                logits, _ = model(probe, copy.deepcopy(state))  # a model may write into the state it is given
                correct = result.total.add(logits, torch.from_numpy(answers[:, None]))
        result.correct.append(correct)
        result.scored.append(result.total.scored - scored)
        result.seconds = time.perf_counter() - clock
        yield result
