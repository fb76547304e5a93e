"""What the report on the paper's tables says, in grids of text; pages are made of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, get_args

from latchwork.evaluation.measure import share_percent
from latchwork.evaluation.outcome import known_parameters
from latchwork.experiments.paper.gradients import ROWS
from latchwork.experiments.paper.plan import (
    ABLATION_TASKS,
    BUDGETS,
    MODELS,
    PAPER_ABLATION,
    PAPER_MAIN,
    TASKS,
    BudgetName,
    TableName,
)
from latchwork.experiments.paper.table import NOTHING, Result, Table, mean_accuracy, share_text
from latchwork.experiments.sweep import Evaluation


@dataclass(frozen=True)
class Entry:
    """One cell of a grid: a figure, remarks below it, and links to runs."""

    text: str
    remarks: tuple[str, ...] = ()
    links: tuple[tuple[str, Path], ...] = ()


@dataclass(frozen=True)
class Grid:
    """A table of the report."""

    title: str
    explained: str
    head: tuple[str, ...]
    rows: list[tuple[str, list[Entry]]] = field(default_factory=list)


def grids_of(table: Table) -> Iterator[Grid]:
    """What there is to say of a table that something has been run of."""
    if table.plan.name == "main":
        yield _beside_the_paper(table)
        yield _every_task(table)
        yield _cost(table)
    else:
        yield _ablation(table)


_GROUPS = (
    ("Latching", "latching", "latching"),
    ("Sequences, published", "sequences", "sequences-published"),
    ("Sequences, right", None, "sequences-right"),
    ("InductionHeads(16)", "inductionheads-16", "inductionheads-16"),
    ("InductionHeads(30)", "inductionheads-30", "inductionheads-30"),
)
"""Rows of the paper's main table: title, key of the paper's figures, what the keys of tasks are made of."""


def _beside_the_paper(table: Table) -> Grid:
    tasks = {task.key: task for task in TASKS if task.key in table.plan.rows}
    grid = Grid(
        "The main table beside the paper's",
        "Accuracy in percent over all steps of the long sequences, the mean over the sizes of the row (of each the "
        "median over the seeds); after the stroke what the paper prints, of bodies of about 125,000 parameters as "
        "here. A row has the sizes of the budget, or else what was run; a cell is filled when all of them have been "
        "measured.",
        ("task", "sizes", "floor", *table.columns.values()),
    )
    for title, printed, parts in _GROUPS:
        kind, _, variant = parts.partition("-")
        chosen = [t for t in tasks.values() if parts in (t.key, t.name) or (t.name == kind and t.variant == variant)]
        if not chosen:
            continue
        chosen = [task for task in chosen if task in BUDGETS[table.plan.budget].tasks] or chosen
        floors = [floor for task in chosen if (floor := table.floor(task.key)) is not None]
        sizes = ", ".join(str(task.size) for task in chosen)
        entries = [Entry(sizes), Entry(_mean_percent(sum(floors) / len(floors) if floors else None))]
        for model in table.columns:
            results = {str(task.size): table.get(task.key, model) for task in chosen}
            theirs = PAPER_MAIN[printed].get(model) if printed else None
            mean = mean_accuracy(results.values())
            text = _mean_percent(mean) if theirs is None else f"{_mean_percent(mean)} / {theirs}"
            remarks = () if mean is None else _remarks_by_size(results, BUDGETS[table.plan.budget].evaluation)
            entries.append(Entry(text, tuple(remarks)))
        grid.rows.append((title, entries))
    return grid


def _remarks_by_size(results: dict[str, Result | None], usual: Evaluation) -> Iterator[str]:
    """Each remark once, with the sizes that it is of where it is not of all."""
    sizes: dict[str, list[str]] = {}
    for size, result in results.items():
        for remark in result.remarks(usual) if result else ():
            sizes.setdefault(remark, []).append(size)
    for remark, of in sizes.items():
        yield remark if len(of) == len(results) else f"{', '.join(of)}: {remark}"


def _mean_percent(share: float | None) -> str:
    """In a grid that is in percent anyway."""
    return share_text(share).rstrip("%")


def _every_task(table: Table) -> Grid:
    grid = Grid(
        "Every task",
        "Accuracy over all steps of the long sequences, the median over the seeds; in brackets the accuracy of the "
        "worst chunk of 1,024 steps of any seed. Floor: what always answering the commonest label of these "
        "sequences gives. Sequences run to 2^20 steps where nothing else is said. The numbers below a figure are "
        "the seeds, and link their runs.",
        ("task", "floor", *table.columns.values()),
    )
    usual = BUDGETS[table.plan.budget].evaluation
    for row, title in table.plan.rows.items():
        results = {model: table.get(row, model) for model in table.columns}
        entries = [Entry(share_text(table.floor(row)))]
        entries += [_measured(result, usual) for result in results.values()]
        grid.rows.append((title, entries))
    return grid


def _measured(result: Result | None, usual: Evaluation) -> Entry:
    if result is None:
        return Entry(NOTHING)
    text = NOTHING
    if result.accuracy is not None and result.worst is not None:
        text = f"{share_percent(result.accuracy)} ({share_percent(result.worst)})"
    return Entry(text, tuple(result.remarks(usual)), _links(result))


def _ablation(table: Table) -> Grid:
    usual = BUDGETS[table.plan.budget].ablation_evaluation
    grid = Grid(
        "The ablation beside the paper's",
        "Seeds for which every validation answer was right at some time, with Wilson's 95% interval; after the "
        "stroke what the paper prints (of 10 seeds). Training ends with the first success. Below it how many answers "
        "seeds that failed got wrong in the best of their validations (InductionHeads asks one a sequence, the others "
        f"one a step), then the accuracy over sequences of {usual.length:,} steps, and in brackets that of the worst "
        "chunk of any seed. Sequences(4), right, has five narrower layers, everything else two. The paper has no such "
        "column, and no rows with keep. Floor: what always answering the commonest label of these sequences gives.",
        ("configuration", *table.columns.values()),
    )
    columns = [task.key for task in ABLATION_TASKS]
    for row, title in table.plan.rows.items():
        entries = []
        for column in table.columns:
            result, place = table.get(row, column), columns.index(column)
            theirs = PAPER_ABLATION.get(row, ())
            printed = f" / {theirs[place]} of 10" if place < len(theirs) else ""
            if result is None or (found := result.successes) is None:
                entries.append(Entry(NOTHING + printed, () if result is None else ("running",)))
                continue
            text = f"{found.count} of {len(result.ended)} [{found.low:.2f}, {found.high:.2f}]{printed}"
            long = _measured(result, usual)
            missed = (f"wrong: {', '.join(f'{count:,}' for count in result.misses)}",) if result.misses else ()
            entries.append(Entry(text, (*missed, long.text, *long.remarks), long.links))
        grid.rows.append((title, entries))
    grid.rows.append(("floor", [Entry(share_text(table.floor(column))) for column in table.columns]))
    return grid


def _cost(table: Table) -> Grid:
    grid = Grid(
        "Cost",
        "Body: parameters without embedding and head, of the smallest and the largest that was run. The rest are "
        "medians over the runs of the table that have ended: updates, tokens read in them, seconds that they took, and "
        "tokens a second over the long sequences, in which making them counts. Both depend on the machine, the threads "
        "of a run, and what else was at work.",
        ("model", "body", "runs", "updates", "tokens, millions", "seconds", "tokens a second, reading"),
    )
    for model, title in table.columns.items():
        results = [result for (_, column), result in table.results.items() if column == model]
        figures = [outcome.figures() for result in results for outcome in result.ended]
        firsts = [outcome.run for result in results for outcome in result.group.outcomes[:1]]
        bodies = [known_parameters(run, body=True) for run in firsts]
        sizes = sorted({size for size in bodies if size is not None})
        grid.rows.append(
            (
                title,
                [
                    Entry(" to ".join(f"{size:,}" for size in dict.fromkeys(sizes[:1] + sizes[-1:])) or NOTHING),
                    Entry(str(len(figures))),
                    Entry(_middle(figures, "updates")),
                    Entry(_middle(figures, "training_tokens", 1e-6)),
                    Entry(_middle(figures, "training_seconds")),
                    Entry(_middle(figures, "tokens_per_second")),
                ],
            )
        )
    return grid


def gradients_grid(found: dict[str, Any]) -> Grid:
    """Gradients of the last state that were measured on trained models."""
    lengths = sorted({each["length"] for figures in found.values() for each in figures["decay"]})
    shown = [length for length in lengths if length in (1 << 5, 1 << 10, 1 << 15) or length == lengths[-1]]
    grid = Grid(
        "Gradients of states",
        "On Latching(16), after training: length of v · ∂x_T/∂x_(T-k) for random unit vectors v in the space of all "
        f"that a model carries from step to step, the median over {ROWS} sequences; 0 where 1,024 steps or fewer bring "
        "it below what 64-bit floats can hold. Share kept: units whose own gradient after the first token is exactly 1 "
        "over all steps, by layer.",
        ("model", *(f"k = {length:,}" for length in shown), "share kept"),
    )
    for model, figures in found.items():
        by_length = {each["length"]: each["log10"] for each in figures["decay"]}
        entries = [Entry(_power(by_length.get(length, []))) for length in shown]
        kept = figures.get("kept", [])
        entries.append(Entry(", ".join(share_percent(share) for share in kept[-1]["shares"]) if kept else NOTHING))
        grid.rows.append((MODELS[model], entries))
    return grid


def _power(logs: Sequence[float | None]) -> str:
    """The median of numbers that are given by their logarithms; None is that of 0."""
    if not logs:
        return NOTHING
    middle = median(-math.inf if log is None else log for log in logs)
    return "0" if middle == -math.inf else f"{10**middle:.3f}" if -3 < middle < 3 else f"10^{middle:.0f}"


def _middle(figures: Sequence[dict[str, Any]], name: str, scale: float = 1.0) -> str:
    found = [f[name] for f in figures if f[name] is not None]
    return f"{scale * median(found):,.0f}" if found else NOTHING


def _links(result: Result) -> tuple[tuple[str, Path], ...]:
    return tuple((str(o.run.recipe.seed), o.run.path) for o in result.group.outcomes)


INTRODUCTION = (
    "The two tables of the paper MinMax Recurrent Neural Cascades (arXiv 2605.06384), made by one program from runs "
    "that lie beside this page. A dash is what was not run or not measured."
)

DIFFERENCES = (
    (
        "Sequences",
        "The paper's public generator never emits a reset and calls a sequence complete after two of its events, "
        "whatever its length: that is the variant called published here. In the right one a sequence is complete "
        "after all of its events in order, and resets come; scalar units then need about a layer a stage, so "
        "cascades have n + 1 layers there, and are narrower, so that their bodies stay within 3% of 127,432 "
        "parameters. Rates of events are chosen by a rule, so that labels are balanced in training and every long "
        "sequence completes and loses sequences.",
    ),
    (
        "InductionHeads",
        "One answer a sequence says nothing of the lengths between, so a copy of the carried state is asked after "
        "every chunk of 1,024 steps: 1,024 answers of every sequence of 2^20 steps.",
    ),
    (
        "Latching",
        "The summary of the paper names sizes 2n; its figures fit sizes 2^n, n = 2 to 9, of which those here are.",
    ),
    (
        "Baselines",
        "Bodies of 125,600 to 128,600 parameters without embedding and head, as the paper says of its own. xLSTM-L "
        "is taken to be xLSTM Large. The recipe of a task is the same for all models but for the learning rate, "
        "which was chosen once for every baseline on Sequences(4) as published; cascades have 1e-3.",
    ),
    (
        "MinMax RNC",
        "Cascades of the main table start from keep, a start of our own and the default of this library; the paper's "
        "start from asymmetric or small_init, with a dropout of 0.1. The ablation has all three starts.",
    ),
    (
        "Budget",
        "The paper trains for up to 30 epochs. Under the small budget a baseline shows what it learns in a few "
        "updates, fewer still where the clock stopped it, and not all that it could learn. Training ends with the "
        "first validation in which every answer is right (but goes on under the small budget on Sequences of the main "
        "table); what more updates would do to longer sequences is not seen then.",
    ),
    (
        "Accuracy",
        "The paper prints one figure a task over all lengths; so does this page, beside the worst chunk. Always "
        "answering the commonest label of the sequences that are measured gives the floor.",
    ),
)


def budget_text(budget: BudgetName) -> list[str]:
    """What a budget is, and the commands that make the report."""
    asked = BUDGETS[budget]
    seeds = ", ".join(f"{count} on {task}" for task, count in asked.ablation_seeds.items())
    shared = {**asked.recipe, "seeds of cascades": asked.seeds, "seeds of baselines": asked.baseline_seeds}
    shared["seeds of the ablation"] = seeds
    own = "; ".join(
        f"{task}: {', '.join(f'{k} {v}' for k, v in fields.items())}" for task, fields in asked.recipes.items()
    )
    said = ", ".join(f"{name} {value}" for name, value in shared.items())
    return [
        f"Budget {budget}: {said}" + (f"; {own}" if own else "") + ". Minutes are of updates, validations not counted. "
        f"Cascades have a dropout of {asked.dropout}. Everything else is as `latchwork train` has it; every run has "
        "its `config.json`.",
        "",
        *(f"    latchwork reproduce {table} --budget {budget}" for table in get_args(TableName)),
    ]
