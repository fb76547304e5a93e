"""Nondeterministic automata."""

from __future__ import annotations

import numpy as np
import pytest
from languages import language, random_nfa, words

from latchwork.automata import NFA, BudgetError, from_regex, minimize


def accepts_by_search(nfa: NFA, word) -> bool:
    """Whether some run accepts: single runs, one after another, by the definition."""
    seen, waiting = set(), [(int(q), 0) for q in np.flatnonzero(nfa.starts)]
    while waiting:
        state, position = waiting.pop()
        if (state, position) in seen:
            continue
        seen.add((state, position))
        if position == len(word) and nfa.accepting[state]:
            return True
        waiting += [(int(q), position) for q in np.flatnonzero(nfa.epsilon[state])]
        if position < len(word):
            letter = nfa.alphabet.index(word[position])
            waiting += [(int(q), position + 1) for q in np.flatnonzero(nfa.transitions[letter, state])]
    return False


@pytest.mark.parametrize("seed", range(60))
def test_simulation_and_subset_construction_follow_all_runs(seed):
    nfa = random_nfa(seed, states=1 + seed % 7, alphabet="ab" if seed % 2 else "abc")
    dfa = nfa.determinize()
    for word in words(nfa.alphabet, 5):
        assert nfa.accepts(word) == dfa.accepts(word) == accepts_by_search(nfa, word), word


def test_arcs_may_be_named_and_empty():
    nfa = NFA.from_arcs("ab", [("x", "a", "x"), ("x", None, "y"), ("y", "b", "y")], ["x"], ["y"])
    assert language(nfa, 3) == {word for word in words("ab", 3) if list(word) == sorted(word)}
    assert minimize(nfa.determinize()) == from_regex("a*b*", "ab")


def test_without_starts_nothing_is_accepted():
    nfa = NFA.from_arcs("a", [], [], [])
    assert not nfa.accepts("")
    assert not nfa.determinize().accepts("a")


def test_too_many_sets_are_refused():
    arcs = [(0, "a", 0), (0, "b", 0), (0, "a", 1), *((n, x, n + 1) for n in range(1, 15) for x in "ab")]
    nfa = NFA.from_arcs("ab", arcs, [0], [15])
    assert nfa.determinize(budget=None).n_states == 1 << 15
    with pytest.raises(BudgetError, match="more than 20,000 states"):
        nfa.determinize()


def test_parts_that_do_not_fit_are_refused():
    yes = np.array([True])
    for parts, message in [
        ((("a",), np.ones((1, 1, 2), bool), yes, yes), r"transitions must be \[1, 1, 1\]"),
        ((("a",), np.ones((1, 1, 1), int), yes, yes), "True and False"),
        ((("a",), np.ones((1, 1, 1), bool), yes, np.array([True, True])), "accepting must be"),
        ((("a",), np.ones((1, 1, 1), bool), yes, yes, np.ones((2, 2), bool)), "epsilon must be"),
        ((("a",), np.ones((1, 0, 0), bool), yes[:0], yes[:0]), "at least one state"),
    ]:
        with pytest.raises(ValueError, match=message):
            NFA(*parts)
    with pytest.raises(ValueError, match="arc on 'c'"):
        NFA.from_arcs("ab", [(0, "c", 0)], [0], [])
    with pytest.raises(ValueError, match="None cannot be a letter"):
        NFA.from_arcs(["a", None], [], [0], [])
    with pytest.raises(ValueError, match="symbol 'c' at position 1"):
        random_nfa(0, 3).accepts("ac")
