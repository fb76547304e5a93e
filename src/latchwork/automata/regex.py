"""Regular expressions in Python's syntax as automata."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np

from latchwork.automata.characters import LAST, Characters
from latchwork.automata.dfa import DFA, OTHER, BoolArray, letters
from latchwork.automata.machine import IntArray
from latchwork.automata.minimal import minimize
from latchwork.automata.patterns import RegexError, parse
from latchwork.automata.plain import PlainStepper, is_plain
from latchwork.automata.program import Program
from latchwork.automata.search import BUDGET, explore
from latchwork.automata.stepping import Stepper
from latchwork.automata.surroundings import Surroundings

MOST_NAMED = 1024
"""A set with more characters inside *and* outside does not become part of an alphabet by itself."""

_WORK = 250
"""How many visits of nodes a state may cost, on average over the budget."""


def from_regex(
    pattern: str,
    alphabet: Iterable[str] | None = None,
    flags: int = 0,
    *,
    other: bool = False,
    budget: int = BUDGET,
) -> DFA:
    """The smallest automaton that accepts the words that ``re.fullmatch(pattern, word, flags)`` matches.

    All of Python's syntax is understood but for back-references, conditional groups, atomic groups and possessive
    repeats.

    Arguments:
        pattern: as for `re`; it may set flags too.
        alphabet: the letters, single characters. By default those that the pattern tells apart, and OTHER.
        flags: of `re`, such as ``re.IGNORECASE | re.ASCII``.
        other: add a last letter, OTHER, for all characters that are not in the alphabet.
        budget: the most positions of the expanded pattern, and the most states before minimisation.

    Raises: RegexError with the position for a pattern that Python refuses or that holds one of the parts above, and for
    one that tells apart characters that are not in the alphabet while OTHER is to stand for all of them; BudgetError
    for one that is too large; ValueError for an alphabet that is not of different single characters.
    """
    if not isinstance(pattern, str) or isinstance(flags, bool) or not isinstance(flags, int):
        got = f"{pattern!r} with flags {flags!r}"
        raise TypeError(f"the pattern must be a string and flags those of re, such as re.IGNORECASE; got {got}")
    tree = parse(pattern, flags)
    try:
        program = Program(tree, budget)
        sets = program.sets()
        if alphabet is None:
            named, other = _named(sets, pattern), True
        else:
            named = _characters(alphabet)
        inside = {characters: _columns(characters, named, other, pattern) for characters in sets}
        return minimize(_automaton(program, inside, (*named, *([OTHER] if other else [])), budget, other))
    except RecursionError:
        raise RegexError("the pattern is nested too deeply", pattern) from None


def _automaton(
    program: Program,
    inside: dict[Characters, frozenset[int]],
    alphabet: tuple[Hashable, ...],
    budget: int,
    other: bool,
) -> DFA:
    """Determinise over one character of each kind that the pattern treats alike, then give all of them its column."""
    kinds: dict[tuple[bool, ...], int] = {}
    kind = [kinds.setdefault(tuple(a in s for s in inside.values()), len(kinds)) for a in range(len(alphabet))]
    known = {characters: frozenset(kind[a] for a in columns) for characters, columns in inside.items()}
    nodes = ((n, getattr(node, "characters", None)) for n, node in enumerate(program.nodes))
    asked = {n: known[characters] for n, characters in nodes if characters is not None}
    around = Surroundings(program, asked, len(kinds), empty_non_boundary=re.fullmatch(r"\B", "") is not None)
    stepper = PlainStepper(program, around) if is_plain(program) else Stepper(program, around, budget * _WORK)
    table, accepting = _explored(stepper, len(kinds), budget)
    return DFA(alphabet, table[:, kind], accepting, 0, other)


def _explored(stepper: Any, n_symbols: int, budget: int) -> tuple[IntArray, BoolArray]:
    """The table of a stepper, and which of its states accept."""
    states, table = explore(stepper.start, stepper.after, n_symbols, budget)
    return table, np.array([stepper.accepts(state) for state in states])


def _characters(alphabet: Iterable[str]) -> tuple[str, ...]:
    """An alphabet of single characters. Raises: ValueError for anything else."""
    named = letters(alphabet)
    for letter in named:
        if not isinstance(letter, str) or len(letter) != 1:
            raise ValueError(f"the letters of a regular expression are single characters, got {letter!r}")
    return tuple(str(letter) for letter in named)


def _named(sets: list[Characters], pattern: str) -> tuple[str, ...]:
    """The characters that sets tell apart from the rest, sorted. Raises: RegexError for a set with too many."""
    named: set[str] = set()
    for characters in sets:
        few = characters.few(MOST_NAMED)
        if few is None:
            inside = f"{characters.text} is {characters.count():,} characters"
            raise RegexError(
                f"{inside}, too many to be letters by default: begin the pattern with (?a) to mean those of ASCII, "
                "or give the alphabet",
                pattern,
            )
        named.update(few)
    return tuple(sorted(named))


def _columns(characters: Characters, named: tuple[str, ...], other: bool, pattern: str) -> frozenset[int]:
    """The numbers of the letters in a set. Raises: RegexError when OTHER is in it and not in it."""
    columns = {a for a, letter in enumerate(named) if letter in characters}
    if not other:
        return frozenset(columns)
    inside = characters.count() - len(columns)
    outside = LAST + 1 - len(named) - inside
    if inside and outside:
        example = next(chr(code) for a, b in characters.spans() for code in range(a, b) if chr(code) not in set(named))
        what = f"{characters.text} holds {example!r} but not all other characters that OTHER stands for"
        raise RegexError(f"{what}: add to the alphabet what is to be told apart", pattern)
    return frozenset(columns | {len(named)} if inside else columns)
