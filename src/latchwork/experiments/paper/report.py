"""The report on the paper's tables: a Markdown page, an HTML page with curves, and all figures as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import latchwork
from latchwork.experiments.paper.gradients import read_gradients
from latchwork.experiments.paper.grids import (
    DIFFERENCES,
    INTRODUCTION,
    Entry,
    Grid,
    budget_text,
    gradients_grid,
    grids_of,
)
from latchwork.experiments.paper.page import page_of
from latchwork.experiments.paper.plan import BudgetName, TableName, begun
from latchwork.experiments.paper.table import Table, read_table
from latchwork.files import write_text
from latchwork.runs.run import write_json


@dataclass(frozen=True)
class Written:
    """The tables that the report shows, the files it consists of, and what could not be read or drawn."""

    tables: dict[TableName, Table]
    files: tuple[Path, ...]
    complaints: tuple[str, ...]


def write(out: Path, budget: BudgetName) -> Written:
    """Write README.md, tables.json and report.html into `out` from all runs that lie there.

    Without matplotlib there is no report.html, and a complaint says so.
    """
    tables: dict[TableName, Table] = {name: read_table(begun(name, out, budget)) for name in get_args(TableName)}
    gradients, unread = read_gradients(out)
    complaints = [*(line for table in tables.values() for line in table.complaints), *unread.values()]
    grids = [grid for table in tables.values() if table.results for grid in grids_of(table)]
    if gradients:
        grids.append(gradients_grid(gradients))
    cells = {name: table.to_dict(out) for name, table in tables.items()}
    write_json(out / "tables.json", {"latchwork": latchwork.__version__, **cells})
    write_text(out / "README.md", _markdown(budget, grids, out))
    files = [out / "README.md", out / "tables.json"]
    try:
        write_text(out / "report.html", page_of(budget, grids, tables, gradients, out))
        files.insert(0, out / "report.html")
    except ImportError as error:
        complaints.append(f"no report.html: {error}")
    return Written(tables, tuple(files), tuple(complaints))


def _markdown(budget: BudgetName, grids: Sequence[Grid], out: Path) -> str:
    lines = ["# The paper's tables", "", INTRODUCTION, "", *budget_text(budget), ""]
    for grid in grids:
        lines += [f"## {grid.title}", "", grid.explained, ""]
        lines += ["| " + " | ".join(grid.head) + " |", "|" + "---|" * len(grid.head)]
        lines += [
            "| " + " | ".join([title, *(_marked(entry, out) for entry in row)]) + " |" for title, row in grid.rows
        ]
        lines += [""]
    lines += ["## What differs from the paper", ""]
    lines += [f"- *{name}.* {text}" for name, text in DIFFERENCES]
    return "\n".join(lines) + "\n"


def _marked(entry: Entry, out: Path) -> str:
    links = " ".join(f"[{name}]({path.relative_to(out).as_posix()}/config.json)" for name, path in entry.links)
    return "<br>".join(part for part in (entry.text, *entry.remarks, links) if part)
