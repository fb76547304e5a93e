"""Tasks by name: ``get("latching", size=16)``."""

from __future__ import annotations

import dataclasses
import difflib
from typing import Any

from latchwork.tasks.induction_heads import InductionHeads
from latchwork.tasks.latching import Latching
from latchwork.tasks.sequences import Sequences
from latchwork.tasks.task import IGNORE, Batch, RegularTask, Task
from latchwork.tasks.text import Text

TASKS: dict[str, type[Task]] = {task.name: task for task in (Latching, Sequences, InductionHeads, Text)}

__all__ = ["IGNORE", "TASKS", "Batch", "InductionHeads", "Latching", "RegularTask", "Sequences", "Task", "Text", "get"]


def get(name: str, **options: Any) -> Task:
    """The task of this name; options are its fields, for example ``size`` for latching."""
    if name not in TASKS:
        near = difflib.get_close_matches(name, TASKS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"there is no task {name!r}; there are {', '.join(TASKS)}{hint}")
    fields = {f.name for f in dataclasses.fields(TASKS[name])}  # type: ignore[arg-type]
    if unknown := sorted(set(options) - fields):
        raise ValueError(f"task {name} has no option {', '.join(unknown)}; it has {', '.join(sorted(fields))}")
    return TASKS[name](**options)
