"""Small runs for tests of training."""

from __future__ import annotations

import torch

from latchwork import CascadeConfig
from latchwork.runs import checkpoint
from latchwork.runs.recipe import Recipe
from latchwork.runs.run import Run
from latchwork.tasks import get
from latchwork.training.loop import Step

TINY = CascadeConfig(d_model=8, n_layers=2, n_units=4, dropout=0.2)


def make_run(path, task=None, **recipe) -> Run:
    options = {"train_sequences": 24, "validation_sequences": 4, "batch_size": 8, "validate_every": 3, **recipe}
    run = Run(path, task or get("inductionheads", size=4), TINY, Recipe(**options))
    run.create()
    return run


def losses(events) -> list[float]:
    return [event.loss for event in events if isinstance(event, Step)]


def weights(run: Run) -> dict[str, torch.Tensor]:
    model = run.build()
    found, _, _ = checkpoint.newest(run.checkpoints)
    found.load_weights(model)
    return dict(model.named_parameters())
