"""Operations on automata, against all short words."""

from __future__ import annotations

import numpy as np
import pytest
from languages import language, random_dfa, random_nfa, words

from latchwork.automata import (
    DFA,
    OTHER,
    BudgetError,
    complement,
    counterexample,
    decompose,
    difference,
    draw,
    equivalent,
    extend,
    from_regex,
    group_witness,
    intersection,
    is_aperiodic,
    is_empty,
    minimize,
    monoid_size,
    reachable,
    shortest,
    union,
    write_att,
)

SEEDS = range(40)


@pytest.mark.parametrize("seed", SEEDS)
def test_boolean_operations_are_those_of_sets_of_words(seed):
    left, right = (
        random_dfa(seed, 1 + seed % 5, "ab"),
        random_dfa(seed + 1000, 1 + seed % 6, "cb" if seed % 2 else "ba"),
    )
    both = sorted(set("ab") | set(right.alphabet))
    a, b = language(left, 5), language(right, 5)  # over its own letters: a word with another one is rejected
    assert language(union(left, right), 5) == a | b
    assert language(intersection(left, right), 5) == a & b
    assert language(difference(left, right), 5) == a - b
    assert language(complement(left, both), 4) == set(words(both, 4)) - a
    assert language(extend(left, both), 5) == a


def test_alphabets_are_joined_and_missing_letters_reject():
    a, b = from_regex("a*", "a"), from_regex("b*", "b")
    either = union(a, b)
    assert either.alphabet == ("a", "b")
    assert [either.accepts(word) for word in ("", "aa", "bb", "ab")] == [True, True, True, False]
    assert language(intersection(a, b), 4) == {()}
    assert complement(a, "ab").accepts("b")
    assert is_empty(DFA.from_table("ab", {0: {"a": 0}}, 0, []))


def test_other_symbols_take_part():
    no_a = DFA(("a", OTHER), np.array([[1, 0], [1, 1]]), np.array([True, False]), other=True)
    bs = from_regex("b+", "b")
    both = intersection(no_a, bs)
    assert both.alphabet == ("a", "b", OTHER)
    assert [both.accepts(word) for word in ("bb", "ab", "bx", "x", "")] == [True, False, False, False, False]
    assert [complement(bs, "ab").accepts(word) for word in ("bb", "ab")] == [False, True]
    assert union(no_a, bs).accepts("xyz")
    with pytest.raises(ValueError, match="no letter for them"):
        extend(no_a, "abc")
    with pytest.raises(ValueError, match="lacks 'b'"):
        extend(bs, "ac")
    with pytest.raises(ValueError, match="cannot be 'b', which the automaton names"):
        extend(from_regex("a*b", "ab"), "ab", other=True)


@pytest.mark.parametrize("alphabet", ["cab", "abc", "bac", "ab", ("a", OTHER, "b", "c"), ("b", "a", OTHER)])
def test_a_complement_over_more_letters_accepts_exactly_what_was_rejected(alphabet):
    dfa = from_regex("a*b")  # any characters
    opposite = complement(dfa, alphabet)
    assert opposite.other
    assert opposite.alphabet[-1] is OTHER
    for word in words("abcx", 4):
        assert opposite.accepts(word) != dfa.accepts(word)


NEED_A_DFA = {
    "complement": complement,
    "counterexample": lambda a: counterexample(from_regex("a", "ab"), a),
    "decompose": decompose,
    "draw": draw,
    "equivalent": lambda a: equivalent(a, a),
    "extend": lambda a: extend(a, "ab"),
    "group_witness": group_witness,
    "is_aperiodic": is_aperiodic,
    "is_empty": is_empty,
    "minimize": minimize,
    "monoid_size": monoid_size,
    "reachable": reachable,
    "shortest": shortest,
    "union": lambda a: union(a, a),
    "write_att": lambda a: write_att(a, "absent/x.att"),
}


@pytest.mark.parametrize("name", NEED_A_DFA)
def test_what_is_no_dfa_is_refused_with_what_makes_one(name):
    with pytest.raises(TypeError, match=r"a DFA is needed, got NFA; its determinize\(\) makes one"):
        NEED_A_DFA[name](random_nfa(0, 3, "ab"))
    with pytest.raises(TypeError, match="a DFA is needed, got str; from_regex makes one of a pattern"):
        NEED_A_DFA[name]("a*")


@pytest.mark.parametrize("seed", SEEDS)
def test_the_smallest_automaton_is_smallest_and_the_same_for_equal_languages(seed):
    dfa = random_dfa(seed, 2 + seed, "abc")
    small = minimize(dfa)
    rng = np.random.default_rng(seed)
    order = rng.permutation(dfa.n_states)  # the same automaton under other names, and every state twice
    back = np.argsort(order)
    table = np.vstack([order[dfa.transitions][back], order[dfa.transitions][back]])
    table += dfa.n_states * rng.integers(0, 2, table.shape)
    twice = DFA(dfa.alphabet, table, np.tile(dfa.accepting[back], 2), int(order[dfa.start]))
    assert minimize(twice) == small == minimize(small)
    assert language(small, 4) == language(dfa, 4)
    assert small.n_states == count_of_classes(dfa)


def count_of_classes(dfa: DFA) -> int:
    """How many reachable states differ, by Moore's refinement."""
    dfa = reachable(dfa)
    classes = dfa.accepting.astype(int)
    for _ in range(dfa.n_states):
        _, classes = np.unique(np.column_stack([classes, classes[dfa.transitions]]), axis=0, return_inverse=True)
        classes = classes.ravel()
    return len(set(classes.tolist()))


@pytest.mark.parametrize("seed", SEEDS)
def test_counterexamples_are_the_shortest(seed):
    left, right = random_dfa(seed, 1 + seed % 6), random_dfa(seed + 500, 1 + seed % 4)
    word = counterexample(left, right)
    differing = [word for word in words("ab", 7) if left.accepts(word) != right.accepts(word)]
    if differing:
        assert word == differing[0]
    else:
        assert word is None
    assert equivalent(left, right) == (word is None)
    assert equivalent(left, minimize(left))


def test_the_empty_word_is_a_counterexample():
    assert counterexample(from_regex("a*", "a"), from_regex("a+", "a")) == ()
    assert counterexample(from_regex("a*", "a"), from_regex("b*", "b")) == ("a",)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_shortest_accepted_word_is_found(seed):
    dfa = minimize(random_nfa(seed, 4, "ab", 0.12).determinize())
    accepted = [word for word in words("ab", 7) if dfa.accepts(word)]
    assert shortest(dfa) == (accepted[0] if accepted else None)
    assert is_empty(dfa) == (not accepted)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_reachable_part_is_what_words_lead_to(seed):
    dfa = random_dfa(seed, 3 + seed, "ab")
    part = reachable(dfa)
    met = set(dfa.machine.visit(np.random.default_rng(seed).integers(0, 2, (400, 60))).ravel().tolist())
    assert part.n_states == len(met)
    assert language(part, 5) == language(dfa, 5)


def test_thousands_of_states_are_made_small():
    chain = 6000
    table = np.column_stack([np.minimum(np.arange(1, chain + 1), chain - 1), np.arange(chain)])
    dfa = DFA(("a", "b"), table, np.arange(chain) == chain - 1)
    assert minimize(dfa).n_states == chain
    assert minimize(DFA(("a", "b"), table, np.arange(chain) >= 0)).n_states == 1
    assert minimize(random_dfa(1, 4000, "abcd")).n_states > 3000


def test_an_empty_alphabet_has_one_word():
    nothing = DFA((), np.zeros((2, 0), int), np.array([True, False]))
    assert minimize(nothing).n_states == 1
    assert shortest(nothing) == ()
    assert shortest(complement(nothing)) is None


def test_too_many_pairs_are_refused():
    with pytest.raises(BudgetError, match="more than 30 states"):
        intersection(from_regex("(a{7})*", "a"), from_regex("(a{11})*", "a"), budget=30)
    assert intersection(from_regex("(a{7})*", "a"), from_regex("(a{11})*", "a")).n_states == 77
