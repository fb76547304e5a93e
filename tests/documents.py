"""Read the pages of the documentation and do what they say.

The blocks of a page belong together, in their order: its Python blocks share one namespace, and all of it happens in
one folder. A `text` block right after a Python block is what that prints. In a `console` block, lines that begin with
`$ ` are typed and what follows each is what it says.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")],
)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, the line it begins on, and whether it follows the one before at once."""

    language: str
    text: str
    line: int
    follows: bool


def name_of(page: Path) -> str:
    """The path of a page in the repository."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page."""
    text, end = page.read_text("utf-8"), -1
    for found in re.finditer(r"^```(\w+)[^\n]*\n(.*?)^```\n?", text, flags=re.S | re.M):
        follows = end >= 0 and not text[end : found.start()].strip()
        end = found.end()
        yield Block(found[1], found[2], text.count("\n", 0, found.start()) + 1, follows)


def run(page: Path, *, shell: bool) -> None:
    """Do what a page says, in the current folder; without `shell` only its Python blocks before the first command.

    Raises: AssertionError where something else is printed than the page shows.
    """
    module = types.ModuleType("page")
    sys.modules["page"] = module  # dataclasses look for the module of a class there
    names = vars(module)
    printed: str | None = None
    for block in blocks(page):
        where = f"{name_of(page)}:{block.line}"
        if block.language == "python":
            printed = run_python(block, where, names)
        elif block.language == "text" and block.follows and printed is not None:
            assert comparable(printed) == comparable(block.text), f"{where} prints\n{printed}"
        elif block.language == "console":
            if not shell:
                return
            for command, shown in commands(block.text):
                said = run_command(command)
                assert comparable(said) == comparable(shown), f"{where}: {command}\nsays\n{said}"


def run_python(block: Block, where: str, names: dict[str, Any]) -> str:
    """What a block prints; its lines count from its place in the page."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile("\n" * block.line + block.text, where, "exec", dont_inherit=True), names)
    return out.getvalue()


def commands(text: str) -> Iterator[tuple[str, str]]:
    """The commands of a console block with what they say."""
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        typed = re.match(r"(?:[^\n]*\\\n)*[^\n]*\n", part)
        assert typed is not None, part
        yield typed[0].strip(), part[typed.end() :]


def run_command(command: str) -> str:
    """What a command says on both channels, as it would to a person, but for the bar."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1", "COLUMNS": "80"}
    done = subprocess.run(
        command, shell=True, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=1800
    )
    return done.stdout


def comparable(text: str) -> str:
    """`text` without what depends on the machine: figures of speed, time, memory and learning, progress, and how many
    validations there were."""
    lines: list[str] = []
    for line in text.rstrip().splitlines():
        if re.match(r"(training|evaluating) [\d,]+/", line):
            continue  # a line of progress, where there is no terminal for a bar
        line = re.sub(r"\bstep-\d+", "step-N", line.rstrip())
        line = re.sub(r"\bstep [\d,]+ · epoch \S+ · validation accuracy \S+", "step N · validation accuracy N", line)
        line = re.sub(r"\b(after) [\d,]+( updates)?", r"\1 N\2", line).removesuffix(" · best")
        line = re.sub(r"\bloss\S* +\d\S*", "loss N", line)
        line = re.sub(r"[\d,.]+( tokens/s| letters/s| MiB| s\b|K\b)", r"N\1", line)
        line = re.sub(r"^(speed|updates) .*", r"\1 N", line)
        if not lines or line != lines[-1]:
            lines.append(line)
    return "\n".join(lines)
