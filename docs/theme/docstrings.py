"""Sections that a docstring writes on one line, shown like the ones it writes as a block.

`Returns: [...] the larger operand.` is a section of the house's docstrings; the parser of mkdocstrings sees text in it.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_SECTION = re.compile(r"^(Arguments|Returns|Raises|Source): (?=\S)", flags=re.MULTILINE)
_SHOWN = {"Arguments": "Parameters"}  # what mkdocstrings calls them


class OneLineSections(griffe.Extension):
    """Turns the name of such a section into a bold word at the start of a paragraph."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = paragraphs(obj.docstring.value)


def paragraphs(text: str) -> str:
    """`text` with every one-line section in a paragraph of its own."""
    return _SECTION.sub(lambda found: f"\n**{_SHOWN.get(found[1], found[1])}:** ", text)
