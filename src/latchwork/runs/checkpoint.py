"""Checkpoints: folders of safetensors and JSON that appear whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor, nn

_WEIGHTS, _TRAINING, _STATE = "model.safetensors", "training.safetensors", "state.json"


class CheckpointError(ValueError):
    """A checkpoint is missing or damaged; the message names the file."""


@dataclass(frozen=True)
class Checkpoint:
    """A folder with the weights, what else the next update depends on, and counters."""

    path: Path

    @property
    def step(self) -> int:
        return int(self.path.name.removeprefix("step-"))

    def check(self) -> dict[str, Any]:
        """The counters, after comparing every file with the checksum taken when it was written."""
        try:
            state = json.loads((self.path / _STATE).read_text("utf-8"))
            if not isinstance(state["progress"]["step"], int):
                raise KeyError("progress")
            for name, checksum in state["sha256"].items():
                if _sha256(self.path / name) != checksum:
                    raise CheckpointError(f"{self.path / name} is damaged: its checksum is not the one written with it")
        except FileNotFoundError as error:
            raise CheckpointError(f"{error.filename} is missing") from None
        except (KeyError, TypeError, AttributeError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise CheckpointError(f"{self.path / _STATE} is damaged: {error}") from None
        return state

    def load_weights(self, model: nn.Module) -> None:
        """Fill `model`, which has to be the one that was saved."""
        try:
            weights = safetensors.torch.load_file(self.path / _WEIGHTS)
            found = model.load_state_dict(weights, strict=False)
        except (OSError, RuntimeError, safetensors.SafetensorError) as error:
            raise CheckpointError(f"{self.path / _WEIGHTS} does not hold the weights of this model: {error}") from None
        tied = {name for names in _names(model).values() if names & weights.keys() for name in names}
        if wrong := [*found.unexpected_keys, *(name for name in found.missing_keys if name not in tied)]:
            names = ", ".join(wrong)
            raise CheckpointError(
                f"{self.path / _WEIGHTS} does not hold the weights of this model: only one of them has {names}"
            )

    def tensors(self) -> dict[str, Tensor]:
        """What else was saved beside the weights."""
        return safetensors.torch.load_file(self.path / _TRAINING)


def save(folder: Path, step: int, model: nn.Module, tensors: dict[str, Tensor], state: dict[str, Any]) -> Checkpoint:
    """Write a checkpoint of the weights of `model`, `tensors` and the counters in `state` below `folder`.

    It gets its name only when all of it is on the disk.
    """
    folder.mkdir(parents=True, exist_ok=True)
    final, partial = folder / f"step-{step:08d}", folder / f".partial-{step:08d}"
    for left in folder.glob(".partial-*"):  # by a process that was killed, or a disk that was full
        shutil.rmtree(left, ignore_errors=True)
    partial.mkdir()
    safetensors.torch.save_file(_weights(model), partial / _WEIGHTS, metadata={"format": "pt"})
    safetensors.torch.save_file(tensors, partial / _TRAINING)
    sums = {name: _sha256(partial / name) for name in (_WEIGHTS, _TRAINING)}
    (partial / _STATE).write_text(json.dumps({"step": step, **state, "sha256": sums}, indent=1), "utf-8")
    for file in partial.iterdir():
        _sync(file)
    shutil.rmtree(final, ignore_errors=True)
    os.replace(partial, final)
    return Checkpoint(final)


def _names(model: nn.Module) -> dict[int, set[str]]:
    """All names of every parameter and buffer; tied weights have several."""
    names: dict[int, set[str]] = {}
    for kind in (model.named_parameters, model.named_buffers):
        for name, tensor in kind(remove_duplicate=False):
            names.setdefault(id(tensor), set()).add(name)
    return names


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """Everything of a model's state under its first name, on the CPU, each in memory of its own: on a GPU the weights
    of an LSTM are parts of one tensor, which a file cannot hold."""
    others = {name for names in _names(model).values() for name in sorted(names)[1:]}
    kept = {name: a.detach().cpu().contiguous() for name, a in model.state_dict().items() if name not in others}
    return {name: a if a.untyped_storage().nbytes() == a.nbytes else a.clone() for name, a in kept.items()}


def all_of(folder: Path) -> list[Checkpoint]:
    """The checkpoints below `folder`, newest first."""
    if not folder.is_dir():
        return []
    return [Checkpoint(p) for p in sorted(folder.glob("step-*"), reverse=True) if p.is_dir()]


def newest(folder: Path) -> tuple[Checkpoint | None, dict[str, Any], list[str]]:
    """The newest checkpoint that is whole, its counters, and what is wrong with the ones after it."""
    complaints: list[str] = []
    for checkpoint in all_of(folder):
        try:
            return checkpoint, checkpoint.check(), complaints
        except CheckpointError as error:
            complaints.append(str(error))
    return None, {}, complaints


def prune(folder: Path, keep: set[str], newest_too: int = 2) -> None:
    """Remove all checkpoints but the ones named in `keep` and the newest few."""
    for checkpoint in all_of(folder)[newest_too:]:
        if checkpoint.path.name not in keep:
            shutil.rmtree(checkpoint.path)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else _digest(file)


def _digest(file) -> str:
    digest = hashlib.sha256()  # Python 3.10 has no file_digest
    while piece := file.read(1 << 20):
        digest.update(piece)
    return digest.hexdigest()


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())
