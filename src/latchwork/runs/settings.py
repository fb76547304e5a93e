"""Settings of a run in files and assignments, in the same form as its ``config.json``."""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from latchwork.models.architectures import ARCHITECTURES
from latchwork.runs.recipe import Recipe
from latchwork.tasks import TASKS

Settings: TypeAlias = dict[str, dict[str, Any]]
"""Fields by section: "task" (with its "name"), "model" and "recipe"."""


class SettingsError(ValueError):
    """A file or an assignment cannot be read as settings; the message says where and why."""


def read_table(path: Path) -> dict[str, Any]:
    """The content of a TOML, YAML or JSON file, whose top level has to be a table.

    The text "None" stands for None, which TOML cannot say otherwise, and a text like 1e-3, as YAML takes it for, is a
    number.

    Raises: SettingsError naming the file, and the line where its syntax is wrong.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    parsers: dict[str, Callable[[str], Any]] = {".toml": _toml, ".yaml": _yaml, ".yml": _yaml, ".json": json.loads}
    parse = parsers.get(path.suffix.lower())
    if parse is None:
        raise SettingsError(f"{path} should end in .toml, .yaml, .yml or .json")
    try:
        content = parse(text)
    except ImportError:
        raise
    except Exception as error:  # every parser has an error class of its own
        raise SettingsError(f"{path}: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise SettingsError(f"{path} should hold sections {', '.join(SECTIONS)}, not a {type(content).__name__}")
    return _meant(content)


def read_settings(path: Path) -> Settings:
    """Settings from a TOML, YAML or JSON file; the ``config.json`` of a run is one."""
    content = read_table(path)
    if content.pop("format", None) is not None:
        content.pop("data", None)  # of a config.json too: what the data were
    check_settings(content, str(path))
    return content


def assigned(assignments: Iterable[str]) -> Settings:
    """Settings from texts like ``recipe.lr=0.003``; of two for the same key the last one counts.

    A value is read as JSON, or as None, True or False, or else as the text that it is.
    """
    settings: Settings = {}
    for text in assignments:
        path, equals, value = text.partition("=")
        section, dot, key = path.strip().partition(".")
        if not equals or not path.strip():
            raise SettingsError(f"{text!r} is no assignment; write section.key=value, for example recipe.lr=0.003")
        if not dot:
            near = _near(section, [f"{s}.{k}" for s, keys in _keys(None, None).items() for k in keys], by=_last)
            raise SettingsError(f"{path.strip()!r} has no section, which is one of {', '.join(SECTIONS)}{near}")
        settings.setdefault(section, {})[key] = parse_value(value.strip())
    check_settings(settings, "--set")
    return settings


def merged(*parts: Settings) -> Settings:
    """All settings; of two for the same key the last one counts."""
    result: Settings = {}
    for part in parts:
        for section, fields in part.items():
            result[section] = {**result.get(section, {}), **fields}
    return result


def check_settings(settings: dict[str, Any], where: str, more: Sequence[str] = ()) -> None:
    """Refuse sections and keys that are not known, naming the near miss.

    `where` begins the message; `more` are sections that the file may have besides, and are not in `settings` any more.
    """
    for section, fields in settings.items():
        if section not in SECTIONS:
            raise SettingsError(f"{where}: there is no section {section!r}{_near(section, [*SECTIONS, *more])}")
        if not isinstance(fields, dict):
            raise SettingsError(f"{where}: section {section} should be a table of keys and values, got {fields!r}")
        known = _keys(_said(settings, "task", "name"), _said(settings, "model", "arch"))[section]
        for key in fields:
            if key not in known:
                raise SettingsError(f"{where}: there is no {section}.{key}{_near(key, known, prefix=f'{section}.')}")


def as_flags(settings: Settings) -> list[str]:
    """The same settings as flags of `latchwork train`."""
    return [
        _flag(key.replace("_", "-"), value)
        for section, fields in settings.items()
        for key, value in fields.items()
        if (section, key) != ("task", "name")
    ]


def _flag(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name}={value}"


def parse_value(text: str) -> Any:
    """A value as JSON writes it, None, True or False as Python does, or the text itself."""
    special = {"None": None, "True": True, "False": False}
    if text in special:
        return special[text]
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


SECTIONS = ("task", "model", "recipe")


def _said(settings: dict[str, Any], section: str, key: str) -> Any:
    fields = settings.get(section)
    return fields.get(key) if isinstance(fields, dict) else None


def _keys(task: Any, arch: Any) -> dict[str, list[str]]:
    """The keys of every section; those of all tasks and models where it is not said which."""
    tasks = [TASKS[task]] if isinstance(task, str) and task in TASKS else list(TASKS.values())
    known = isinstance(arch, str) and arch in ARCHITECTURES
    models = [ARCHITECTURES[arch]] if known else list(ARCHITECTURES.values())
    return {
        "task": ["name", *dict.fromkeys(f.name for t in tasks for f in dataclasses.fields(t))],  # type: ignore[arg-type]
        "model": ["arch", *dict.fromkeys(f.name for m in models for f in dataclasses.fields(m))],
        "recipe": [f.name for f in dataclasses.fields(Recipe)],
    }


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _near(word: str, known: Iterable[str], prefix: str = "", by: Any = str) -> str:
    names = {by(name): name for name in known}
    near = difflib.get_close_matches(word, names, n=1)
    return f"; did you mean {prefix}{names[near[0]]}?" if near else f"; there are {', '.join(names.values())}"


def _toml(text: str) -> Any:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(text)


def _meant(value: Any) -> Any:
    """The values that texts stand for."""
    if isinstance(value, dict):
        return {key: _meant(below) for key, below in value.items()}
    if isinstance(value, list):
        return [_meant(below) for below in value]
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+", value):
        return float(value)
    return None if value == "None" else value


def _yaml(text: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise ImportError("YAML files need PyYAML: pip install 'latchwork[train]'; TOML and JSON do without") from None
    return yaml.safe_load(text)
