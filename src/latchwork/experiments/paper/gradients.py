"""The theory's figures on trained models: what is left of gradients of states, and between what bounds states stay."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from latchwork.evaluation.outcome import is_number
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
    """What has been measured, by model, and what stands in the way of reading more, by model.

    Figures of an earlier model of a run than its best one are left out.
    """
    found, complaints = {}, {}
    for model, folder in _folders(out).items():
        try:
            content = json.loads((folder / FILE).read_text("utf-8"))
            if not _is_whole(content):
                raise ValueError("it holds no gradients")
            if _is_of_the_best(content, folder):
                found[model] = content
        except FileNotFoundError:
            continue
        except (ValueError, OSError, RecursionError) as error:
            complaints[model] = f"{folder / FILE} is damaged: {error}; remove it to measure again"
    return found, complaints


def _is_whole(figures: Any) -> bool:
    """Whether a file holds all that a report shows of it."""
    try:
        decay, kept, layers = figures["decay"], figures.get("kept", []), figures.get("bounds", [])
        logs = [[log for log in each["log10"] if log is not None] for each in decay]
        shares = [share for each in kept for share in each["shares"]]
        numbers = [*itertools.chain(*logs), *shares, *(each["length"] for each in (*decay, *kept))]
        lists = [[layer[name] for name in _BOUNDS] for layer in layers]
        numbers += itertools.chain(*itertools.chain(*lists))
        rows = {len(each["log10"]) for each in decay}
        is_even = len(rows) == 1 and 0 not in rows and all(len(set(map(len, of))) == 1 for of in lists)
    except (TypeError, KeyError, AttributeError):
        return False
    return is_even and all(map(is_number, numbers)) and all(0 <= share <= 1 for share in shares)


_BOUNDS = ("low", "high", "reached_low", "reached_high")
"""Of a layer: a list each, a number a unit."""


def _is_of_the_best(figures: dict[str, Any], folder: Path) -> bool:
    """Whether they are of the model that is the run's best one now, as far as the files say."""
    try:
        best = json.loads((folder / "best.json").read_text("utf-8"))
        return figures.get("checkpoint") in (None, best.get("checkpoint"))
    except (OSError, ValueError, RecursionError, AttributeError):
        return True


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
    """None for the logarithm of nothing.

    Raises: OverflowError for what 64-bit floats cannot hold.
    """
    if np.isnan(value) or value == np.inf:
        raise OverflowError("gradients grow within a chunk beyond what 64-bit floats can hold")
    return value if value > -np.inf else None
