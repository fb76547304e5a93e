"""Aperiodicity, its witnesses, and the size of the transition monoid."""

from __future__ import annotations

import itertools

import mlregtest
import numpy as np
import pytest

from latchwork.automata.aperiodic import group_witness, is_aperiodic, monoid_size

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


def check_witness(transitions, witness):
    assert witness.period == len(set(witness.states)) >= 2
    for state, after in zip(witness.states, witness.states[1:] + witness.states[:1], strict=True):
        for letter in witness.word:
            state = transitions[state, letter]
        assert state == after


def mixture(random, states, letters):
    """A table of letters that permute, that are anything, that keep an order."""
    kinds = [
        lambda: random.permutation(states),
        lambda: random.integers(0, states, states),
        lambda: np.sort(random.integers(0, states, states)),
    ]
    chosen = random.choice(3, 2)
    return np.stack([kinds[random.choice(chosen)]() for _ in range(letters)], axis=1)


def test_all_automata_of_three_states_and_two_letters_are_told_as_by_their_monoids():
    for entries in itertools.product(range(3), repeat=6):
        transitions = np.array(entries).reshape(3, 2)
        witness = group_witness(transitions)
        assert (witness is None) == is_aperiodic_by_powers(transitions)
        if witness is not None:
            check_witness(transitions, witness)


def test_random_automata_are_told_as_by_their_monoids():
    told = []
    for _ in range(300):
        transitions = mixture(RANDOM, int(RANDOM.integers(1, 6)), int(RANDOM.integers(1, 4)))
        witness = group_witness(transitions)
        told.append(witness is None)
        assert told[-1] == is_aperiodic_by_powers(transitions) == is_aperiodic(transitions)
        assert monoid_size(transitions) == len(monoid(transitions))
        if witness is not None:
            check_witness(transitions, witness)
    assert 50 < sum(told) < 250


def test_a_chain_of_many_states_is_aperiodic_and_a_long_circle_is_not():
    chain = np.minimum(np.arange(500) + 1, 499)[:, None]
    assert group_witness(chain) is None
    circle = (np.arange(400) + 1)[:, None] % 400
    witness = group_witness(circle)
    assert witness is not None
    check_witness(circle, witness)
    hidden = np.minimum(np.arange(100) + 1, 99)[:, None]
    hidden[99] = 97
    witness = group_witness(hidden)
    assert witness is not None
    assert witness.period == 3
    check_witness(hidden, witness)


def test_mlregtest_is_star_free_but_for_zp_and_reg(shared_data):
    paths = sorted((shared_data / "mlregtest").glob("*.att"))
    assert len(paths) == 279
    for path in paths:
        kind = path.name.split(".")[2]
        assert kind in STAR_FREE | {"Zp", "Reg"}
        automaton = mlregtest.read(path)
        witness = group_witness(automaton.transitions)
        assert (witness is None) == (kind in STAR_FREE), path.name
        if witness is not None:
            check_witness(automaton.transitions, witness)


def test_sizes_of_monoids():
    assert monoid_size(np.array([[0]])) == 1
    assert monoid_size(np.zeros((1, 0), dtype=int)) == 1
    assert monoid_size(np.array([[0, 1], [0, 1]])) == 3  # flip-flop: two resets and the empty word
    assert monoid_size(np.array([[1], [2], [0]])) == 3
    every = np.array([[1, 1, 0], [2, 0, 0], [3, 2, 2], [0, 3, 3]])  # a circle, an exchange, a merger
    assert monoid_size(every) == 4**4
    assert monoid_size(every, limit=4**4) == 4**4
    assert monoid_size(every, limit=4**4 - 1) is None


@pytest.mark.parametrize(
    ("transitions", "message"),
    [
        (np.zeros((0, 2), dtype=int), r"must be \[S, A\] with S ≥ 1"),
        (np.zeros(3, dtype=int), r"must be \[S, A\] with S ≥ 1"),
        (np.array([[0, 2], [0, 1]]), "must lead to states 0 … 1"),
        (np.array([[0, -1], [0, 1]]), "must lead to states 0 … 1"),
        (np.array([[0.0], [1.0]]), "must be integers"),
    ],
)
def test_tables_that_are_none_are_refused(transitions, message):
    with pytest.raises(ValueError, match=message):
        group_witness(transitions)
    with pytest.raises(ValueError, match=message):
        monoid_size(transitions)


def test_too_many_images_are_refused():
    with pytest.raises(ValueError, match="more than 3 images of the 4 states"):
        group_witness(np.array([[1, 1, 0], [2, 0, 0], [3, 2, 2], [0, 3, 3]]), limit=3)
