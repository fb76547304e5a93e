"""Machines that give an output with every symbol."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latchwork.automata.machine import IntArray, MooreMachine, integers
from latchwork.automata.search import explore


@dataclass(frozen=True, eq=False)
class MealyMachine:
    """A complete deterministic machine that gives an output with every symbol.

    Arguments:
        transitions: [S, A] the state after reading symbol a in state q.
        outputs: [S, A] the output given then.
        start: the state before the first symbol.
        first: what stands for the output before the first symbol, of which a Mealy machine says nothing.

    Raises: ValueError when the parts do not fit together.
    """

    transitions: IntArray
    outputs: IntArray
    start: int = 0
    first: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "transitions", integers(self.transitions, "transitions"))
        object.__setattr__(self, "outputs", integers(self.outputs, "outputs"))
        object.__setattr__(self, "first", int(integers([self.first], "first")[0]))
        if self.outputs.shape != self.transitions.shape:
            raise ValueError(f"outputs must be [S, A] = {self.transitions.shape}, got {self.outputs.shape}")
        MooreMachine(self.transitions, np.zeros(len(self.transitions), dtype=np.int64), self.start)

    def to_moore(self) -> MooreMachine:
        """The Moore machine that gives the same outputs: its states remember the last one."""
        rows = list(zip(self.transitions.tolist(), self.outputs.tolist(), strict=True))
        states, table = explore(
            (self.start, self.first),
            lambda state: list(zip(*rows[state[0]], strict=True)),
            self.transitions.shape[1],
        )
        return MooreMachine(table, np.array([output for _, output in states], dtype=np.int64))
