"""The two tables of arXiv 2605.06384, §6, as runs: which models on which tasks, trained and measured how."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from latchwork.experiments.sweep import Evaluation, Planned
from latchwork.models.architectures import CASCADE
from latchwork.runs.recipes import defaults
from latchwork.runs.run import Run
from latchwork.runs.settings import Settings, merged
from latchwork.tasks import Task, get

TableName = Literal["main", "ablation"]
BudgetName = Literal["small", "paper"]


@dataclass(frozen=True)
class TaskRow:
    """A task at one size."""

    name: str
    size: int
    variant: str | None = None
    """Of Sequences."""

    @property
    def key(self) -> str:
        """As a folder's name and as what ``--tasks`` takes."""
        return "-".join([self.name, str(self.size), *([self.variant] if self.variant else [])])

    @property
    def title(self) -> str:
        shown = {"latching": "Latching", "sequences": "Sequences", "inductionheads": "InductionHeads"}[self.name]
        return f"{shown}({self.size})" + (f", {self.variant}" if self.variant else "")

    def settings(self) -> dict[str, Any]:
        return {"name": self.name, "size": self.size} | ({"variant": self.variant} if self.variant else {})

    def task(self) -> Task:
        fields = self.settings()
        return get(fields.pop("name"), **fields)


def _tasks(latching: Iterable[int], right: Iterable[int], published: Iterable[int]) -> tuple[TaskRow, ...]:
    return (
        *(TaskRow("latching", size) for size in latching),
        *(TaskRow("sequences", size, "right") for size in right),
        *(TaskRow("sequences", size, "published") for size in published),
        *(TaskRow("inductionheads", size) for size in (16, 30)),
    )


TASKS = _tasks([2**n for n in range(2, 10)], (2, 3, 4, 8, 16), (2, 3, 4, 8, 16))
"""Every task of the main table."""

ABLATION_TASKS = (
    TaskRow("latching", 512),
    TaskRow("sequences", 16, "published"),
    TaskRow("inductionheads", 30),
    TaskRow("sequences", 4, "right"),
)

MODELS = {
    CASCADE: "MinMax RNC",
    "mamba": "Mamba",
    "xlstm-large": "xLSTM-L",
    "mlstm": "mLSTM",
    "slstm": "sLSTM",
    "lstm": "LSTM",
    "xlstm": "xLSTM [1:1]",
    "mamba2": "Mamba-2",
    "gru": "GRU",
    "elman": "Elman",
    "transformer": "Transformer",
}
"""Names of models by the name of their architecture, as columns of the main table; the paper has the first five."""

PAPER_MAIN = {
    "latching": {CASCADE: 100.0, "mamba": 54.3, "xlstm-large": 8.2, "mlstm": 7.4, "slstm": 28.2},
    "sequences": {CASCADE: 100.0, "mamba": 46.5, "xlstm-large": 46.5, "mlstm": 44.5, "slstm": 46.5},
    "inductionheads-16": {CASCADE: 100.0, "mamba": 100.0, "xlstm-large": 6.7, "mlstm": 6.5, "slstm": 6.2},
    "inductionheads-30": {CASCADE: 100.0, "mamba": 3.5, "xlstm-large": 3.1, "mlstm": 3.0, "slstm": 3.0},
}
"""Accuracies in percent that the paper prints: means over the sizes of Latching and of Sequences (its own variant)."""

PAPER_ABLATION = {
    "small_init": (10, 10, 7),
    "gated-conv": (10, 10, 7),
    "output-gate": (10, 10, 7),
    "asymmetric": (10, 10, 9),
    "asymmetric-90": (10, 10, 10),
}
"""Successes of 10 seeds that the paper prints, on Latching(512), its Sequences(16) and InductionHeads(30)."""

WIDTHS = {2: 71, 3: 60, 4: 52, 8: 36, 16: 24}
"""d_model of a cascade on the right Sequences(n), where it has n + 1 layers: bodies stay within 3% of 127,432."""

MOST_SEEDS = 10

CONFIGURATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "small_init": ("40 units, no gate, basic", {"output_gate": False, "init": "small_init"}),
    "gated-conv": ("40 units, no gate, gated", {"output_gate": False, "conv": "gated", "init": "small_init"}),
    "output-gate": ("40 units, gate, basic", {"init": "small_init"}),
    "asymmetric": ("40 units, gate, basic", {"init": "asymmetric"}),
    "asymmetric-90": ("90 units, gate, basic", {"n_units": 90, "init": "asymmetric"}),
    "keep": ("40 units, gate, basic", {"init": "keep"}),
    "keep-no-gate": ("40 units, no gate, basic", {"output_gate": False, "init": "keep"}),
}
"""Rows of the ablation: units, output gate and convolution, then the fields. The paper has all but the last two."""


@dataclass(frozen=True)
class Budget:
    """How much of a table is run where nothing else is said, and how long."""

    tasks: tuple[TaskRow, ...]
    models: tuple[str, ...]
    seeds: int
    """Of cascades in the main table."""
    baseline_seeds: int
    ablation_seeds: dict[str, int]
    """By task name."""
    recipe: dict[str, Any]
    recipes: dict[str, dict[str, Any]]
    """What is different for a task, by its name."""
    dropout: float
    """Of cascades."""
    evaluation: Evaluation
    ablation_evaluation: Evaluation
    """Of the ablation, which counts successes in validation."""
    gradient_length: int = 1 << 20
    """Steps over which gradients of states are measured."""
    extra: tuple[tuple[str, str], ...] = ()
    """Tasks and models that are run besides, for the figures of gradients."""


BUDGETS: dict[BudgetName, Budget] = {
    "small": Budget(
        tasks=_tasks((4, 16, 64), (2, 4), (2, 4, 16)),
        models=tuple(MODELS)[:6],
        seeds=3,
        baseline_seeds=1,
        ablation_seeds={"latching": 3, "sequences": 5, "inductionheads": 5},
        recipe={
            "steps": 1500,
            "batch_size": 16,  # many small updates: docs/decisions/0010-sequences.md
            "schedule": "cosine",
            "weight_decay": 0.0,  # else margins stop growing, and one answer of a million stays wrong
            "validate_every": 250,
            "validation_sequences": 500,
            "patience": None,
            "minutes": 10.0,
        },
        recipes={
            "sequences": {"stop_when_perfect": False},  # margins grow until the learning rate is low
            "inductionheads": {"batch_size": 64, "validate_every": 100},  # one answer a sequence
        },
        dropout=0.0,
        evaluation=Evaluation(),
        ablation_evaluation=Evaluation(length=1 << 16),
        extra=(("latching-16", "gru"), ("latching-16", "mamba2")),
    ),
    "paper": Budget(
        tasks=TASKS,
        models=tuple(MODELS),
        seeds=10,
        baseline_seeds=10,
        ablation_seeds={"latching": 10, "sequences": 10, "inductionheads": 10},
        recipe={"validate_every": None, "patience": 10},
        recipes={},
        dropout=0.1,
        evaluation=Evaluation(sequences=1000),
        ablation_evaluation=Evaluation(),
    ),
}


@dataclass(frozen=True)
class Cell:
    """Runs of one model on one task that differ in their seed only."""

    row: str
    column: str
    runs: tuple[Planned, ...]


@dataclass(frozen=True)
class Plan:
    """A table: the titles of its rows and columns by key, and its cells, some of which may be missing."""

    name: TableName
    budget: BudgetName
    rows: dict[str, str]
    columns: dict[str, str]
    cells: tuple[Cell, ...]

    @property
    def runs(self) -> list[Planned]:
        """The first seed of every cell, then the second …: what ends early has something of everything."""
        longest = max((len(cell.runs) for cell in self.cells), default=0)
        return [cell.runs[i] for i in range(longest) for cell in self.cells if i < len(cell.runs)]


def plan(
    table: TableName,
    out: Path,
    budget: BudgetName,
    *,
    tasks: Sequence[str] = (),
    models: Sequence[str] = (),
    seeds: int | None = None,
) -> Plan:
    """A table below the folder `out`; what is left out is as the budget has it.

    main has models on tasks, in folders main/TASK/MODEL/seed-N. ablation has configurations of the cascade on the
    hardest tasks, in folders ablation/CONFIGURATION/TASK/seed-N.

    Raises: ValueError when a task or model is none of the table's.
    """
    return {"main": _main, "ablation": _ablation}[table](out, budget, tasks, models, seeds)


def begun(table: TableName, out: Path, budget: BudgetName) -> Plan:
    """What has been begun of a table, whatever was asked for."""
    every = _tasks_of(table)
    models = list(CONFIGURATIONS) if table == "ablation" else list(MODELS)
    whole = plan(table, out, budget, tasks=every, models=models, seeds=MOST_SEEDS)
    cells = []
    for cell in whole.cells:
        runs = tuple(planned for planned in cell.runs if planned.run.metrics.exists())
        if runs:
            cells.append(Cell(cell.row, cell.column, runs))
    rows, columns = {cell.row for cell in cells}, {cell.column for cell in cells}
    return Plan(
        table,
        budget,
        {key: title for key, title in whole.rows.items() if key in rows},
        {key: title for key, title in whole.columns.items() if key in columns},
        tuple(cells),
    )


def _tasks_of(table: TableName) -> list[str]:
    return [row.key for row in (TASKS if table == "main" else ABLATION_TASKS)]


def _main(out: Path, budget: BudgetName, tasks: Sequence[str], models: Sequence[str], seeds: int | None) -> Plan:
    asked = BUDGETS[budget]
    extra = () if tasks or models else asked.extra
    rows = _chosen(tasks, {row.key: row for row in TASKS}, [row.key for row in asked.tasks], "tasks")
    columns = _chosen(models, {m: m for m in MODELS}, [*asked.models, *(model for _, model in extra)], "models")
    cells = []
    for row in rows.values():
        for model in columns:
            if not models and model not in asked.models and (row.key, model) not in extra:
                continue
            own = asked.seeds if model == CASCADE else asked.baseline_seeds
            fields = {"arch": model} | ({"dropout": asked.dropout} if model == CASCADE else {})
            folder, recipe = out / "main" / row.key / model, _recipe(asked, row)
            runs = _runs(folder, row, fields, recipe, asked.evaluation, seeds or own)
            cells.append(Cell(row.key, model, runs))
    titles = {key: row.title for key, row in rows.items()}
    return Plan("main", budget, titles, {model: MODELS[model] for model in columns}, tuple(cells))


def _ablation(out: Path, budget: BudgetName, tasks: Sequence[str], models: Sequence[str], seeds: int | None) -> Plan:
    asked = BUDGETS[budget]
    known = {task.key: task for task in ABLATION_TASKS}
    columns = _chosen(tasks, known, list(known), "tasks")
    rows = _chosen(models, CONFIGURATIONS, list(CONFIGURATIONS), "models")
    cells = []
    for task in columns.values():
        for name, (_, configuration) in rows.items():
            fields = configuration | {"dropout": asked.dropout}
            folder = out / "ablation" / name / task.key
            recipe = _recipe(asked, task) | {"stop_when_perfect": True}  # a success is a success
            count = seeds or asked.ablation_seeds[task.name]
            cells.append(Cell(name, task.key, _runs(folder, task, fields, recipe, asked.ablation_evaluation, count)))
    titles = {name: f"{shape}, {name}" for name, (shape, _) in rows.items()}
    return Plan("ablation", budget, titles, {key: task.title for key, task in columns.items()}, tuple(cells))


def _chosen(asked: Sequence[str], known: dict[str, Any], usual: Iterable[str], what: str) -> dict[str, Any]:
    if unknown := [name for name in asked if name not in known]:
        raise ValueError(f"--{what} has {unknown[0]!r}, which is none of {', '.join(known)}")
    return {name: value for name, value in known.items() if name in (asked or usual)}


def _recipe(budget: Budget, row: TaskRow) -> dict[str, Any]:
    return budget.recipe | budget.recipes.get(row.name, {})


def _runs(
    folder: Path, row: TaskRow, model: dict[str, Any], recipe: dict[str, Any], evaluation: Evaluation, seeds: int
) -> tuple[Planned, ...]:
    arch = model.get("arch", CASCADE)
    shared: Settings = {"task": row.settings(), "model": dict(model), "recipe": {"lr": defaults(row.name, arch)[1].lr}}
    if arch == CASCADE and row.variant == "right":
        # a layer of scalar units for every stage, and one more: docs/decisions/0010-sequences.md
        shared["model"] |= {"n_layers": row.size + 1, "d_model": WIDTHS[row.size]}
    shared = merged(shared, {"recipe": recipe})
    return tuple(
        Planned(Run.from_settings(folder / f"seed-{seed}", merged(shared, {"recipe": {"seed": seed}})), evaluation)
        for seed in range(seeds)
    )
