"""`latchwork compare`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import tyro

from latchwork.cli.display import Bar, print_json, say, show_table
from latchwork.evaluation.comparison import Comparison, find_runs, read_runs, sum_up, to_csv, to_dict
from latchwork.evaluation.comparison_page import comparison_page
from latchwork.evaluation.measure import share_percent
from latchwork.files import check_writable, write_text
from latchwork.runs.run import write_json


@dataclass
class Compare:
    """Put several runs side by side in one report, those that differ in their seed only as one group."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of runs, or folders that hold such folders."""
    out: Path = Path("comparison.html")
    """The report; a table with a row a run and all figures go beside it, ending in .csv and .json."""
    json: bool = False
    """Print all figures as JSON."""

    def run(self) -> int:
        if not self.runs:
            raise ValueError("no runs to compare: name folders of runs, or folders that hold such folders")
        if self.out.suffix != ".html":
            raise ValueError(f"--out must end in .html, got {str(self.out)!r}")
        if (self.out.parent / "config.json").exists():
            raise ValueError(f"--out {str(self.out)!r} is in the folder of a run, whose files it could replace")
        paths = find_runs(self.runs)
        with Bar("reading runs", len(paths)) as bar:
            comparison = read_runs(paths, lambda count: bar.update(count, paths[count - 1].name))
        _complain(comparison)
        files = [self.out, self.out.with_suffix(".csv"), self.out.with_suffix(".json")]
        _check_ours(files[2])
        for file in files:
            check_writable("--out", file)
        content = to_dict(comparison)
        write_text(files[1], to_csv(comparison))
        write_json(files[2], content)
        if self.json:
            print_json(content)
        else:
            _show(comparison)
        try:
            groups = comparison.groups
            with Bar("drawing states", len(groups)) as bar:
                page = comparison_page(comparison, self.out.parent, lambda n: bar.update(n, groups[n - 1].label))
            write_text(files[0], page)
            say(f"report: {self.out}")
        except ImportError as error:
            say(f"no report: {error}")
        say(f"a row a run: {files[1]}")
        say(f"all figures: {files[2]}")
        return 0


def _check_ours(file: Path) -> None:
    """Refuse to replace a JSON file that is something else than figures of a comparison."""
    try:
        content = json.loads(file.read_text("utf-8"))
    except OSError:
        return  # there is none, or writing will say why it cannot be
    except ValueError:
        content = None
    if not (isinstance(content, dict) and "groups" in content) and file.stat().st_size:
        raise ValueError(f"{file} would be replaced and is no comparison; choose another name with --out")


def _complain(comparison: Comparison) -> None:
    for _, problem in comparison.damaged:
        say(f"left out: {problem}")
    for outcome in comparison.runs:
        for note in outcome.notes:
            say(f"{outcome.run.path}: {note}")


def _show(comparison: Comparison) -> None:
    rows = []
    for group in comparison.groups:
        summary = sum_up(group)
        accurate = group.outcomes[0].has_accuracy
        unit = "accuracy" if accurate else "bits"
        shown = []
        for name in (f"validation_{unit}", f"evaluation_{unit}", "worst_chunk_accuracy", "evaluation_floor"):
            figure = summary.figures[name]
            share = name.endswith(("accuracy", "floor"))
            if figure is None or (share and not accurate):
                shown.append("–")
            else:
                shown.append(share_percent(figure.median) if share else f"{figure.median:.3f} bits")
        successes = "–" if summary.successes is None else f"{summary.successes} of {len(group.ended)}"
        rows.append([group.label, str(len(group.ended)), successes, *shown])
    head = ["", "runs", "succeeded", "validation", "evaluation", "worst chunk", "floor"]
    show_table("medians over the runs that have ended", head, rows, names=1)
