"""`latchwork compile`: networks in files, and what is said of them."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from latchwork.automata import DFA, BudgetError, CompiledCascade, compare, from_regex, write_att
from latchwork.cli import compile as command
from latchwork.cli.main import main


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_pattern_becomes_a_file_that_is_proved_equal(tmp_path):
    arguments = ["compile", "(a|b)*abb", "--alphabet", "ab", "-o", "abb.safetensors"]
    run = [sys.executable, "-X", "utf8", "-m", "latchwork", *arguments]
    result = subprocess.run(run, capture_output=True, text=True, encoding="utf-8", timeout=300)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert result.stdout == (
        "states     4, 4 after minimisation; letters {'a', 'b'}\n"
        "units      1\n"
        "degree     4\n"
        "stages     1\n"
        "gates      0\n"
        "parameters 46\n"
        "equality   proved for every word, by the 4 pairs of states that words lead to\n"
        f"file       abb.safetensors, {(tmp_path / 'abb.safetensors').stat().st_size:,} bytes\n"
    )
    cascade = CompiledCascade.load("abb.safetensors")
    assert compare(cascade, from_regex("(a|b)*abb", "ab")).holds
    assert [path.name for path in tmp_path.iterdir()] == ["abb.safetensors"]


@pytest.mark.parametrize(
    ("units", "count", "degree"), [("scalar", 3, 1), ("mixed", 3, 1), ("vector", 1, 4), ("auto", 1, 4)]
)
def test_units_are_what_was_asked_for(capsys, units, count, degree):
    arguments = ["compile", "(a|b)*abb", "--alphabet", "ab", "--out", "new/abb.safetensors", "--units", units]
    assert main([*arguments, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    cascade = CompiledCascade.load("new/abb.safetensors")
    assert (facts["units"], facts["degree"]) == (count, degree) == (cascade.n_units, cascade.degree)
    assert facts["gates"] == cascade.n_gates
    assert facts["parameters"] == sum(p.numel() for p in cascade.parameters())
    assert facts["proved_equal"] is True
    assert facts["pairs"] == 4


def test_a_file_is_compiled_over_its_own_letters(capsys):
    table = np.array([[1, 0], [1, 2], [1, 3], [1, 4], [1, 0]])
    dfa = DFA(("go", "stop"), table, np.array([False, False, False, True, False]))
    write_att(dfa, "abb.att")
    for source in (["abb.att"], ["--att", "abb.att"]):
        assert main(["compile", *source, "-o", "abb.safetensors", "--json"]) == 0
        facts = json.loads(capsys.readouterr().out)
        assert (facts["states"], facts["minimal_states"], facts["letters"]) == (5, 4, ["go", "stop"])
        assert compare(CompiledCascade.load("abb.safetensors"), dfa).holds


def test_letters_are_those_of_the_pattern_and_one_for_others(capsys):
    assert main(["compile", "[^a]*a", "-o", "a.safetensors", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["letters"] == ["a", "OTHER"]
    assert CompiledCascade.load("a.safetensors").accepts("€ba")


def test_where_equality_is_beyond_the_budget_it_is_said(monkeypatch, capsys):
    monkeypatch.setattr(command, "compare", lambda cascade, dfa: compare(cascade, dfa, budget=2))
    arguments = ["compile", "(a|b)*abb", "--alphabet", "ab", "-o", "abb.safetensors"]
    assert main(arguments) == 0
    assert "equality   not proved and not tested: more than 2 pairs of states" in capsys.readouterr().out
    assert main([*arguments, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["proved_equal"], facts["pairs"]) == (False, None)


def test_a_cascade_that_differs_is_not_written(tmp_path, monkeypatch, capsys):
    wrong = from_regex("(a|b)*aab", "ab")
    monkeypatch.setattr(command, "compare", lambda cascade, _: compare(cascade, wrong))
    assert main(["compile", "(a|b)*abb", "--alphabet", "ab", "-o", "abb.safetensors"]) == 1
    assert "differs from the automaton after ['a', 'a', 'b']" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["(a", "-o", "x.safetensors"], "unterminated subpattern, at position 0\n  (a\n  ^"),
        (["(a|b", "--alphabet", "aa", "-o", "x.safetensors"], "unterminated subpattern, at position 0"),
        (["absent.att", "-o", "x.safetensors"], "No such file"),
        (["-o", "x.safetensors"], "give one regular expression or .att file"),
        (["a", "--regex", "a", "-o", "x.safetensors"], "give one regular expression or .att file"),
        (["a", "-o", "x.att"], "--out must end in .safetensors, got 'x.att'"),
        (["a", "-o", "kept/x.safetensors"], "--out 'kept/x.safetensors' cannot be written"),
        (["(aa)*", "--units", "scalar", "-o", "x.safetensors"], "not star-free"),
        (["kept", "-o", "x.safetensors"], "there is a file or folder 'kept': use --att for an automaton in it, or"),
        ([r".*\bERROR\b.*", "-o", "x.safetensors"], "begin the pattern with (?a) to mean those of ASCII"),
    ],
)
def test_mistakes_are_one_error_and_leave_no_file(tmp_path, capsys, arguments, message):
    (tmp_path / "kept").write_text("a file")
    assert main(["compile", *arguments]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("latchwork: error: ")
    assert message in said.err
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


@pytest.mark.parametrize(
    ("pattern", "which"), [("abc", "no word at all"), (".*", "every word"), ("(?s).*", "every word"), ("a", None)]
)
def test_a_language_that_is_hardly_meant_is_told(tmp_path, capsys, pattern, which):
    assert main(["compile", pattern, "--alphabet", "ab", "-o", str(tmp_path / "x.safetensors")]) == 0
    said = capsys.readouterr().err
    assert (f"careful: {which} is in this language; its letters are {{'a', 'b'}}" in said) == (which is not None)


def test_info_says_what_a_compiled_cascade_is(tmp_path, capsys):
    file = tmp_path / "x.safetensors"
    assert main(["compile", "(a|b)*abb", "--alphabet", "ab", "--units", "scalar", "-o", str(file)]) == 0
    made = capsys.readouterr().out
    assert main(["info", str(file), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["units"] == 3
    assert f"units      {facts['units']}" in made
    assert facts["letters"] == "{'a', 'b'}"
    file.write_bytes(b"x")
    assert main(["info", str(file)]) == 1
    assert "no safetensors file, or damaged" in capsys.readouterr().err


def test_a_file_that_was_there_outlives_an_error(tmp_path, monkeypatch, capsys):
    file = tmp_path / "x.safetensors"
    file.write_text("precious")

    def too_large(*_):
        raise BudgetError("too large")

    monkeypatch.setattr(command, "compile", too_large)
    assert main(["compile", "a", "-o", "x.safetensors"]) == 1
    assert file.read_text() == "precious"
