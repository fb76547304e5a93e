"""What the viewer's page asks for, as plain values for JSON."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latchwork.evaluation.trace import LayerTrace, Trace, trace
from latchwork.runs.run import Run
from latchwork.state import State
from latchwork.tasks import IGNORE, RegularTask, Text
from latchwork.viewer.tokens import TokenError, read_tokens

MOST_TOKENS = 2000
_MOST_NUMBERS = 2_000_000
"""Of one answer; about 12 MB."""
_TOP = 5
_DIGITS = 4
_STATES_KEPT = 64


class Viewer:
    """A trained model and its task; calls may come from several threads.

    Raises: what `Run.trained_cascade` raises.
    """

    def __init__(self, run: Run) -> None:
        self.run, self.task = run, run.task
        self.model, self.checkpoint = run.trained_cascade()
        self.token_names = run.task.token_names
        self._lock = threading.Lock()
        self._states: OrderedDict[tuple[int, ...], State] = OrderedDict()

    @property
    def most_tokens(self) -> int:
        """Tokens that fit into one answer."""
        config = self.model.config
        numbers = config.n_layers * config.n_states * (2 + config.degree)
        return max(1, min(MOST_TOKENS, _MOST_NUMBERS // numbers))

    def facts(self) -> dict[str, Any]:
        """What there is to look at."""
        config, task = self.model.config, self.task
        size = getattr(task, "size", None)
        return {
            "task": f"{task.name}({size})" if size else task.name,
            "run": self.run.path.resolve().name,
            "checkpoint": self.checkpoint.path.name,
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "layers": config.n_layers,
            "units": config.n_units,
            "degree": config.degree,
            "d_model": config.d_model,
            "tokens": self.token_names,
            "classes": task.class_names,
            "text": isinstance(task, Text),
            "regular": isinstance(task, RegularTask),
            "most_tokens": self.most_tokens,
        }

    def reply(self, question: Any) -> dict[str, Any]:
        """Answer a question: ``tokens``, a list of names and numbers or names with spaces between them, or ``text``;
        ``skip``, how many steps at the start are known already; ``partial``, to answer up to the first token that is
        none instead of refusing.

        Returns: see `answer`; with ``partial`` also ``problem``, None if there is none.
        Raises: ValueError with one line for what is not a question.
        """
        if not isinstance(question, dict) or len({"tokens", "text"} & question.keys()) != 1:
            raise ValueError('a question is an object with either "tokens" or "text"')
        if unknown := sorted(question.keys() - {"tokens", "text", "skip", "partial"}):
            raise ValueError(f"a question has no {unknown[0][:40]!r}")
        skip, partial = question.get("skip", 0), question.get("partial", False)
        if not isinstance(partial, bool):
            raise ValueError("partial must be true or false")
        problem = None
        try:
            tokens = self._read(question)
        except TokenError as error:
            if not partial:
                raise
            problem, tokens = error.to_dict(), error.before
        if len(tokens) > self.most_tokens:
            raise ValueError(f"at most {self.most_tokens:,} tokens of this model are shown, got {len(tokens):,}")
        if isinstance(skip, bool) or not isinstance(skip, int) or not 0 <= skip <= len(tokens):
            raise ValueError(f"skip must be an integer in 0 … {len(tokens)}")
        answer = self.answer(tokens, skip)
        return {**answer, "problem": problem} if partial else answer

    def _read(self, question: dict[str, Any]) -> list[int]:
        if "text" in question:
            if not isinstance(self.task, Text):
                raise ValueError(f"task {self.task.name} reads tokens and not text")
            if not isinstance(question["text"], str):
                raise ValueError("text must be a string")
            return list(question["text"].encode("utf-8", errors="replace"))
        if not isinstance(question["tokens"], (list, str)):
            raise ValueError("tokens must be a list of names or numbers, or names with spaces between them")
        return read_tokens(question["tokens"], self.token_names)

    def answer(self, tokens: list[int], skip: int = 0) -> dict[str, Any]:
        """What the model does at each of the tokens after the first `skip`.

        Returns: ``first`` = skip; ``tokens`` [T]; ``top`` [T] likeliest classes with probabilities; ``targets`` [T]
        classes, None where nothing is asked, or None for tasks without a machine; ``layers``, see `describe_layer`.
        """
        seen = self._trace(tokens, skip)
        return {
            "first": skip,
            "tokens": tokens[skip:],
            "top": _likeliest(seen.logits[0]),
            "targets": self._targets(tokens, skip),
            "layers": [describe_layer(layer) for layer in seen.layers],
        }

    def _trace(self, tokens: list[int], skip: int) -> Trace:
        """Of the tokens after the first `skip`, from the state after those."""
        with self._lock:
            state = self._states.get(tuple(tokens[:skip]))
            if skip and state is None:
                state = trace(self.model, torch.tensor([tokens[:skip]])).state
            whole = trace(self.model, torch.tensor([tokens[skip:]], dtype=torch.long), state)
            self._states[tuple(tokens)] = whole.state
            self._states.move_to_end(tuple(tokens))
            while len(self._states) > _STATES_KEPT:
                self._states.popitem(last=False)
        return whole

    def _targets(self, tokens: list[int], skip: int) -> list[int | None] | None:
        if not isinstance(self.task, RegularTask):
            return None
        outputs, _ = self.task.machine.run(np.array([tokens], dtype=np.int64))
        return [None if c == IGNORE else c for c in outputs[0].tolist()[skip:]]

    def example(self, sample: int, length: int) -> dict[str, Any]:
        """A sample of the validation set, cut to `length` tokens: their names, and the text if it is one.

        Raises: ValueError for numbers that do not fit, or where the data cannot be read.
        """
        if not 0 <= sample < 1 << 31:
            raise ValueError(f"sample must be in 0 … 2^31 − 1, got {sample}")
        if not 1 <= length <= self.most_tokens:
            raise ValueError(f"length must be in 1 … {self.most_tokens:,}, got {length}")
        try:
            tokens = self.task.batch("validation", self.run.recipe.seed, [sample]).tokens[:, :length].copy()
        except OSError as error:
            raise ValueError(f"the data cannot be read: {error}") from None
        except IndexError:
            raise ValueError(f"there is no validation sample {sample}") from None
        if isinstance(self.task, RegularTask):
            self.task.finish(tokens, np.array([tokens.shape[1]]))
        row = tokens[0].tolist()
        text = bytes(row).decode("utf-8", errors="replace") if isinstance(self.task, Text) else None
        return {"tokens": [self.token_names[token] for token in row], "text": text}


def describe_layer(layer: LayerTrace) -> dict[str, Any]:
    """One layer of the first sequence, D = U·n rows of T steps; the n states of a unit are neighbours.

    Returns: ``x`` and ``s`` [D][T]; ``r`` [D][T], for vector units [D][T][n], row i of R for state i; ``start`` [D];
    ``flags`` [D] strings of T letters: k for kept, s for set to s, r for lowered to r, m for moved, which is all else
    that a vector unit does. Numbers are rounded; the letters are not.
    """
    scalar = layer.x.ndim == 3
    r = layer.r[0] if scalar else layer.r[0].flatten(1, 2)
    flags = np.full(layer.x[0].flatten(1).shape, ord("m"), dtype=np.uint8)
    for letter, where in (("r", layer.was_lowered), ("s", layer.was_set), ("k", layer.kept)):
        flags[where[0].flatten(1).numpy(force=True)] = ord(letter)
    return {
        "x": _numbers(layer.x[0].flatten(1).movedim(1, 0)),
        "r": _numbers(r.movedim(1, 0)),
        "s": _numbers(layer.s[0].flatten(1).movedim(1, 0)),
        "start": _numbers(layer.start[0].flatten()),
        "flags": [row.tobytes().decode("ascii") for row in np.ascontiguousarray(flags.T)],
    }


def _likeliest(logits: Tensor) -> list[list[list[float]]]:
    """[T, classes] -> for every step pairs of class and probability, the likeliest first."""
    top = logits.double().softmax(dim=-1).topk(min(_TOP, logits.shape[-1]), dim=-1)
    steps = zip(top.indices.tolist(), _numbers(top.values), strict=True)
    return [[[c, p] for c, p in zip(*step, strict=True)] for step in steps]


def _numbers(values: Tensor) -> Any:
    """Nested lists of numbers of four digits; None for what is not finite, which JSON cannot say."""
    array: NDArray[np.float64] = values.double().numpy(force=True)
    finite = np.isfinite(array)
    known = np.where(finite, array, 0.0)
    size = np.abs(known)
    scale = 10.0 ** (_DIGITS - 1 - np.floor(np.log10(np.where(size > 1e-30, size, 1.0))))
    rounded = np.round(known * scale) / scale
    return (rounded if finite.all() else np.where(finite, rounded, None)).tolist()  # type: ignore[call-overload]
