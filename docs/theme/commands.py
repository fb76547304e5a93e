"""The help of the command line as Markdown."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterator
from unittest import mock

PLAIN = {**os.environ, "COLUMNS": "79", "NO_COLOR": "1", "TERM": "dumb"}
"""An environment in which help is text without colours, 79 columns wide."""


def sections() -> Iterator[str]:
    """What `--help` prints, for every command."""
    for command, text in helps():
        yield f"{'#' * min(2 + len(command), 3)} latchwork {' '.join(command)}".rstrip()
        yield f"\n```text\n{text}\n```\n"


def helps(command: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every command with the text of its help, parents first."""
    text = help_of(command)
    yield command, text
    usage = text.split("\n\n", 1)[0]
    if names := re.search(r"\{([a-z-]+(?:,\s*[a-z-]+)*)\}$", usage):
        for name in re.split(r",\s*", names[1]):
            yield from helps((*command, name))


def help_of(command: tuple[str, ...]) -> str:
    """What `latchwork COMMAND --help` prints."""
    from latchwork.cli.main import main

    out = io.StringIO()
    with mock.patch.dict(os.environ, PLAIN), contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main([*command, "--help"])
    return "\n".join(line.rstrip() for line in out.getvalue().strip().splitlines())
