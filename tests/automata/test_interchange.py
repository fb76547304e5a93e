"""Automata of automata-lib, there and back."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from languages import language, random_dfa, random_nfa, words

from latchwork.automata import DFA, OTHER, from_automata_lib, from_regex, to_automata_lib


@pytest.fixture
def fa():
    pytest.importorskip("automata.fa.dfa", reason="automata-lib is not installed")
    import automata.fa.dfa
    import automata.fa.nfa

    return automata.fa


@pytest.mark.parametrize("seed", range(15))
def test_deterministic_automata_come_back_as_they_went(fa, seed):
    dfa = random_dfa(seed, 1 + seed % 6, "abc")
    theirs = to_automata_lib(dfa)
    assert {word for word in words("abc", 4) if theirs.accepts_input("".join(word))} == language(dfa, 4)
    back = from_automata_lib(theirs)
    assert language(back, 4) == language(dfa, 4)
    assert back.n_states == len(theirs.states)


@pytest.mark.parametrize("seed", range(15))
def test_nondeterministic_automata_come_back_as_they_went(fa, seed):
    nfa = random_nfa(seed, 1 + seed % 5)
    theirs = to_automata_lib(nfa)
    assert {word for word in words("ab", 4) if theirs.accepts_input("".join(word))} == language(nfa, 4)
    assert language(from_automata_lib(theirs), 4) == language(nfa, 4)


def test_missing_transitions_lead_to_a_sink(fa):
    theirs = fa.dfa.DFA(
        states={"even", "odd"},
        input_symbols={"a", "b"},
        transitions={"even": {"a": "odd"}, "odd": {"a": "even"}},
        initial_state="even",
        final_states={"even"},
        allow_partial=True,
    )
    assert language(from_automata_lib(theirs), 4) == language(from_regex("(aa)*", "ab"), 4)


def test_what_the_other_side_lacks_is_refused(fa):
    with pytest.raises(ValueError, match="stands for all others"):
        to_automata_lib(DFA((OTHER,), np.array([[0]]), np.array([True]), other=True))
    with pytest.raises(ValueError, match="are strings that are not empty, got 7"):
        to_automata_lib(DFA((7,), np.array([[0]]), np.array([True])))
    with pytest.raises(TypeError, match="expected a DFA or NFA of automata-lib, got str"):
        from_automata_lib("a*")


def test_without_the_library_one_is_told_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "automata"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "automata", None)
    with pytest.raises(ImportError, match=r"pip install 'latchwork\[automata\]'"):
        to_automata_lib(random_dfa(0, 2))
