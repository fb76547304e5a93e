"""The theory's figures on trained models: what is left of gradients of states, and between what bounds states stay."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from latchwork.evaluation.trace import trace
from latchwork.models.architectures import CASCADE
from latchwork.models.cascade_lm import CascadeLM
from latchwork.runs.run import Run, write_json
from latchwork.tasks.task import RegularTask
from latchwork.verify import Interval, bounds, state_decay, state_gradient

FILE = "gradients.json"
"""Of a run."""
TASK = "latching-16"
MODELS = (CASCADE, "lstm", "gru", "mamba2")
"""Whose gradients are set side by side, trained on TASK."""
ROWS, SEED = 4, 2
_CHUNK = 1024


def _folders(out: Path) -> dict[str, Path]:
    """The first runs of the models on the task, where they have been begun."""
    folders = {model: out / "main" / TASK / model / "seed-0" for model in MODELS}
    return {model: folder for model, folder in folders.items() if folder.exists()}


def read_gradients(out: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """What has been measured, by model, and what stands in the way of reading more, by model."""
    found, complaints = {}, {}
    for model, folder in _folders(out).items():
        try:
            content = json.loads((folder / FILE).read_text("utf-8"))
            if not _has_decay(content):
                raise ValueError("it holds no gradients")
            found[model] = content
        except FileNotFoundError:
            continue
        except ValueError as error:
            complaints[model] = f"{folder / FILE} is damaged: {error}; remove it to measure again"
    return found, complaints


def _has_decay(figures: Any) -> bool:
    return isinstance(figures, dict) and isinstance(figures.get("decay"), list) and bool(figures["decay"])


def measure_gradients(
    out: Path,
    length: int,
    stop: Callable[[], bool] = lambda: False,
    seen: Callable[[str], None] = lambda model: None,
) -> None:
    """Measure what has not been measured at these checkpoints and length yet, and write it into the runs' folders.

    Runs that are not trained, or have no weights any more, are passed over. `seen` hears which model is measured, and
    what stood in the way if it cannot be.
    """
    before, complaints = read_gradients(out)
    for complaint in complaints.values():
        seen(complaint)
    for model, folder in _folders(out).items():
        if stop():
            return
        if model in complaints:
            continue
        try:
            run = Run.open(folder)
            if not run.ended or not (folder / "best.json").exists():
                continue
            checkpoint, known = run.best().path, before.get(model, {})
            if (known.get("checkpoint"), known.get("length")) == (checkpoint.name, length):
                continue
            if not (checkpoint / "model.safetensors").exists():
                continue
            seen(model)
            figures = _measured(run, length, stop)
        except (ValueError, ArithmeticError, RuntimeError, ImportError, OSError) as error:
            seen(f"{model} cannot be measured: {error}")
            continue
        if figures is not None:
            write_json(folder / FILE, {"checkpoint": checkpoint.name, **figures})


def _measured(run: Run, length: int, stop: Callable[[], bool]) -> dict[str, Any] | None:
    """Figures of one run; None when it has been stopped."""
    torch.manual_seed(SEED)
    model, _ = run.trained()
    tokens = _tokens(cast("RegularTask", run.task), length)
    figures: dict[str, Any] = {"length": length, "rows": ROWS, "decay": []}
    for steps, norms in state_decay(model.double(), tokens, chunk=_CHUNK):
        figures["decay"].append({"length": steps, "log10": [_finite(value) for value in norms.tolist()]})
        if stop():
            return None
    if isinstance(model, CascadeLM):
        figures |= _of_cascade(model.float(), tokens)
    return figures


def _of_cascade(model: CascadeLM, tokens: Tensor) -> dict[str, Any]:
    """Shares of units with a gradient of exactly 1 after the first token, by layer and length; states and bounds."""
    with torch.no_grad():
        _, start = model(tokens[:, :1])
    kept = [
        {"length": found.length, "shares": [layer.float().mean().item() for layer in found.kept()]}
        for found in state_gradient(model, tokens[:, 1:], state=start, chunk=_CHUNK)
    ]
    allowed = bounds(model)
    reached = _reached(model, tokens)
    return {
        "kept": kept,
        "bounds": [
            {
                "low": interval.low.tolist(),
                "high": interval.high.tolist(),
                "reached_low": low.tolist(),
                "reached_high": high.tolist(),
                "inside": interval.contains(torch.stack([low, high])),
            }
            for interval, (low, high) in zip(allowed, reached, strict=True)
        ],
    }


def _reached(model: CascadeLM, tokens: Tensor) -> list[Interval]:
    """The smallest and the largest state of every unit over all steps, by layer."""
    state, found = None, None
    for piece in tokens.split(_CHUNK, dim=1):
        traced = trace(model, piece, state)
        state = traced.state
        now = [Interval(*layer.x.flatten(2).flatten(0, 1).aminmax(dim=0)) for layer in traced.layers]
        found = (
            now
            if found is None
            else [
                Interval(torch.minimum(a.low, b.low), torch.maximum(a.high, b.high))
                for a, b in zip(found, now, strict=True)
            ]
        )
    return found or []


def _tokens(task: RegularTask, length: int) -> Tensor:
    """[ROWS, length + 1] of the task's endless sequences."""
    pieces = task.endless("evaluation", SEED, range(ROWS), _CHUNK)
    parts = [next(pieces)[0].tokens for _ in range(length // _CHUNK + 1)]
    return torch.from_numpy(np.concatenate(parts, 1)[:, : length + 1])


def _finite(value: float) -> float | None:
    """None for the logarithm of nothing."""
    return value if np.isfinite(value) else None
