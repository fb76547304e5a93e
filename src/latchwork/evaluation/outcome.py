"""How a run went: what its folder says, checked."""

from __future__ import annotations

import json
import math
import reprlib
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latchwork.evaluation.measure import Score, merit
from latchwork.runs.run import Run, RunError
from latchwork.tasks import RegularTask

Validation = tuple[int, dict[str, Any]]
"""The update after which it was, and its figures."""


@dataclass(frozen=True)
class Outcome:
    """A run with what it has come to so far."""

    run: Run
    parameters: int | None
    """None where the library of the model is not installed."""
    updates: int
    """Of the weights, so far."""
    losses: list[tuple[int, float]]
    """Training loss in nats after some updates."""
    validations: list[Validation]
    best: Validation | None
    """The validation that the kept model comes from."""
    perfect: int | None
    """The update after which every validation answer was right for the first time."""
    end: str | None
    """Why training has ended: "perfect", "patience", "time", "finished" or "diverged"; None if it has not."""
    evaluation: dict[str, Any] | None
    """The content of ``evaluation.json``."""
    notes: list[str]
    """What is missing or wrong, for people."""
    seconds: float | None = None
    """Spent on updates; None where training has not ended, or an older version has not said."""
    tokens: int | None = None
    """Read in updates."""

    @property
    def has_accuracy(self) -> bool:
        """Whether the task is measured in right answers, and not in bits."""
        return self.run.task.measure == "accuracy"

    def figures(self) -> dict[str, Any]:
        """Every figure of the run under a name of its own, unrounded; None where there is none."""
        best, evaluation = self.best[1] if self.best else {}, self.evaluation or {}
        worst = worst_chunk(evaluation) if "chunks" in evaluation else None
        return {
            "seed": self.run.recipe.seed,
            "status": self.end or "unfinished",
            "parameters": self.parameters,
            "updates": self.updates,
            "updates_to_best": self.best[0] if self.best else None,
            "updates_needed": self.perfect,
            "training_seconds": self.seconds,
            "training_tokens": self.tokens,
            **{f"validation_{name}": best.get(name) for name in _SCORE},
            **{f"evaluation_{name}": evaluation.get(name) for name in (*_SCORE, *_LENGTHS)},
            "evaluation_accuracy": _share(evaluation),
            "validation_accuracy": _share(best),
            "worst_chunk_accuracy": worst and worst[1],
            "worst_chunk_index": worst and worst[0],
            "tokens_per_second": evaluation.get("tokens_per_second"),
            "peak_memory_mib": evaluation.get("peak_memory_mib"),
        }


_SCORE = ("accuracy", "floor", "loss", "bits", "correct", "scored")
_LENGTHS = ("length", "sequences", "chunk", "seed")
_OPTIONAL = ("seed", "loss", "tokens_per_second", "peak_memory_mib")
"""Numbers of an evaluation that need not be there."""


def read_outcome(run: Run) -> Outcome:
    """The outcome of a run as its folder is now.

    Raises: RunError that names the file when the metrics are damaged; what is wrong with the evaluation is a note.
    """
    records = list(run.records())
    validations = [(r["step"], _checked_validation(run, r)) for r in records if "validation" in r]
    losses = [(r["step"], float(r["loss"])) for r in records if is_number(r.get("loss"))]
    best, perfect = _replay(run, validations)
    updates = max((r["step"] for r in records), default=0)
    end = run.ended if isinstance(run.ended, str) else None
    notes = [] if end else [f"training has not ended: {updates:,} updates so far"]
    evaluation, about = current_evaluation(run)
    notes += [about] if about else []
    last = records[-1] if records else {}
    return Outcome(
        run=run,
        parameters=known_parameters(run),
        updates=updates,
        losses=[(step, loss) for step, loss in losses if math.isfinite(loss)],
        validations=validations,
        best=best,
        perfect=perfect,
        end=end,
        evaluation=evaluation,
        notes=notes,
        seconds=last["seconds"] if is_number(last.get("seconds")) else None,
        tokens=last["tokens"] if is_number(last.get("tokens")) else None,
    )


def read_evaluation(run: Run) -> dict[str, Any] | None:
    """The content of ``evaluation.json``, if the run has been evaluated.

    Raises: RunError that names the file when it is not one of this task.
    """
    file = run.path / "evaluation.json"
    try:
        content = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{file} is damaged: {error}") from None
    if not isinstance(content, dict):
        raise RunError(f"{file} is damaged: it holds no object")
    if isinstance(run.task, RegularTask):
        _check_chunks(file, content)
        _check_numbers(file, content, ("sequences",))
    _check_numbers(file, content, ("bits",) if run.task.measure != "accuracy" else ())
    _check_numbers(file, content, [name for name in _OPTIONAL if content.get(name) is not None])
    _check_score(file, content)
    return content


def known_parameters(run: Run, *, body: bool = False) -> int | None:
    """How many there are, or are without embedding and head; None where the library of the model is not installed."""
    try:
        return run.count_parameters(body=body)
    except ModuleNotFoundError:
        return None


def worst_chunk(evaluation: dict[str, Any]) -> tuple[int, float] | None:
    """The index of the chunk with the lowest accuracy (the first such chunk), and that accuracy in [0, 1]."""
    pairs = zip(evaluation["chunks"]["correct"], evaluation["chunks"]["scored"], strict=True)
    shares = [(c / s, i) for i, (c, s) in enumerate(pairs) if s]
    return min(shares)[::-1] if shares else None


def length_curve(evaluation: dict[str, Any]) -> Iterator[tuple[int, float]]:
    """Lengths in steps, each twice the one before and then the last one, and the accuracy since the one before."""
    correct, scored = evaluation["chunks"]["correct"], evaluation["chunks"]["scored"]
    before = 0
    for count in lengths_shown(evaluation["length"], evaluation["chunk"]):
        answers = sum(scored[before:count])
        if answers:
            yield count * evaluation["chunk"], sum(correct[before:count]) / answers
        before = count


def lengths_shown(length: int, chunk: int) -> list[int]:
    """Chunk counts at which a table has a row: powers of two up to the whole length."""
    chunks, shown = length // chunk, []
    count = 1
    while count < chunks:
        shown.append(count)
        count *= 2
    return [*shown, chunks]


def _replay(run: Run, validations: Iterable[Validation]) -> tuple[Validation | None, int | None]:
    """The best validation, and the update of the first perfect one."""
    best, most, perfect = None, None, None
    for step, figures in validations:
        score = Score(
            run.task.classes,
            scored=figures["scored"],
            correct=figures["correct"],
            nats=figures["loss"] * figures["scored"],
        )
        own = merit(score, run.task)
        if most is None or own > most:
            best, most = (step, figures), own
        if perfect is None and score.correct == score.scored and run.task.measure == "accuracy":
            perfect = step
    return best, perfect


def current_evaluation(run: Run) -> tuple[dict[str, Any] | None, str]:
    """The evaluation of the best model; or None, and why there is none: not done, of an earlier model, damaged."""
    try:
        evaluation = read_evaluation(run)
    except RunError as error:
        return None, str(error)
    about = _about_evaluation(run, evaluation)
    return (None, about) if about else (evaluation, "")


def _about_evaluation(run: Run, evaluation: dict[str, Any] | None) -> str:
    if evaluation is None:
        return "not evaluated"
    measured = evaluation.get("checkpoint")
    try:
        best = run.best().path.name
    except RunError:
        return ""
    if measured is None or measured == best:
        return ""
    return f"evaluated at checkpoint {measured}, and the best one is {best} by now: evaluate it again"


def _checked_validation(run: Run, record: dict[str, Any]) -> dict[str, Any]:
    figures = record["validation"]
    where = f"step {record['step']}: "
    _check_numbers(run.metrics, figures, ("loss", "bits"), where)
    _check_score(run.metrics, figures, where)
    return figures


def _check_score(file: Path, content: dict[str, Any], where: str = "") -> None:
    _check_numbers(file, content, ("correct", "scored", "floor"), where)
    if not (0 <= content["correct"] <= content["scored"] > 0 and 0 <= content["floor"] <= 1):
        raise RunError(f"{file} is damaged: {where}its counts do not fit together")


def _check_chunks(file: Path, content: dict[str, Any]) -> None:
    chunks = content.get("chunks")
    if not isinstance(chunks, dict):
        raise RunError(f"{file} is damaged: it has no chunks")
    correct, scored = chunks.get("correct"), chunks.get("scored")
    if not (isinstance(correct, list) and isinstance(scored, list) and _are_counts([*correct, *scored])):
        raise RunError(f"{file} is damaged: its chunks are no lists of counts")
    if not correct or len(correct) != len(scored) or any(c > s for c, s in zip(correct, scored, strict=True)):
        raise RunError(f"{file} is damaged: its chunks do not fit together")
    chunk = content.get("chunk")
    if not isinstance(chunk, int) or chunk < 1 or content.get("length") != chunk * len(correct):
        raise RunError(f"{file} is damaged: {len(correct)} chunks are not its length")


def _check_numbers(file: Path, content: dict[str, Any], names: Iterable[str], where: str = "") -> None:
    for name in names:
        if not is_number(content.get(name)):
            raise RunError(f"{file} is damaged: {where}{name} is {reprlib.repr(content.get(name))} and no number")


def _are_counts(values: list[Any]) -> bool:
    return all(isinstance(n, int) and n >= 0 for n in values)


def is_number(value: Any) -> bool:
    """Whether it is one that figures can be made of."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _share(figures: dict[str, Any]) -> float | None:
    return figures["correct"] / figures["scored"] if figures.get("scored") else None
