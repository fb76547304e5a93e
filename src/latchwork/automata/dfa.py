"""Deterministic finite automata over any alphabet."""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latchwork.automata.machine import IntArray, MooreMachine, integers, start_state

BoolArray = NDArray[np.bool_]
Word = tuple[Hashable, ...]


class _Other(enum.Enum):
    """An enumeration of one: such a value stays the same object when it is copied."""

    OTHER = "other"

    def __repr__(self) -> str:
        return "OTHER"

    __str__ = __repr__


OTHER: Final = _Other.OTHER
"""The letter that stands for every symbol that is not in the alphabet."""


@dataclass(frozen=True, eq=False, repr=False)
class DFA:
    """A complete deterministic automaton: a set of words.

    Two are ``==`` when their tables are, letters and numbers of states included; `equivalent` compares languages.

    Arguments:
        alphabet: A different letters, anything hashable.
        transitions: [S, A] the state after reading letter a in state q.
        accepting: [S] whether a word that ends in state q is accepted.
        start: the state before the first letter.
        other: whether the last letter stands for every symbol that is not in the alphabet.

    Raises: ValueError when the parts do not fit together.
    """

    alphabet: tuple[Hashable, ...]
    transitions: IntArray
    accepting: BoolArray
    start: int = 0
    other: bool = False

    def __post_init__(self) -> None:
        alphabet = letters(self.alphabet)
        accepting = _bools(self.accepting)
        states, size = len(accepting), len(alphabet)
        transitions = integers(self.transitions, "transitions")
        if not states:
            raise ValueError("a DFA needs at least one state")
        if transitions.shape != (states, size):
            raise ValueError(f"transitions must be [S = {states}, A = {size}], got {list(transitions.shape)}")
        bad = np.argwhere((transitions < 0) | (transitions >= states))
        if len(bad):
            q, a = bad[0]
            target = f"{transitions[q, a]}; states are 0 … {states - 1}"
            raise ValueError(f"the transition from state {q} on {alphabet[a]!r} leads to {target}")
        start = start_state(self.start, states)
        if self.other and not alphabet:
            raise ValueError("other needs a last letter to stand for other symbols; the alphabet is empty")
        transitions.setflags(write=False)
        accepting.setflags(write=False)
        for name, value in (("alphabet", alphabet), ("transitions", transitions), ("accepting", accepting)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "start", start)
        object.__setattr__(self, "other", bool(self.other))

    @classmethod
    def from_table(
        cls,
        alphabet: Iterable[Hashable],
        transitions: Mapping[Hashable, Mapping[Hashable, Hashable]],
        start: Hashable,
        accepting: Iterable[Hashable],
        *,
        other: bool = False,
    ) -> DFA:
        """The automaton of ``{state: {letter: state}}``; transitions that are missing lead to a rejecting sink.

        States may be anything hashable. They are numbered in the order in which they are named: the start, the table's
        rows, then the states that are only led to; a sink, where one is needed, comes last.

        Raises: ValueError for a letter that is not in the alphabet or an accepting state that is nowhere else.
        """
        alphabet = letters(alphabet)
        column = {letter: a for a, letter in enumerate(alphabet)}
        targets = (target for row in transitions.values() for target in row.values())
        number = {state: q for q, state in enumerate(dict.fromkeys([start, *transitions, *targets]))}
        sink = len(number)
        table = np.full((sink + 1, len(alphabet)), sink, dtype=np.int64)
        for state, row in transitions.items():
            for letter, target in row.items():
                if letter not in column:
                    raise ValueError(f"state {state!r} has a transition on {letter!r}, which is not in the alphabet")
                table[number[state], column[letter]] = number[target]
        accepts = np.zeros(sink + 1, dtype=bool)
        for state in accepting:
            if state not in number:
                raise ValueError(f"the accepting state {state!r} is neither the start nor in the table")
            accepts[number[state]] = True
        states = sink + 1 if (table[:sink] == sink).any() else sink
        return cls(alphabet, table[:states], accepts[:states], 0, other)

    @property
    def n_states(self) -> int:
        return len(self.accepting)

    @property
    def n_symbols(self) -> int:
        return len(self.alphabet)

    @cached_property
    def machine(self) -> MooreMachine:
        """The same table as a Moore machine that gives 1 in accepting states and 0 in others."""
        return MooreMachine(self.transitions, self.accepting.astype(np.int64), self.start)

    @cached_property
    def columns(self) -> dict[Hashable, int]:
        """The number of each letter."""
        return {letter: a for a, letter in enumerate(self.alphabet)}

    def encode(self, word: Iterable[Hashable]) -> IntArray:
        """The numbers of a word's letters, [T].

        Raises: ValueError naming the first symbol that is not in the alphabet, unless `other` gives it a letter.
        """
        return encode(word, self.alphabet, self.columns, self.other)

    def verdicts(self, word: Iterable[Hashable]) -> BoolArray:
        """Whether each beginning of a word is accepted, [T + 1]: the empty one first, the whole word last."""
        return self.accepting[self.machine.visit(self.encode(word)[None])[0]]

    def accepts(self, word: Iterable[Hashable]) -> bool:
        """Whether a word is accepted; errors as for `encode`."""
        return bool(self.verdicts(word)[-1])

    def __eq__(self, them: object) -> bool:
        if not isinstance(them, DFA):
            return NotImplemented
        return (
            (self.alphabet, self.start, self.other) == (them.alphabet, them.start, them.other)
            and np.array_equal(self.transitions, them.transitions)
            and np.array_equal(self.accepting, them.accepting)
        )

    def __hash__(self) -> int:
        return hash((self.alphabet, self.start, self.other, self.transitions.tobytes(), self.accepting.tobytes()))

    def __repr__(self) -> str:
        rest = ", the last for all others" if self.other else ""
        accepting = int(self.accepting.sum())
        states = f"{self.n_states} state{'s' * (self.n_states > 1)}"
        return f"DFA({states}, {accepting} accepting, start {self.start}, {shown(self.alphabet)}{rest})"


_MADE_BY = {
    "NFA": "its determinize() makes one",
    "str": "from_regex makes one of a pattern",
    "CompiledCascade": "compare proves whether it equals one",
}


def check_dfa(machine: object) -> None:
    """Refuse what is no DFA, with what makes one of it."""
    if not isinstance(machine, DFA):
        kind = type(machine).__name__
        raise TypeError(f"a DFA is needed, got {kind}" + (f"; {_MADE_BY[kind]}" if kind in _MADE_BY else ""))


def letters(alphabet: Iterable[Hashable]) -> tuple[Hashable, ...]:
    """An alphabet as a tuple. Raises: ValueError for a letter that comes twice or is not hashable."""
    result = tuple(alphabet)
    seen: set[Hashable] = set()
    for letter in result:
        try:
            twice = letter in seen
        except TypeError:
            raise ValueError(f"letter {letter!r} of the alphabet is not hashable") from None
        if twice:
            raise ValueError(f"letter {letter!r} comes twice in the alphabet")
        seen.add(letter)
    return result


def encode(
    word: Iterable[Hashable], alphabet: tuple[Hashable, ...], columns: Mapping[Hashable, int], other: bool
) -> IntArray:
    """The numbers of a word's letters, [T]; columns: the number of each letter; other: as in `DFA`.

    Raises: ValueError naming the first symbol that is not in the alphabet, unless `other` gives it a letter.
    """
    symbols = list(word)
    try:
        if other:
            last = len(alphabet) - 1
            return np.array([columns.get(symbol, last) for symbol in symbols], dtype=np.int64)
        return np.array([columns[symbol] for symbol in symbols], dtype=np.int64)
    except (KeyError, TypeError):  # TypeError: not hashable, so in no alphabet
        position, symbol = next((t, s) for t, s in enumerate(symbols) if not _is_key(s, columns, other))
        raise ValueError(f"symbol {symbol!r} at position {position} is not in the alphabet {shown(alphabet)}") from None


def shown(alphabet: tuple[Hashable, ...], most: int = 20) -> str:
    """An alphabet for messages, cut off when it is long."""
    if len(alphabet) <= most:
        return f"{{{', '.join(map(repr, alphabet))}}}"
    return f"{{{', '.join(map(repr, alphabet[:most]))}, … {len(alphabet)} letters}}"


def _is_key(symbol: Any, columns: Mapping[Hashable, int], other: bool) -> bool:
    try:
        return symbol in columns or (other and hash(symbol) is not None)
    except TypeError:
        return False


def _bools(flags: ArrayLike) -> BoolArray:
    """A copy as bool. Raises: ValueError for another type or shape."""
    values = np.asarray(flags)
    if values.ndim != 1 or (values.size and values.dtype != np.bool_):
        raise ValueError(f"accepting must be [S] of True and False, got {list(values.shape)} of {values.dtype}")
    return np.array(values, dtype=bool)
