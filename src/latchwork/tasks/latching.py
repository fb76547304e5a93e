"""Latching(m): remember the first token for ever."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from latchwork.automata.machine import MooreMachine
from latchwork.fields import settle
from latchwork.tasks import chance
from latchwork.tasks.registry import register
from latchwork.tasks.task import IGNORE, LENGTHS, IntArray, RegularTask, Split


@register
@dataclass(frozen=True)
class Latching(RegularTask):
    """Latching(m): say the first token at every later step, among distractors.

    The first token is one of m memory symbols; the rest are uniform over 5m tokens, memory symbols included.

    The target at every step is the first token. Source: arXiv 2605.06384, §6.
    """

    size: int = 16
    """Number of memory symbols m; the paper has 4 … 512."""

    name: ClassVar[str] = "latching"
    lengths: ClassVar = LENGTHS

    def __post_init__(self) -> None:
        settle(self)
        if self.size < 2:
            raise ValueError(f"size must be at least 2 memory symbols, got {self.size}")

    @property
    def vocab_size(self) -> int:
        return 5 * self.size

    @property
    def n_outputs(self) -> None:
        return None

    @property
    def token_names(self) -> list[str]:
        return [f"m{i}" if i < self.size else f"-{i - self.size}" for i in range(self.vocab_size)]

    @cached_property
    def machine(self) -> MooreMachine:
        """State 0 waits for a memory symbol, state 1 + a has seen a."""
        states = np.arange(self.size + 1)
        transitions = np.repeat(states[:, None], self.vocab_size, axis=1)
        transitions[0, : self.size] = states[1:]
        return MooreMachine(transitions, np.concatenate([[IGNORE], states[:-1]]))

    def inputs(self, keys: chance.Words, split: Split, first: int, count: int) -> IntArray:
        tokens = chance.below(chance.words(keys, first, count), self.vocab_size)
        if first == 0 and count:
            tokens[:, 0] = chance.below(chance.words(keys, 0, 1)[:, 0], self.size)
        return tokens
