"""Deterministic automata."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from latchwork.automata import DFA, OTHER, from_regex

# (a|b)*abb, by hand
ABB = DFA(("a", "b"), np.array([[1, 0], [1, 2], [1, 3], [1, 0]]), np.array([False, False, False, True]))


def test_verdicts_are_those_of_every_beginning():
    assert ABB.verdicts("abba").tolist() == [False, False, False, True, False]
    assert not ABB.accepts("abba")
    assert ABB.accepts("abb")
    assert ABB.verdicts("").tolist() == [False]


def test_padded_words_are_judged_at_their_own_ends():
    batch = np.array([ABB.encode("abb"), ABB.encode("aaa")])  # the second is "a", padded
    visited = ABB.machine.visit(batch)
    assert ABB.accepting[visited[[0, 1], [3, 1]]].tolist() == [True, False]


def test_the_machine_gives_the_verdicts_that_of_the_start_included():
    dfa = DFA(("a",), np.array([[1], [0]]), np.array([True, False]))
    assert dfa.machine.outputs[dfa.machine.start] == 1
    assert dfa.machine.outputs.tolist() == [1, 0]
    assert dfa.accepts("")


def test_letters_are_anything_hashable():
    dfa = DFA.from_table([(1, 2), None], {"x": {(1, 2): "y", None: "x"}, "y": {None: "y"}}, "x", ["y"])
    assert dfa.accepts([(1, 2), None])
    assert not dfa.accepts([(1, 2), (1, 2)])
    assert dfa.n_states == 3  # with a sink


def test_a_partial_table_is_completed_by_a_sink():
    dfa = DFA.from_table("ab", {0: {"a": 1}, 1: {"b": 0}}, 0, [0])
    assert [word for word in ("", "ab", "abab", "a", "b", "aa", "aab") if dfa.accepts(word)] == ["", "ab", "abab"]
    assert dfa.transitions.tolist() == [[1, 2], [2, 0], [2, 2]]
    whole = DFA.from_table("a", {"even": {"a": "odd"}, "odd": {"a": "even"}}, "even", ["even"])
    assert whole.n_states == 2


def test_without_accepting_states_every_word_is_rejected():
    dfa = DFA.from_table("ab", {}, "only", [])
    assert not any(dfa.accepts(word) for word in ("", "a", "b", "ab"))


@pytest.mark.parametrize("bad", ["abc", ["a", "b", ["a"]], ["a", "b", {}]])
def test_symbols_outside_of_the_alphabet_are_named(bad):
    with pytest.raises(ValueError, match=r"symbol .* at position 2 is not in the alphabet \{'a', 'b'\}"):
        ABB.accepts(bad)


def test_other_stands_for_every_symbol_that_is_not_in_the_alphabet():
    dfa = DFA(("a", OTHER), np.array([[0, 1], [1, 1]]), np.array([True, False]), other=True)
    assert dfa.encode("aXa\n").tolist() == [0, 1, 0, 1]
    assert dfa.encode(["a", OTHER, 5]).tolist() == [0, 1, 1]
    assert dfa.accepts("aaa")
    assert not dfa.accepts("aba")
    assert copy.deepcopy(OTHER) is OTHER
    assert repr(OTHER) == "OTHER"


def test_equal_tables_are_equal_and_hash_alike():
    same = DFA(["a", "b"], ABB.transitions.tolist(), ABB.accepting.tolist())
    assert same == ABB
    assert hash(same) == hash(ABB)
    assert same != DFA(("a", "b"), ABB.transitions, ABB.accepting, start=1)
    assert same != DFA(("b", "a"), ABB.transitions, ABB.accepting)
    assert same != "ab"
    assert repr(ABB) == "DFA(4 states, 1 accepting, start 0, {'a', 'b'})"
    assert "… 26 letters" in repr(from_regex("x", "abcdefghijklmnopqrstuvwxyz"))


def test_the_tables_are_its_own():
    table, accepting = np.array([[0]]), np.array([True])
    dfa = DFA(("a",), table, accepting)
    table[0, 0], accepting[0] = 5, False
    assert dfa.accepts("a")
    with pytest.raises(ValueError, match="read-only"):
        dfa.transitions[0, 0] = 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((("a",), np.zeros((0, 1), int), np.zeros(0, bool)), "at least one state"),
        ((("a", "a"), np.array([[0, 0]]), np.array([True])), "'a' comes twice"),
        ((([],), np.array([[0]]), np.array([True])), "not hashable"),
        ((("a",), np.array([[0, 0]]), np.array([True])), r"must be \[S = 1, A = 1\], got \[1, 2\]"),
        ((("a",), [[0], [0, 0]], np.array([True, True])), "rows of equal length"),
        ((("a",), np.array([[1]]), np.array([True])), "from state 0 on 'a' leads to 1; states are 0 … 0"),
        ((("a",), np.array([[-1]]), np.array([True])), "leads to -1"),
        ((("a",), np.array([[0.0]]), np.array([True])), "must be integers"),
        ((("a",), np.array([[0]]), np.array([1])), "of True and False"),
        ((("a",), np.array([[0]]), np.array([True]), 1), "start must be in 0 … 0, got 1"),
        ((("a",), np.array([[0]]), np.array([True]), "q"), "start must be the number of a state"),
        (((), np.zeros((1, 0), int), np.array([True]), 0, True), "alphabet is empty"),
    ],
)
def test_parts_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        DFA(*arguments)


def test_tables_with_unknown_names_are_refused():
    with pytest.raises(ValueError, match="state 0 has a transition on 'c'"):
        DFA.from_table("ab", {0: {"c": 0}}, 0, [])
    with pytest.raises(ValueError, match="accepting state 7 is neither"):
        DFA.from_table("ab", {0: {"a": 0}}, 0, [7])
