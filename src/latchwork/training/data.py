"""Batches of a task in training order."""

from __future__ import annotations

import functools
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from latchwork.runs.recipe import Recipe
from latchwork.tasks import Task
from latchwork.tasks.task import IGNORE, IntArray
from latchwork.training.learner import MicroBatch


class _Updates(Dataset):
    """The micro-batches of one process for the samples of an update."""

    def __init__(self, task: Task, recipe: Recipe, process: int, processes: int) -> None:
        self.task, self.recipe, self.process, self.processes = task, recipe, process, processes

    def __getitems__(self, samples: list[int]) -> list[MicroBatch]:
        parts = np.array_split(np.asarray(samples, dtype=np.int64), min(self.recipe.micro_batches, len(samples)))
        return [self._batch(part) for part in parts]

    def _batch(self, samples: IntArray) -> MicroBatch:
        own = samples[self.process :: self.processes]
        # a process without a sample computes one all the same, since the others wait for its gradients
        tokens, targets = self.task.batch("train", self.recipe.seed, own if len(own) else samples[:1])
        if not len(own):
            targets = np.full_like(targets, IGNORE)
        return torch.from_numpy(tokens), torch.from_numpy(targets)


def updates(
    task: Task, recipe: Recipe, first_step: int = 0, process: int = 0, processes: int = 1
) -> Iterator[list[MicroBatch]]:
    """The micro-batches of update `first_step` and the ones after it, up to the last: tokens and targets [B, T] each.

    The samples of an update are a function of the seed and the epoch, so a run may start anywhere, with any number of
    workers, and every process takes its share of them.
    """
    loader = DataLoader(
        _Updates(task, recipe, process, processes),
        batch_sampler=_Order(task, recipe, first_step),
        num_workers=recipe.workers,
        collate_fn=_as_it_is,
        worker_init_fn=_ignore_interrupts,
        generator=torch.Generator(),  # else the loader would draw from the generator that dropout uses
    )
    yield from loader


def _ignore_interrupts(worker: int) -> None:
    """A Ctrl-C on the terminal is for the process that trains; the workers end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _as_it_is(batch: Any) -> Any:
    return batch


class _Order(Sampler[list[int]]):
    """The samples of every update, made when they are asked for."""

    def __init__(self, task: Task, recipe: Recipe, first_step: int) -> None:
        self.task, self.recipe, self.first_step = task, recipe, first_step

    def __iter__(self) -> Iterator[list[int]]:
        size, batch = self.task.epoch_size(self.recipe.train_sequences), self.recipe.batch_size
        for step in range(self.first_step, self.recipe.total_steps(size)):
            epoch, position = divmod(step, self.recipe.epoch_steps(size))
            samples = _epoch_order(self.recipe.seed, epoch, size)[position * batch : (position + 1) * batch]
            yield (samples + epoch * size if self.task.fresh_epochs else samples).tolist()


@functools.lru_cache(maxsize=2)
def _epoch_order(seed: int, epoch: int, size: int) -> IntArray:
    return np.random.default_rng([seed, epoch]).permutation(size)
