"""Compiled cascades are their automata, on every word."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from cascades import all_words, forms, prefix_verdicts
from hypothesis import given, reject
from languages import random_dfa, random_nfa
from patterns_at_random import at_random, patterns

from latchwork.automata import (
    DFA,
    NFA,
    BudgetError,
    MealyMachine,
    MooreMachine,
    RegexError,
    compare,
    compile,
    from_regex,
    minimize,
    read_att,
)


def check_all_words(machine: DFA | NFA, length: int) -> None:
    """Every form says of every word up to a length what the automaton says."""
    dfa = machine.determinize() if isinstance(machine, NFA) else machine
    letters = all_words(dfa.n_symbols, length)
    expected = dfa.accepting[dfa.machine.visit(letters.numpy())]
    for cascade in [*forms(dfa), compile(machine, "vector")]:
        assert np.array_equal(prefix_verdicts(cascade, letters), expected), cascade


def check_pattern(pattern: str, alphabet: str, length: int) -> None:
    try:
        dfa = from_regex(pattern, alphabet)
    except (RegexError, BudgetError):
        reject()  # another pattern takes its place
    letters = all_words(len(alphabet), length)
    words = ["".join(alphabet[a] for a in row) for row in letters.tolist()]
    compiled = re.compile(pattern)
    known: dict[str, bool] = {}

    def matches(word: str) -> bool:
        if word not in known:
            known[word] = compiled.fullmatch(word) is not None
        return known[word]

    expected = np.array([[matches(word[:t]) for t in range(length + 1)] for word in words])
    for cascade in forms(dfa):
        assert np.array_equal(prefix_verdicts(cascade, letters), expected), (pattern, cascade)


@at_random(60)
@given(patterns("ab"))
def test_patterns_are_pythons_on_all_words_up_to_length_8(pattern):
    check_pattern(pattern, "ab", 8)


@pytest.mark.slow
@at_random(1000)
@given(patterns("ab"))
def test_a_thousand_patterns_are_pythons_on_all_words_up_to_length_8(pattern):
    check_pattern(pattern, "ab", 8)


@at_random(20)
@given(patterns("a\n_"))
def test_patterns_over_three_letters_are_pythons(pattern):
    check_pattern(pattern, "a\n_", 6)


@pytest.mark.parametrize("first", [0, pytest.param(60, marks=pytest.mark.slow)])
def test_random_automata_on_all_words_up_to_length_8(first):
    for seed in range(first, 60 if first == 0 else 1060):
        check_all_words(random_dfa(seed, 1 + seed % 8), 8)
        check_all_words(random_nfa(seed, 1 + seed % 8), 8)


def test_random_automata_are_proved_equal():
    for seed in range(40):
        dfa = random_dfa(seed, 1 + seed % 8, "abc")
        for cascade in forms(dfa):
            assert compare(cascade, dfa).holds


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("units", ["vector", "mixed", "auto"])
def test_machines_with_outputs_give_them_after_every_word(seed, units):
    rng = np.random.default_rng(seed)
    states = 1 + seed % 7
    table = rng.integers(0, states, (states, 2))
    moore = MooreMachine(table, rng.integers(-1, 3, states), int(rng.integers(states)))
    mealy = MealyMachine(table, rng.integers(-1, 3, (states, 2)), moore.start, first=7)
    letters = all_words(2, 7)
    cascade = compile(moore, units)
    assert np.array_equal(prefix_verdicts(cascade, letters), moore.outputs[moore.visit(letters.numpy())])
    assert compare(cascade, moore).holds
    cascade = compile(mealy, units)
    outputs = prefix_verdicts(cascade, letters)
    visited = MooreMachine(mealy.transitions, np.zeros(states, dtype=np.int64), mealy.start).visit(letters.numpy())
    assert (outputs[:, 0] == 7).all()
    assert np.array_equal(outputs[:, 1:], mealy.outputs[visited[:, :-1], letters.numpy()])


def test_moore_machine_with_a_group_is_refused_in_scalar_units():
    flip = MooreMachine(np.array([[1, 0], [0, 1]]), np.array([5, 6]))
    with pytest.raises(ValueError, match=r"not star-free.*the word \(0,\) moves state 0 → 1 → 0, a group of 2"):
        compile(flip, "scalar")


REPEATED = {"a": "a", "aa": "aa", "a|aaa": "a", "(aa|b)": "ab", "ab?a": "ab"}


@pytest.mark.parametrize("pattern", REPEATED)
def test_repeated_letters_are_told_apart(pattern):
    """A cascade whose units saw only updated states could not tell aa from a."""
    check_pattern(pattern, "ab", 8)


def test_every_prefix_and_the_whole_word():
    for cascade in forms(from_regex("(a|b)*abb", "ab")):
        assert cascade.verdicts("abba").tolist() == [False, False, False, True, False]
        assert not cascade.accepts("abba")
        assert cascade.judge(["abb", "a"]).tolist() == [True, False]
        assert cascade.judge(["", "abbabb", "b"]).tolist() == [False, True, False]
        assert cascade.judge([]).tolist() == []
        assert cascade.judge([""]).tolist() == [False]


@pytest.mark.parametrize("pattern", ["", "a*", "(a|b)*", "[^ab]", "b+"])
def test_the_empty_word_has_its_verdict(pattern):
    for cascade in forms(from_regex(pattern, "ab")):
        assert cascade.accepts("") == (re.fullmatch(pattern, "") is not None)


def test_unknown_symbols_raise_or_are_other():
    for cascade in forms(from_regex("a*b", "ab")):
        with pytest.raises(ValueError, match="symbol 'c' at position 1 is not in the alphabet"):
            cascade.accepts("acb")
    for cascade in forms(from_regex("a.b")):
        assert cascade.accepts("a€b")
        assert not cascade.accepts("a€")
        assert cascade.other


def test_any_hashable_is_a_letter():
    dfa = DFA(("push", 3, None), np.array([[1, 0, 0], [1, 1, 0]]), np.array([False, True]))
    for cascade in forms(dfa):
        assert cascade.accepts([3, "push", 3])
        assert not cascade.accepts(["push", None])


def test_levels_above_the_limit_are_read_by_others():
    """Accepted where the last two letters of 150 are equal: a level reads another one of 150 values."""
    n = 150
    table = np.tile(np.arange(n), (n * 2, 1)) + n * (np.arange(n) == (np.arange(2 * n) % n)[:, None])
    dfa = DFA(tuple(range(n)), table, np.arange(2 * n) >= n, start=0)
    cascade = compile(dfa, "scalar")
    word = torch.randint(n, (1, 4000)).repeat_interleave(2, 1)[:, torch.randperm(8000).sort()[0] % 3 > 0]
    expected = dfa.accepting[dfa.machine.visit(word.numpy())]
    assert expected.any()
    assert not expected.all()
    assert np.array_equal(prefix_verdicts(cascade, word), expected)
    assert np.array_equal(prefix_verdicts(cascade.bfloat16(), word), expected)


def test_an_empty_alphabet_has_one_word():
    for accepted in (True, False):
        for cascade in forms(DFA((), np.zeros((1, 0), dtype=np.int64), np.array([accepted]))):
            assert cascade.accepts("") == accepted
            assert cascade(torch.zeros(2, 0, dtype=torch.int64))[0].shape == (2, 0, 1)


def test_what_cannot_be_compiled_is_refused():
    with pytest.raises(TypeError, match="can be compiled, got str; from_regex makes a DFA of a pattern"):
        compile("a*b")
    with pytest.raises(ValueError, match="units must be one of 'auto', 'scalar', 'vector', 'mixed', got 'scalars'"):
        compile(from_regex("a", "a"), "scalars")
    with pytest.raises(ValueError, match=r"not star-free.*the word 'a' moves state 0 → 1 → 0, a group of 2"):
        compile(from_regex("(aa)*", "ab"), "scalar")
    with pytest.raises(BudgetError, match="levels need more than 3 meets"):
        compile(from_regex("(a|b)*abbaab", "ab"), "scalar", budget=3)


def test_long_chains_are_refused_in_time_or_left_to_a_vector_unit():
    """What the levels of a counter to 600 do takes minutes to find out, and more gates than are worth it."""
    n = 600
    counter = MooreMachine(np.minimum(np.arange(n) + 1, n - 1)[:, None], np.arange(n) // (n - 1))
    assert compile(counter).degree == n
    with pytest.raises(BudgetError, match=r"takes more than 20,000 places|need more than 1,000 meets"):
        compile(counter, "scalar", budget=1000)


def test_auto_falls_back_to_a_vector_unit_where_sets_explode():
    """The eighth letter from the end: 2^20 sets of states if determinized."""
    n = 21
    arcs = [(0, "a", 0), (0, "b", 0), (0, "a", 1)] + [(i, x, i + 1) for i in range(1, n) for x in "ab"]
    nfa = NFA.from_arcs("ab", arcs, [0], [n])
    cascade = compile(nfa)
    assert cascade.degree == n + 1
    letters = torch.randint(2, (1, 3000))
    expected = torch.zeros(3000, dtype=torch.bool)
    expected[n - 1 :] = letters[0, : 3000 - n + 1] == 0
    assert torch.equal(cascade.decide(cascade(letters)[0])[0], expected)
    with pytest.raises(BudgetError):
        compile(nfa, "mixed")


def test_dyck_words_of_depth_16():
    rows: dict = {i: {"(": i + 1, ")": i - 1} for i in range(17)}
    rows[0].pop(")"), rows[16].pop("(")
    dfa = DFA.from_table("()", rows, 0, [0])
    assert dfa.n_states == 18
    assert compare(compile(dfa), dfa).holds
    scalar = compile(dfa, "scalar")
    letters = torch.randint(2, (64, 500))
    assert np.array_equal(prefix_verdicts(scalar, letters), dfa.accepting[dfa.machine.visit(letters.numpy())])


def test_comparing_finds_the_shortest_word_that_differs():
    cascade, other = compile(from_regex("a*b", "ab"), "scalar"), from_regex("a{0,3}b", "ab")
    assert compare(cascade, other).word == ("a", "a", "a", "a", "b")
    assert compare(cascade, from_regex("a*b?", "ab")).word == ()
    with pytest.raises(ValueError, match=r"reads \{'a', 'b'\} and the automaton \{'a'\}: the same letters are needed"):
        compare(cascade, from_regex("a*", "a"))
    with pytest.raises(ValueError, match="the cascade has 2 letters and the automaton 1"):
        compare(cascade, MooreMachine([[0]], [0]))
    with pytest.raises(BudgetError, match="more than 2 pairs"):
        compare(cascade, other, budget=2)
    assert compare(cascade, from_regex("a*b", "ba")).holds  # the same letters in another order
    assert compare(cascade, from_regex("b*a", "ba")).word == ("a",)
    with pytest.raises(TypeError, match="a compiled cascade is compared, got Linear"):
        compare(torch.nn.Linear(1, 1), other)
    with pytest.raises(TypeError, match="got CompiledCascade"):
        compare(cascade, cascade)


def test_all_that_is_compiled_can_be_compared():
    nfa = random_nfa(3, 5)
    assert compare(compile(nfa, "vector"), nfa).holds
    mealy = MealyMachine(np.array([[1, 0], [0, 1]]), np.array([[3, 4], [5, 3]]))
    assert compare(compile(mealy), mealy).holds


@pytest.mark.slow
@pytest.mark.parametrize(("name", "units"), [("04.04.SP.6.1.1", "vector"), ("16.16.LTT.4.3.2", "scalar")])
def test_a_million_letters_in_one_call_have_the_verdicts_of_the_automaton(shared_data, name, units):
    """One of them has 136 states: R over so many steps would need 70 GB."""
    dfa = minimize(read_att(shared_data / "mlregtest" / f"{name}.att"))
    letters = torch.randint(dfa.n_symbols, (1, 1_000_000))
    assert np.array_equal(
        prefix_verdicts(compile(dfa, units), letters), dfa.accepting[dfa.machine.visit(letters.numpy())]
    )
