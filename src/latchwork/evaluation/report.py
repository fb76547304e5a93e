"""The report of a run: one HTML file that needs nothing else."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from latchwork.chart import BLUE, GREY, ORANGE, blank, to_svg
from latchwork.evaluation.groups import task_title
from latchwork.evaluation.measure import percent, share_percent
from latchwork.evaluation.outcome import Outcome, lengths_shown, read_outcome, worst_chunk
from latchwork.evaluation.page import figures, page, table
from latchwork.evaluation.states import run_states
from latchwork.files import write_text
from latchwork.models.architectures import architecture
from latchwork.nn.config import CascadeConfig
from latchwork.runs.run import Run


def write_report(run: Run) -> Path:
    """Write ``report.html`` of a run from its metrics and, if there is one, its newest evaluation.

    Raises: ImportError with what to install when matplotlib is missing; RunError where the metrics are damaged.
    """
    outcome = read_outcome(run)
    evaluation = outcome.evaluation
    title = f"latchwork: {task_title(run.task)}"
    body = [
        f"<h1>{html.escape(title)}</h1>",
        f'<p class="sub">{html.escape(run.path.name)} · {_model_line(run)}</p>',
        _figures(outcome),
        *(f"<p>{html.escape(note)}</p>" for note in outcome.notes),
    ]
    if outcome.losses:
        body += ["<h2>Learning curve</h2>", _learning_curve(outcome)]
    if evaluation and "chunks" in evaluation:
        body += ["<h2>Accuracy against length</h2>", _length_curve(evaluation), _length_table(evaluation)]
    if (run.path / "best.json").exists():
        body += ["<h2>States</h2>", states(run)]
    body += ["<h2>Configuration</h2>", _configuration(run)]
    write_text(run.report, page(title, body))
    return run.report


def states(run: Run) -> str:
    """The states of the best model while it reads a sample, layer by layer; or why they cannot be shown."""
    try:
        what, pictures = run_states(run)
    except (OSError, ValueError, RuntimeError) as error:
        return f"<p>Not shown: {html.escape(str(error))}</p>"
    return f"<p>The kept model reads {what}. {_STATES}</p>" + "".join(pictures)


_STATES = (
    "A row is a state of a unit, a column a step. A dot marks a step at which the unit was set; a colour that does not "
    "change is a state that is kept."
)


def _model_line(run: Run) -> str:
    m = run.model
    if not isinstance(m, CascadeConfig):
        return f"{architecture(m)}, {run.count_parameters():,} parameters, {m.n_layers} layers, d_model {m.d_model}"
    units = f"{m.n_units} units" if m.degree == 1 else f"{m.n_units} units of degree {m.degree}"
    return f"{run.count_parameters():,} parameters, {m.n_layers} layers of {units}, d_model {m.d_model}"


def _figures(outcome: Outcome) -> str:
    shown, evaluation = [], outcome.evaluation
    if outcome.best is not None:
        best = outcome.best[1]
        if outcome.has_accuracy:
            shown.append((percent(best["correct"], best["scored"]), "validation accuracy"))
        else:
            shown.append((f"{best['bits']:.3f}", "validation bits per byte"))
    if outcome.updates:
        shown.append((f"{outcome.updates:,}", "updates"))
    if evaluation and outcome.has_accuracy:
        worst = worst_chunk(evaluation) if "chunks" in evaluation else None
        over = f"over {evaluation['length']:,} steps" if worst else "evaluation accuracy"
        shown.append((percent(evaluation["correct"], evaluation["scored"]), over))
        shown += [(share_percent(worst[1]), "in the worst chunk")] if worst else []
        shown.append((f"{evaluation['floor']:.1%}", "floor: always the commonest label"))
    elif evaluation:
        shown.append((f"{evaluation['bits']:.3f}", "evaluation bits per byte"))
    return figures(shown)


def _learning_curve(outcome: Outcome) -> str:
    validations = outcome.validations
    figure, axes = blank()
    axes.plot(*zip(*outcome.losses, strict=True), color=GREY, linewidth=1, label="training loss")
    steps = [step for step, _ in validations]
    if steps:
        axes.plot(
            steps, [v["loss"] for _, v in validations], color=BLUE, marker="o", markersize=3, label="validation loss"
        )
    axes.set_xlabel("updates")
    axes.set_ylabel("nats a scored step")
    axes.set_ylim(bottom=0)
    handles, labels = axes.get_legend_handles_labels()
    if steps and outcome.has_accuracy:
        right = axes.twinx()
        right.spines["top"].set_visible(False)
        right.plot(
            steps,
            [100 * v["correct"] / v["scored"] for _, v in validations],
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
    axes.legend(frameon=False, loc="best")
    return to_svg(figure, "Accuracy in every chunk against length")


def _length_table(evaluation: dict[str, Any]) -> str:
    rows = []
    for length, in_chunk, cumulative, answers in length_rows(evaluation):
        rows.append((f"{length:,}", in_chunk, cumulative, f"{answers:,}"))
    head = ("length", "in the chunk", "cumulative", "answers")
    return table(rows, head=head, numeric=0)


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
        tables.append(f"<div><h3>{name}</h3>{table(rows)}</div>")
    return '<div class="columns">' + "".join(tables) + "</div>"
