"""Sweeps: many runs declared in one file."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latchwork.evaluation.extrapolate import check_extent
from latchwork.runs.run import Run
from latchwork.runs.settings import SECTIONS, Settings, SettingsError, check_settings, merged, read_table


@dataclass(frozen=True)
class Evaluation:
    """How every run is measured when it has been trained; the fields are flags of `latchwork evaluate`."""

    length: int = 1 << 20
    sequences: int = 8
    chunk: int = 1024
    seed: int = 1

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, int) or isinstance(value, bool):
                raise ValueError(f"{name} must be an integer, got {value!r}")
        check_extent(self.length, self.chunk, self.sequences, self.seed)

    def matches(self, found: dict[str, Any]) -> bool:
        """Whether an ``evaluation.json`` is of this one; of what ends, all of it is read."""
        names = vars(self) if "chunks" in found else ("seed",)
        return all(found.get(name) == getattr(self, name) for name in names)


@dataclass(frozen=True)
class Planned:
    """A run in a folder of its own, and how it is measured; None: it is only trained."""

    run: Run
    evaluation: Evaluation | None


def read_sweep(file: Path, out: Path, changes: Settings | None = None) -> list[Planned]:
    """The runs that a TOML, YAML or JSON file declares, in folders below `out`.

    The sections task, model and recipe hold what all runs share. The section grid has lists of values for some keys, as
    in ``recipe.seed = [0, 1, 2]``, and every combination is a run, called after its values. Several grids ([[grid]] in
    TOML) are joined, and a value that is no list holds for all runs of its grid. The section evaluate, which may be
    empty, has the fields of `Evaluation`. `changes` win over what all runs share.

    Raises: SettingsError or ValueError naming the file, and the run whose settings do not fit together.
    """
    content = read_table(file)
    grids, evaluate = content.pop("grid", {}), content.pop("evaluate", None)
    check_settings(content, str(file), more=("grid", "evaluate"))
    shared = merged(content, changes or {})
    grids = grids if isinstance(grids, list) else [grids]
    runs: dict[str, Run] = {}
    for grid in grids:
        axes = _axes(grid, str(file))
        named = {key for key, values in axes.items() if isinstance(values, list)}
        for point in _points(axes, str(file)):
            name = "_".join(_part(key, point[key]) for key in point if key in named) or "run"
            settings = merged(shared, _nested(point))
            check_settings(settings, f"{file}, {name}")
            try:
                run = Run.from_settings(out / name, settings)
            except (ValueError, TypeError) as error:
                raise SettingsError(f"{file}, {name}: {error}") from None
            if name in runs:
                raise SettingsError(f"{file}: two runs would be called {name}")
            for other, its in runs.items():
                if (its.task, its.model, its.recipe) == (run.task, run.model, run.recipe):
                    raise SettingsError(f"{file}: {other} and {name} would be the same run twice")
            runs[name] = run
    if not runs:
        raise SettingsError(f"{file}: the list of grids is empty: there is no run")
    measured = _evaluation(evaluate, str(file))
    return [Planned(run, measured) for run in runs.values()]


def _axes(grid: Any, where: str, section: str = "") -> dict[str, Any]:
    """Lists of values, or single ones, by dotted key; tables in tables are the same as dots."""
    if not isinstance(grid, dict):
        raise SettingsError(f"{where}: grid should be a table of keys and lists of values, got {grid!r}")
    axes: dict[str, Any] = {}
    for name, value in grid.items():
        key = section + name
        found = _axes(value, where, f"{key}.") if isinstance(value, dict) else {key: value}
        if twice := sorted(axes.keys() & found.keys()):
            raise SettingsError(f"{where}: grid key {twice[0]} is there twice")
        if value == []:
            raise SettingsError(f"{where}: the list of grid key {key} is empty")
        axes |= found
    return axes


def _points(axes: dict[str, Any], where: str) -> Iterator[dict[str, Any]]:
    for key in axes:
        if "." not in key:
            raise SettingsError(f"{where}: grid key {key} has no section, which is one of {', '.join(SECTIONS)}")
    for values in itertools.product(*(v if isinstance(v, list) else [v] for v in axes.values())):
        yield dict(zip(axes, values, strict=True))


def _nested(point: dict[str, Any]) -> Settings:
    settings: Settings = {}
    for path, value in point.items():
        section, _, key = path.partition(".")
        settings.setdefault(section, {})[key] = value
    return settings


def _part(key: str, value: Any) -> str:
    """A setting as part of a folder's name."""
    plain = re.sub(r"[^\w.+-]+", "-", str(value))
    return plain if key == "task.name" else f"{key.rpartition('.')[2]}-{plain}"


def _evaluation(fields: Any, where: str) -> Evaluation | None:
    if fields is None:
        return None
    known: Sequence[str] = [f.name for f in dataclasses.fields(Evaluation)]
    if not isinstance(fields, dict) or (unknown := sorted(fields.keys() - set(known))):
        got = unknown[0] if isinstance(fields, dict) else fields
        raise SettingsError(f"{where}: section evaluate has {', '.join(known)}, not {got!r}")
    try:
        return Evaluation(**fields)
    except ValueError as error:
        raise SettingsError(f"{where}: evaluate: {error}") from None
