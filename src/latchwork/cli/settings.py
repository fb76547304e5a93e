"""`--config` and `--set`: settings that stand before the flags of a command."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from latchwork.models.architectures import ARCHITECTURES, CASCADE
from latchwork.runs.settings import SettingsError, as_flags, assigned, merged, read_settings
from latchwork.tasks import TASKS


def with_settings(arguments: Sequence[str]) -> list[str]:
    """The arguments of `latchwork train`, with the settings of its files and assignments put before them as flags.

    Of two flags the last one counts, so what is typed wins over assignments, and these over files, the later ones over
    the earlier. A file may name the task, which then need not be typed.
    """
    command, *rest = arguments
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config", action="append", type=Path, default=[])
    parser.add_argument("--set", action="append", default=[])
    found, _ = parser.parse_known_args(rest)
    typed = rest[0] if rest and not rest[0].startswith("-") else None
    if typed == "resume" or not (found.config or found.set):
        return list(arguments)
    settings = merged(*map(read_settings, found.config), assigned(found.set))
    task = settings.get("task", {}).get("name", typed)
    if typed is not None and typed != task:
        raise SettingsError(f"the settings are of task {task}, but the command says {typed}")
    if task is None:
        raise SettingsError("no task: name one after `latchwork train`, or in the settings as task.name")
    if task not in TASKS:
        raise SettingsError(f"there is no task {task!r}; there are {', '.join(TASKS)}")
    return [command, task, *as_flags(settings), *(rest if typed is None else rest[1:])]


def arch_in(arguments: Sequence[str]) -> str:
    """The model that --arch names last; a cascade where it names none, or one that there is not."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--arch", nargs="?")
    found, _ = parser.parse_known_args(arguments)
    return found.arch if found.arch in ARCHITECTURES else CASCADE
