"""Finite machines as small integer tables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class MooreMachine:
    """A complete deterministic machine that gives an output in every state.

    Arguments:
        transitions: [S, A] the state after reading symbol a in state q.
        outputs: [S] the output of each state.
        start: the state before the first symbol.

    Raises: ValueError when the parts do not fit together.
    """

    transitions: IntArray
    outputs: IntArray
    start: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "transitions", integers(self.transitions, "transitions"))
        object.__setattr__(self, "outputs", integers(self.outputs, "outputs"))
        if self.outputs.ndim != 1:
            raise ValueError(f"outputs must be [S], got {self.outputs.shape}")
        states = len(self.outputs)
        if self.transitions.ndim != 2 or len(self.transitions) != states:
            raise ValueError(f"transitions must be [S = {states}, A], got {self.transitions.shape}")
        object.__setattr__(self, "start", start_state(self.start, states))
        if self.transitions.size and not (self.transitions.min() >= 0 and self.transitions.max() < states):
            raise ValueError(f"transitions must lead to states 0 … {states - 1}")

    @property
    def n_states(self) -> int:
        return len(self.outputs)

    @property
    def n_symbols(self) -> int:
        return self.transitions.shape[1]

    def run(self, symbols: ArrayLike, states: IntArray | None = None) -> tuple[IntArray, IntArray]:
        """Read many words at once.

        Arguments: symbols [B, T]; states [B] to start from, `start` by default.
        Returns: the output after every symbol [B, T], and the states after the last one [B].
        """
        visited = self.visit(symbols, states)
        return self.outputs[visited[:, 1:]], visited[:, -1]

    def visit(self, symbols: ArrayLike, states: IntArray | None = None) -> IntArray:
        """The states before the first symbol and after every one, [B, T + 1]; arguments as for `run`."""
        symbols = integers(symbols, "symbols")
        if symbols.ndim != 2:
            raise ValueError(f"symbols must be words side by side, [B, T], got {list(symbols.shape)}")
        batch, time = symbols.shape
        if symbols.size and not (symbols.min() >= 0 and symbols.max() < self.n_symbols):
            raise ValueError(f"symbols must be in 0 … {self.n_symbols - 1}")
        if states is not None and len(states) and not (states.min() >= 0 and states.max() < self.n_states):
            raise ValueError(f"states must be in 0 … {self.n_states - 1}")
        table, columns = self.transitions.ravel(), np.ascontiguousarray(symbols.T)
        visited = np.empty((time + 1, batch), dtype=np.int64)
        visited[0] = self.start if states is None else states
        for t in range(time):
            visited[t + 1] = table[visited[t] * self.n_symbols + columns[t]]
        return np.ascontiguousarray(visited.T)


def start_state(value: object, states: int) -> int:
    """The number of a state as an int. Raises: ValueError for what is none of 0 … states − 1."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ValueError(f"start must be the number of a state, got {value!r}")
    if not 0 <= value < states:
        raise ValueError(f"start must be in 0 … {states - 1}, got {value}")
    return int(value)


def integers(values: ArrayLike, name: str) -> IntArray:
    """A copy as int64. Raises: ValueError for what is no whole number of 64 bits, and rows of unequal length."""
    try:
        found = np.asarray(values)
    except ValueError:
        raise ValueError(f"{name} must have rows of equal length") from None
    if found.size and found.dtype.kind not in "iu":
        raise ValueError(f"{name} must be integers, got {found.dtype}")
    if found.size and found.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{name} must be less than 2^63, got {found.max()}")
    return np.array(found, dtype=np.int64)
