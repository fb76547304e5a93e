"""A task from any Python function."""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from latchwork.fields import settle
from latchwork.tasks.registry import register
from latchwork.tasks.task import (
    IGNORE,
    Batch,
    IntArray,
    Split,
    Stream,
    Task,
    sample_keys,
    sample_lengths,
    sampled_streams,
)

Function: TypeAlias = Callable[[np.random.Generator, int], tuple[Any, Any]]
_FINGERPRINT_SAMPLES = 8


@register
@dataclass(frozen=True)
class FunctionTask(Task):
    """Function: samples that a Python function makes from a random generator and a length.

    The function is called as function(rng, length) and returns tokens and targets, a sequence of `length` integers
    each: tokens below vocab_size, targets below n_outputs or −100 for a step that is not scored. All its chance has to
    come from rng, a numpy.random.Generator that is seeded by the sample.
    """

    function: str
    """What to call, as package.module:name, found in the current directory or among what is installed; in Python the
    function itself may stand here if it can be imported by its name."""
    vocab_size: int = 2
    """Number of input tokens."""
    n_outputs: int | None = None
    """Number of classes; None: the tokens are the classes."""
    shortest: int = 256
    """The shortest training sequence; lengths are uniform."""
    longest: int = 512
    """The longest training sequence."""
    validation_shortest: int = 1024
    """The shortest sequence of validation and evaluation."""
    validation_longest: int = 2048
    """The longest sequence of validation and evaluation."""

    name: ClassVar[str] = "function"

    def __post_init__(self) -> None:
        object.__setattr__(self, "function", self.function if isinstance(self.function, str) else _name(self.function))
        settle(self)
        if self.vocab_size < 1:
            raise ValueError(f"vocab_size must be at least 1, got {self.vocab_size}")
        if self.n_outputs is not None and self.n_outputs < 1:
            raise ValueError(f"n_outputs must be at least 1 or None, got {self.n_outputs}")
        for prefix in ("", "validation_"):
            shortest, longest = (getattr(self, f"{prefix}{end}") for end in ("shortest", "longest"))
            if not 1 <= shortest <= longest:
                raise ValueError(
                    f"{prefix}shortest must be at least 1 and at most {prefix}longest, got {shortest} and {longest}"
                )
        _load(self.function)

    @property
    def lengths(self) -> dict[Split, tuple[int, int]]:
        held_out = self.validation_shortest, self.validation_longest
        return {"train": (self.shortest, self.longest), "validation": held_out, "evaluation": held_out}

    def facts(self, split: Split) -> dict[str, str]:
        return {"lengths": "{} … {} steps".format(*self.lengths[split])}

    def batch(self, split: Split, seed: int, samples: Sequence[int] | IntArray) -> Batch:
        keys, numbers = sample_keys(split, seed, samples), np.asarray(samples, dtype=np.int64)
        lengths = sample_lengths(keys, self.lengths[split])
        shape = len(keys), int(lengths.max(initial=0))
        batch = Batch(np.zeros(shape, dtype=np.int64), np.full(shape, IGNORE, dtype=np.int64))
        for row, (key, length, number) in enumerate(zip(keys, lengths, numbers, strict=True)):
            sample = self._sample(int(key), int(length), f"sample {number} of {split} (seed {seed})")
            for whole, part in zip(batch, sample, strict=True):
                whole[row, :length] = part
        return batch

    def streams(self, split: Split, seed: int, sequences: int, chunk: int) -> Iterator[Stream]:
        return sampled_streams(self, split, seed, sequences, self.lengths[split][1], chunk)

    def fingerprint(self) -> dict[str, Any]:
        """A checksum of the first training samples: a function that makes others is another task."""
        first = self.batch("train", 0, range(_FINGERPRINT_SAMPLES))
        return {"samples sha256": hashlib.sha256(b"".join(a.astype("<i8").tobytes() for a in first)).hexdigest()}

    def _sample(self, key: int, length: int, where: str) -> tuple[IntArray, IntArray]:
        where = f"{where}: {self.function}"
        try:
            sample = _load(self.function)(np.random.default_rng(key), length)
        except Exception as error:
            raise ValueError(f"{where} raised {type(error).__name__}: {error}") from error
        if not (isinstance(sample, (tuple, list)) and len(sample) == 2):
            raise ValueError(f"{where} must return a pair of tokens and targets, got {type(sample).__name__}")
        tokens = _sequence(sample[0], length, "tokens", where)
        targets = _sequence(sample[1], length, "targets", where)
        _in_range(tokens, self.vocab_size, "token", "vocab_size", where)
        scored = targets[targets != IGNORE]
        _in_range(scored, self.classes, "target", "n_outputs" if self.n_outputs else "vocab_size", where)
        return tokens, targets


def _sequence(values: Any, length: int, what: str, where: str) -> IntArray:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{where} must return a sequence of integers as {what}: {error}") from None
    if array.shape != (length,):
        got = f"{array.shape[0]}" if array.ndim == 1 else f"an array of shape {array.shape}"
        raise ValueError(f"{where} must return {length} {what} for length {length}, got {got}")
    if array.dtype.kind not in "biu":
        raise ValueError(f"{where} must return integers as {what}, got {array.dtype}")
    return array.astype(np.int64)


def _in_range(values: IntArray, size: int, what: str, option: str, where: str) -> None:
    wrong = values[(values < 0) | (values >= size)]
    if len(wrong):
        unscored = f", or {IGNORE} for a step that is not scored" if what == "target" else ""
        raise ValueError(f"{where} gave the {what} {wrong[0]}; {option} {size} allows 0 … {size - 1}{unscored}")


def _name(function: Any) -> str:
    """package.module:name of a function, if importing that gives the function back."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    try:
        found = None if module == "__main__" or not (module and name) else _load(f"{module}:{name}")
    except ValueError:
        found = None
    if found is not function:
        raise ValueError(
            f"{name or function!r} cannot be imported by its name, so a run could not be opened again: put it at the "
            "top of a module file and give the function, or 'package.module:name'"
        )
    return f"{module}:{name}"


@functools.lru_cache(maxsize=64)
def _load(name: str) -> Function:
    """The function of package.module:name; the current directory is looked in as by `python -m`."""
    module_name, _, attributes = name.partition(":")
    if not (module_name and attributes):
        raise ValueError(f"function must be package.module:name, got {name!r}")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        raise ValueError(
            f"function {name!r}: importing {module_name} raised {type(error).__name__}: {error}"
        ) from error
    for attribute in attributes.split("."):
        if not hasattr(found, attribute):
            raise ValueError(f"function {name!r}: {module_name} has no {attributes}")
        found = getattr(found, attribute)
    if not callable(found):
        raise ValueError(f"function {name!r} is not a function but {type(found).__name__}")
    return found
