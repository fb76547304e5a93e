"""Runs that differ in their seed only, side by side with others."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latchwork.evaluation.outcome import Outcome
from latchwork.runs.run import Run
from latchwork.tasks.task import Task

SEED = "recipe.seed"
SECTIONS = ("task", "data", "model", "recipe")


@dataclass(frozen=True)
class Group:
    """Runs of one configuration, in the order of their seeds."""

    label: str
    """What sets it apart from the other groups."""
    settings: dict[str, Any]
    """Names such as "model.degree" to values; without the seed."""
    outcomes: list[Outcome]

    @property
    def task(self) -> Task:
        return self.outcomes[0].run.task

    @property
    def ended(self) -> list[Outcome]:
        """The runs whose training has ended."""
        return [outcome for outcome in self.outcomes if outcome.end]


def group(outcomes: Iterable[Outcome]) -> list[Group]:
    """Put runs together that have the same task, model and recipe up to the seed.

    Groups are ordered by task and then by the values of what differs between them.
    """
    members: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        members.setdefault(json.dumps(settings_of(outcome.run)), []).append(outcome)
    settings = [json.loads(key) for key in members]
    labels = _labels(settings)
    groups = [
        Group(label, flat, sorted(runs, key=lambda o: (o.run.recipe.seed, str(o.run.path))))
        for label, flat, runs in zip(labels, settings, members.values(), strict=True)
    ]
    keys = differences(settings)
    return sorted(groups, key=lambda g: [_order(g.settings.get(key)) for key in ("task.name", *keys)])


def configuration(run: Run) -> dict[str, Any]:
    """The configuration with names such as "model.degree", and what the data were."""
    data = run.data()
    parts = {**run.to_dict(), "data": data if isinstance(data, dict) else {}}
    return {f"{section}.{name}": value for section in SECTIONS for name, value in parts[section].items()}


def settings_of(run: Run) -> dict[str, Any]:
    """The configuration without the seed."""
    return {name: value for name, value in configuration(run).items() if name != SEED}


def differences(settings: Sequence[dict[str, Any]]) -> list[str]:
    """Names that have more than one value among those that have them, in the order of their first occurrence."""
    values: dict[str, set[str]] = {}
    for flat in settings:
        for name, value in flat.items():
            values.setdefault(name, set()).add(json.dumps(value))
    return [name for section in SECTIONS for name in values if name.startswith(f"{section}.") and len(values[name]) > 1]


def task_title(task: Task) -> str:
    """The name of a task with its size and variant, or with its data."""
    data = getattr(task, "data", None)
    return _title(task.name, [getattr(task, "size", None), getattr(task, "variant", None), data and Path(data).name])


def _title(name: str, parts: Iterable[Any]) -> str:
    shown = ", ".join(str(part) for part in parts if part)
    return f"{name}({shown})" if shown else name


def short(name: str, among: Iterable[str]) -> str:
    """A name without its section, where no other one `among` them reads the same."""
    section, _, last = name.partition(".")
    return f"{section} {last}" if sum(other.partition(".")[2] == last for other in among) > 1 else last


def _labels(settings: Sequence[dict[str, Any]]) -> list[str]:
    """What sets each apart from the others of its task, after the name of the task if there are several."""
    names = [flat["task.name"] for flat in settings]
    labels = []
    for flat, name in zip(settings, names, strict=True):
        keys = differences([other for other, its in zip(settings, names, strict=True) if its == name])
        parts = [f"{short(key, keys)} {flat[key]}" for key in keys]
        whole = _title(name, [flat.get(key) for key in ("task.size", "task.variant") if key not in keys])
        labels.append(", ".join([whole, *parts] if len(set(names)) > 1 or not parts else parts))
    return labels


def _order(value: Any) -> tuple[int, float, str]:
    """Numbers by size, everything else by how it reads, nothing first."""
    if value is None:
        return 0, 0.0, ""
    if isinstance(value, (int, float)):
        return 1, float(value), ""
    return 2, 0.0, str(value)
