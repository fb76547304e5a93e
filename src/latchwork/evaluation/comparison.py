"""Several runs side by side: what they have come to, and how sure that is."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import latchwork
from latchwork.evaluation.groups import Group, configuration, differences, group
from latchwork.evaluation.outcome import Outcome, length_curve, read_outcome
from latchwork.evaluation.statistics import Summary, summarise, wilson
from latchwork.runs.run import Run

FORMAT = 1
SUMMED_UP = (
    "validation_accuracy",
    "validation_floor",
    "validation_bits",
    "updates_needed",
    "evaluation_accuracy",
    "worst_chunk_accuracy",
    "evaluation_floor",
    "evaluation_bits",
)


@dataclass(frozen=True)
class Comparison:
    """Groups of runs, and the folders that could not be read with what is wrong with them."""

    groups: list[Group]
    damaged: list[tuple[Path, str]]

    @property
    def runs(self) -> list[Outcome]:
        return [outcome for group in self.groups for outcome in group.outcomes]

    def differences(self) -> list[str]:
        """Settings that are not the same in all groups that have them."""
        return differences([group.settings for group in self.groups])


def find_runs(places: Iterable[Path]) -> list[Path]:
    """The run folders among and below `places`, each once; a folder with parts of a run is one too.

    Raises: ValueError when a place is not there or holds no run.
    """
    found: dict[Path, Path] = {}
    for place in places:
        if not place.exists():
            raise ValueError(f"there is no file or folder {place}")
        below = list(_runs_below(place))
        if not below:
            raise ValueError(f"no runs found in {place}: no folder in it has a config.json")
        for path in below:
            found.setdefault(path.resolve(), path)
    return list(found.values())


def read_runs(paths: Sequence[Path], seen: Callable[[int], None] = lambda count: None) -> Comparison:
    """Read and group runs; what is wrong with a run is kept in its place, and `seen` hears how many have been read.

    Raises: ValueError when not one of them can be read.
    """
    outcomes, damaged = [], []
    for count, path in enumerate(paths, 1):
        try:
            outcomes.append(read_outcome(Run.open(path)))
        except (ValueError, TypeError, OSError) as error:
            damaged.append((path, str(error)))
        seen(count)
    if not outcomes:
        more = f" (and {len(damaged) - 1} more like it)" if len(damaged) > 1 else ""
        raise ValueError(f"no run can be read: {damaged[0][1]}{more}" if damaged else "there is no run to compare")
    return Comparison(group(outcomes), damaged)


@dataclass(frozen=True)
class GroupSummary:
    """A group in figures; runs whose training has not ended are left out of all of them."""

    group: Group
    successes: int | None
    """Runs with every validation answer right; None where a task is not measured in right answers."""
    success_interval: tuple[float, float] | None
    figures: dict[str, Summary | None]
    """Medians over the runs that have the figure, for the names in SUMMED_UP."""
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        group = self.group
        return {
            "label": group.label,
            "settings": group.settings,
            "runs": [str(o.run.path) for o in group.outcomes],
            "seeds": [o.run.recipe.seed for o in group.outcomes],
            "ended": len(group.ended),
            "evaluated": sum(o.evaluation is not None for o in group.ended),
            "successes": self.successes,
            "success_interval": self.success_interval,
            "figures": {name: _figure(summary) for name, summary in self.figures.items()},
            "extrapolation": [
                {
                    "length": length,
                    "runs": len(shares),
                    "median": median(shares),
                    "low": min(shares),
                    "high": max(shares),
                }
                for length, shares in curves(group).items()
            ],
            "notes": self.notes,
        }


def sum_up(group: Group) -> GroupSummary:
    """Successes with Wilson's interval, medians over the seeds with bootstrap intervals."""
    ended = group.ended
    figures = {}
    for name in SUMMED_UP:
        values = [outcome.figures()[name] for outcome in ended]
        figures[name] = summarise([v for v in values if v is not None])
    successes, interval = None, None
    if group.outcomes[0].has_accuracy and ended:
        successes = sum(_succeeded(outcome) for outcome in ended)
        interval = wilson(successes, len(ended))
    return GroupSummary(group, successes, interval, figures, list(_notes(group)))


def curves(group: Group) -> dict[int, list[float]]:
    """Lengths in steps to the accuracies of the runs since the length before, of runs that have ended."""
    found: dict[int, list[float]] = {}
    for outcome in group.ended:
        if outcome.evaluation and "chunks" in outcome.evaluation:
            for length, share in length_curve(outcome.evaluation):
                found.setdefault(length, []).append(share)
    return dict(sorted(found.items()))


def median(values: Sequence[float] | NDArray[np.float64]) -> float:
    return float(np.median(values))


def to_dict(comparison: Comparison) -> dict[str, Any]:
    """All of it for machines, every figure unrounded; what is not a number is None."""
    runs = [
        {
            "run": str(outcome.run.path),
            "group": group.label,
            **_finite(outcome.figures()),
            "notes": outcome.notes,
            "config": {key: value for key, value in outcome.run.to_dict().items() if key != "format"},
        }
        for group in comparison.groups
        for outcome in group.outcomes
    ]
    return {
        "format": FORMAT,
        "latchwork": latchwork.__version__,
        "groups": [sum_up(group).to_dict() for group in comparison.groups],
        "runs": runs,
        "damaged": [{"run": str(path), "problem": problem} for path, problem in comparison.damaged],
    }


def to_csv(comparison: Comparison) -> str:
    """A row a run, damaged ones last: figures unrounded, then the configuration, empty where there is nothing."""
    rows: list[dict[str, Any]] = [
        {
            "run": outcome.run.path,
            "group": group.label,
            **_finite(outcome.figures()),
            "notes": "; ".join(outcome.notes),
            **configuration(outcome.run),
        }
        for group in comparison.groups
        for outcome in group.outcomes
    ]
    rows += [{"run": path, "status": "damaged", "notes": problem} for path, problem in comparison.damaged]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _runs_below(place: Path) -> Iterator[Path]:
    if any((place / part).exists() for part in ("config.json", "metrics.jsonl", "checkpoints")):
        yield place
    elif place.is_dir():
        for child in sorted(place.iterdir()):
            linked_run = child.is_symlink() and (child / "config.json").exists()  # other links may lead in circles
            if child.is_dir() and not child.name.startswith(".") and (linked_run or not child.is_symlink()):
                yield from _runs_below(child)


def _succeeded(outcome: Outcome) -> bool:
    return outcome.best is not None and outcome.best[1]["correct"] == outcome.best[1]["scored"]


def _notes(group: Group) -> Iterator[str]:
    unfinished = len(group.outcomes) - len(group.ended)
    if unfinished:
        yield f"{unfinished} of {len(group.outcomes)} runs not ended, left out of the figures"
    without = sum(outcome.evaluation is None for outcome in group.ended)
    if without:
        yield f"{without} of {len(group.ended)} not evaluated"
    seeds = [outcome.run.recipe.seed for outcome in group.outcomes]
    if twice := sorted({seed for seed in seeds if seeds.count(seed) > 1}):
        yield f"more than one run of seed {', '.join(map(str, twice))}: the intervals take runs to be independent"
    evaluations = [outcome.evaluation for outcome in group.ended if outcome.evaluation]
    for name in ("length", "sequences", "chunk", "seed"):
        values = sorted({evaluation.get(name) or 0 for evaluation in evaluations})
        if len(values) > 1:
            yield f"evaluated with different {name}: {', '.join(f'{value:,}' for value in values)}"


def _figure(summary: Summary | None) -> dict[str, Any] | None:
    return summary and {"runs": summary.runs, "median": summary.median, "interval": list(summary.interval)}


def _finite(figures: dict[str, Any]) -> dict[str, Any]:
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in figures.items()}
