"""`latchwork run`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import cast

import tyro

from latchwork.automata import CompiledCascade
from latchwork.cli.display import say, set_threads
from latchwork.cli.lines import Piece, Work, judge_lines


@dataclass
class Run:
    """Print the lines that a compiled cascade accepts, from the first letter to the last; as they come, like grep.

    Where letters are not single characters, white space is between them. A line ends with a line feed. The exit status
    is 0, whether or not a line is accepted.
    """

    cascade: tyro.conf.Positional[Path]
    """What `latchwork compile` or `CompiledCascade.save` wrote."""
    files: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Files to read, one after another; by default standard input."""
    invert: bool = False
    """Take the lines that are not accepted."""
    count: bool = False
    """Print how many lines there are in place of the lines."""
    verdicts: bool = False
    """Print every line, behind `true` or `false` (or the output of a Moore machine) and a tab."""
    prefixes: bool = False
    """Print for every line T or F (or the output of a Moore machine) after each of its letters."""

    threads: int = 1
    """Threads to compute with; one leaves the others to what is before and behind in a pipe."""

    def run(self) -> int:
        set_threads(self.threads)
        if self.count + self.verdicts + self.prefixes > 1:
            raise ValueError("--count, --verdicts and --prefixes are different things to print; choose one")
        cascade = CompiledCascade.load(self.cascade)
        chooses = not (self.verdicts or self.prefixes)
        if chooses and cascade.labels is not None:
            raise ValueError("a Moore machine gives outputs and accepts nothing; use --verdicts or --prefixes")
        if self.invert and not chooses:
            raise ValueError("--invert goes with lines or their --count, of which some are chosen")
        cascade.judge([cascade.alphabet[:1]])  # loads kernels, before time is taken
        work = Work()
        try:
            with cascade.frozen():
                self._print(self._judged(cascade, work))
        except KeyboardInterrupt:
            _say(work)
            return 130
        _say(work)
        return 0

    def _judged(self, cascade: CompiledCascade, work: Work) -> Iterator[list[Piece]]:
        if not self.files:
            yield from judge_lines(cascade, cast("BufferedReader", sys.stdin.buffer), "standard input", work)
        for path in self.files:
            with path.open("rb") as stream:
                yield from judge_lines(cascade, stream, str(path), work)

    def _print(self, judged: Iterable[list[Piece]]) -> None:
        if self.count:
            verdicts = (piece.verdict for pieces in judged for piece in pieces)
            print(sum(verdict is not None and verdict != self.invert for verdict in verdicts))
            return
        for text in _prefixes(judged) if self.prefixes else _lines(judged, self._shown):
            sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
            sys.stdout.buffer.flush()  # who follows a log sees a line when it is there

    def _shown(self, line: str, verdict: bool | int) -> str:
        if self.verdicts:
            return f"{str(verdict).lower()}\t{line}\n"
        return f"{line}\n" if verdict != self.invert else ""


def _lines(judged: Iterable[list[Piece]], shown: Callable[[str, bool | int], str]) -> Iterator[str]:
    """What is shown of whole lines, as soon as they end."""
    held: list[str] = []
    for pieces in judged:
        found = []
        for piece in pieces:
            held.append(piece.text)
            if piece.verdict is not None:
                found.append(shown("".join(held), piece.verdict))
                held = []
        yield "".join(found)


def _prefixes(judged: Iterable[list[Piece]]) -> Iterator[str]:
    """The verdict after each letter, as soon as it is there; a line for every line."""
    begun = False
    for pieces in judged:
        found = []
        for piece in pieces:
            marks = [str(verdict)[0] if isinstance(verdict, bool) else str(verdict) for verdict in piece.each.tolist()]
            found.append(" " * (begun and bool(marks)) + " ".join(marks))
            begun = piece.verdict is None and (begun or bool(marks))
            found.append("\n" * (piece.verdict is not None))
        yield "".join(found)


def _say(work: Work) -> None:
    counts = (work.lines, "line"), (work.letters, "letter")
    rate = work.letters / work.seconds if work.seconds else 0
    lines, letters = (f"{count:,} {name}{'s' * (count != 1)}" for count, name in counts)
    say(f"{lines}, {letters}, {rate:,.0f} letters/s")
