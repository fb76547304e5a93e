"""`latchwork sweep`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from latchwork.cli.display import Bar, interruptible, print_json, say, show_table
from latchwork.evaluation.measure import percent
from latchwork.evaluation.outcome import current_evaluation
from latchwork.experiments.sweep import read_sweep
from latchwork.experiments.workers import Done, Failed, Working, cores, run_sweep
from latchwork.training.run import Run
from latchwork.training.settings import assigned


@dataclass
class Sweep:
    """Train and measure many runs that one file declares; the same command goes on with what is left."""

    file: tyro.conf.Positional[Path]
    """TOML, YAML or JSON with sections task, model and recipe, which all runs share, a section grid with lists of
    values, of which every combination is a run, and a section evaluate, if the runs are to be measured."""
    out: Path | None = None
    """Folder of the runs; by default runs/NAME-OF-THE-FILE."""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Change what all runs share, as in --set recipe.steps=50. May be given several times."""
    workers: int | None = None
    """Runs at a time; by default as many as there are processor cores."""
    threads: int | None = None
    """Threads of each worker; by default the cores are divided among the workers."""
    dry: bool = False
    """Only list the runs."""
    json: bool = False
    """Print the results as JSON."""

    def run(self) -> int:
        sweep = read_sweep(self.file, self.out or Path("runs") / self.file.stem, assigned(self.set))
        for name, value in (("workers", self.workers), ("threads", self.threads)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.dry:
            for run in sweep.runs:
                print(run.path)
            return 0
        workers = min(self.workers or cores(), len(sweep.runs))
        threads = self.threads or max(1, cores() // workers)
        say(f"{len(sweep.runs)} runs, {workers} at a time with {threads} threads each")
        failed: list[Failed] = []
        finished, clock = 0, time.monotonic()
        with interruptible("stopping the runs at work after their step") as stop, Bar("runs", len(sweep.runs)) as bar:
            for event in run_sweep(sweep, workers, threads, stop):
                if isinstance(event, Working):
                    bar.update(finished, " · ".join(_state(run) for run in event.runs))
                    continue
                finished += 1
                if isinstance(event, Failed):
                    failed.append(event)
                    say(f"{event.run.path.name}: failed: {event.message} ({event.run.path / 'log.txt'})")
                elif isinstance(event, Done) and event.seconds:
                    say(f"{event.run.path.name}: {_outcome(event.run)}, in {event.seconds:,.0f} s")
            stopped = stop()
        rows = [_row(run) for run in sweep.runs]
        if self.json:
            print_json({"runs": rows})
        else:
            show_table(
                self.file.stem, list(rows[0]), [[_cell(value) for value in row.values()] for row in rows], names=1
            )
        if stopped:
            say(f"stopped with {finished} of {len(sweep.runs)} runs done; the same command goes on")
            return 130
        say(f"{finished - len(failed)} of {len(sweep.runs)} runs done, {time.monotonic() - clock:,.0f} s")
        return 1 if failed else 0


def _state(run: Run) -> str:
    """Where a run is that is being worked on."""
    records = list(run.records())
    if not records:
        return f"{run.path.name} starts"
    last = records[-1]  # read once: this is asked several times a second
    return f"{run.path.name} measured" if "end" in last else f"{run.path.name} step {last['step']:,}"


def _outcome(run: Run) -> str:
    row = _row(run)
    measured = f", {row['long']} over long sequences (worst chunk {row['worst chunk']})" if row["long"] else ""
    return f"{row['ended']} after {row['updates']:,} updates, validation {row['validation']}{measured}"


def _row(run: Run) -> dict[str, Any]:
    """What there is to say of a run; None where it is not known."""
    records = list(run.records())
    scores = [record["validation"] for record in records if "validation" in record]
    row: dict[str, Any] = {
        "run": run.path.name,
        "ended": run.ended,
        "updates": records[-1]["step"] if records else None,
        "validation": None,
        "long": None,
        "worst chunk": None,
    }
    if scores and run.task.measure == "accuracy":
        best = max(scores, key=lambda score: score["correct"])
        row["validation"] = percent(best["correct"], best["scored"])
    elif scores:
        row["validation"] = f"{min(score['bits'] for score in scores):.4f} bits"
    evaluation, _ = current_evaluation(run)
    if evaluation and "chunks" in evaluation:
        worst = evaluation["worst_chunk"]
        row["long"] = percent(evaluation["correct"], evaluation["scored"])
        row["worst chunk"] = percent(worst["correct"], worst["scored"])
    return row


def _cell(value: Any) -> str:
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
