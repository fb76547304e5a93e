"""Nondeterministic finite automata and the subset construction."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from latchwork.automata.dfa import DFA, BoolArray, encode, letters, shown
from latchwork.automata.search import BUDGET, explore


@dataclass(frozen=True, eq=False, repr=False)
class NFA:
    """A nondeterministic automaton, with or without ε-arcs: it accepts a word when one of its runs does.

    Arguments:
        alphabet: A different letters, anything hashable.
        transitions: [A, S, S] whether letter a leads from state p to state q.
        starts: [S] where runs may begin.
        accepting: [S] where accepted runs end.
        epsilon: [S, S] whether p leads to q without reading; none by default.

    Raises: ValueError when the parts do not fit together.
    """

    alphabet: tuple[Hashable, ...]
    transitions: BoolArray
    starts: BoolArray
    accepting: BoolArray
    epsilon: BoolArray | None = None

    def __post_init__(self) -> None:
        alphabet = letters(self.alphabet)
        starts = _bools(self.starts, "starts", (None,))
        states = len(starts)
        if not states:
            raise ValueError("an NFA needs at least one state")
        accepting = _bools(self.accepting, "accepting", (states,))
        transitions = _bools(self.transitions, "transitions", (len(alphabet), states, states))
        none = np.zeros((states, states), dtype=bool)
        epsilon = none if self.epsilon is None else _bools(self.epsilon, "epsilon", (states, states))
        parts = {"starts": starts, "accepting": accepting, "transitions": transitions, "epsilon": epsilon}
        for name, value in parts.items():
            value.setflags(write=False)
            object.__setattr__(self, name, value)
        object.__setattr__(self, "alphabet", alphabet)

    @classmethod
    def from_arcs(
        cls,
        alphabet: Iterable[Hashable],
        arcs: Iterable[tuple[Hashable, Hashable | None, Hashable]],
        starts: Iterable[Hashable],
        accepting: Iterable[Hashable],
    ) -> NFA:
        """The automaton of arcs (state, letter, state); the letter None is ε. States may be anything hashable.

        Raises: ValueError for a letter that is not in the alphabet.
        """
        alphabet, arcs, starts, accepting = letters(alphabet), list(arcs), list(starts), list(accepting)
        if None in alphabet:
            raise ValueError("None cannot be a letter here: it stands for ε")
        ends = (state for source, _, target in arcs for state in (source, target))
        number = {state: q for q, state in enumerate(dict.fromkeys([*starts, *ends, *accepting]))}
        column: dict[Hashable, int] = {letter: a for a, letter in enumerate([*alphabet, None])}
        states = max(len(number), 1)
        moves = np.zeros((len(column), states, states), dtype=bool)
        for source, letter, target in arcs:
            if letter not in column:
                raise ValueError(f"state {source!r} has an arc on {letter!r}, which is not in the alphabet")
            moves[column[letter], number[source], number[target]] = True
        begin, end = np.zeros(states, dtype=bool), np.zeros(states, dtype=bool)
        begin[[number[state] for state in starts]] = True
        end[[number[state] for state in accepting]] = True
        return cls(alphabet, moves[:-1], begin, end, moves[-1])

    @property
    def n_states(self) -> int:
        return len(self.starts)

    @property
    def n_symbols(self) -> int:
        return len(self.alphabet)

    @cached_property
    def closure(self) -> BoolArray:
        """Whether ε-arcs lead from p to q, in any number, none included, [S, S]."""
        reach: BoolArray = np.eye(self.n_states, dtype=bool)
        if self.epsilon is not None:
            reach = reach | self.epsilon
        while True:  # each round doubles the number of arcs
            further: BoolArray = (reach.astype(np.float32) @ reach.astype(np.float32)) > 0
            if np.array_equal(further, reach):
                return reach
            reach = further

    def accepts(self, word: Iterable[Hashable]) -> bool:
        """Whether a word is accepted, by following all runs at once.

        Raises: ValueError naming a symbol that is not in the alphabet.
        """
        column = {letter: a for a, letter in enumerate(self.alphabet)}
        states = self._close(self.starts)
        for letter in encode(word, self.alphabet, column, False):
            states = self._close(self.transitions[letter, states].any(axis=0))
        return bool((states & self.accepting).any())

    def determinize(self, budget: int | None = BUDGET) -> DFA:
        """The automaton of the sets of states that words lead to (Rabin and Scott, 1959); not minimal.

        Raises: BudgetError above `budget` sets.
        """
        sets, table = explore(self._close(self.starts).tobytes(), self._after, self.n_symbols, budget)
        accepting = np.array([(_unpack(states) & self.accepting).any() for states in sets])
        return DFA(self.alphabet, table, accepting)

    def _close(self, states: BoolArray) -> BoolArray:
        return np.asarray(self.closure[states].any(axis=0))

    def _after(self, states: bytes) -> list[bytes]:
        """The sets of states after each letter; a set is the bytes of its [S] flags."""
        moved: BoolArray = np.asarray(self.transitions[:, _unpack(states)].any(axis=1))
        return [self._close(target).tobytes() for target in moved]

    def __repr__(self) -> str:
        states = f"{self.n_states} state{'s' * (self.n_states > 1)}"
        return f"NFA({states}, {int(self.accepting.sum())} accepting, {shown(self.alphabet)})"


def _unpack(states: bytes) -> BoolArray:
    return np.frombuffer(states, dtype=bool)


def _bools(values: BoolArray, name: str, shape: tuple[int | None, ...]) -> BoolArray:
    """A copy as bool. Raises: ValueError for another type or shape."""
    array = np.asarray(values)
    fits = array.ndim == len(shape) and all(
        want is None or want == got for want, got in zip(shape, array.shape, strict=True)
    )
    if not fits or (array.size and array.dtype != np.bool_):
        wanted = ["S" if want is None else want for want in shape]
        raise ValueError(f"{name} must be {wanted} of True and False, got {list(array.shape)} of {array.dtype}")
    return np.array(array, dtype=bool)
