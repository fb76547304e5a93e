"""Moore machines."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from latchwork.automata.machine import MooreMachine
from latchwork.automata.mealy import MealyMachine

PARITY = MooreMachine(np.array([[0, 1], [1, 0]]), np.array([10, 11]))


def test_parity_of_all_words_up_to_length_6():
    for length in range(7):
        words = np.array(list(itertools.product((0, 1), repeat=length)), dtype=np.int64).reshape(2**length, length)
        outputs, states = PARITY.run(words)
        assert np.array_equal(outputs, 10 + np.cumsum(words, axis=1) % 2)
        assert np.array_equal(states, words.sum(axis=1) % 2)


def test_a_word_may_be_read_in_pieces():
    words = np.random.default_rng(0).integers(0, 2, (5, 30))
    whole, end = PARITY.run(words)
    first, between = PARITY.run(words[:, :11])
    second, last = PARITY.run(words[:, 11:], between)
    assert np.array_equal(whole, np.concatenate([first, second], axis=1))
    assert np.array_equal(end, last)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.array([[0, 2]]), np.array([0])), "lead to states 0 … 0"),
        ((np.array([[0, 1]]), np.array([0, 1])), r"transitions must be \[S = 2, A\]"),
        ((np.array([[0]]), np.array([0]), 1), "start must be in 0 … 0"),
        (([[0], [1]], [0, 1], 1.9), "start must be the number of a state, got 1.9"),
        (([[0], [1]], [0, 1], True), "start must be the number of a state, got True"),
        (([[0], [1]], [0, 1], "1"), "start must be the number of a state, got '1'"),
        ((np.array([[0]]), np.array([[0]])), r"outputs must be \[S\], got \(1, 1\)"),
        ((np.array([[0]]), np.array([0.5])), "outputs must be integers, got float64"),
        ((np.array([[0]]), ["high"]), "outputs must be integers, got <U4"),
        ((np.array([[0]]), np.array([2**63], dtype=np.uint64)), r"outputs must be less than 2\^63"),
        ((np.array([[0.0]]), np.array([0])), "transitions must be integers, got float64"),
        (([[0], [0, 1]], [0, 1]), "transitions must have rows of equal length"),
    ],
)
def test_tables_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        MooreMachine(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[0]], [[0.5]]), "outputs must be integers, got float64"),
        (([[0]], [[None]]), "outputs must be integers, got object"),
        (([[0]], [[0]], 0, 0.5), "first must be integers, got float64"),
        (([[0]], [0]), r"outputs must be \[S, A\] = \(1, 1\)"),
        (([[1]], [[0]]), "lead to states 0 … 0"),
    ],
)
def test_tables_of_mealy_machines_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        MealyMachine(*arguments)


def test_tables_may_be_lists():
    assert MooreMachine([[1], [0]], [5, 7]).run(np.array([[0, 0]]))[0].tolist() == [[7, 5]]
    assert MealyMachine([[1], [0]], [[5], [7]]).to_moore().run(np.array([[0, 0]]))[0].tolist() == [[5, 7]]


def test_unknown_symbols_are_refused():
    with pytest.raises(ValueError, match="symbols must be in 0 … 1"):
        PARITY.run(np.array([[0, 2]]))


def test_unknown_states_are_refused():
    for state in (-1, 2):
        with pytest.raises(ValueError, match="states must be in 0 … 1"):
            PARITY.run(np.array([[0, 1]]), np.array([state]))
