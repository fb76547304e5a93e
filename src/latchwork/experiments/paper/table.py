"""What has come out of the paper's tables, cell by cell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from latchwork.evaluation.comparison import GroupSummary, sum_up
from latchwork.evaluation.groups import Group
from latchwork.evaluation.measure import share_percent
from latchwork.evaluation.outcome import Outcome, read_outcome
from latchwork.experiments.paper.plan import Cell, Plan
from latchwork.experiments.sweep import Evaluation
from latchwork.runs.run import Run

NOTHING = "–"


@dataclass(frozen=True)
class Successes:
    """How many runs succeeded in validation, and Wilson's interval of their share."""

    count: int
    low: float
    high: float


@dataclass(frozen=True)
class Result:
    """A cell with the outcomes of its runs that have begun; figures are of those whose training has ended."""

    cell: Cell
    group: Group

    @property
    def ended(self) -> list[Outcome]:
        return self.group.ended

    @property
    def measured(self) -> list[Outcome]:
        """Runs that have been carried over long sequences."""
        return [outcome for outcome in self.ended if _is_measured(outcome)]

    @property
    def accuracy(self) -> float | None:
        """Over all steps of the long sequences: the median over the runs."""
        found = [outcome.figures()["evaluation_accuracy"] for outcome in self.measured]
        return median(found) if found else None

    @property
    def worst(self) -> float | None:
        """The accuracy of the worst chunk of any run."""
        found = [outcome.figures()["worst_chunk_accuracy"] for outcome in self.measured]
        return min(found) if found else None

    @property
    def floor(self) -> float | None:
        """What always answering the commonest label of the long sequences gives."""
        found = [outcome.figures()["evaluation_floor"] for outcome in self.measured]
        return median(found) if found else None

    @property
    def validation(self) -> float | None:
        """Of the kept models: the median over the runs."""
        found = [outcome.figures()["validation_accuracy"] for outcome in self.ended if outcome.best]
        return median(found) if found else None

    @property
    def length(self) -> int | None:
        """Steps of the long sequences, the least of any run."""
        return min((outcome.evaluation["length"] for outcome in self.measured if outcome.evaluation), default=None)

    @property
    def stopped(self) -> int:
        """Runs that the clock has stopped."""
        return sum(outcome.end == "time" for outcome in self.ended)

    @property
    def successes(self) -> Successes | None:
        """Of the runs that have ended; None where there are none."""
        summary = self.summary()
        if summary.successes is None or summary.success_interval is None:
            return None
        return Successes(summary.successes, *summary.success_interval)

    @property
    def misses(self) -> list[int]:
        """Wrong validation answers of the kept model of each run that ended without a success: of no model fewer."""
        kept = [outcome.best[1] for outcome in self.ended if outcome.best and outcome.perfect is None]
        return [figures["scored"] - figures["correct"] for figures in kept]

    def summary(self) -> GroupSummary:
        """Successes in validation with Wilson's interval, medians with bootstrap intervals."""
        return sum_up(self.group)

    def remarks(self, usual: Evaluation) -> list[str]:
        """What a reader has to know besides the figure; how the budget measures goes without saying."""
        found = []
        if len(self.ended) < len(self.group.outcomes):
            found.append(f"{len(self.group.outcomes) - len(self.ended)} not ended")
        if self.stopped:
            found.append("stopped by the clock" if self.stopped == len(self.ended) else f"{self.stopped} by the clock")
        if self.length is not None and self.length != usual.length:
            found.append(f"to {self.length:,} steps")
        measured = [outcome.evaluation for outcome in self.measured if outcome.evaluation]
        for name in ("sequences", "chunk", "seed"):
            if values := sorted({each.get(name) for each in measured} - {getattr(usual, name)}, key=str):
                found.append(f"measured with {name} {', '.join(map(str, values))}")
        if diverged := sum(outcome.end == "diverged" for outcome in self.ended):
            found.append(f"{diverged} diverged")
        if missing := sum(outcome.end != "diverged" and not _is_measured(outcome) for outcome in self.ended):
            found.append("not measured" if missing == len(self.ended) else f"{missing} not measured")
        planned = {planned.run.path: planned.run for planned in self.cell.runs}
        if others := sum(outcome.run != planned[outcome.run.path] for outcome in self.group.outcomes):
            found.append(f"{others} with other settings than the budget's")
        return found

    def to_dict(self, out: Path) -> dict[str, Any]:
        return {
            "row": self.cell.row,
            "column": self.cell.column,
            **self.summary().to_dict(),
            "runs": [outcome.run.path.relative_to(out).as_posix() for outcome in self.group.outcomes],
            "accuracy": self.accuracy,
            "worst_chunk": self.worst,
            "floor": self.floor,
            "validation": self.validation,
            "misses": self.misses,
            "length": self.length,
            "stopped_by_the_clock": self.stopped,
        }


@dataclass(frozen=True)
class Table:
    """A table with what is there of it."""

    plan: Plan
    results: dict[tuple[str, str], Result]
    """By keys of row and column."""
    complaints: tuple[str, ...]
    """Folders that could not be read, and why."""

    @property
    def title(self) -> str:
        shown = {
            "main": "accuracy over long sequences (worst chunk of any seed)",
            "ablation": "successes in validation",
        }
        return f"{self.plan.name}, budget {self.plan.budget}: {shown[self.plan.name]}"

    @property
    def columns(self) -> dict[str, str]:
        return self.plan.columns

    def get(self, row: str, column: str) -> Result | None:
        return self.results.get((row, column))

    def floor(self, task: str) -> float | None:
        """What always answering the commonest label of the long sequences of a task gives."""
        found = [result.floor for keys, result in self.results.items() if task in keys and result.floor is not None]
        return median(found) if found else None

    def texts(self) -> tuple[list[str], list[list[str]]]:
        """For a terminal: the titles of the columns, and the rows."""
        by_row = self.plan.name == "main"
        say = main_text if by_row else ablation_text
        rows = []
        for row, title in self.plan.rows.items():
            floor = [share_text(self.floor(row))] if by_row else []
            rows.append([title, *floor, *(say(self.get(row, column)) for column in self.columns)])
        return ["", *(["floor"] if by_row else []), *self.columns.values()], rows

    def to_dict(self, out: Path) -> dict[str, Any]:
        """All of it for machines; runs are where they lie below the folder `out` of the report."""
        return {
            "table": self.plan.name,
            "budget": self.plan.budget,
            "rows": self.plan.rows,
            "columns": self.plan.columns,
            "cells": [result.to_dict(out) for result in self.results.values()],
            "complaints": list(self.complaints),
        }


def read_table(plan: Plan) -> Table:
    """Read every run of a plan that has begun."""
    results, complaints = {}, []
    for cell in plan.cells:
        outcomes = []
        for planned in cell.runs:
            try:
                if planned.run.metrics.exists():
                    outcomes.append(read_outcome(Run.open(planned.run.path)))
            except (ValueError, TypeError, OSError) as error:
                complaints.append(str(error))
        if outcomes:
            label = plan.columns[cell.column] if plan.name == "main" else plan.rows[cell.row]
            results[cell.row, cell.column] = Result(cell, Group(label, {}, outcomes))
    return Table(plan, results, tuple(complaints))


def _is_measured(outcome: Outcome) -> bool:
    return bool(outcome.evaluation and "chunks" in outcome.evaluation)


def share_text(share: float | None) -> str:
    return NOTHING if share is None else share_percent(share)


def main_text(result: Result | None) -> str:
    if result is None:
        return NOTHING
    if result.accuracy is None or result.worst is None:
        if result.validation is not None:
            return f"validation {share_percent(result.validation)}"
        return "diverged" if result.ended else "running"
    return f"{share_percent(result.accuracy)} ({share_percent(result.worst)})"


def ablation_text(result: Result | None) -> str:
    if result is None or (found := result.successes) is None:
        return NOTHING if result is None else "running"
    return f"{found.count} of {len(result.ended)}"


def mean_accuracy(results: Iterable[Result | None]) -> float | None:
    """Over tasks; None where one of them has not been measured."""
    found = [None if result is None else result.accuracy for result in results]
    whole = [value for value in found if value is not None]
    return sum(whole) / len(whole) if whole and len(whole) == len(found) else None
