"""Parity: is the number of ones so far even or odd?"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from latchwork.automata.machine import MooreMachine
from latchwork.tasks import chance
from latchwork.tasks.registry import register
from latchwork.tasks.task import LENGTHS, IntArray, RegularTask, Split


@register
@dataclass(frozen=True)
class Parity(RegularTask):
    """Parity: say at every bit whether the ones so far are even or odd in number.

    Bits are uniform. Scalar units cannot learn it, one vector unit of degree 2 can.
    """

    name: ClassVar[str] = "parity"
    lengths: ClassVar = LENGTHS

    @property
    def vocab_size(self) -> int:
        return 2

    @property
    def n_outputs(self) -> int:
        return 2

    @property
    def class_names(self) -> list[str]:
        return ["even", "odd"]

    @cached_property
    def machine(self) -> MooreMachine:
        """The state is the parity."""
        return MooreMachine(np.array([[0, 1], [1, 0]]), np.arange(2))

    def inputs(self, keys: chance.Words, split: Split, first: int, count: int) -> IntArray:
        return chance.below(chance.words(keys, first, count), 2)
