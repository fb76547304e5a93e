"""Star-free or not, with witnesses, and the size of the transition monoid."""

from __future__ import annotations

import itertools

import mlregtest
import numpy as np
import pytest
from languages import random_dfa

from latchwork.automata import (
    DFA,
    OTHER,
    BudgetError,
    Witness,
    from_regex,
    group_witness,
    is_aperiodic,
    minimize,
    monoid_size,
    read_att,
)

RANDOM = np.random.default_rng(1)
STAR_FREE = {"SF", "LT", "LTT", "PLT", "PT", "SL", "SP", "TLT", "TLTT", "TPLT", "TSL"}


def monoid(transitions):
    """All maps of states that words make, by multiplying letters until nothing is new."""
    letters = [tuple(column) for column in transitions.T.tolist()]
    found = {tuple(range(len(transitions)))}
    queue = list(found)
    for word in queue:
        for letter in letters:
            longer = tuple(letter[state] for state in word)
            if longer not in found:
                found.add(longer)
                queue.append(longer)
    return found


def is_aperiodic_by_powers(transitions):
    """x^S = x^(S + 1) for every x of the monoid."""
    for x in monoid(transitions):
        power = tuple(range(len(x)))
        for _ in x:
            power = tuple(x[state] for state in power)
        if tuple(x[state] for state in power) != power:
            return False
    return True


def check_witness(dfa, witness):
    """The word moves the states of the minimal automaton in a circle, letter by letter."""
    smallest = minimize(dfa)
    assert witness.period == len(set(witness.states)) >= 2
    for state, after in zip(witness.states, witness.states[1:] + witness.states[:1], strict=True):
        for letter in witness.word:
            state = smallest.transitions[state, smallest.alphabet.index(letter)]
        assert state == after


def dfa_of(transitions, accepting, start=0):
    """Letters are a, b, …; accepting: the numbers of states."""
    transitions = np.asarray(transitions)
    alphabet = tuple("abcdefgh"[: transitions.shape[1]])
    return DFA(alphabet, transitions, np.isin(np.arange(len(transitions)), accepting), start)


def mixture(random, states, letters):
    """A table of letters that permute, that are anything, that keep an order."""
    kinds = [
        lambda: random.permutation(states),
        lambda: random.integers(0, states, states),
        lambda: np.sort(random.integers(0, states, states)),
    ]
    chosen = random.choice(3, 2)
    return np.stack([kinds[random.choice(chosen)]() for _ in range(letters)], axis=1)


def check(dfa):
    """Told as by all products of letters of the minimal automaton, which another minimisation makes; whether it is."""
    smallest, _ = mlregtest.minimal(dfa.transitions, set(np.flatnonzero(dfa.accepting).tolist()), dfa.start)
    witness = group_witness(dfa)
    assert (witness is None) == is_aperiodic_by_powers(smallest) == is_aperiodic(dfa)
    assert monoid_size(dfa) == len(monoid(smallest))
    if witness is not None:
        check_witness(dfa, witness)
    return witness is None


def test_all_automata_of_three_states_and_two_letters_are_told_as_by_their_monoids():
    for entries in itertools.product(range(3), repeat=6):
        check(dfa_of(np.array(entries).reshape(3, 2), [1]))


def test_random_automata_are_told_as_by_their_monoids():
    told = []
    for seed in range(300):
        transitions = mixture(RANDOM, int(RANDOM.integers(1, 6)), int(RANDOM.integers(1, 4)))
        told.append(check(dfa_of(transitions, RANDOM.integers(len(transitions)))))
        check(random_dfa(seed, 4))
    assert 50 < sum(told) < 250


def test_states_that_do_not_matter_make_no_circle():
    exchanged = dfa_of([[1], [0]], [0, 1])
    assert is_aperiodic(exchanged)  # all words
    assert monoid_size(exchanged) == 1
    assert is_aperiodic(dfa_of([[0], [2], [1]], [1]))  # the circle is not reached


@pytest.mark.parametrize(
    ("pattern", "star_free"),
    [
        ("(a|b)*abb", True),
        ("(ab)*", True),
        ("a*", True),
        ("(aa)*", False),
        ("(aa)*|a(aa)*", True),
        ("(ab|ba)*", True),
        ("(b*ab*a)*b*", False),
        ("((a|b){3})*", False),
    ],
)
def test_languages_are_told_star_free(pattern, star_free):
    assert is_aperiodic(from_regex(pattern, "ab")) == star_free


def test_a_chain_of_many_states_is_aperiodic_and_a_long_circle_is_not():
    chain = np.minimum(np.arange(500) + 1, 499)[:, None]
    assert group_witness(dfa_of(chain, [499])) is None
    circle = dfa_of((np.arange(400) + 1)[:, None] % 400, [0])
    witness = group_witness(circle)
    assert witness is not None
    check_witness(circle, witness)
    hidden = np.minimum(np.arange(100) + 1, 99)[:, None]
    hidden[99] = 97
    witness = group_witness(dfa_of(hidden, [99]))
    assert witness is not None
    assert witness.period == 3
    check_witness(dfa_of(hidden, [99]), witness)


def test_a_witness_speaks_of_the_letters():
    assert str(group_witness(from_regex("(aa)*", "a"))) == "the word 'a' moves state 0 → 1 → 0"
    turn = DFA(("left", OTHER), np.array([[1, 0], [0, 1]]), np.array([True, False]), other=True)
    assert group_witness(turn) == Witness(("left",), (0, 1))
    assert str(Witness(("left", OTHER), (0, 1))) == "the word ('left', OTHER) moves state 0 → 1 → 0"
    assert str(Witness(("a", OTHER), (0, 1))) == "the word ('a', OTHER) moves state 0 → 1 → 0"
    long = str(Witness(("a", "b") * 50, tuple(range(30))))
    assert long.startswith("the word 'abababababababababab' … (100 letters) moves state 0 → 1 →")
    assert long.endswith("→ 19 → … → 0 (30 states)")


def test_mlregtest_is_star_free_but_for_zp_and_reg(shared_data):
    paths = sorted((shared_data / "mlregtest").glob("*.att"))
    assert len(paths) == 279
    for path in paths:
        kind = path.name.split(".")[2]
        assert kind in STAR_FREE | {"Zp", "Reg"}
        dfa = read_att(path)
        witness = group_witness(dfa)
        assert (witness is None) == (kind in STAR_FREE), path.name
        if witness is not None:
            check_witness(dfa, witness)


EVERY = dfa_of([[1, 1, 0], [2, 0, 0], [3, 2, 2], [0, 3, 3]], [0])  # a circle, an exchange, a merger


def test_sizes_of_monoids():
    assert monoid_size(dfa_of([[0]], [0])) == 1
    assert monoid_size(dfa_of(np.zeros((1, 0), dtype=int), [])) == 1
    assert monoid_size(dfa_of([[0, 1], [0, 1]], [1])) == 3  # flip-flop: two resets and the empty word
    assert monoid_size(dfa_of([[1], [2], [0]], [0])) == 3
    assert monoid_size(EVERY) == 4**4
    assert monoid_size(EVERY, limit=4**4) == 4**4


def test_what_exceeds_a_limit_is_refused():
    with pytest.raises(BudgetError, match="more than 255 maps of the 4 states; a larger limit may help"):
        monoid_size(EVERY, limit=4**4 - 1)
    with pytest.raises(BudgetError, match="more than 3 images of the 4 states; a larger limit may help"):
        group_witness(EVERY, limit=3)
    with pytest.raises(BudgetError, match="more than 3 images"):
        is_aperiodic(EVERY, limit=3)
