"""Batches of a task in training order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from latchwork.tasks import Task
from latchwork.tasks.task import IntArray
from latchwork.training.recipe import Recipe


class _Samples(Dataset):
    def __init__(self, task: Task, seed: int) -> None:
        self.task, self.seed = task, seed

    def __getitems__(self, samples: list[int]) -> tuple[Tensor, Tensor]:
        tokens, targets = self.task.batch("train", self.seed, samples)
        return torch.from_numpy(tokens), torch.from_numpy(targets)


def batches(task: Task, recipe: Recipe, first_step: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
    """Tokens and targets [B, T] of update `first_step` and the ones after it, up to the last.

    The order is a function of the seed and the epoch, so a run may start anywhere, with any number of workers.
    """
    order = [_samples_of(task, recipe, step) for step in _steps(task, recipe, first_step)]
    loader = DataLoader(
        _Samples(task, recipe.seed),
        batch_sampler=order,
        num_workers=recipe.workers,
        collate_fn=_as_it_is,
        generator=torch.Generator(),  # else the loader would draw from the generator that dropout uses
    )
    yield from loader


def _as_it_is(batch: Any) -> Any:
    return batch


def _steps(task: Task, recipe: Recipe, first_step: int) -> range:
    return range(first_step, recipe.total_steps(task.epoch_size(recipe.train_sequences)))


def _samples_of(task: Task, recipe: Recipe, step: int) -> list[int]:
    size = task.epoch_size(recipe.train_sequences)
    epoch, position = divmod(step, recipe.epoch_steps(size))
    order = _epoch_order(recipe.seed, epoch, size)
    samples = order[position * recipe.batch_size : (position + 1) * recipe.batch_size]
    return (samples + epoch * size if task.fresh_epochs else samples).tolist()


def _epoch_order(seed: int, epoch: int, size: int) -> IntArray:
    return np.random.default_rng([seed, epoch]).permutation(size)
