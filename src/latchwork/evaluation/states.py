"""The states of a trained run while it reads a sample, as pictures."""

from __future__ import annotations

import torch

from latchwork.evaluation.heatmap import state_heatmaps
from latchwork.evaluation.trace import trace
from latchwork.runs.run import Run
from latchwork.tasks import Text
from latchwork.tasks.task import IntArray, Task

STEPS = 64
"""Of the sample that are shown."""


def run_states(run: Run) -> tuple[str, list[str]]:
    """What the best model of a run reads, and one ``<svg>`` element a layer of what its units hold meanwhile.

    Raises: RunError or CheckpointError when there is no whole trained model, or one that is no cascade, ValueError when
    the data of a text is gone, ImportError with what to install when matplotlib is missing.
    """
    run.check_data()
    model, _ = run.trained_cascade()
    tokens = sample(run.task, run.recipe.seed)
    names = run.task.token_names
    pictures = state_heatmaps(trace(model, torch.from_numpy(tokens)[None]), [names[token] for token in tokens])
    if isinstance(run.task, Text):
        return f"the first {len(tokens)} bytes of the held-out part", pictures
    return f"the first {len(tokens)} steps of validation sample 0", pictures


def sample(task: Task, seed: int) -> IntArray:
    """What is read: [T] tokens, T ≤ STEPS, of the held-out part or of the first validation sample."""
    if isinstance(task, Text):
        return task.parts["evaluation"][:STEPS].astype("int64")
    return task.batch("validation", seed, [0]).tokens[0, :STEPS]
