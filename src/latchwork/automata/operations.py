"""Boolean operations on automata, and questions about what they accept."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

import numpy as np

from latchwork.automata.dfa import DFA, OTHER, BoolArray, Word, check_dfa, letters
from latchwork.automata.minimal import minimize
from latchwork.automata.search import BUDGET, explore, shortest_path

Combine = Callable[[BoolArray, BoolArray], BoolArray]


def extend(dfa: DFA, alphabet: Iterable[Hashable], *, other: bool = False) -> DFA:
    """The same automaton over another alphabet, which must hold every letter of its own by name.

    Letters it does not know lead to a rejecting sink or, where its last letter stands for all others, where that leads.

    Arguments: other says that the last letter of the new alphabet stands for all others.
    Raises: ValueError when a letter is missing.
    """
    check_dfa(dfa)
    alphabet = letters(alphabet)
    if (alphabet, other) == (dfa.alphabet, dfa.other):
        return dfa
    named = dfa.alphabet[:-1] if dfa.other else dfa.alphabet
    kept = alphabet[:-1] if other else alphabet
    missing = [letter for letter in named if letter not in kept]
    if missing and missing[0] in alphabet:
        raise ValueError(
            f"the last letter stands for all others and cannot be {missing[0]!r}, which the automaton names"
        )
    if missing:
        raise ValueError(f"the new alphabet lacks {missing[0]!r}")
    if dfa.other and not other:
        raise ValueError("the automaton accepts words of other symbols too; the new alphabet has no letter for them")
    columns = {letter: a for a, letter in enumerate(named)}
    rest = dfa.n_symbols - 1 if dfa.other else dfa.n_symbols  # the column of the sink, below
    sink = dfa.n_states
    table = np.vstack([np.column_stack([dfa.transitions, np.full(sink, sink)]), np.full(dfa.n_symbols + 1, sink)])
    last = len(alphabet) - 1
    chosen = [rest if other and a == last else columns.get(letter, rest) for a, letter in enumerate(alphabet)]
    table = table[:, chosen]
    states = sink + 1 if (table[:sink] == sink).any() else sink
    return DFA(alphabet, table[:states], np.append(dfa.accepting, False)[:states], dfa.start, other)


def common(a: DFA, b: DFA) -> tuple[DFA, DFA]:
    """Both over the union of their alphabets: letters of `a`, then of only `b`, then the one for all others."""
    check_dfa(a)
    check_dfa(b)
    if (a.alphabet, a.other) == (b.alphabet, b.other):
        return a, b
    named = [*(a.alphabet[:-1] if a.other else a.alphabet), *(b.alphabet[:-1] if b.other else b.alphabet)]
    other = a.other or b.other
    rest = [(a if a.other else b).alphabet[-1]] if other else []
    alphabet = [*dict.fromkeys(named), *rest]
    if other and rest[0] in named:
        alphabet[-1] = OTHER
    return extend(a, alphabet, other=other), extend(b, alphabet, other=other)


def product(a: DFA, b: DFA, combine: Combine, budget: int | None = BUDGET) -> DFA:
    """Both run side by side; a word is accepted when `combine` of the two verdicts is true.

    Over different alphabets both are read over the union; letters that an automaton does not know make it reject.

    Arguments: combine works on arrays of verdicts, like ``numpy.logical_xor``.
    Returns: the reachable pairs, not minimal.
    Raises: BudgetError above `budget` pairs.
    """
    a, b = common(a, b)
    pairs, table = explore((a.start, b.start), _pairwise(a, b), a.n_symbols, budget)
    left, right = np.array(pairs, dtype=np.int64).T
    return DFA(a.alphabet, table, combine(a.accepting[left], b.accepting[right]), 0, a.other)


def intersection(a: DFA, b: DFA, budget: int | None = BUDGET) -> DFA:
    """The words that both accept; alphabets, errors and result as for `product`."""
    return product(a, b, np.logical_and, budget)


def union(a: DFA, b: DFA, budget: int | None = BUDGET) -> DFA:
    """The words that at least one accepts; alphabets, errors and result as for `product`."""
    return product(a, b, np.logical_or, budget)


def difference(a: DFA, b: DFA, budget: int | None = BUDGET) -> DFA:
    """The words that `a` accepts and `b` does not; alphabets, errors and result as for `product`."""
    return product(a, b, np.greater, budget)


def complement(dfa: DFA, alphabet: Iterable[Hashable] | None = None) -> DFA:
    """The words over the alphabet that are not accepted.

    Arguments: alphabet, if given, is that of the words meant, as for `extend`; where the automaton has a letter for all
    others, it keeps it, as the last one.
    """
    check_dfa(dfa)
    if alphabet is not None:
        rest = dfa.alphabet[-1:] if dfa.other else ()
        named = [letter for letter in letters(alphabet) if letter not in rest]
        dfa = extend(dfa, (*named, *rest), other=dfa.other)
    return DFA(dfa.alphabet, dfa.transitions, ~dfa.accepting, dfa.start, dfa.other)


def shortest(dfa: DFA) -> Word | None:
    """The shortest word accepted, the first of them in the order of letters; None if there is none."""
    check_dfa(dfa)
    rows, accepting = dfa.transitions.tolist(), dfa.accepting.tolist()
    path = shortest_path(dfa.start, rows.__getitem__, accepting.__getitem__)
    return None if path is None else tuple(dfa.alphabet[a] for a in path)


def is_empty(dfa: DFA) -> bool:
    """Whether no word is accepted."""
    return shortest(dfa) is None


def counterexample(a: DFA, b: DFA) -> Word | None:
    """The shortest word that one accepts and the other does not, as for `product`; None when the languages are equal.

    The empty word is (), which is false too: compare with None.
    """
    a, b = common(minimize(a), minimize(b))  # small ones have few pairs
    yes, also = a.accepting.tolist(), b.accepting.tolist()
    path = shortest_path((a.start, b.start), _pairwise(a, b), lambda pair: yes[pair[0]] != also[pair[1]])
    return None if path is None else tuple(a.alphabet[letter] for letter in path)


def equivalent(a: DFA, b: DFA) -> bool:
    """Whether both accept the same words; `counterexample` gives one where they do not."""
    return counterexample(a, b) is None


def _pairwise(a: DFA, b: DFA) -> Callable[[tuple[int, int]], list[tuple[int, int]]]:
    left: list[list[int]] = a.transitions.tolist()
    right: list[list[int]] = b.transitions.tolist()
    return lambda pair: list(zip(left[pair[0]], right[pair[1]], strict=True))
