"""`latchwork sweep`."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from latchwork.cli.display import Bar, interruptible, print_json, say, show_table
from latchwork.evaluation.measure import percent, share_percent
from latchwork.evaluation.outcome import read_outcome, worst_chunk
from latchwork.experiments.sweep import Planned, read_sweep
from latchwork.experiments.workers import Failed, Working, cores, most_at_once, run_sweep
from latchwork.runs.run import Run
from latchwork.runs.settings import assigned


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
    """Runs at a time; by default as many as there are processor cores, or four a GPU."""
    threads: int | None = None
    """Threads of each worker; by default the cores are divided among the workers."""
    dry: bool = False
    """Only list the runs."""
    json: bool = False
    """Print the results as JSON."""

    def run(self) -> int:
        sweep = read_sweep(self.file, self.out or Path("runs") / self.file.stem, assigned(self.set))
        check_counts(self.workers, self.threads)
        if self.dry:
            for planned in sweep:
                print(planned.run.path)
            return 0
        clock = time.monotonic()
        result = work_off(sweep, self.workers, self.threads)
        rows = [_row(planned.run) for planned in sweep]
        if self.json:
            print_json({"runs": rows})
        else:
            head = [name for name in rows[0] if name != "problem" or any(row[name] for row in rows)]
            show_table(self.file.stem, head, [[_cell(row[name]) for name in head] for row in rows], names=1)
        say(f"{result.done} of {len(sweep)} runs done, {time.monotonic() - clock:,.0f} s")
        return result.status()


@dataclass(frozen=True)
class Result:
    """How working through a sweep ended."""

    done: int
    failed: tuple[Failed, ...]
    stopped: bool

    def status(self) -> int:
        """The exit status; says how to go on where runs are left."""
        if self.stopped:
            say("stopped; the same command goes on")
            return 130
        return 1 if self.failed else 0


def check_counts(workers: int | None, threads: int | None) -> None:
    for name, value in (("workers", workers), ("threads", threads)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


def work_off(sweep: Sequence[Planned], workers: int | None, threads: int | None) -> Result:
    """Train and measure what is left of a sweep, and say how it goes."""
    workers = min(workers or most_at_once(), len(sweep))
    threads = threads or max(1, cores() // workers)
    say(f"{len(sweep)} runs, {workers} at a time with {threads} threads each")
    failed: list[Failed] = []
    name = _names([planned.run for planned in sweep])
    done = 0
    with interruptible("stopping the runs at work after their step") as stop, Bar("runs", len(sweep)) as bar:
        for event in run_sweep(sweep, workers, threads, stop):
            if isinstance(event, Working):
                bar.update(done + len(failed), " · ".join(f"{name[run.path]} {_state(run)}" for run in event.runs))
            elif isinstance(event, Failed):
                failed.append(event)
                say(f"{name[event.run.path]}: failed: {event.message} ({event.run.path / 'log.txt'})")
            else:
                done += 1
                if event.seconds:
                    say(f"{name[event.run.path]}: {_outcome(event.run)}, in {event.seconds:,.0f} s")
        return Result(done, tuple(failed), stop())


def _names(runs: Sequence[Run]) -> dict[Path, str]:
    """The folders of runs, below the one that holds them all."""
    top = Path(os.path.commonpath([run.path.parent for run in runs]))
    return {run.path: run.path.relative_to(top).as_posix() for run in runs}


def _state(run: Run) -> str:
    """Where a run is that is being worked on."""
    last = run.last_record()
    if last is None:
        return "starts"
    return "measured" if "end" in last else f"step {last['step']:,}"


def _outcome(run: Run) -> str:
    row = _row(run)
    if row["problem"]:
        return row["problem"]
    measured = f", {row['long']} over long sequences (worst chunk {row['worst chunk']})" if row["long"] else ""
    return f"{row['ended']} after {row['updates']:,} updates, validation {row['validation']}{measured}"


def _row(run: Run) -> dict[str, Any]:
    """What there is to say of a run; None where it is not known."""
    row: dict[str, Any] = dict.fromkeys(
        ("run", "ended", "updates", "validation", "floor", "long", "worst chunk", "floor of long", "problem")
    )
    row["run"] = run.path.name
    try:
        outcome = read_outcome(run)
    except ValueError as error:
        return {**row, "problem": str(error)}
    row |= {"ended": outcome.end, "updates": outcome.updates}
    if outcome.best is not None:
        best = outcome.best[1]
        if outcome.has_accuracy:
            row["validation"] = percent(best["correct"], best["scored"])
            row["floor"] = share_percent(best["floor"])
        else:
            row["validation"] = f"{best['bits']:.4f} bits"
    evaluation = outcome.evaluation
    worst = worst_chunk(evaluation) if evaluation and "chunks" in evaluation else None
    if evaluation and worst:
        row["long"] = percent(evaluation["correct"], evaluation["scored"])
        row["worst chunk"] = share_percent(worst[1])
        row["floor of long"] = share_percent(evaluation["floor"])
    return row


def _cell(value: Any) -> str:
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
