"""A run: a folder with everything about one training."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from filelock import FileLock, Timeout

from latchwork.files import write_text
from latchwork.models.architectures import ARCHITECTURES, CASCADE, ModelConfig, architecture, body_size, build
from latchwork.models.baselines import BaselineLM
from latchwork.models.cascade_lm import CascadeLM
from latchwork.nn.config import CascadeConfig
from latchwork.runs.checkpoint import Checkpoint
from latchwork.runs.recipe import Recipe
from latchwork.runs.recipes import defaults
from latchwork.runs.settings import Settings, SettingsError
from latchwork.tasks import Task, get

FORMAT = 1


class RunError(ValueError):
    """A folder is not a run, or not one that this version can read."""


@dataclass(frozen=True)
class Run:
    """``config.json`` says what is trained how, ``metrics.jsonl`` how it went, ``checkpoints/`` hold the weights."""

    path: Path
    task: Task
    model: ModelConfig
    recipe: Recipe

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    def build(self) -> CascadeLM | BaselineLM:
        """A model with fresh weights."""
        return build(self.model, self.task.vocab_size, self.task.n_outputs)

    def count_parameters(self, *, body: bool = False) -> int:
        """Parameters of the model, or of its body: without embedding and head. No memory is taken for them.

        Raises: ModuleNotFoundError with what to install where the library of the model is absent.
        """
        with torch.device("meta"):
            model = self.build()
        return body_size(model) if body else sum(p.numel() for p in model.parameters())

    def best(self) -> Checkpoint:
        """The checkpoint with the best validation."""
        file = self.path / "best.json"
        try:
            name = json.loads(file.read_text("utf-8"))["checkpoint"]
        except FileNotFoundError:
            raise RunError(f"{self.path} has no trained model yet: {file.name} is missing") from None
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise RunError(f"{file} is damaged: {error}") from None
        if not isinstance(name, str) or not re.fullmatch(r"step-\d+", name):
            raise RunError(f"{file} is damaged: it names the checkpoint {name!r}")
        return Checkpoint(self.checkpoints / name)

    def trained(self) -> tuple[CascadeLM | BaselineLM, Checkpoint]:
        """The model of the best checkpoint, in evaluation mode."""
        chosen = self.best()
        chosen.check()
        model = self.build()
        chosen.load_weights(model)
        return model.eval(), chosen

    def trained_cascade(self) -> tuple[CascadeLM, Checkpoint]:
        """As `trained`, for what only cascades have. Raises: RunError where the model is a baseline."""
        if not isinstance(self.model, CascadeConfig):
            raise RunError(f"{self.path} is a run of {architecture(self.model)}: this is there for cascades only")
        model, chosen = self.trained()
        return cast(CascadeLM, model), chosen

    def set_best(self, chosen: Checkpoint) -> None:
        write_json(self.path / "best.json", {"checkpoint": chosen.path.name})

    def create(self) -> None:
        """Make the folder and write its configuration; refuses a folder that holds another run."""
        if (self.path / "config.json").exists():
            raise RunError(f"{self.path} holds a run already: resume it with `latchwork train resume {self.path}`")
        if self.checkpoints.exists() or self.metrics.exists():
            raise RunError(f"{self.path} holds parts of a run without config.json; choose another folder")
        source, path = self.task.source, self.path.resolve()
        if source is not None and source in (path, *path.parents):
            raise RunError(
                f"the run folder {self.path} lies inside the data folder {source}, so the run would read its own "
                "files; choose another --out or other --data"
            )
        fingerprint = self.task.fingerprint()
        self.path.mkdir(parents=True, exist_ok=True)
        with self.locked():
            if (self.path / "config.json").exists():  # by a command that was started at the same time
                raise RunError(f"{self.path} holds a run already, of another command; choose another folder")
            self._write_config(fingerprint)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Refuse a run that another process is creating or training: both would write its files."""
        try:
            with FileLock(self.path / "run.lock", timeout=0):
                yield
        except Timeout:
            raise RunError(f"{self.path} is being trained by another process") from None

    def remove(self) -> None:
        """Remove what this library has written into the folder, and nothing else.

        Raises: RunError while another process is training the run.
        """
        with self.locked():
            for folder in (self.checkpoints, self.path / "tensorboard"):
                shutil.rmtree(folder, ignore_errors=True)
            for name in ("metrics.jsonl", "best.json", "evaluation.json", "gradients.json", "report.html", "log.txt"):
                (self.path / name).unlink(missing_ok=True)
            (self.path / "config.json").unlink(missing_ok=True)  # at last: until then it is a run, and can be removed

    def check_data(self) -> None:
        """Refuse data that are not those the run was created with; runs of older versions know nothing of theirs."""
        then, now = self.data(), self.task.fingerprint() or {}
        if not isinstance(then, dict) or then == now:
            return
        changes = [f"{key} {value} then, {now.get(key)} now" for key, value in then.items() if value != now.get(key)]
        what = self.task.source or f"the task {self.task.name}"
        raise RunError(f"{what} has changed since {self.path} was created: {'; '.join(changes)}")

    def data(self) -> Any:
        """The fingerprint of the data when the run was created; None where there is none."""
        return json.loads((self.path / "config.json").read_text("utf-8")).get("data")

    def changed(self, fields: dict[str, Any]) -> Run:
        """The same run with other values in these fields of its recipe.

        Raises: ValueError for values that a recipe cannot have, and for fields that what a run remembers depends on.
        """
        recipe = _with(self.recipe, fields)
        for name in ("seed", "train_sequences", "batch_size", "optimizer", "ema", "precision"):
            if getattr(recipe, name) != getattr(self.recipe, name):
                raise ValueError(f"{name} of a run that has begun cannot be changed; start another run")
        return dataclasses.replace(self, recipe=recipe)

    def write_config(self) -> None:
        """Replace the configuration of a run that has been created."""
        self._write_config(self.data())

    def _write_config(self, fingerprint: Any) -> None:
        data = {} if fingerprint is None else {"data": fingerprint}
        names = self.task.names()
        write_json(self.path / "config.json", {**self.to_dict(), **data, **({} if names is None else {"names": names})})

    def to_dict(self) -> dict[str, Any]:
        fields = {k: str(v) if isinstance(v, Path) else v for k, v in dataclasses.asdict(self.task).items()}  # type: ignore[call-overload]
        return {
            "format": FORMAT,
            "task": {"name": self.task.name, **fields},
            "model": {"arch": architecture(self.model), **self.model.to_dict()},
            "recipe": self.recipe.to_dict(),
        }

    @classmethod
    def from_settings(cls, path: Path, settings: Settings) -> Run:
        """A run of these settings, in a folder that need not exist; what is left out is as `latchwork train` has it."""
        task = dict(settings.get("task", {}))
        name = task.pop("name", None)
        if not isinstance(name, str):
            raise SettingsError("the settings name no task; task.name is missing")
        fields = dict(settings.get("model", {}))
        model, recipe = defaults(name, _known(fields.pop("arch", CASCADE)))
        return cls(
            path,
            get(name, **task),
            _with(model, fields),
            _with(recipe, settings.get("recipe", {})),
        )

    @classmethod
    def open(cls, path: Path | str) -> Run:
        """The run in this folder."""
        path = Path(path)
        file = path / "config.json"
        try:
            config = json.loads(file.read_text("utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            raise RunError(f"{path} is not a run: it has no config.json") from None
        except (ValueError, RecursionError) as error:
            raise RunError(f"{file} is damaged: {error}") from None
        try:
            if config["format"] != FORMAT:
                raise RunError(f"{file} has format {config['format']}; this version reads format {FORMAT}")
            task = dict(config["task"])
            name = task.pop("name")
            found = _named(file, "task", lambda: get(name, **task))
            if "names" in config:
                found.recall(_names(config["names"]))
            return cls(
                path=path,
                task=found,
                model=_named(file, "model", lambda: _model(config["model"])),
                recipe=_named(file, "recipe", lambda: _with(Recipe(), config["recipe"])),
            )
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise RunError(f"{file} is damaged: {type(error).__name__}: {error}") from None

    @property
    def ended(self) -> str | None:
        """Why training ended: "perfect", "patience", "time", "finished" or "diverged"; None if it has not."""
        last = self.last_record()
        return last.get("end") if last else None

    def records(self) -> Iterator[dict[str, Any]]:
        """The lines of ``metrics.jsonl``; lines that are damaged are left out."""
        if not self.metrics.exists():
            return
        for line in self.metrics.read_text("utf-8", errors="replace").splitlines():
            if record := _record(line):
                yield record

    def last_record(self) -> dict[str, Any] | None:
        """The last of `records`, in a time that does not grow with their number."""
        if not self.metrics.exists():
            return None
        with self.metrics.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL))
            lines = file.read().decode("utf-8", errors="replace").splitlines()
        return next((record for line in reversed(lines) if (record := _record(line))), None)


_TAIL = 1 << 16
"""Bytes that hold the last line of any metrics."""


def _record(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (json.JSONDecodeError, RecursionError):
        return None
    whole = isinstance(record, dict) and isinstance(record.get("step"), int)
    return record if whole and isinstance(record.get("validation", {}), dict) else None


def _names(found: Any) -> dict[str, list[str]]:
    """The names of tokens and classes that a file holds. Raises: TypeError."""
    whole = isinstance(found, dict) and set(found) == {"tokens", "classes"}
    if not whole or any(not isinstance(n, list) or not all(isinstance(a, str) for a in n) for n in found.values()):
        raise TypeError("names must have tokens and classes, both lists of strings")
    return found


def _model(fields: dict[str, Any]) -> ModelConfig:
    """The configuration that a file holds; files of older versions, which name no arch, are of cascades."""
    fields = dict(fields)
    return _with(ARCHITECTURES[_known(fields.pop("arch", CASCADE))](), fields)  # type: ignore[call-arg]


def _known(arch: Any) -> str:
    if not isinstance(arch, str) or arch not in ARCHITECTURES:
        raise ValueError(f"arch must be one of {', '.join(ARCHITECTURES)}, got {arch!r}")
    return arch


def _with(defaults: Any, fields: dict[str, Any]) -> Any:
    """A configuration with other values in these fields."""
    if unknown := sorted(set(fields) - {f.name for f in dataclasses.fields(defaults)}):
        raise ValueError(f"there is no {', '.join(unknown)}")
    return dataclasses.replace(defaults, **fields)


def _named(file: Path, part: str, make: Callable[[], Any]) -> Any:
    """What `make` makes; its complaints get the names of the file and the part."""
    try:
        return make()
    except ValueError as error:
        raise RunError(f"{file}, {part}: {error}") from None


def write_json(path: Path, content: Any) -> None:
    """Replace a file by new content in one step."""
    write_text(path, json.dumps(content, indent=1) + "\n")
