"""The HTML page of the report on the paper's tables: what the Markdown says, and curves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from latchwork.chart import BLUE, GREY, ORANGE, blank, colour, dashes, to_svg
from latchwork.evaluation import comparison_charts as charts
from latchwork.evaluation.page import Markup, escape, page, table
from latchwork.experiments.paper.grids import DIFFERENCES, INTRODUCTION, Entry, Grid, budget_text
from latchwork.experiments.paper.plan import ABLATION_TASKS, MODELS, PAPER_ABLATION, BudgetName, TableName
from latchwork.experiments.paper.table import Result, Table

_CODE = re.compile("`(.*?)`")
_LOWEST = -60
"""Logarithm of the smallest gradient that the chart tells from nothing."""

_STYLE = """
body { max-width: 90rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; font-weight: 600; }
.wide { overflow-x: auto; } .wide table { white-space: nowrap; } .wide small { white-space: normal; max-width: 19em; }
td { vertical-align: top; }
td small { display: block; color: #5b6b7b; font-size: .8rem; } td small a { margin-right: .35rem; }
.explained { color: #5b6b7b; font-size: .85rem; max-width: 60rem; }
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1.5rem; margin: .3rem 0; }
.swatch { display: inline-block; width: 1.1rem; border-top: .3rem; vertical-align: .15rem; margin-right: .5rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(22rem, 1fr)); gap: .5rem 1.5rem; }
a { color: #1f6feb; } pre { background: #f5f7f9; padding: .6rem .8rem; max-width: 60rem; }
"""


def page_of(
    budget: BudgetName,
    grids: Sequence[Grid],
    tables: dict[TableName, Table],
    gradients: dict[str, Any],
    out: Path,
) -> str:
    """The whole page; links to runs are relative to `out`, in which it is to lie.

    Raises: ImportError with what to install when matplotlib is missing.
    """
    about, *commands = budget_text(budget)
    about = _CODE.sub(r"<code>\1</code>", escape(about))
    body = [
        "<h1>The paper's tables</h1>",
        f'<p class="sub">{escape(INTRODUCTION)}</p>',
        f'<p class="explained">{about}</p>',
        f"<pre>{escape(chr(10).join(line.strip() for line in commands if line))}</pre>",
    ]
    for grid in grids:
        rows = [[escape(title), *(_marked(entry, out) for entry in row)] for title, row in grid.rows]
        body += [
            f"<h2>{escape(grid.title)}</h2>",
            f'<p class="explained">{escape(grid.explained)}</p>',
            f'<div class="wide">{table(rows, head=grid.head)}</div>',
        ]
    if tables["ablation"].results:
        body += ["<h2>The ablation in bars</h2>", f'<div class="charts">{"".join(_bars(tables["ablation"]))}</div>']
    if gradients:
        body += ["<h2>Gradients and bounds of states</h2>", f'<div class="charts">{"".join(_theory(gradients))}</div>']
    body += _curves(tables["main"], "main table", by_row=True)
    body += _curves(tables["ablation"], "ablation", by_row=False)
    body += ["<h2>What differs from the paper</h2>", "<ul>"]
    body += [f"<li><b>{escape(name)}.</b> {escape(text)}</li>" for name, text in DIFFERENCES]
    return page("latchwork: the paper's tables", [*body, "</ul>"], _STYLE)


def _marked(entry: Entry, out: Path) -> Markup:
    links = "".join(f'<a href="{escape(_address(path, out))}">{escape(name)}</a>' for name, path in entry.links)
    below = "".join(f"<small>{part}</small>" for part in (*map(escape, entry.remarks), links) if part)
    return Markup(escape(entry.text) + below)


def _address(run: Path, out: Path) -> str:
    """The report of a run, or its configuration where there is none."""
    report = run / "report.html"
    return (report if report.exists() else run / "config.json").relative_to(out).as_posix()


def _bars(found: Table) -> Iterator[str]:
    """For every task a bar a configuration: the share of seeds that succeeded, ours with its interval, the paper's."""
    names = list(found.plan.rows)
    for column, title in found.columns.items():
        results = [found.get(name, column) for name in names]
        if not any(result and result.ended for result in results):
            continue
        figure, axes = blank(width=5.2, height=3.0)
        place = [task.key for task in ABLATION_TASKS].index(column)
        for i, (name, result) in enumerate(zip(names, results, strict=True)):
            theirs = PAPER_ABLATION.get(name, ())
            if place < len(theirs):
                axes.barh(i + 0.2, theirs[place] / 10, 0.36, color=GREY, label="paper")
            if result and (counted := result.successes):
                share = counted.count / len(result.ended)
                axes.barh(i - 0.2, share, 0.36, color=BLUE if name in PAPER_ABLATION else ORANGE)
                axes.plot(
                    [counted.low, counted.high], [i - 0.2] * 2, color="#1c2733", linewidth=1, marker="|", markersize=6
                )
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.set_xlim(0, 1.03)
        axes.set_xlabel("share of seeds that succeeded; grey: the paper")
        yield f"<div><h3>{escape(title)}</h3>{to_svg(figure, f'{title}: share of seeds that succeeded')}</div>"


def _theory(gradients: dict[str, Any]) -> Iterator[str]:
    """Gradients against length, and between what bounds the states of a cascade stay."""
    figure, axes = blank(width=5.2, height=3.4)
    for number, (model, figures) in enumerate(gradients.items()):
        lengths = [each["length"] for each in figures["decay"]]
        logs = np.array([[-np.inf if v is None else v for v in each["log10"]] for each in figures["decay"]])
        shown = np.maximum(logs, _LOWEST)
        look = {"color": colour(number), "linestyle": dashes(number)}
        axes.fill_between(lengths, shown.min(1), shown.max(1), color=colour(number), alpha=0.15, linewidth=0)
        axes.plot(lengths, np.median(shown, 1), label=MODELS[model], marker="o", markersize=3, **look)
    axes.set_xscale("log", base=2)
    axes.set_xlabel("steps back")
    axes.set_ylabel(f"log10 of the gradient, at least {_LOWEST}")
    axes.legend(frameon=False, fontsize=8)
    yield f"<div><h3>What is left of a gradient</h3>{to_svg(figure, 'length of the gradient against steps back')}</div>"
    for model, figures in gradients.items():
        for number, layer in enumerate(figures.get("bounds", ()), 1):
            figure, axes = blank(width=5.2, height=3.0)
            units = range(len(layer["low"]))
            axes.vlines(units, layer["low"], layer["high"], color="#c9d1d9", linewidth=3)
            axes.vlines(units, layer["reached_low"], layer["reached_high"], color=BLUE, linewidth=3)
            axes.set_xlabel("unit")
            axes.set_ylabel("state")
            title = f"{MODELS[model]}, layer {number}: states reached (blue) and their bounds"
            yield f"<div><h3>{escape(title)}</h3>{to_svg(figure, title)}</div>"


def _curves(found: Table, name: str, *, by_row: bool) -> Iterator[str]:
    """Curves of every task, a line a model; tasks are the rows of the main table and the columns of the ablation."""
    tasks = found.plan.rows if by_row else found.columns
    models = found.columns if by_row else found.plan.rows
    if found.results:
        yield f"<h2>Curves of the {name}</h2>"
    for task, title in tasks.items():
        cells = [found.get(*((task, model) if by_row else (model, task))) for model in models]
        results: list[Result] = [result for result in cells if result]
        groups = [result.group for result in results]
        if not groups:
            continue
        drawn = (
            ("Accuracy against length", charts.extrapolation(title, groups)),
            ("Validation", charts.validation(title, groups)),
            ("Training loss", charts.training_loss(title, groups)),
        )
        legend = "".join(f"<span>{_swatch(i)}{escape(group.label)}</span>" for i, group in enumerate(groups))
        shown = "".join(f"<div>{label}{svg}</div>" for label, svg in drawn if svg)
        yield f'<h3>{escape(title)}</h3><div class="legend">{legend}</div><div class="charts">{shown}</div>'


def _swatch(number: int) -> str:
    look = f"border-top-style:{dashes(number)};border-color:{colour(number)}"
    return f'<span class="swatch" style="{look}"></span>'
