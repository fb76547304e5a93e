"""`latchwork run`: lines through a compiled cascade, in real processes and against Python's `re`."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

from latchwork.automata import DFA, MooreMachine, compile, from_regex
from latchwork.cli.main import main

ABB = "(a|b)*abb"
TEXT = r'"[^"\\]*(\\.[^"\\]*)*"'


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "latchwork", "run", *arguments]


def run(arguments: list[str], cwd, given: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command(*arguments), cwd=cwd, input=given, capture_output=True, timeout=300)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Cascades in files."""
    folder = tmp_path_factory.mktemp("run")
    abb = from_regex(ABB, "ab")
    compile(abb).save(folder / "abb.safetensors")
    compile(abb, "scalar").save(folder / "gates.safetensors")
    compile(from_regex(TEXT)).save(folder / "text.safetensors")
    compile(from_regex("", "")).save(folder / "nothing.safetensors")
    named = DFA((10, ["x", "y"][0], 2), abb.transitions[:, [0, 1, 1]], abb.accepting)
    compile(named).save(folder / "named.safetensors")
    compile(MooreMachine(np.array([[1, 0], [2, 0], [0, 0]]), np.array([5, 6, 7]))).save(folder / "moore.safetensors")
    (folder / "torn.safetensors").write_bytes((folder / "abb.safetensors").read_bytes()[:700])
    (folder / "words.txt").write_text("abba\nabb\n\naabb")
    return folder


@pytest.fixture
def inside(folder, monkeypatch, threads):
    """Call the command in this process and in the folder; afterwards there are as many threads as before."""
    monkeypatch.chdir(folder)
    return lambda *arguments: main(["run", *arguments])


def random_lines(letters: str, count: int, longest: int) -> list[str]:
    chance = random.Random(0)
    return ["".join(chance.choices(letters, k=chance.randrange(longest))) for _ in range(count)]


@pytest.mark.parametrize(
    ("name", "pattern", "letters"), [("abb", ABB, "ab"), ("gates", ABB, "ab"), ("text", TEXT, '"""\\a €🙂\r\x85')]
)
def test_accepted_lines_are_those_that_re_matches(folder, name, pattern, letters):
    lines = random_lines(letters, 2500, 90) + random_lines(letters, 3000, 5)
    result = run([f"{name}.safetensors"], folder, "".join(f"{line}\n" for line in lines).encode())
    assert result.returncode == 0, result.stderr
    expected = [line for line in lines if re.fullmatch(pattern, line)]
    assert 100 < len(expected) < len(lines)
    assert result.stdout.decode().split("\n") == [*expected, ""]
    said = rf"{len(lines):,} lines, {sum(map(len, lines)):,} letters, [\d,]+ letters/s\n"
    assert re.fullmatch(said, result.stderr.decode())


def test_every_way_of_printing(inside, capsys):
    for arguments, expected in (
        ([], "abb\naabb\n"),
        (["--invert"], "abba\n\n"),
        (["--count"], "2\n"),
        (["--count", "--invert"], "2\n"),
        (["--verdicts"], "false\tabba\ntrue\tabb\nfalse\t\ntrue\taabb\n"),
        (["--prefixes"], "F F T F\nF F T\n\nF F F T\n"),
    ):
        for cascade in ("abb.safetensors", "gates.safetensors"):
            assert inside(cascade, "words.txt", *arguments) == 0
            assert capsys.readouterr().out == expected


def test_files_are_read_one_after_another(folder, inside, capsys):
    (folder / "more.txt").write_text("b\nbabb\n")
    assert inside("abb.safetensors", "words.txt", "more.txt", "words.txt") == 0
    said = capsys.readouterr()
    assert said.out == "abb\naabb\nbabb\nabb\naabb\n"
    assert said.err.startswith("10 lines, 27 letters, ")


@pytest.mark.parametrize("name", ["abb.safetensors", "gates.safetensors"])
def test_lines_longer_than_what_is_read_at_once_carry_their_state(folder, inside, capsys, name):
    long = ["ab" * 100_000 + "b", "ab" * 100_000, "b" * 65_535, "b" * 65_533 + "abb", ""]
    (folder / "long.txt").write_text("\n".join(long))
    assert inside(name, "long.txt") == 0
    assert capsys.readouterr().out == f"{long[0]}\n{long[3]}\n"
    assert inside(name, "long.txt", "--prefixes") == 0
    marks = capsys.readouterr().out.split("\n")
    assert marks[0] == " ".join("F" * 200_000 + "T")
    assert marks[3] == " ".join("F" * 65_535 + "T")


def test_no_input_is_no_lines_and_an_empty_line_is_the_empty_word(folder):
    result = run(["abb.safetensors", "--verdicts"], folder, b"")
    assert (result.returncode, result.stdout) == (0, b"")
    assert result.stderr == b"0 lines, 0 letters, 0 letters/s\n"
    result = run(["nothing.safetensors", "--verdicts"], folder, b"\n\n")
    assert result.stdout == b"true\t\ntrue\t\n"


def test_an_unknown_symbol_is_an_error_with_its_place_after_the_lines_before_it(folder):
    result = run(["abb.safetensors"], folder, b"abb\nab\nabb\nabxb\nabb\n")
    assert result.returncode == 1
    assert result.stdout == b"abb\nabb\n"
    assert result.stderr.decode() == (
        "latchwork: error: standard input, line 4, column 3: symbol 'x' is not in the alphabet {'a', 'b'}\n"
    )
    (folder / "long.txt").write_bytes(b"abb\n" + b"a" * 100_000 + b"\xff\n")
    result = run(["abb.safetensors", "words.txt", "long.txt"], folder, b"")
    assert result.stdout == b"abb\naabb\nabb\n"
    assert "long.txt, line 2, column 100001: symbol '\\udcff' is not in" in result.stderr.decode()


def test_bytes_that_are_no_text_are_other_symbols_and_stay_what_they_are(folder):
    lines = [b'"\xff\xfe\xe2\x82"', b'"\xe2\x82\xac"', b'"\xff']
    result = run(["text.safetensors"], folder, b"\n".join(lines))
    assert result.stdout == lines[0] + b"\n" + lines[1] + b"\n"


def test_other_letters_stand_between_white_space(folder, inside, capsys):
    (folder / "named.txt").write_text("10 x 2\n  10\t2  2 \nx 10\n2 10 x x")
    assert inside("named.safetensors", "named.txt") == 0
    said = capsys.readouterr()
    assert said.out == "10 x 2\n  10\t2  2 \n2 10 x x\n"
    assert said.err.startswith("4 lines, 12 letters, ")
    (folder / "named.txt").write_text("10 x 2\n10  3 2")
    assert inside("named.safetensors", "named.txt", "--prefixes") == 1
    said = capsys.readouterr()
    assert said.out == "F F T\n"
    assert "named.txt, line 2, column 5: symbol '3' is not in the alphabet {10, 'x', 2}" in said.err


def test_names_that_what_is_read_at_once_cuts_are_put_together(folder, inside, capsys):
    for spaces in range(3):
        (folder / "cut.txt").write_text(" " * spaces + "10 " * 50_000 + "x x")
        assert inside("named.safetensors", "cut.txt", "--count") == 0
        said = capsys.readouterr()
        assert said.out == "1\n"
        assert said.err.startswith("1 line, 50,002 letters, ")


def test_moore_machines_give_their_outputs(folder, inside, capsys):
    (folder / "moore.txt").write_text("0 0 1 0\n\n0")
    assert inside("moore.safetensors", "moore.txt", "--prefixes") == 0
    assert capsys.readouterr().out == "6 7 5 6\n\n6\n"
    assert inside("moore.safetensors", "moore.txt", "--verdicts") == 0
    assert capsys.readouterr().out == "6\t0 0 1 0\n5\t\n6\t0\n"
    assert inside("moore.safetensors", "moore.txt") == 1
    assert "a Moore machine gives outputs and accepts nothing" in capsys.readouterr().err


def test_letters_that_look_alike_are_refused(tmp_path, inside, capsys):
    for letters, message in (((1, "1"), "'1' is the name of two"), ((" ", "ab"), "' ' is empty or holds some")):
        compile(DFA(letters, np.zeros((1, 2), dtype=int), np.array([True]))).save(tmp_path / "alike.safetensors")
        assert inside(str(tmp_path / "alike.safetensors"), "words.txt") == 1
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent.safetensors"], "No such file"),
        (["words.txt"], "words.txt is no safetensors file, or damaged"),
        (["torn.safetensors"], "torn.safetensors is no safetensors file, or damaged"),
        (["abb.safetensors", "absent.txt"], "No such file"),
        (["abb.safetensors", "--count", "--prefixes"], "choose one"),
        (["abb.safetensors", "--verdicts", "--invert"], "--invert goes with lines or their --count"),
        (["abb.safetensors", "--threads", "0"], "threads must be at least 1"),
    ],
)
def test_mistakes_are_one_error(inside, capsys, arguments, message):
    assert inside(*arguments) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("latchwork: error: ")
    assert message in said.err


@pytest.mark.skipif(sys.platform == "win32", reason="signals of a terminal")
def test_a_line_is_printed_before_the_next_one_comes_and_ctrl_c_ends_it(folder):
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command("abb.safetensors"), cwd=folder, bufsize=0, **options) as process:
        for parts in ((b"abb\n",), (b"ba\nba", b"bb\n")):
            for part in parts:
                process.stdin.write(part)
            assert process.stdout.readline() == b"".join(parts).split(b"\n")[-2] + b"\n"
        process.send_signal(signal.SIGINT)
        out, said = process.stdout.read(), process.stderr.read().decode()
        assert process.wait(timeout=60) == 130
    assert out == b""
    assert re.fullmatch(r"3 lines, 9 letters, [\d,]+ letters/s\n", said)


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of a POSIX system")
def test_a_reader_that_has_seen_enough_ends_it_quietly(folder):
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command("abb.safetensors"), cwd=folder, **options) as process:
        process.stdin.write(b"abb\n" * 10)
        process.stdin.flush()
        assert process.stdout.readline() == b"abb\n"
        process.stdout.close()
        try:
            process.stdin.write(b"abb\n" * 100_000)
            process.stdin.close()
        except BrokenPipeError:
            pass
        assert process.stderr.read() == b""
        process.wait(timeout=60)
