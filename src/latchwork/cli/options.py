"""Options out of dataclasses that check their values.

The command line is parsed into classes with the same fields that check nothing, and `checked` makes the real ones when
the command runs: what they refuse is then one line like every other error.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Iterable
from typing import Annotated, Any

import tyro

from latchwork.tasks import Task


def unchecked_class(cls: type) -> type:
    """A subclass with the same fields that takes any values."""
    content = {"__post_init__": lambda self: None, "__doc__": cls.__doc__, "__module__": cls.__module__, "real": cls}
    return dataclasses.dataclass(frozen=True)(type(cls.__name__, (cls,), content))


def unchecked(value: Any) -> Any:
    """The same values, as defaults of options."""
    return unchecked_class(type(value))(**_fields(value))


def checked(options: Any) -> Any:
    """The real thing from parsed options. Raises: ValueError from its checks."""
    return options.real(**_fields(options))


def _fields(value: Any) -> dict[str, Any]:
    return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}


def task_command(base: type, task: type[Task], prefix: str, fields: list[tuple[str, Any, Any]] | None = None) -> Any:
    """A command for one task: a subclass of `base` with the options of the task and other fields with defaults."""
    options = unchecked_class(task)
    needs = any(f.default is f.default_factory is dataclasses.MISSING for f in dataclasses.fields(options))
    named: list[Any] = [("task", options) if needs else ("task", options, dataclasses.field(default_factory=options))]
    named += [(name, kind, dataclasses.field(default=default)) for name, kind, default in fields or []]
    command = dataclasses.make_dataclass(f"{prefix}_{task.name}", named, bases=(base,), kw_only=True)
    command.__doc__ = summary(task)
    return Annotated[command, tyro.conf.subcommand(task.name, description=summary(task))]


def one_of(commands: Iterable[Any]) -> Any:
    """The type of any of these commands."""
    return functools.reduce(operator.or_, commands)


def summary(task: type[Task]) -> str:
    """The first paragraph of what a task says of itself."""
    return " ".join((task.__doc__ or task.name).split("\n\n")[0].split())
