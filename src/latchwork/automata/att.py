"""Automata as text in the AT&T format, which OpenFst, HFST and foma read and write too."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator
from pathlib import Path

import numpy as np

from latchwork.automata.dfa import DFA, OTHER, check_dfa
from latchwork.automata.minimal import reachable
from latchwork.files import write_text

_OTHER = "@_IDENTITY_SYMBOL_@"  # HFST's and foma's name
_NAMES = {" ": "@_SPACE_@", "\t": "@_TAB_@", "\n": "@_NEWLINE_@", "\r": "@_CARRIAGE_RETURN_@"}
_LETTERS = {name: letter for letter, name in _NAMES.items()}
_EPSILON = ("@0@", "@_EPSILON_SYMBOL_@", "<eps>")


def read_att(path: str | os.PathLike[str], *, other: bool = False) -> DFA:
    """The automaton of an .att file.

    A line is a transition, ``from to letter letter`` (or ``from to letter``), or the number of an accepting state. The
    first line's first state is the start; transitions that are missing lead to a rejecting sink. Letters are sorted,
    states keep their order, and the sink comes last.

    Arguments: other adds a last letter for all symbols that the file does not name; it leads to the sink, unless the
    file has transitions for it.

    Raises: OSError; ValueError naming the file and the line that cannot be read, or whose transition contradicts
    another.
    """
    rows: dict[int, dict[Hashable, int]] = {}
    written: dict[tuple[int, Hashable], int] = {}
    accepting: list[int] = []
    start: int | None = None
    for number, line in _lines(Path(path)):
        where = f"{os.fspath(path)}, line {number}"
        fields = line.split("\t")
        states = [_state(field, where) for field in fields[:2]]
        start = states[0] if start is None else start
        if len(fields) == 1:
            accepting.append(states[0])
            rows.setdefault(states[0], {})
            continue
        letter, row = _letter(fields, where), rows.setdefault(states[0], {})
        if row.setdefault(letter, states[1]) != states[1]:
            first = written[states[0], letter]
            raise ValueError(f"{where}: state {states[0]} already has a transition on {letter!r}, in line {first}")
        written.setdefault((states[0], letter), number)
        rows.setdefault(states[1], {})
    if start is None:
        raise ValueError(f"{os.fspath(path)}: no states; the first line's first state is the start")
    return _automaton(rows, start, accepting, other)


def write_att(dfa: DFA, path: str | os.PathLike[str]) -> None:
    """Write an automaton so that `read_att` gives it back: the same language, and the same table when letters are
    sorted.

    Letters are written as they are, spaces, tabs and line ends as ``@_SPACE_@`` and the like, and the letter for all
    others as ``@_IDENTITY_SYMBOL_@``, as HFST and foma do.

    Raises: OSError; ValueError for letters that are not strings or could not be told apart in the file, and for an
    automaton without letters that accepts nothing, which the format cannot hold.
    """
    check_dfa(dfa)
    names = [_OTHER if dfa.other and a == dfa.n_symbols - 1 else _name(letter) for a, letter in enumerate(dfa.alphabet)]
    if not names:
        dfa = reachable(dfa)
    order = [dfa.start, *(q for q in range(dfa.n_states) if q != dfa.start)]
    lines = [str(dfa.start)] if dfa.accepting[dfa.start] and not names else []
    table = dfa.transitions.tolist()
    lines += [f"{q}\t{target}\t{name}\t{name}" for q in order for name, target in zip(names, table[q], strict=True)]
    lines += [str(q) for q in order if dfa.accepting[q]]
    if not lines:
        raise ValueError("an automaton without letters that accepts nothing has no lines to write")
    write_text(Path(path), "".join(f"{line}\n" for line in dict.fromkeys(lines)))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that hold something, numbered from 1."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = error.object[: error.start].count(b"\n") + 1
        raise ValueError(f"{os.fspath(path)}, line {place}: not UTF-8 text") from None
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, line.removesuffix("\r")


def _state(field: str, where: str) -> int:
    if not (field.isascii() and field.isdigit() and len(field) < 19):
        hint = "; fields are separated by tabs" if len(field.split()) > 1 else ""
        raise ValueError(f"{where}: a state is a whole number, got {field!r}{hint}")
    return int(field)


def _letter(fields: list[str], where: str) -> Hashable:
    if len(fields) not in (3, 4):
        parts = f"got {len(fields)} fields between tabs"
        raise ValueError(f"{where}: a line is 'from to letter letter' or an accepting state alone; {parts}")
    name = fields[2]
    if name != fields[-1]:
        raise ValueError(f"{where}: {name!r} is turned into {fields[3]!r}; this is a transducer, not an automaton")
    if name in ("", *_EPSILON):
        raise ValueError(f"{where}: {name!r} stands for no letter; remove empty transitions first")
    return OTHER if name == _OTHER else _LETTERS.get(name, name)


def _name(letter: Hashable) -> str:
    """A letter as it is written. Raises: ValueError for what would be read as something else."""
    if not isinstance(letter, str):
        raise ValueError(f"letters in .att files are strings, got {letter!r}")
    name = _NAMES.get(letter, letter)
    if name in ("", *_EPSILON, _OTHER) or letter in _LETTERS or any(sign in name for sign in "\t\n\r"):
        raise ValueError(f"the letter {letter!r} cannot be written in an .att file")
    return name


def _automaton(rows: dict[int, dict[Hashable, int]], start: int, accepting: list[int], other: bool) -> DFA:
    letters = {letter for row in rows.values() for letter in row}
    other = other or OTHER in letters
    named = sorted(str(letter) for letter in letters if letter is not OTHER)
    alphabet: tuple[Hashable, ...] = (*named, OTHER) if other else tuple(named)
    columns = {letter: a for a, letter in enumerate(alphabet)}
    number = {state: q for q, state in enumerate(sorted(rows))}
    sink = len(number)
    table = np.full((sink + 1, len(alphabet)), sink, dtype=np.int64)
    for state, row in rows.items():
        for letter, target in row.items():
            table[number[state], columns[letter]] = number[target]
    accepts = np.zeros(sink + 1, dtype=bool)
    accepts[[number[state] for state in accepting]] = True
    states = sink + 1 if (table[:sink] == sink).any() else sink
    return DFA(alphabet, table[:states], accepts[:states], number[start], other)
