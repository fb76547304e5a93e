"""What a task is: seeded streams of tokens and targets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from latchwork.automata.machine import MooreMachine
from latchwork.tasks import chance

IntArray = NDArray[np.int64]
Split = Literal["train", "validation", "evaluation"]
SPLITS: tuple[Split, ...] = ("train", "validation", "evaluation")
IGNORE = -100
"""The target of a step that is not scored."""
LENGTHS: dict[Split, tuple[int, int]] = {"train": (256, 512), "validation": (1024, 2048), "evaluation": (1024, 2048)}
"""The shortest and longest sequences of arXiv 2605.06384, §6."""


class Batch(NamedTuple):
    """Sequences side by side; what lies after the end of a shorter one is not scored."""

    tokens: IntArray
    """[B, T]"""
    targets: IntArray
    """[B, T] classes, or IGNORE"""


class EndlessChunk(NamedTuple):
    """A piece of sequences that go on, and what a model should say if it is probed at the end of the piece."""

    batch: Batch
    answers: IntArray | None
    """[B] targets of the probe token, if it were the next one; None where the task has no probe."""


Stream: TypeAlias = Iterator[Batch]
"""Consecutive chunks of the same sequences; a model carries its state from one to the next."""


class Task(ABC):
    """Sequences of tokens with targets. Sample i of a seed is the same whatever batch, worker or process it is in."""

    name: ClassVar[str]
    measure: ClassVar[Literal["accuracy", "bits per byte"]] = "accuracy"
    fresh_epochs: ClassVar[bool] = False
    """Whether every epoch has samples of its own, or the same ones in another order."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Number of input tokens."""

    @property
    @abstractmethod
    def n_outputs(self) -> int | None:
        """Number of classes, for a head of their own; None: the tokens are the classes."""

    @property
    def classes(self) -> int:
        return self.vocab_size if self.n_outputs is None else self.n_outputs

    @property
    def token_names(self) -> list[str]:
        """What to call each token when people read it; all are different."""
        return [str(token) for token in range(self.vocab_size)]

    @property
    def class_names(self) -> list[str]:
        """What to call each class."""
        return self.token_names if self.n_outputs is None else [str(c) for c in range(self.n_outputs)]

    @abstractmethod
    def batch(self, split: Split, seed: int, samples: Sequence[int] | IntArray) -> Batch:
        """The samples with these numbers, each whole."""

    @abstractmethod
    def streams(self, split: Split, seed: int, sequences: int, chunk: int) -> Iterator[Stream]:
        """The set on which `split` is measured: `sequences` sequences in streams of chunks."""

    @property
    def source(self) -> Path | None:
        """The file or folder that is read; None where samples are made."""
        return None

    def fingerprint(self) -> dict[str, Any] | None:
        """What tells data that have changed since a run was created, as values for JSON; None: they never change."""
        return None

    def names(self) -> dict[str, list[str]] | None:
        """What a run keeps of its data so that its model can be used without them, for JSON; None: nothing."""
        return None

    def recall(self, names: dict[str, list[str]]) -> None:
        """Take up what `names` gave when a run was created, whatever has become of its data."""
        raise TypeError(f"{self.name} has no names of its own")

    def facts(self, split: Split) -> dict[str, str]:
        """What people should know about the samples of a split: lengths, rates, …"""
        return {}

    def epoch_size(self, wanted: int) -> int:
        """How many samples an epoch has, where the recipe asks for `wanted`."""
        return wanted

    def label_distribution(self, split: Split, seed: int, sequences: int = 256) -> NDArray[np.float64]:
        """The share of each class among the scored steps of the first sequences, [classes]."""
        counts = np.zeros(self.classes, dtype=np.int64)
        for stream in self.streams(split, seed, sequences, chunk=4096):
            for batch in stream:
                counts += count_labels(batch.targets, self.classes)
        return counts / max(1, counts.sum())


def count_labels(targets: IntArray, classes: int) -> IntArray:
    """How often each class is a target, [classes]."""
    return np.bincount(targets[targets != IGNORE], minlength=classes)


class RegularTask(Task):
    """A Moore machine and a sampler of its inputs; the machine's output after each token is the target.

    The machine is also what a compiled network computes and what a proof about a trained one compares with.
    """

    lengths: ClassVar[dict[Split, tuple[int, int]]]
    """The shortest and longest sequence of each split; lengths are uniform between them."""

    @cached_property
    @abstractmethod
    def machine(self) -> MooreMachine:
        """Inputs to targets."""

    @abstractmethod
    def inputs(self, keys: chance.Words, split: Split, first: int, count: int) -> IntArray:
        """Tokens (symbols of `spelling`) `first` … `first + count − 1` of endless sequences, keys [N] -> [N, count]."""

    @property
    def spelling(self) -> IntArray | None:
        """[S, A] the token that a symbol of `inputs` becomes in each state before it, for inputs that depend on what
        came before; None where `inputs` gives tokens."""
        return None

    def finish(self, tokens: IntArray, lengths: IntArray) -> None:
        """Write into tokens [N, T] what stands at the end of a sequence of given length; nothing by default."""

    @cached_property
    def _reader(self) -> MooreMachine:
        """The machine as it reads symbols of `inputs`."""
        if self.spelling is None:
            return self.machine
        machine = self.machine
        return MooreMachine(
            np.take_along_axis(machine.transitions, self.spelling, axis=1), machine.outputs, machine.start
        )

    def _play(self, symbols: IntArray, states: IntArray | None = None) -> tuple[Batch, IntArray]:
        """The tokens and targets of symbols [B, T] from given states [B] on, and the states after them."""
        visited = self._reader.visit(symbols, states)
        tokens = symbols if self.spelling is None else self.spelling[visited[:, :-1], symbols]
        return Batch(tokens, self.machine.outputs[visited[:, 1:]]), visited[:, -1]

    def batch(self, split: Split, seed: int, samples: Sequence[int] | IntArray) -> Batch:
        keys = sample_keys(split, seed, samples)
        lengths = sample_lengths(keys, self.lengths[split])
        symbols = self.inputs(keys, split, 0, int(lengths.max(initial=0)))
        self.finish(symbols, lengths)
        batch, _ = self._play(symbols)
        batch.targets[np.arange(symbols.shape[1]) >= lengths[:, None]] = IGNORE
        return batch

    def streams(self, split: Split, seed: int, sequences: int, chunk: int) -> Iterator[Stream]:
        return sampled_streams(self, split, seed, sequences, self.lengths[split][1], chunk)

    def names(self) -> dict[str, list[str]] | None:
        """What a run keeps of its data so that its model can be used without them, for JSON; None: nothing."""
        return None

    def recall(self, names: dict[str, list[str]]) -> None:
        """Take up what `names` gave when a run was created, whatever has become of its data."""
        raise TypeError(f"{self.name} has no names of its own")

    def facts(self, split: Split) -> dict[str, str]:
        endless = "; without end in `latchwork evaluate`" if split == "evaluation" else ""
        return {"lengths": "{} … {} steps".format(*self.lengths[split]) + endless}

    @property
    def probe(self) -> int | None:
        """The token that asks for an answer in an endless sequence; None if the sequence is scored as it goes."""
        return None

    def endless(self, split: Split, seed: int, samples: Sequence[int] | IntArray, chunk: int) -> Iterator[EndlessChunk]:
        """Sequences without end, `chunk` steps at a time, in constant memory."""
        keys = sample_keys(split, seed, samples)
        states, answers, first = None, None, 0
        while True:
            batch, states = self._play(self.inputs(keys, split, first, chunk), states)
            if self.probe is not None:
                answers = self.machine.run(np.full((len(keys), 1), self.probe), states)[0][:, 0]
            yield EndlessChunk(batch, answers)
            first += chunk


def sampled_streams(task: Task, split: Split, seed: int, sequences: int, longest: int, chunk: int) -> Iterator[Stream]:
    """Samples 0 … sequences − 1 of a split in streams of chunks; `longest` steps at most each."""
    rows = max(1, (1 << 16) // longest)
    for first in range(0, sequences, rows):
        batch = task.batch(split, seed, range(first, min(first + rows, sequences)))
        yield (Batch(*(a[:, t : t + chunk] for a in batch)) for t in range(0, batch.tokens.shape[1], chunk))


def sample_lengths(keys: chance.Words, lengths: tuple[int, int]) -> IntArray:
    """How long each sample is, uniform from the shortest to the longest, [N]."""
    shortest, longest = lengths
    return shortest + chance.below(chance.words(chance.derive(keys, 0), 0, 1)[:, 0], longest - shortest + 1)


def check_seed(seed: int) -> None:
    """Refuse a seed that samples cannot be drawn from."""
    if not 0 <= seed < 1 << 63:
        raise ValueError(f"seed must be in 0 … 2^63 − 1, got {seed}")


def sample_keys(split: Split, seed: int, samples: Sequence[int] | IntArray) -> chance.Words:
    """The generators of samples of a split, [N]."""
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
    check_seed(seed)
    root = chance.derive(chance.derive(np.uint64(0), seed), SPLITS.index(split))
    return chance.derive(root, np.asarray(samples, dtype=np.int64))
