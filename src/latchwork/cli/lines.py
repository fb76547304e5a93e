"""Lines through a compiled cascade, as they come: what has been read is judged at once, however long a line gets."""

from __future__ import annotations

import codecs
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from latchwork.automata import OTHER, CompiledCascade
from latchwork.automata.dfa import shown
from latchwork.automata.machine import IntArray

_READ = 1 << 16  # bytes at a time
_ROWS = 1000  # lines that are run together
_UNKNOWN = -1
_UNICODE = 0x110000


@dataclass
class Work:
    """What has been done: lines, letters, and the seconds that their cascade took."""

    lines: int = 0
    letters: int = 0
    seconds: float = 0.0


class Piece(NamedTuple):
    """The part of a line that has come.

    Arguments:
        text: it.
        each: the verdict after each of its letters.
        verdict: the line's where it ends with this piece, else None.
    """

    text: str
    each: Tensor
    verdict: bool | int | None


def judge_lines(cascade: CompiledCascade, stream: BufferedReader, name: str, work: Work) -> Iterator[list[Piece]]:
    """The lines of a stream in their order, each in one piece or several; as soon as a read returns.

    Bytes that are not UTF-8 are symbols of their own, those of the error handler "surrogateescape".

    Arguments:
        name: of the stream, for messages.
        work: counts what is done.

    Raises: ValueError for a symbol that is not in the alphabet with its line and column, after the lines before it.
    """
    spelling = _spelling(cascade)
    state, line, column, waiting = cascade.initial(1), 1, 0, ""  # before the first letter of what comes
    for read in _texts(stream):
        text = waiting + read
        end = spelling.complete(text) if read else len(text)
        text, waiting = text[:end], text[end:]
        began = time.perf_counter()
        rows = text.split("\n")
        codes, lengths = spelling.codes(rows)
        wrong = int((codes == _UNKNOWN).argmax()) if (codes == _UNKNOWN).any() else None
        if wrong is not None:
            bad = int(np.searchsorted(lengths.cumsum(), wrong, side="right"))
            at, symbol = spelling.place(rows[bad], wrong - int(lengths[:bad].sum()))
            where = f"{name}, line {line + bad}, column {at + 1 + (column if bad == 0 else 0)}"
            rows, lengths = [*rows[:bad], ""], np.append(lengths[:bad], 0)
        states = torch.cat([state, cascade.initial(len(rows) - 1)])
        each, verdicts, states = _run(cascade, codes, lengths, states)
        state = states[-1:]
        column = len(rows[-1]) + (column if len(rows) == 1 else 0)
        last = column > 0 and not read and wrong is None  # the last line of a stream may have no end
        ended = [*verdicts[:-1].tolist(), verdicts[-1].item() if last else None]
        line += len(rows) - 1
        work.lines += len(rows) - 1 + last
        work.letters += int(lengths.sum())
        work.seconds += time.perf_counter() - began
        yield list(map(Piece, rows, each.split(lengths.tolist()), ended))
        if wrong is not None:
            raise ValueError(f"{where}: symbol {symbol!r} is not in the alphabet {shown(cascade.alphabet)}")


class _Characters:
    """Letters that are single characters stand in a line one after another."""

    def __init__(self, letters: Sequence[str], others: int) -> None:
        self.table = np.full(_UNICODE, others)
        self.table[[ord(letter) for letter in letters]] = np.arange(len(letters))

    def complete(self, text: str) -> int:
        """How much of a text can be taken for whole letters, whatever follows."""
        return len(text)

    def codes(self, rows: Sequence[str]) -> tuple[IntArray, IntArray]:
        """The numbers of all letters in one row, and how many there are of each row."""
        points = np.frombuffer("".join(rows).encode("utf-32-le", "surrogatepass"), dtype="<u4")
        return self.table[points], np.array([len(row) for row in rows])

    def place(self, row: str, index: int) -> tuple[int, str]:
        """Where in a row its letter with this index begins, and the letter."""
        return index, row[index]


class _Names:
    """Other letters are named, with white space between."""

    def __init__(self, letters: Sequence[str], others: int) -> None:
        for name in letters:
            if letters.count(name) > 1 or name.split() != [name]:
                raise ValueError(
                    f"letters that are not single characters are told apart by white space, but {name!r} is "
                    f"{'the name of two' if letters.count(name) > 1 else 'empty or holds some'}"
                )
        self.columns, self.others = {name: a for a, name in enumerate(letters)}, others

    def complete(self, text: str) -> int:
        return 1 + max(text.rfind(space) for space in " \t\n")

    def codes(self, rows: Sequence[str]) -> tuple[IntArray, IntArray]:
        named = [row.split() for row in rows]
        codes = [self.columns.get(name, self.others) for names in named for name in names]
        return np.array(codes, dtype=np.int64), np.array([len(names) for names in named])

    def place(self, row: str, index: int) -> tuple[int, str]:
        found = list(re.finditer(r"\S+", row))[index]
        return found.start(), found[0]


def _spelling(cascade: CompiledCascade) -> _Characters | _Names:
    letters = [letter for letter in cascade.alphabet if letter is not OTHER]
    others = len(cascade.alphabet) - 1 if cascade.other else _UNKNOWN
    names = [str(letter) for letter in letters]
    single = all(isinstance(letter, str) and len(letter) == 1 for letter in letters)
    return (_Characters if single else _Names)(names, others)


def _texts(stream: BufferedReader) -> Iterator[str]:
    """What can be read without waiting for more, as text; the last one is empty."""
    decode = codecs.getincrementaldecoder("utf-8")(errors="surrogateescape").decode
    while data := stream.read1(_READ):
        if text := decode(data):
            yield text
    if text := decode(b"", final=True):
        yield text
    yield ""


@torch.no_grad()
def _run(cascade: CompiledCascade, codes: IntArray, lengths: IntArray, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Run words that stand one behind another.

    Arguments:
        codes: the letters of all words, [at least the sum of lengths].
        lengths: [N] how many letters each word has.
        states: [N, D] where each begins.

    Returns: the verdict after every letter, [sum of lengths]; at the end of each word, [N]; and the states there.
    """
    starts = lengths.cumsum() - lengths
    kind = cascade.decide(cascade.read(states[:1])).dtype
    each, verdicts = torch.empty(int(lengths.sum()), dtype=kind), torch.empty(len(lengths), dtype=kind)
    ends = torch.empty_like(states)
    for alike in _alike(lengths):
        rows = torch.from_numpy(alike)
        steps = np.arange(lengths[alike].max())
        mask = steps < lengths[alike, None]
        places = (starts[alike, None] + steps)[mask]
        letters = np.zeros(mask.shape, dtype=np.int64)
        letters[mask] = codes[places]
        keep = torch.from_numpy(mask)
        scores, ends[rows] = cascade(torch.from_numpy(letters), states[rows], mask=keep)
        each[torch.from_numpy(places)] = cascade.decide(scores)[keep]
        verdicts[rows] = cascade.decide(cascade.read(ends[rows]))
    return each, verdicts, ends


def _alike(lengths: IntArray) -> Iterator[IntArray]:
    """Which words to run together: their lengths have as many bits, so that less than half of it all is padding."""
    bits = np.frexp(lengths)[1]
    for size in np.unique(bits):
        rows = np.flatnonzero(bits == size)
        for first in range(0, len(rows), _ROWS):
            yield rows[first : first + _ROWS]
