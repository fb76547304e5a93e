"""Breadth-first exploration of state graphs that are known by their successors."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import numpy as np

from latchwork.automata.machine import IntArray

State = TypeVar("State", bound=Hashable)

BUDGET = 20_000
"""How many states are explored before giving up, unless told otherwise."""


class BudgetError(ValueError):
    """There would be more states of an automaton, or images or maps of them, than allowed."""


def explore(
    start: State, successors: Callable[[State], Sequence[State]], n_symbols: int, budget: int | None = None
) -> tuple[list[State], IntArray]:
    """All states that can be reached, in breadth-first order, and the table between them.

    The order depends on nothing but the graph and the order of letters, so isomorphic graphs get equal tables.

    Arguments: successors gives the n_symbols states after a state.
    Returns: the S states, and transitions [S, A].
    Raises: BudgetError above `budget` states.
    """
    number, found, rows = {start: 0}, [start], []
    for state in found:  # grows while it is walked through
        row = []
        for following in successors(state):
            q = number.setdefault(following, len(found))
            if q == len(found):
                if budget is not None and q >= budget:
                    raise BudgetError(f"more than {budget:,} states; a larger budget may help, or a simpler language")
                found.append(following)
            row.append(q)
        rows.append(row)
    return found, np.array(rows, dtype=np.int64).reshape(len(found), n_symbols)


def shortest_path(
    start: State, successors: Callable[[State], Sequence[State]], wanted: Callable[[State], bool]
) -> list[int] | None:
    """The shortest sequence of symbol numbers that leads to a wanted state, the first in their order; None if none."""
    came: dict[State, tuple[State, int] | None] = {start: None}
    queue = [start]
    for state in queue:
        if wanted(state):
            return _path(state, came)
        for symbol, following in enumerate(successors(state)):
            if following not in came:
                came[following] = state, symbol
                queue.append(following)
    return None


def _path(state: State, came: dict[State, tuple[State, int] | None]) -> list[int]:
    symbols: list[int] = []
    step = came[state]
    while step is not None:
        state, symbol = step
        symbols.append(symbol)
        step = came[state]
    return symbols[::-1]
