"""Automata in files."""

from __future__ import annotations

import numpy as np
import pytest
from languages import language, random_dfa

from latchwork.automata import DFA, OTHER, equivalent, from_regex, is_empty, minimize, read_att, write_att


def written(tmp_path, text: str | bytes):
    path = tmp_path / "machine.att"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_missing_transitions_lead_to_a_sink(tmp_path):
    dfa = read_att(written(tmp_path, "3\t1\tb\tb\n1\t3\ta\ta\n3\n"))
    assert dfa == DFA(("a", "b"), np.array([[1, 2], [2, 0], [2, 2]]), np.array([False, True, False]), start=1)
    assert language(dfa, 4) == language(from_regex("(ba)*", "ab"), 4)


def test_complete_automata_get_no_sink(tmp_path):
    assert read_att(written(tmp_path, "0\t0\ta\n0\n")).n_states == 1


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\n\n"])
def test_line_ends_and_signatures_do_not_matter(tmp_path, ends):
    text = ends.join(["0\t1\ta\ta", "1"])
    assert language(read_att(written(tmp_path, b"\xef\xbb\xbf" + text.encode())), 3) == {("a",)}


def test_a_lonely_accepting_start_has_the_empty_word(tmp_path):
    dfa = read_att(written(tmp_path, "0\n"))
    assert (dfa.n_states, dfa.alphabet) == (1, ())
    assert dfa.accepts("")


def test_other_symbols_reject_or_go_where_the_file_says(tmp_path):
    plain = written(tmp_path, "0\t0\ta\ta\n0\n")
    with pytest.raises(ValueError, match="symbol 'x'"):
        read_att(plain).accepts("ax")
    dfa = read_att(plain, other=True)
    assert dfa.alphabet == ("a", OTHER)
    assert not dfa.accepts("ax")
    dfa = read_att(written(tmp_path, "0\t0\t@_IDENTITY_SYMBOL_@\t@_IDENTITY_SYMBOL_@\n0\t1\ta\ta\n0\n"))
    assert dfa.accepts("xyz")
    assert not dfa.accepts("xaz")


@pytest.mark.parametrize("seed", range(20))
def test_what_is_written_is_read_again(tmp_path, seed):
    dfa = random_dfa(seed, 1 + seed, "abc")
    write_att(dfa, tmp_path / "machine.att")
    assert read_att(tmp_path / "machine.att") == dfa


@pytest.mark.parametrize(
    "dfa",
    [
        from_regex("[ab ]*\t\n", "\t\n ab"),
        from_regex("[^ab]*"),
        from_regex("(?!)", "a"),
        from_regex("", ""),
        DFA(("hello world", "é", "ab"), np.array([[0, 1, 1], [0, 1, 0]]), np.array([True, False])),
    ],
)
def test_letters_may_be_spaces_words_and_all_others(tmp_path, dfa):
    write_att(dfa, tmp_path / "machine.att")
    assert equivalent(read_att(tmp_path / "machine.att"), dfa)
    assert set(read_att(tmp_path / "machine.att").alphabet) == set(dfa.alphabet)


@pytest.mark.parametrize(
    ("alphabet", "message"),
    [
        ((1,), "are strings, got 1"),
        (("a\tb",), "cannot be written"),
        (("",), "cannot be written"),
        (("@0@",), "cannot be written"),
        (("@_SPACE_@",), "cannot be written"),
    ],
)
def test_letters_that_would_be_read_as_others_are_not_written(tmp_path, alphabet, message):
    with pytest.raises(ValueError, match=message):
        write_att(DFA(alphabet, np.array([[0]]), np.array([True])), tmp_path / "machine.att")
    assert not list(tmp_path.iterdir())


def test_an_automaton_without_letters_and_words_is_not_written(tmp_path):
    nothing = DFA((), np.zeros((2, 0), int), np.array([False, True]))
    with pytest.raises(ValueError, match="no lines to write"):
        write_att(nothing, tmp_path / "machine.att")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no states"),
        ("\n \n", "no states"),
        ("0\t1\ta\ta\nx\n", "line 2: a state is a whole number, got 'x'"),
        ("0\t1\ta\ta\n-1\n", "line 2: a state is a whole number"),
        ("0\t1\n", "line 1: a line is 'from to letter letter' .* got 2 fields"),
        ("0\t1\ta\ta\t0.5\n", "line 1: .* got 5 fields"),
        ("0 1 a a\n", "line 1: a state is a whole number"),
        ("0\t1\ta\tb\n", "line 1: 'a' is turned into 'b'"),
        ("0\t1\ta\ta\n\n0\t0\ta\ta\n", "line 3: state 0 already has a transition on 'a', in line 1"),
        ("0\t1\t@0@\t@0@\n", "line 1: '@0@' stands for no letter"),
        ("0\t1\t\t\n", "line 1: '' stands for no letter"),
        ("9" * 5000 + "\n", "line 1: a state is a whole number"),
        (b"0\n\xff\xfe\n", "line 2: not UTF-8"),
    ],
)
def test_errors_name_the_file_and_the_line(tmp_path, text, message):
    with pytest.raises(ValueError, match=rf"machine\.att.*{message}"):
        read_att(written(tmp_path, text))


def test_a_file_that_is_not_there_is_an_os_error(tmp_path):
    with pytest.raises(OSError, match="nowhere"):
        read_att(tmp_path / "nowhere.att")


def test_the_automata_of_mlregtest_are_read(shared_data, tmp_path):
    files = sorted((shared_data / "mlregtest").glob("*.att"))
    assert len(files) == 279
    for file in files:
        dfa = read_att(file)
        assert dfa.n_symbols == int(file.name[:2])
        small = minimize(dfa)
        assert not is_empty(small)
        assert small.n_states <= dfa.n_states
    write_att(dfa, tmp_path / "again.att")
    assert read_att(tmp_path / "again.att") == dfa


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("04.04.SL.2.1.0", "(?!.*aa)[abcd]*"),
        ("04.04.SL.2.1.1", "(?!.*ab)[abcd]*"),
        ("04.04.Zp.2.1.0", "([abd]*c[abd]*c)*[abd]*"),
        ("04.04.Zp.2.1.1", "([abd]*c[abd]*c)*[abd]*c[abd]*"),
        ("04.04.Zp.3.1.2", "([abd]*(c[abd]*){3})*[abd]*"),
        ("04.04.LT.2.1.0", "(?!.*aa)[abcd]*|(?=.*bb)[abcd]*"),
    ],
)
def test_languages_of_mlregtest_are_what_they_should_be(shared_data, name, pattern):
    assert equivalent(read_att(shared_data / "mlregtest" / f"{name}.att"), from_regex(pattern, "abcd"))
