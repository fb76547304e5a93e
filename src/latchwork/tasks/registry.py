"""Tasks by name."""

from __future__ import annotations

import dataclasses
import difflib
from typing import Any, TypeVar

from latchwork.fields import check_types
from latchwork.tasks.task import Task

TASKS: dict[str, type[Task]] = {}
"""Every task that `get` and the command line know, in the order in which they were registered."""

Class = TypeVar("Class", bound=type[Task])


def register(task: Class) -> Class:
    """Make a task known by its name; a decorator. The class has to be a frozen dataclass with a name of its own."""
    name = getattr(task, "name", None)
    if not isinstance(name, str) or not name:
        raise ValueError(f"{task.__name__} needs a name: name: ClassVar[str] = …")
    if not (dataclasses.is_dataclass(task) and task.__dataclass_params__.frozen):
        raise ValueError(f"{task.__name__} has to be a frozen dataclass: put @dataclass(frozen=True) below @register")
    known = TASKS.get(name)
    if known is not None and (known.__module__, known.__qualname__) != (task.__module__, task.__qualname__):
        raise ValueError(f"there is a task {name!r} already: {known.__module__}.{known.__qualname__}")
    TASKS[name] = task
    return task


def get(name: str, **options: Any) -> Task:
    """The task of this name; options are its fields, for example ``size`` for latching.

    Raises: ValueError when there is no such task or option, an option has another type, or the task refuses it.
    """
    if name not in TASKS:
        near = difflib.get_close_matches(str(name), TASKS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"there is no task {name!r}; there are {', '.join(TASKS)}{hint}")
    task = TASKS[name]
    fields = {f.name: f for f in dataclasses.fields(task)}  # type: ignore[arg-type]
    if unknown := sorted(set(options) - set(fields)):
        raise ValueError(
            f"task {name} has no option {', '.join(unknown)}; it has {', '.join(sorted(fields)) or 'none'}"
        )
    required = [f.name for f in fields.values() if f.default is f.default_factory is dataclasses.MISSING]
    if missing := [field for field in required if field not in options]:
        raise ValueError(f"task {name} needs {', '.join(missing)}")
    check_types(task, {name: value for name, value in options.items() if not callable(value)})
    return task(**options)
