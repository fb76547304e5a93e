"""ModularAddition(m): the running sum modulo m."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from latchwork.automata.machine import MooreMachine
from latchwork.fields import settle
from latchwork.tasks import chance
from latchwork.tasks.registry import register
from latchwork.tasks.task import LENGTHS, IntArray, RegularTask, Split


@register
@dataclass(frozen=True)
class ModularAddition(RegularTask):
    """ModularAddition(m): say the sum of all tokens so far modulo m.

    Tokens are residues 0 … m − 1 and uniform. Its group is cyclic of order m: a vector unit of degree m holds it.
    """

    size: int = 5
    """The modulus m."""

    name: ClassVar[str] = "modularaddition"
    lengths: ClassVar = LENGTHS

    def __post_init__(self) -> None:
        settle(self)
        if self.size < 2:
            raise ValueError(f"size must be a modulus of at least 2, got {self.size}")

    @property
    def vocab_size(self) -> int:
        return self.size

    @property
    def n_outputs(self) -> int:
        return self.size

    @cached_property
    def machine(self) -> MooreMachine:
        """The state is the sum."""
        residues = np.arange(self.size)
        return MooreMachine((residues[:, None] + residues) % self.size, residues)

    def inputs(self, keys: chance.Words, split: Split, first: int, count: int) -> IntArray:
        return chance.below(chance.words(keys, first, count), self.size)
