"""The report of a run: one HTML file that needs nothing else."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from latchwork.chart import BLUE, GREY, ORANGE, blank, to_svg
from latchwork.evaluation.measure import percent
from latchwork.training.run import Run

_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2733; background: #fff; max-width: 60rem; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p.sub { color: #5b6b7b; margin: 0 0 1.5rem; }
.figures { display: flex; flex-wrap: wrap; gap: 1rem 2.5rem; margin: 1rem 0; padding: 0; }
.figures div { min-width: 8rem; } .figures b { display: block; font-size: 1.6rem; line-height: 1.2; }
.figures span { color: #5b6b7b; }
svg { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { text-align: left; padding: .2rem 1.2rem .2rem 0; border-bottom: 1px solid #e3e8ee; font-weight: normal; }
th { color: #5b6b7b; } td.n, th.n { text-align: right; }
.columns { display: flex; flex-wrap: wrap; gap: 1rem 3rem; }
"""


def write_report(run: Run) -> Path:
    """Write ``report.html`` of a run from its metrics and, if there is one, its newest evaluation.

    Raises: ImportError with what to install when matplotlib is missing.
    """
    records = list(run.records())
    evaluation = read_evaluation(run)
    title = f"latchwork: {_task_name(run)}"
    body = [
        f"<h1>{html.escape(title)}</h1>",
        f'<p class="sub">{html.escape(run.path.name)} · {_model_line(run)}</p>',
        _figures(run, records, evaluation),
    ]
    validations = [(r["step"], r["validation"]) for r in records if "validation" in r]
    losses = [(r["step"], r["loss"]) for r in records if "loss" in r]
    if losses:
        body += ["<h2>Learning curve</h2>", _learning_curve(run, losses, validations)]
    if evaluation and "chunks" in evaluation:
        body += ["<h2>Accuracy against length</h2>", _length_curve(evaluation), _length_table(evaluation)]
    body += ["<h2>Configuration</h2>", _configuration(run)]
    page = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">\n'
        f"<style>{_STYLE}</style></head>\n<body>\n" + "\n".join(body) + "\n</body></html>\n"
    )
    run.report.write_text(page, encoding="utf-8")
    return run.report


def read_evaluation(run: Run) -> dict[str, Any] | None:
    """The content of ``evaluation.json``, if the run has been evaluated."""
    file = run.path / "evaluation.json"
    return json.loads(file.read_text("utf-8")) if file.exists() else None


def lengths_shown(length: int, chunk: int) -> list[int]:
    """Chunk counts at which a table has a row: powers of two up to the whole length."""
    chunks, shown = length // chunk, []
    count = 1
    while count < chunks:
        shown.append(count)
        count *= 2
    return [*shown, chunks]


def _task_name(run: Run) -> str:
    size = getattr(run.task, "size", None)
    return f"{run.task.name}({size})" if size else run.task.name


def _model_line(run: Run) -> str:
    parameters = sum(p.numel() for p in run.build().parameters())
    m = run.model
    units = f"{m.n_units} units" if m.degree == 1 else f"{m.n_units} units of degree {m.degree}"
    return f"{parameters:,} parameters, {m.n_layers} layers of {units}, d_model {m.d_model}"


def _figures(run: Run, records: Sequence[dict[str, Any]], evaluation: dict[str, Any] | None) -> str:
    figures = []
    scores = [r["validation"] for r in records if "validation" in r]
    if scores and run.task.measure == "accuracy":
        best = max(scores, key=lambda v: v["correct"])
        figures.append((percent(best["correct"], best["scored"]), "validation accuracy"))
    elif scores:
        figures.append((f"{min(v['bits'] for v in scores):.3f}", "validation bits per byte"))
    if records:
        figures.append((f"{max(r['step'] for r in records):,}", "updates"))
    if evaluation and "chunks" in evaluation:
        worst = evaluation["worst_chunk"]
        figures.append((percent(evaluation["correct"], evaluation["scored"]), f"over {evaluation['length']:,} steps"))
        figures.append((percent(worst["correct"], worst["scored"]), "in the worst chunk"))
        figures.append((f"{evaluation['floor']:.1%}", "floor: always the commonest label"))
    elif evaluation and run.task.measure == "accuracy":
        figures.append((percent(evaluation["correct"], evaluation["scored"]), "evaluation accuracy"))
        figures.append((f"{evaluation['floor']:.1%}", "floor: always the commonest label"))
    elif evaluation:
        figures.append((f"{evaluation['bits']:.3f}", "evaluation bits per byte"))
    return '<div class="figures">' + "".join(f"<div><b>{b}</b><span>{s}</span></div>" for b, s in figures) + "</div>"


def _learning_curve(run: Run, losses: Sequence[tuple[int, float]], validations: Sequence[tuple[int, dict]]) -> str:
    figure, axes = blank()
    axes.plot(*zip(*losses, strict=True), color=GREY, linewidth=1, label="training loss")
    steps = [step for step, _ in validations]
    if steps:
        axes.plot(
            steps, [v["loss"] for _, v in validations], color=BLUE, marker="o", markersize=3, label="validation loss"
        )
    axes.set_xlabel("updates")
    axes.set_ylabel("nats a scored step")
    axes.set_ylim(bottom=0)
    handles, labels = axes.get_legend_handles_labels()
    if steps and run.task.measure == "accuracy":
        right = axes.twinx()
        right.spines["top"].set_visible(False)
        right.plot(
            steps,
            [100 * v["accuracy"] for _, v in validations],
            color=ORANGE,
            marker="s",
            markersize=3,
            label="validation accuracy",
        )
        right.axhline(100 * validations[-1][1]["floor"], color=ORANGE, linestyle=":", label="floor")
        right.set_ylabel("accuracy, %")
        right.set_ylim(0, 103)
        more = right.get_legend_handles_labels()
        handles, labels = handles + more[0], labels + more[1]
    axes.legend(handles, labels, frameon=False, loc="center right")
    return to_svg(figure, "Loss and accuracy against updates")


def _length_curve(evaluation: dict[str, Any]) -> str:
    correct, scored = evaluation["chunks"]["correct"], evaluation["chunks"]["scored"]
    chunk = evaluation["chunk"]
    lengths = [chunk * (i + 1) for i in range(len(correct))]
    figure, axes = blank()
    axes.plot(
        lengths,
        [100 * c / s if s else math.nan for c, s in zip(correct, scored, strict=True)],
        color=BLUE,
        linewidth=1.5,
        label="accuracy in the chunk",
    )
    axes.axhline(100 * evaluation["floor"], color=ORANGE, linestyle=":", label="floor")
    axes.set_xscale("log", base=2)
    axes.set_xlabel("length, steps")
    axes.set_ylabel("accuracy, %")
    axes.set_ylim(0, 103)
    axes.legend(frameon=False, loc="center right")
    return to_svg(figure, "Accuracy in every chunk against length")


def _length_table(evaluation: dict[str, Any]) -> str:
    rows = []
    for length, in_chunk, cumulative, answers in length_rows(evaluation):
        rows.append((f"{length:,}", in_chunk, cumulative, f"{answers:,}"))
    head = ("length", "in the chunk", "cumulative", "answers")
    return _table([head, *rows], numeric=True)


def length_rows(evaluation: dict[str, Any]) -> Iterable[tuple[int, str, str, int]]:
    """Length, accuracy in the chunk that ends there, cumulative accuracy and answers, at powers of two."""
    correct, scored = evaluation["chunks"]["correct"], evaluation["chunks"]["scored"]
    for count in lengths_shown(evaluation["length"], evaluation["chunk"]):
        cumulative = percent(sum(correct[:count]), sum(scored[:count]))
        yield (
            evaluation["chunk"] * count,
            percent(correct[count - 1], scored[count - 1]),
            cumulative,
            sum(scored[:count]),
        )


def _configuration(run: Run) -> str:
    parts = run.to_dict()
    tables = []
    for name in ("task", "model", "recipe"):
        rows = [(key, json.dumps(value) if not isinstance(value, str) else value) for key, value in parts[name].items()]
        tables.append(f"<div><h3>{name}</h3>{_table(rows)}</div>")
    return '<div class="columns">' + "".join(tables) + "</div>"


def _table(rows: Sequence[Sequence[str]], numeric: bool = False) -> str:
    kind = ' class="n"' if numeric else ""
    lines = []
    for i, row in enumerate(rows):
        tag = "th" if numeric and i == 0 else "td"
        cells = "".join(f"<{tag}{kind}>{html.escape(cell)}</{tag}>" for cell in row)
        lines.append(f"<tr>{cells}</tr>")
    return "<table>" + "".join(lines) + "</table>"
