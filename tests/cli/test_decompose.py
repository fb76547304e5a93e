"""`latchwork decompose`, in real processes."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from latchwork.automata import DFA, decompose, from_regex, write_att
from latchwork.cli.main import main


def latchwork(arguments: list[str], cwd) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-X", "utf8", "-m", "latchwork", "decompose", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, encoding="utf-8", timeout=300)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Automata in files: words that end in abb, with a state too many; a counter that b resets; all permutations."""
    folder = tmp_path_factory.mktemp("decompose")
    table = np.array([[1, 0], [1, 2], [1, 3], [1, 4], [1, 0]])
    write_att(DFA(("a", "b"), table, np.array([False, False, False, True, False])), folder / "abb.att")
    first, turned = np.arange(8) == 0, (np.arange(8) + 1) % 8
    write_att(DFA(("a", "b"), np.stack([turned, np.zeros_like(turned)], axis=1), first), folder / "eight.att")
    write_att(DFA(("a", "b"), np.stack([turned, [1, 0, 2, 3, 4, 5, 6, 7]], axis=1), first), folder / "all.att")
    (folder / "broken.att").write_text("0\t1\ta\n1\tone\ta\n")
    return folder


def test_a_star_free_file_is_shown_with_its_cascade_and_formulas(folder):
    result = latchwork(["abb.att"], folder)
    assert result.returncode == 0, result.stderr
    cascade = decompose(from_regex("[ab]*abb", "ab"))
    assert result.stdout == (
        "states     5, 4 after minimisation\n"
        "star-free  yes\n"
        "monoid     size 7\n"
        "degree     1: scalar units suffice\n"
        f"\n{cascade.table()}"
        f"\n{cascade.past_ltl()}"
    )
    assert "accept = " in result.stdout


def test_a_language_that_is_not_star_free_is_shown_with_a_witness(folder):
    result = latchwork(["--regex", "(aa|b)*", "--alphabet", "ab"], folder)
    assert result.returncode == 0, result.stderr
    assert "star-free  no: the word 'a' moves state 0 → 1 → 0\n" in result.stdout
    assert "degree     2: vector units of this degree suffice, though it is not always the least\n" in result.stdout
    assert "permuted (0 → 1, 1 → 0): a\n" in result.stdout
    assert "accept = " not in result.stdout


def test_machines_get_the_same_as_json(folder):
    facts = json.loads(latchwork(["eight.att", "--json"], folder).stdout)
    assert facts["table"].startswith("levels 3, values 2·2·2, ")
    assert {name: facts[name] for name in facts if name != "table"} == {
        "states": 8,
        "minimal_states": 8,
        "letters": ["a", "b"],
        "star_free": False,
        "witness": {"word": ["a"], "states": [0, 1, 2, 3, 4, 5, 6, 7]},
        "monoid_size": 16,
        "degree": 2,
        "flip_flops": 0,
        "levels": [{"values": 2, "kind": "permutation", "degree": 2}] * 3,
        "past_ltl": None,
    }
    facts = json.loads(latchwork([".*a", "--json"], folder).stdout)
    assert facts["letters"] == ["\n", "a", "OTHER"]
    assert facts["star_free"] is True
    assert facts["witness"] is None
    assert "accept = " in facts["past_ltl"]


def test_large_monoids_are_not_counted(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert main(["decompose", "all.att"]) == 0  # 8! permutations
    said = capsys.readouterr().out
    assert "monoid     size above 10,000\n" in said
    assert "degree     8: vector units of this degree suffice, " in said
    assert main(["decompose", "all.att", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["monoid_size"] is None


def test_a_language_is_a_file_if_it_ends_in_att_unless_an_option_says_what_it_is(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    (folder / "abb").write_bytes((folder / "abb.att").read_bytes())
    said = []
    for arguments in (["abb.att"], ["--att", "abb.att"], ["--att", "abb"]):
        assert main(["decompose", *arguments]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] == said[2]
    assert main(["decompose", "--regex", "abb.att", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["minimal_states"] == 9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give one regular expression or .att file: by itself, or behind"),
        (
            ["abb.att", "--regex", "a"],
            "give one regular expression or .att file: by itself, or behind",
        ),
        (["abb.att", "--alphabet", "ab"], "--alphabet goes with a regular expression"),
        (["absent.att"], "No such file"),
        (["broken.att"], "broken.att, line 2: a state is a whole number, got 'one'"),
        (["--regex", "(a"], "unterminated subpattern, at position 0"),
        (["--regex", "a", "--alphabet", "aa"], "letter 'a' comes twice"),
        (["eight.att", "--limit", "0"], "limit must be at least 1 image, got 0"),
    ],
)
def test_bad_input_is_one_error(folder, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(folder)
    assert main(["decompose", *arguments]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("latchwork: error: ")
    assert message in said.err


def test_errors_of_a_process_are_its_status_and_one_line(folder):
    result = latchwork(["eight.att", "--limit", "5"], folder)
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr == (
        "latchwork: error: more than 5 images of the 8 states; a larger limit may help, or a simpler language\n"
    )
