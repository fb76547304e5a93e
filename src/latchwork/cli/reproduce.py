"""`latchwork reproduce`."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import tyro

from latchwork.cli.display import interruptible, print_json, say, show_table
from latchwork.cli.sweep import check_counts, work_off
from latchwork.experiments.paper.gradients import measure_gradients
from latchwork.experiments.paper.plan import BUDGETS, MOST_SEEDS, BudgetName, TableName, begun, plan
from latchwork.experiments.paper.report import write


@dataclass
class Reproduce:
    """Run the tables of arXiv 2605.06384, and report what has been run beside the paper's numbers.

    main: MinMax cascades and baselines on Latching, Sequences and InductionHeads, to 2^20 steps. ablation: which parts
    of a cascade matter. The same command goes on with what is left, and retries what has failed (a run that diverged
    only when its folder has been removed); runs that are done are only reported.
    """

    table: tyro.conf.Positional[TableName]
    """Which table."""
    budget: BudgetName = "small"
    """small: two processor cores, some of the sizes, 1 to 5 seeds, 10 minutes of updates a run. paper: every size and
    model, 10 seeds, 30 epochs, for a GPU."""
    out: Path | None = None
    """Folder of the runs and the report; by default runs/paper-BUDGET."""
    tasks: tuple[str, ...] = ()
    """Only these tasks, or others than the budget has, as in --tasks latching-16 sequences-4-right."""
    models: tuple[str, ...] = ()
    """Only these models, or others than the budget has, as in --models cascade gru; of the ablation: configurations."""
    seeds: int | None = None
    """Seeds of every cell; by default as the budget has it."""
    workers: int | None = None
    """Runs at a time; by default as many as there are processor cores, or four a GPU."""
    threads: int | None = None
    """Threads of each worker; by default the cores are divided among the workers."""
    dry: bool = False
    """Only list the runs, and what is there of them."""
    report: bool = False
    """Only write the report from what is there."""
    json: bool = False
    """Print the table as JSON."""

    def run(self) -> int:
        check_counts(self.workers, self.threads)
        if self.seeds is not None and not 1 <= self.seeds <= MOST_SEEDS:
            raise ValueError(f"seeds must be between 1 and {MOST_SEEDS}, got {self.seeds}")
        out = self.out or Path("runs") / f"paper-{self.budget}"
        asked = plan(self.table, out, self.budget, tasks=self.tasks, models=self.models, seeds=self.seeds)
        if self.dry:
            for planned in asked.runs:
                print(f"{planned.run.path}  {planned.run.ended or 'not run'}")
            return 0
        self._check(out)
        clock, result = time.monotonic(), None
        if not self.report:
            result = work_off(asked.runs, self.workers, self.threads)
            say(f"{result.done} of {len(asked.runs)} runs done, {time.monotonic() - clock:,.0f} s")
            if self.table == "main" and not result.stopped:
                with interruptible("stopping") as stop:
                    length = BUDGETS[self.budget].gradient_length
                    measure_gradients(out, length, stop, lambda model: say(f"gradients of states: {model}"))
                    result = dataclasses.replace(result, stopped=stop())
        written = write(out, self.budget)
        table = written.tables[self.table]
        if self.json:
            print_json(table.to_dict(out))
        else:
            head, rows = table.texts()
            show_table(table.title, head, rows, names=1)
        for line in written.complaints:
            say(line)
        for file in written.files:
            say(f"report: {file}")
        return result.status() if result else 0

    def _check(self, out: Path) -> None:
        """Refuse to write over what is no report, and a report on nothing."""
        if (out / "config.json").exists():
            raise ValueError(f"{out} is the folder of a run; choose another --out")
        if (out / "README.md").exists() and not (out / "tables.json").exists():
            raise ValueError(f"{out} has a README.md that is no report of the tables; choose another --out")
        if self.report and not any(begun(name, out, self.budget).cells for name in get_args(TableName)):
            raise ValueError(f"{out} has no runs to report")
