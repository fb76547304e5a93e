"""A run: a folder with everything about one training."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latchwork.models.cascade_lm import CascadeLM
from latchwork.nn.config import CascadeConfig
from latchwork.tasks import Task, get
from latchwork.training.checkpoint import Checkpoint
from latchwork.training.recipe import Recipe
from latchwork.training.recipes import defaults
from latchwork.training.settings import Settings, SettingsError

FORMAT = 1


class RunError(ValueError):
    """A folder is not a run, or not one that this version can read."""


@dataclass(frozen=True)
class Run:
    """``config.json`` says what is trained how, ``metrics.jsonl`` how it went, ``checkpoints/`` hold the weights."""

    path: Path
    task: Task
    model: CascadeConfig
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

    def build(self) -> CascadeLM:
        """A model with fresh weights."""
        return CascadeLM(self.model, self.task.vocab_size, self.task.n_outputs)

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

    def trained(self) -> tuple[CascadeLM, Checkpoint]:
        """The model of the best checkpoint, in evaluation mode."""
        chosen = self.best()
        chosen.check()
        model = self.build()
        chosen.load_weights(model)
        return model.eval(), chosen

    def set_best(self, chosen: Checkpoint) -> None:
        write_json(self.path / "best.json", {"checkpoint": chosen.path.name})

    def create(self) -> None:
        """Make the folder and write its configuration; refuses a folder that holds another run."""
        if (self.path / "config.json").exists():
            raise RunError(f"{self.path} holds a run already: resume it with `latchwork train resume {self.path}`")
        if self.checkpoints.exists() or self.metrics.exists():
            raise RunError(f"{self.path} holds parts of a run without config.json; choose another folder")
        self.path.mkdir(parents=True, exist_ok=True)
        self.write_config()

    def changed(self, recipe: Recipe) -> Run:
        """The same run with another recipe; the samples and their order have to stay.

        Raises: ValueError for a change of the seed or of what an update consists of.
        """
        for name in ("seed", "train_sequences", "batch_size"):
            if getattr(recipe, name) != getattr(self.recipe, name):
                raise ValueError(f"{name} of a run that has begun cannot be changed; start another run")
        return dataclasses.replace(self, recipe=recipe)

    def write_config(self) -> None:
        write_json(self.path / "config.json", self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        fields = {k: str(v) if isinstance(v, Path) else v for k, v in dataclasses.asdict(self.task).items()}  # type: ignore[call-overload]
        return {
            "format": FORMAT,
            "task": {"name": self.task.name, **fields},
            "model": self.model.to_dict(),
            "recipe": self.recipe.to_dict(),
        }

    @classmethod
    def from_settings(cls, path: Path, settings: Settings) -> Run:
        """A run of these settings, in a folder that need not exist; what is left out is as `latchwork train` has it."""
        task = dict(settings.get("task", {}))
        name = task.pop("name", None)
        if not isinstance(name, str):
            raise SettingsError("the settings name no task; task.name is missing")
        model, recipe = defaults(name)
        return cls(
            path,
            get(name, **task),
            dataclasses.replace(model, **settings.get("model", {})),
            dataclasses.replace(recipe, **settings.get("recipe", {})),
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
            if "data" in task:
                task["data"] = Path(task["data"])
            return cls(
                path=path,
                task=get(task.pop("name"), **task),
                model=CascadeConfig.from_dict(config["model"]),
                recipe=Recipe(**config["recipe"]),
            )
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise RunError(f"{file} is damaged: {type(error).__name__}: {error}") from None

    @property
    def ended(self) -> str | None:
        """Why training ended: "perfect", "patience" or "finished"; None if it has not."""
        records = list(self.records())
        return records[-1].get("end") if records else None

    def records(self) -> Iterator[dict[str, Any]]:
        """The lines of ``metrics.jsonl``; lines that are damaged are left out."""
        if not self.metrics.exists():
            return
        for line in self.metrics.read_text("utf-8", errors="replace").splitlines():
            try:
                record = json.loads(line)
            except (json.JSONDecodeError, RecursionError):
                continue
            whole = isinstance(record, dict) and isinstance(record.get("step"), int)
            if whole and isinstance(record.get("validation", {}), dict):
                yield record


def write_json(path: Path, content: Any) -> None:
    """Replace a file by new content in one step."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
