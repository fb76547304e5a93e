"""FlipFlop: a memory that is written, read and ignored."""

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

WRITE, READ, SKIP, VALUES = range(4)
"""The instructions as tokens, and the first token of a value."""


@register
@dataclass(frozen=True)
class FlipFlop(RegularTask):
    """FlipFlop: after a read, say the bit that was written last, whatever bits were to be ignored since.

    Instructions (w write, r read, i ignore) and bits take turns; the first instruction is a write and what follows a
    read is the stored bit. Only reads are scored: the target of r is the stored bit. This is the flip-flop language of
    Liu et al., arXiv 2306.00946, without its rule that a sequence ends with a read.
    """

    size: int = 2
    """Values that can be stored; the paper has bits."""
    write: float = 0.1
    """Share of writes among the instructions."""
    read: float = 0.1
    """Share of reads; what is left is ignored (0.8, as in the paper's training; its tests have 0.98 and 0.1)."""

    name: ClassVar[str] = "flipflop"
    lengths: ClassVar = LENGTHS

    def __post_init__(self) -> None:
        settle(self)
        if self.size < 2:
            raise ValueError(f"size must be at least 2 values, got {self.size}")
        for name in ("write", "read"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name} must be between 0 and 1, got {getattr(self, name)}")
        if self.write + self.read > 1 + 1e-9:
            raise ValueError(f"write and read must be at most 1 together, got {self.write} and {self.read}")

    @property
    def ignore(self) -> float:
        """Share of instructions after which nothing happens."""
        return max(0.0, 1 - self.write - self.read)

    @property
    def vocab_size(self) -> int:
        return VALUES + self.size

    @property
    def n_outputs(self) -> int:
        return self.size

    @property
    def token_names(self) -> list[str]:
        return ["w", "r", "i", *self.class_names]

    @property
    def class_names(self) -> list[str]:
        return [str(value) for value in range(self.size)]

    def facts(self, split: Split) -> dict[str, str]:
        shares = f"write {self.write:g}, read {self.read:g}, ignore {self.ignore:g}"
        return {**super().facts(split), "instructions": shares}

    @cached_property
    def machine(self) -> MooreMachine:
        """State 4·stored + last: stored is 0 for nothing or 1 + value, last the instruction just read or 3."""
        stored, last = np.divmod(np.arange(4 * (self.size + 1)), 4)
        transitions = np.empty((len(last), self.vocab_size), dtype=np.int64)
        transitions[:, :VALUES] = 4 * stored[:, None] + np.arange(VALUES)
        values = 1 + np.arange(self.size)
        transitions[:, VALUES:] = 4 * np.where(last[:, None] == WRITE, values, stored[:, None]) + 3
        return MooreMachine(transitions, np.where((last == READ) & (stored > 0), stored - 1, IGNORE), start=3)

    @cached_property
    def spelling(self) -> IntArray:
        """After a read every value is spelled as the stored one."""
        stored, last = np.divmod(np.arange(4 * (self.size + 1)), 4)
        spelled = np.tile(np.arange(self.vocab_size), (len(last), 1))
        reading = (last == READ) & (stored > 0)
        spelled[reading, VALUES:] = VALUES + stored[reading, None] - 1
        return spelled

    def inputs(self, keys: chance.Words, split: Split, first: int, count: int) -> IntArray:
        draws, steps = chance.words(keys, first, count), np.arange(first, first + count)
        kind = chance.uniform(draws)
        instructions = np.where(kind < self.write, WRITE, np.where(kind < self.write + self.read, READ, SKIP))
        instructions[:, steps == 0] = WRITE
        return np.where(steps % 2 == 0, instructions, VALUES + chance.below(draws, self.size))
