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
from latchwork.tasks.task import RegularTask
from latchwork.training.run import Run, RunError, write_json
from latchwork.verify import Interval, bounds, state_decay, state_gradient

FILE = "gradients.json"
TASK = "latching-16"
MODELS = (CASCADE, "lstm", "gru", "mamba2")
"""Whose gradients are set side by side, trained on TASK."""
ROWS, SEED = 4, 2
_CHUNK = 1024


def runs_of(out: Path) -> dict[str, Run]:
    """The first runs of the models on the task that are trained and have their weights still."""
    found = {}
    for model in MODELS:
        folder = out / "main" / TASK / model / "seed-0"
        if (folder / "best.json").exists():
            try:
                run = Run.open(folder)
                if run.ended and (run.best().path / "model.safetensors").exists():
                    found[model] = run
            except RunError:
                continue  # the tables of the report complain of it
    return found


def read_gradients(out: Path) -> dict[str, Any]:
    """What has been measured, by model; nothing where there is no such file.

    Raises: ValueError where the file is damaged.
    """
    try:
        content = json.loads((out / FILE).read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ValueError(f"{out / FILE} is damaged: {error}; remove it to measure again") from None
    if not isinstance(content, dict) or not all(model in MODELS and _has_decay(f) for model, f in content.items()):
        raise ValueError(f"{out / FILE} is damaged: it holds no gradients of models; remove it to measure again")
    return content


def _has_decay(figures: Any) -> bool:
    return isinstance(figures, dict) and isinstance(figures.get("decay"), list) and bool(figures["decay"])


def measure_gradients(
    out: Path,
    length: int,
    stop: Callable[[], bool] = lambda: False,
    seen: Callable[[str], None] = lambda model: None,
) -> None:
    """Measure what has not been measured at these checkpoints and length yet, and write it down after every model.

    `seen` hears which model is measured, and what stood in the way if it cannot be.
    """
    try:
        found = read_gradients(out)
    except ValueError as error:
        seen(str(error))
        return
    for model, run in runs_of(out).items():
        checkpoint = run.best().path.name
        before = found.get(model, {})
        if stop() or (before.get("checkpoint"), before.get("length")) == (checkpoint, length):
            continue
        seen(model)
        try:
            figures = _measured(run, length, stop)
        except (ValueError, ArithmeticError, ImportError, OSError) as error:
            seen(f"{model} cannot be measured: {error}")
            continue
        if figures is None:
            return
        found[model] = {"checkpoint": checkpoint, "run": run.path.relative_to(out).as_posix(), **figures}
        write_json(out / FILE, found)


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
