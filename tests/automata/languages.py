"""All short words, and automata at random."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from latchwork.automata import DFA, NFA


def words(alphabet: Sequence[Hashable], longest: int) -> Iterator[tuple[Hashable, ...]]:
    """All words up to a length, short ones first, each length in the order of letters."""
    for length in range(longest + 1):
        yield from itertools.product(alphabet, repeat=length)


def language(automaton: DFA | NFA, longest: int, alphabet: Sequence[Hashable] | None = None) -> set[tuple]:
    """The words up to a length that an automaton accepts, one by one."""
    return {word for word in words(alphabet or automaton.alphabet, longest) if automaton.accepts(word)}


def verdicts(dfa: DFA, alphabet: str, longest: int) -> Iterator[tuple[str, bool]]:
    """All words up to a length with what an automaton says, a length at a time."""
    for length in range(longest + 1):
        texts = ["".join(letters) for letters in itertools.product(alphabet, repeat=length)]
        codes = np.array([dfa.encode(text) for text in texts]).reshape(len(texts), length)
        yield from zip(texts, dfa.accepting[dfa.machine.visit(codes)[:, -1]].tolist(), strict=True)


def random_dfa(seed: int, states: int, alphabet: Sequence[Hashable] = "ab") -> DFA:
    rng = np.random.default_rng(seed)
    table = rng.integers(0, states, (states, len(alphabet)))
    return DFA(tuple(alphabet), table, rng.random(states) < 0.4, int(rng.integers(states)))


def random_nfa(seed: int, states: int, alphabet: Sequence[Hashable] = "ab", density: float = 0.25) -> NFA:
    rng = np.random.default_rng(seed)
    moves = rng.random((len(alphabet), states, states)) < density
    starts, accepting = rng.random(states) < 0.3, rng.random(states) < 0.3
    return NFA(tuple(alphabet), moves, starts, accepting, rng.random((states, states)) < density / 2)
