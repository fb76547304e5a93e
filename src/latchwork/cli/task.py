"""`latchwork task`."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import tyro

from latchwork.cli.display import print_json
from latchwork.cli.options import checked, one_of, summary, task_command
from latchwork.tasks import IGNORE, TASKS, RegularTask, Task
from latchwork.tasks.task import SPLITS, IntArray, Split, count_labels

_ENDLESS = {"sequences": 8, "steps": 1 << 18, "chunk": 1 << 14}
_NAMES = 16


@dataclass
class ListTasks:
    """List the tasks."""

    json: bool = False
    """Print as JSON."""

    def run(self) -> int:
        lines = {name: summary(task) for name, task in TASKS.items()}
        if self.json:
            print_json(lines)
            return 0
        width = max(map(len, lines))
        for name, line in lines.items():
            print(f"{name:<{width}}  {line}")
        print("\n`latchwork task NAME --show 5` shows examples of one; docs/tasks.md says how to write your own.")
        return 0


@dataclass(kw_only=True)
class _ShowTask:
    """Examples and facts of a task; the field is set by `task_command`."""

    task: Any
    show: int = 3
    """Examples to print."""
    split: Split = "train"
    """Which samples: of training, validation or evaluation."""
    seed: int = 0
    """Of the samples."""
    steps: int = 20
    """Columns of an example; longer ones are cut, but for their last step."""
    json: bool = False
    """Print as JSON."""

    def run(self) -> int:
        if self.show < 0:
            raise ValueError(f"show must be at least 0 examples, got {self.show}")
        if self.steps < 1:
            raise ValueError(f"steps must be at least 1 column, got {self.steps}")
        task = checked(self.task)
        examples = _examples(task, self.split, self.seed, self.show)
        facts = {split: {**task.facts(split), **_labels(task, split, self.seed)} for split in SPLITS}
        if self.json:
            print_json(_as_json(task, facts, self.split, examples))
            return 0
        options = ", ".join(f"{f.name} {getattr(task, f.name)}" for f in dataclasses.fields(task))
        print(f"{summary(type(task))}{f' ({options})' if options else ''}\n")
        print(f"vocabulary   {task.vocab_size:,} tokens: {_some(task.token_names)}")
        same = task.n_outputs is None
        print(f"classes      {'the tokens' if same else f'{task.classes:,}: {_some(task.class_names)}'}")
        for split, lines in facts.items():
            print(f"\n{split}")
            for name, value in lines.items():
                print(f"  {name:<{max(map(len, lines))}}  {value}")
        for number, (tokens, targets) in enumerate(examples):
            print(f"\n{self.split}, sample {number}, {len(tokens):,} steps")
            for line in drawn(tokens, targets, self.steps):
                print(line)
        return 0


Example = tuple[list[str], list[str | None]]
"""Names of the tokens and of the targets, None where a step is not scored."""


def task_commands() -> Any:
    """`list`, and one command for every task that is registered."""
    members = [task_command(_ShowTask, task, "show") for task in TASKS.values()]
    return one_of([Annotated[ListTasks, tyro.conf.subcommand("list")], *members])


def drawn(tokens: list[str], targets: list[str | None], columns: int) -> list[str]:
    """Two lines, tokens over targets in columns; if there are more steps, the last one and a line about the others."""
    pairs = [(token, "·" if target is None else target) for token, target in zip(tokens, targets, strict=True)]
    hidden: list[str | None] = []
    if len(pairs) > columns:
        hidden = targets[columns - 1 : -1]
        pairs = [*pairs[: columns - 1], *([("…", "…")] if hidden else []), pairs[-1]]
    widths = [max(map(len, pair)) for pair in pairs]
    lines = [
        f"  {name}  " + " ".join(f"{word:<{width}}" for word, width in zip(words, widths, strict=True)).rstrip()
        for name, words in zip(("tokens ", "targets"), zip(*pairs, strict=True), strict=True)
    ]
    if hidden:
        scored = sum(target is not None for target in hidden)
        lines.append(f"  … {len(hidden):,} steps are left out, {scored:,} of them scored")
    return lines


def _examples(task: Task, split: Split, seed: int, count: int) -> list[Example]:
    """The first samples, each whole."""
    examples, token_names, class_names = [], task.token_names, task.class_names
    for number in range(count):
        tokens, targets = (a[0] for a in task.batch(split, seed, [number]))
        names = [None if target == IGNORE else class_names[target] for target in targets]
        examples.append(([token_names[token] for token in tokens], names))
    return examples


def _labels(task: Task, split: Split, seed: int) -> dict[str, str]:
    """How the scored steps are spread over the classes; in evaluation over endless sequences where there are any."""
    if split == "evaluation" and isinstance(task, RegularTask):
        shares, where = _endless_labels(task, seed), f", in {_ENDLESS['sequences']} sequences of {_ENDLESS['steps']:,}"
    else:
        shares, where = task.label_distribution(split, seed), ""
    order = np.argsort(-shares, kind="stable")
    class_names = task.class_names
    shown = ", ".join(f"{class_names[c]} {shares[c]:.1%}" for c in order[:8] if shares[c])
    more = int((shares > 0).sum()) - 8
    rest = f", and {more:,} more" if more > 0 else ""
    return {"labels": f"{shown}{rest}{where}", "floor": f"{shares.max(initial=0.0):.1%} (always the commonest label)"}


def _endless_labels(task: RegularTask, seed: int) -> np.ndarray:
    counts: IntArray = np.zeros(task.classes, dtype=np.int64)
    pieces = task.endless("evaluation", seed, range(_ENDLESS["sequences"]), _ENDLESS["chunk"])
    for batch, answers in itertools.islice(pieces, _ENDLESS["steps"] // _ENDLESS["chunk"]):
        counts += count_labels(batch.targets if answers is None else answers, task.classes)
    return counts / max(1, counts.sum())


def _as_json(task: Task, facts: dict[Split, dict[str, str]], split: Split, examples: list[Example]) -> dict[str, Any]:
    options = {f.name: getattr(task, f.name) for f in dataclasses.fields(task)}  # type: ignore[arg-type]
    return {
        "task": task.name,
        "options": {k: v if isinstance(v, (int, float, str, type(None))) else str(v) for k, v in options.items()},
        "vocabulary": task.token_names,
        "classes": task.class_names,
        "facts": facts,
        "split": split,
        "examples": [{"tokens": tokens, "targets": targets} for tokens, targets in examples],
    }


def _some(names: list[str]) -> str:
    return " ".join(names[:_NAMES]) + (" …" if len(names) > _NAMES else "")
