"""Python's own parse of a regular expression, and a clear word about what has no automaton."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from typing import Any

sre: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
"""The parser of `re` with its names of tree nodes: the only place that knows where it lives."""

# Python below 3.11 has neither of the last two.
_REFUSED = {
    "GROUPREF": "back-references are not regular; spell out what they may repeat",
    "GROUPREF_EXISTS": "conditional groups are not supported; write both cases as alternatives",
    "ATOMIC_GROUP": "atomic groups are not supported; (?:…) lets the group give characters back",
    "POSSESSIVE_REPEAT": "possessive repeats are not supported; without the + they can give characters back",
}

# What matters for positions, tried in this order; everything else is one character.
_TOKEN = re.compile(
    r"""(?P<octal> \\ (?: 0[0-7]{0,2} | [0-3][0-7]{2} ) )
      | (?P<GROUPREF> \\[1-9][0-9]? | \(\?P= [^)]* )
      | \\.
      | \[ \^? \]? (?: \\. | [^\]\\] )* \]
      | \(\?\# [^)]* \)
      | (?P<GROUPREF_EXISTS> \(\?\( [^)]* \) )
      | (?P<ATOMIC_GROUP> \(\?> )
      | (?P<behind> \(\?<[=!] )
      | \(\? (?P<on>[aiLmsux]*) (?:-(?P<off>[imsx]+))? (?P<end>[:)])
      | (?P<open> \( )
      | (?P<close> \) )
      | (?P<repeat> [*+?] | \{ (?!\}) [0-9]* (?:,[0-9]*)? \} ) (?P<more> [?+]? )
      | (?P<comment> \# [^\n]* )
      | .""",
    re.VERBOSE | re.DOTALL,
)


class RegexError(ValueError):
    """A pattern that Python refuses, or that has no automaton here.

    Attributes: pattern; position, where in it the matter is (None where Python does not say).
    """

    def __init__(self, message: str, pattern: str, position: int | None = None) -> None:
        self.pattern, self.position = pattern, position
        super().__init__(
            message if position is None else f"{message}, at position {position}\n{_caret(pattern, position)}"
        )


def parse(pattern: str, flags: int = 0) -> Any:
    """The tree that Python's `re` makes of a pattern; its `state.flags` are the flags with those set in the pattern.

    Raises: RegexError for a pattern that Python refuses, that is nested too deeply, or that has a part without an
    automaton; TypeError for a pattern that is not a string.
    """
    if not isinstance(pattern, str):
        raise TypeError(f"the pattern must be a string, got {type(pattern).__name__}")
    try:
        tree = sre.parse(pattern, int(flags) & ~int(re.DEBUG))
    except re.error as error:
        raise RegexError(error.msg, pattern, error.pos) from None
    except (OverflowError, ValueError) as error:
        raise RegexError(str(error), pattern) from None
    except RecursionError:
        raise RegexError("the pattern is nested too deeply", pattern) from None
    _refuse(tree, pattern)
    return tree


def _refuse(tree: Any, pattern: str) -> None:
    """Raise a RegexError for the first part of a tree that has no automaton or that `re.compile` would refuse."""
    behinds = 0
    for kind, value in _walk(tree):
        if kind in _REFUSED:
            raise RegexError(_REFUSED[kind], pattern, _position(tree, pattern, kind, 0))
        if kind in ("ASSERT", "ASSERT_NOT") and value[0] < 0:
            low, high = value[1].getwidth()
            if low != high:
                where = _position(tree, pattern, "behind", behinds)
                raise RegexError("look-behind requires fixed-width pattern", pattern, where)
            behinds += 1


def _walk(tree: Any) -> Iterator[tuple[str, Any]]:
    """The nodes of a tree by name with their values, in the order of the text."""
    for kind, value in tree:
        yield str(kind), value
        parts = value[1] if kind is sre.BRANCH else value if isinstance(value, tuple) else ()
        for part in parts:
            if isinstance(part, sre.SubPattern):
                yield from _walk(part)


def _position(tree: Any, pattern: str, kind: str, index: int) -> int | None:
    """Where in the text the part of this kind and number stands; trees do not say."""
    found = [position for name, position in tokens(pattern, bool(tree.state.flags & re.VERBOSE)) if name == kind]
    return found[index] if index < len(found) else None


def tokens(pattern: str, verbose: bool) -> Iterator[tuple[str, int]]:
    """The parts of a pattern that `parse` may refuse, with their positions; the pattern is one that Python accepts."""
    groups, position = [verbose], 0
    while position < len(pattern):
        token = _TOKEN.match(pattern, position)
        if token is None:
            return
        position = token.end()
        if token["comment"] is not None and not groups[-1]:
            position = token.start() + 1  # a plain # outside of verbose patterns
        elif token["repeat"] is not None and token["more"] == "+":
            yield "POSSESSIVE_REPEAT", token.start()
        elif token["close"] is not None:
            groups = groups[:-1] or [verbose]
        elif token["end"] == ":":
            groups.append((groups[-1] or "x" in token["on"]) and "x" not in (token["off"] or ""))
        elif token["open"] is not None:
            groups.append(groups[-1])
        for name in ("GROUPREF", "GROUPREF_EXISTS", "ATOMIC_GROUP", "behind"):
            if token[name] is not None:
                yield name, token.start()
                if not token[0].startswith(("\\", "(?P=")):
                    groups.append(groups[-1])


def _caret(pattern: str, position: int) -> str:
    """The line of the pattern that holds a position, and a caret below it."""
    begin = pattern.rfind("\n", 0, position) + 1
    line = pattern[begin:].partition("\n")[0]
    indent = "".join(sign if sign == "\t" else " " for sign in pattern[begin:position])
    return f"  {line}\n  {indent}^"
