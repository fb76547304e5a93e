"""A regular language on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from latchwork.automata import DFA, CompiledCascade, from_regex, read_att


@dataclass(kw_only=True)
class OfLanguage:
    """What commands about a regular language have in common: where it comes from."""

    language: tyro.conf.Positional[str | None] = None
    """A regular expression in Python's syntax, or an automaton in the AT&T text format if it ends in .att."""
    regex: str | None = None
    """A regular expression, whatever it ends in."""
    att: Path | None = None
    """An automaton in the AT&T text format, whatever its name ends in."""
    alphabet: str | None = None
    """The letters of a regular expression; by default those that it tells apart, and one for all others."""

    def automaton(self) -> DFA:
        """Raises: OSError; ValueError for none or several languages, and for one that cannot be read."""
        if sum(source is not None for source in (self.language, self.regex, self.att)) != 1:
            raise ValueError("give one regular expression or .att file: by itself, or behind --regex or --att")
        file, pattern = self.att, self.regex
        if self.language is not None:
            if self.language.endswith(".att"):
                file = Path(self.language)
            elif Path(self.language).exists():
                raise ValueError(
                    f"there is a file or folder {self.language!r}: use --att for an automaton in it, "
                    "or --regex for the expression"
                )
            else:
                pattern = self.language
        if file is not None:
            if self.alphabet is not None:
                raise ValueError("--alphabet goes with a regular expression; a file names its letters itself")
            return read_att(file)
        return from_regex(pattern or "", self.alphabet)


def sizes(cascade: CompiledCascade) -> dict[str, int]:
    """How large a compiled cascade is, by what its parts are called."""
    return {
        "units": cascade.n_units,
        "stages": len(cascade.stages),
        "gates": cascade.n_gates,
        "degree": cascade.degree,
        "parameters": sum(p.numel() for p in cascade.parameters()),
    }
