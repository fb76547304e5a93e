"""A task from any file of inputs and targets."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from latchwork.fields import settle
from latchwork.tasks import chance
from latchwork.tasks.registry import register
from latchwork.tasks.task import IGNORE, SPLITS, Batch, IntArray, Split, Stream, Task, sampled_streams

UNSCORED = "-"
"""How a file writes the target of a step that is not scored."""


class _Table(NamedTuple):
    """The examples of a file, one after another."""

    vocabulary: list[str]
    classes: list[str]
    tokens: IntArray
    """[sum of lengths]"""
    targets: IntArray
    """[sum of lengths] classes, or IGNORE"""
    ends: IntArray
    """[examples + 1] where each example begins, and the end of the last."""


@register
@dataclass(frozen=True)
class Pairs(Task):
    """Pairs: the lines of a file, each input tokens, a tab, and their targets.

    Tokens are separated by spaces. There are as many targets as input tokens, or one, which is scored at the last step
    only; the target - means that a step is not scored. Empty lines, and lines that begin with # and have no tab, are
    passed over. The vocabulary is all input tokens of the file, the classes are all its targets, both in sorted order.
    Which line trains, validates or evaluates is decided by chance over the line numbers, always in the same way.
    """

    data: Path
    """The file, in UTF-8."""
    train_share: float = 0.8
    """Share of the examples that train."""
    validation_share: float = 0.1
    """Share of the examples that validate; the rest evaluates."""

    name: ClassVar[str] = "pairs"

    def __post_init__(self) -> None:
        settle(self)
        for name in ("train_share", "validation_share"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name} must be between 0 and 1, got {getattr(self, name)}")
        if self.train_share + self.validation_share >= 1:
            raise ValueError(
                f"train_share and validation_share must leave something to evaluate, got {self.train_share} and "
                f"{self.validation_share}"
            )
        object.__setattr__(self, "data", Path(self.data).resolve())  # a run may be opened from another folder

    @property
    def vocab_size(self) -> int:
        return len(self.token_names)

    @property
    def n_outputs(self) -> int:
        return len(self.class_names)

    @property
    def token_names(self) -> list[str]:
        return self._names["tokens"]

    @property
    def class_names(self) -> list[str]:
        return self._names["classes"]

    @cached_property
    def _names(self) -> dict[str, list[str]]:
        return {"tokens": self._table.vocabulary, "classes": self._table.classes}

    def names(self) -> dict[str, list[str]]:
        return self._names

    def recall(self, names: dict[str, list[str]]) -> None:
        self.__dict__["_names"] = names

    @property
    def source(self) -> Path:
        return self.data

    def fingerprint(self) -> dict[str, Any]:
        return {"bytes": len(self._bytes), "sha256": hashlib.sha256(self._bytes).hexdigest()}

    @cached_property
    def _bytes(self) -> bytes:
        if not self.data.is_file():
            raise ValueError(f"there is no file {self.data}")
        return self.data.read_bytes()

    @cached_property
    def _table(self) -> _Table:
        return _parse(self._bytes, self.data)

    @cached_property
    def parts(self) -> dict[Split, IntArray]:
        """The numbers of the examples of each split, in the order of the file."""
        count = len(self._table.ends) - 1
        draws = chance.words(chance.derive(np.uint64(0), np.arange(count)), 0, 1)[:, 0]
        order = np.argsort(draws, kind="stable")
        cuts = [round(count * self.train_share), round(count * (self.train_share + self.validation_share))]
        parts = dict(zip(SPLITS, map(np.sort, np.split(order, cuts)), strict=True))
        for split, part in parts.items():
            if not len(part):
                raise ValueError(
                    f"{self.data} has {count} examples, of which {self.train_share:.0%} train and "
                    f"{self.validation_share:.0%} validate: none is left for {split}; add more, or change the shares"
                )
        return parts

    def epoch_size(self, wanted: int) -> int:
        return len(self.parts["train"])

    def batch(self, split: Split, seed: int, samples: Sequence[int] | IntArray) -> Batch:
        """Samples are numbered in the order of the file, whatever the seed."""
        table, numbers = self._table, self.parts[split][np.asarray(samples, dtype=np.int64)]
        starts, lengths = table.ends[numbers], np.diff(table.ends)[numbers]
        steps = np.arange(lengths.max(initial=0))
        inside = steps < lengths[:, None]
        places = np.where(inside, starts[:, None] + steps, 0)
        return Batch(np.where(inside, table.tokens[places], 0), np.where(inside, table.targets[places], IGNORE))

    def streams(self, split: Split, seed: int, sequences: int, chunk: int) -> Iterator[Stream]:
        """The whole part, however many sequences are asked for."""
        part = self.parts[split]
        longest = int(np.diff(self._table.ends)[part].max())
        return sampled_streams(self, split, seed, len(part), longest, chunk)

    def facts(self, split: Split) -> dict[str, str]:
        lengths = np.diff(self._table.ends)[self.parts[split]]
        facts = {"examples": f"{len(lengths):,}", "lengths": f"{lengths.min()} … {lengths.max()} steps"}
        if split != "train":
            trained = set(self._inputs("train"))
            known = sum(inputs in trained for inputs in self._inputs(split))
            facts["inputs that also train"] = f"{known:,}"
        return facts

    def _inputs(self, split: Split) -> Iterator[bytes]:
        tokens, ends = self._table.tokens, self._table.ends
        return (tokens[ends[i] : ends[i + 1]].tobytes() for i in self.parts[split])


def _parse(content: bytes, path: Path) -> _Table:
    """The examples of a file. Raises: ValueError with the file, the line, and what is wrong there."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start].count(b"\n")
        raise ValueError(f"{path}, line {before + 1}: byte 0x{content[error.start]:02x} is not UTF-8") from None
    inputs: list[list[str]] = []
    targets: list[list[str]] = []
    for number, line in enumerate(text.split("\n"), 1):
        line = line.removesuffix("\r")
        if "\t" not in line and (not line.strip() or line.startswith("#")):
            continue
        try:
            example = _parse_line(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
        inputs.append(example[0])
        targets.append(example[1])
    if not inputs:
        raise ValueError(f"{path} has no examples: lines of input tokens, a tab and their targets")
    vocabulary, tokens = _encode(inputs, [])
    classes, labels = _encode(targets, [UNSCORED])
    if not classes:
        raise ValueError(f"{path} has no scored target: all of them are {UNSCORED}")
    return _Table(vocabulary, classes, tokens, labels, np.cumsum([0, *map(len, inputs)]))


def _parse_line(line: str) -> tuple[list[str], list[str]]:
    columns = line.split("\t")
    if len(columns) != 2:
        raise ValueError(f"{len(columns) - 1} tabs; one stands between the input tokens and their targets")
    tokens, targets = ([word for word in column.split(" ") if word] for column in columns)
    if not tokens:
        raise ValueError("no input tokens before the tab")
    if len(targets) == 1:
        targets = [UNSCORED] * (len(tokens) - 1) + targets
    if len(targets) != len(tokens):
        raise ValueError(f"{len(targets)} targets for {len(tokens)} tokens")
    return tokens, targets


def _encode(rows: list[list[str]], ignored: list[str]) -> tuple[list[str], IntArray]:
    """The sorted words of all rows but the ignored ones, and all rows as their numbers, one after another."""
    names = sorted({word for row in rows for word in row}.difference(ignored))
    numbers = {**{name: i for i, name in enumerate(names)}, **dict.fromkeys(ignored, IGNORE)}
    return names, np.array([numbers[word] for row in rows for word in row], dtype=np.int64)
