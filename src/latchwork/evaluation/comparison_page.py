"""The report of a comparison: one HTML file that needs nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from urllib.parse import quote

from latchwork.chart import colour, dashes
from latchwork.evaluation import comparison_charts as charts
from latchwork.evaluation.comparison import Comparison, GroupSummary, sum_up
from latchwork.evaluation.groups import SECTIONS, Group, short, task_title
from latchwork.evaluation.measure import percent, share_percent
from latchwork.evaluation.outcome import Outcome
from latchwork.evaluation.page import Markup, escape, figures, page, table
from latchwork.evaluation.report import states
from latchwork.evaluation.statistics import Summary
from latchwork.runs.run import Run

_NOTHING = "–"
_STYLE = """
body { max-width: 78rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; font-weight: 600; }
.wide { overflow-x: auto; } .wide table { white-space: nowrap; }
td { vertical-align: top; } td small, p small { color: #5b6b7b; font-size: .8rem; } td small { display: block; }
td small.note { white-space: normal; color: #8a5a00; min-width: 14rem; }
td, th { padding-right: 1.1rem; } td:last-child, th:last-child { padding-right: .2rem; }
th.span { text-align: center; padding-bottom: 0; border-bottom: 0; }
.swatch { display: inline-block; width: 1.1rem; border-top: .3rem; vertical-align: .15rem; margin-right: .5rem; }
td .label { display: block; white-space: normal; min-width: 12rem; max-width: 26rem; }
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1.5rem; margin: .3rem 0; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(22rem, 1fr)); gap: .5rem 1.5rem; }
.warning { background: #fff8e6; border-left: 4px solid #d9a40d; padding: .5rem 1rem; margin: 1rem 0; }
.warning ul { margin: 0; padding-left: 1.2rem; }
.explained { color: #5b6b7b; font-size: .85rem; max-width: 60rem; }
.states { max-width: 60rem; margin: .3rem 0 1rem; } details { margin: .3rem 0; }
a { color: #1f6feb; } summary { cursor: pointer; }
"""
_EXPLAINED = (
    "A run has succeeded when every validation answer is right. Rates carry Wilson's 95% interval. Other figures are "
    "medians over the runs of a group whose training has ended, with 95% percentile bootstrap intervals over them in "
    "brackets; of a single run there is no interval. Updates needed are counted up to the first validation without an "
    "error, over the runs that got there. Validation is that of the kept model. Floor is the accuracy of always "
    "answering the commonest label. In the curve against length, a point is the accuracy since the point before; the "
    "line is the median over the runs of a group, the band goes from the lowest to the highest."
)


def comparison_page(comparison: Comparison, folder: Path, seen: Callable[[int], None] = lambda count: None) -> str:
    """The report as HTML; links to the reports of the runs are relative to `folder`, in which it is to lie.

    `seen` hears of how many groups the states have been drawn.

    Raises: ImportError with what to install when matplotlib is missing.
    """
    sections = _by_task(comparison.groups)
    numbers = {id(group): number for groups in sections.values() for number, group in enumerate(groups)}
    titles = ", ".join(dict.fromkeys(task_title(group.task) for group in comparison.groups))
    body = [
        "<h1>latchwork: comparison</h1>",
        f'<p class="sub">{escape(titles)}</p>',
        _figures(comparison),
        _damaged(comparison),
        "<h2>Summary</h2>",
        _summary(comparison.groups, numbers),
        f'<p class="explained">{_EXPLAINED}</p>',
    ]
    for title, groups in sections.items():
        body += [f"<h2>{escape(title)}</h2>", _curves(title, groups, numbers)]
    body += ["<h2>States</h2>", "<p>Of the first run of each configuration that has a trained model.</p>"]
    shown = [_first_trained(group) for group in comparison.groups]
    for count, (group, run) in enumerate(zip(comparison.groups, shown, strict=True), 1):
        body.append(_states(group, run, numbers, opened=run is not None and not any(shown[: count - 1])))
        seen(count)
    body += ["<h2>What differs</h2>", _differences(comparison, numbers)]
    body += ["<h2>Runs</h2>", _runs(comparison.groups, numbers, folder)]
    return page("latchwork: comparison", body, _STYLE)


def _by_task(groups: Iterable[Group]) -> dict[str, list[Group]]:
    """Groups of one task together under its title, told apart by more than the title where that is not enough."""
    tasks: dict[str, list[Group]] = {}
    for group in groups:
        tasks.setdefault(repr(group.task), []).append(group)
    titles = [task_title(members[0].task) for members in tasks.values()]
    whole = [title if titles.count(title) == 1 else name for name, title in zip(tasks, titles, strict=True)]
    return dict(zip(whole, tasks.values(), strict=True))


def _figures(comparison: Comparison) -> str:
    runs = comparison.runs
    shown = [(str(len(runs)), "runs" if len(runs) != 1 else "run")]
    shown.append((str(len(comparison.groups)), "configurations" if len(comparison.groups) != 1 else "configuration"))
    for count, what in (
        (sum(outcome.end is None for outcome in runs), "not ended"),
        (sum(outcome.evaluation is None for outcome in runs), "not evaluated"),
        (len(comparison.damaged), "could not be read"),
    ):
        if count:
            shown.append((str(count), what))
    return figures(shown)


def _damaged(comparison: Comparison) -> str:
    if not comparison.damaged:
        return ""
    items = "".join(f"<li>{escape(problem)}</li>" for _, problem in comparison.damaged)
    return f'<div class="warning">Left out, since they cannot be read:<ul>{items}</ul></div>'


def _summary(groups: Sequence[Group], numbers: dict[int, int]) -> str:
    above = [("", 3), ("validation", 3), ("evaluation", 3)]
    head = ["", "runs", "succeeded", "kept model", "floor", "updates needed", "overall", "worst chunk", "floor"]
    rows = []
    for group in groups:
        summary = sum_up(group)
        found, validated, evaluated = summary.figures, "validation_accuracy", "evaluation_accuracy"
        accurate = group.outcomes[0].has_accuracy
        if not accurate:
            validated, evaluated = "validation_bits", "evaluation_bits"
        show = _share if accurate else _bits
        rows.append(
            [
                _labelled(group, numbers, summary.notes),
                str(len(group.ended)),
                _successes(summary),
                show(found[validated]),
                _plain_share(found["validation_floor"]) if accurate else _NOTHING,
                _updates(found["updates_needed"], len(group.ended)),
                show(found[evaluated]),
                _share(found["worst_chunk_accuracy"]),
                _plain_share(found["evaluation_floor"]) if accurate else _NOTHING,
            ]
        )
    return f'<div class="wide">{table(rows, head=head, numeric=1, above=above)}</div>'


def _labelled(group: Group, numbers: dict[int, int], notes: Sequence[str] = ()) -> Markup:
    swatch = _swatch(numbers[id(group)])
    # lines break between settings only
    label = ", ".join(escape(part.replace(" ", "\N{NO-BREAK SPACE}")) for part in group.label.split(", "))
    return Markup(f'<span class="label">{swatch}{label}</span>{_notes(notes)}')


def _swatch(number: int) -> Markup:
    """How the lines of a group look."""
    look = f"border-top-style:{dashes(number)};border-color:{colour(number)}"
    return Markup(f'<span class="swatch" style="{look}"></span>')


def _notes(notes: Sequence[str]) -> str:
    return "".join(f'<small class="note">{escape(note)}</small>' for note in notes)


def _successes(summary: GroupSummary) -> Markup:
    if summary.successes is None or summary.success_interval is None:
        return Markup(_NOTHING)
    low, high = summary.success_interval
    return Markup(f"{summary.successes} of {len(summary.group.ended)}<small>[{low:.2f}, {high:.2f}]</small>")


def _share(summary: Summary | None) -> Markup:
    return _with_interval(summary, share_percent)


def _bits(summary: Summary | None) -> Markup:
    return _with_interval(summary, lambda bits: f"{bits:.3f} bits")


def _plain_share(summary: Summary | None) -> Markup:
    return Markup(share_percent(summary.median) if summary else _NOTHING)


def _updates(summary: Summary | None, runs: int) -> Markup:
    shown = _with_interval(summary, lambda updates: f"{updates:,.0f}")
    if summary and summary.runs < runs:
        shown = Markup(f"{shown}<small>{summary.runs} of {runs} runs</small>")
    return shown


def _with_interval(summary: Summary | None, show) -> Markup:
    if summary is None:
        return Markup(_NOTHING)
    low, high = summary.interval
    return Markup(show(summary.median) + (f"<small>[{show(low)}, {show(high)}]</small>" if summary.runs > 1 else ""))


def _curves(title: str, groups: Sequence[Group], numbers: dict[int, int]) -> str:
    drawn = [
        ("Accuracy against length", charts.extrapolation(title, groups)),
        ("Validation", charts.validation(title, groups)),
        ("Training loss", charts.training_loss(title, groups)),
    ]
    parts = [f"<div><h3>{name}</h3>{svg}</div>" for name, svg in drawn if svg]
    if not parts:
        return "<p>No run of this task has a training loss, a validation or an evaluation yet.</p>"
    missing = (
        "" if drawn[0][1] or not groups[0].outcomes[0].has_accuracy else "<p>No run of this task is evaluated.</p>"
    )
    legend = "".join(f"<span>{_labelled(group, numbers)}</span>" for group in groups)
    return f'<div class="legend">{legend}</div>{missing}<div class="charts">{"".join(parts)}</div>'


def _first_trained(group: Group) -> Run | None:
    return next((o.run for o in group.outcomes if (o.run.path / "best.json").exists()), None)


def _states(group: Group, run: Run | None, numbers: dict[int, int], opened: bool) -> str:
    """Of a run of the group, folded away unless `opened`."""
    shown = "<p>No run has a trained model.</p>" if run is None else states(run)
    name = "" if run is None else f" · {escape(run.path.name)}"
    return (
        f"<details{' open' if opened else ''}><summary>{_labelled(group, numbers)}{name}</summary>"
        f'<div class="states">{shown}</div></details>'
    )


def _differences(comparison: Comparison, numbers: dict[int, int]) -> str:
    keys = comparison.differences()
    if not keys:
        return "<p>Nothing but the seed.</p>"
    head = ["", *(short(key, keys) for key in keys)]
    rows = [
        [_swatch(numbers[id(group)]), *(str(group.settings.get(key, _NOTHING)) for key in keys)]
        for group in comparison.groups
    ]
    same = [
        (section, [(name.partition(".")[2], value) for name, value in comparison.groups[0].settings.items()
                   if name.startswith(f"{section}.") and name not in keys
                   and all(name in group.settings for group in comparison.groups)])
        for section in SECTIONS
    ]  # fmt: skip
    tables = "".join(
        f"<div><h3>{section}</h3>{table([(name, str(value)) for name, value in rows])}</div>"
        for section, rows in same
        if rows
    )
    return (
        f'<div class="wide">{table(rows, head=head)}</div>'
        f'<details><summary>What is the same everywhere</summary><div class="columns">{tables}</div></details>'
    )


def _runs(groups: Sequence[Group], numbers: dict[int, int], folder: Path) -> str:
    head = ["run", "", "seed", "training", "updates", "validation", "evaluation", "worst chunk"]
    rows = []
    for group in groups:
        for outcome in group.outcomes:
            run = Markup(_link(outcome, folder) + _notes(outcome.notes))
            rows.append([run, _labelled(group, numbers), *_run_figures(outcome)])
    return f'<div class="wide">{table(rows, head=head)}</div>'


def _run_figures(outcome: Outcome) -> list[str]:
    found = outcome.figures()
    validation = evaluation = worst = _NOTHING
    if outcome.has_accuracy:
        if outcome.best:
            validation = percent(found["validation_correct"], found["validation_scored"])
        if outcome.evaluation:
            evaluation = percent(found["evaluation_correct"], found["evaluation_scored"])
            if found["evaluation_length"]:
                evaluation += f" over {found['evaluation_length']:,} steps"
            worst = _NOTHING if found["worst_chunk_accuracy"] is None else share_percent(found["worst_chunk_accuracy"])
    else:
        validation = f"{found['validation_bits']:.3f} bits" if outcome.best else _NOTHING
        evaluation = f"{found['evaluation_bits']:.3f} bits" if outcome.evaluation else _NOTHING
    updates = f"{outcome.updates:,}"
    return [str(found["seed"]), found["status"], updates, validation, evaluation, worst]


def _link(outcome: Outcome, folder: Path) -> Markup:
    """To the report of a run, if there is one."""
    name = escape(outcome.run.path.name or str(outcome.run.path.resolve()))
    report = outcome.run.report.resolve()
    if not report.exists():
        return name
    try:
        address = quote(Path(os.path.relpath(report, folder.resolve())).as_posix())
    except ValueError:  # on another drive
        address = report.as_uri()
    return Markup(f'<a href="{address}">{name}</a>')
