"""What a person sees while a command works: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from latchwork.experiments.workers import WORKER

_SECONDS_BETWEEN_LINES = 10.0
_WIDEST = 1000
"""Columns of a table in a file at most."""

IS_MAIN = os.environ.get("RANK", "0") == "0"
"""Whether this is the only process, or the one of several (`torchrun`, `accelerate launch`) that speaks."""

console = Console(stderr=True, highlight=False, quiet=not IS_MAIN)


class Bar:
    """Progress of one piece of long work, on standard error; `total` is None where it is not known."""

    def __init__(self, label: str, total: int | None) -> None:
        self.label, self.total = label, total
        self.began = self.last = time.monotonic()
        self.first: int | None = None
        self.progress: Progress | None = None

    def __enter__(self) -> Bar:
        if console.is_terminal and IS_MAIN:
            columns = (TextColumn(self.label), BarColumn(), TextColumn("{task.fields[note]}"), TimeRemainingColumn())
            self.progress = Progress(*columns, console=console, transient=True)
            self.progress.add_task("", total=self.total, note="")
            self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.progress is not None:
            self.progress.stop()

    def update(self, done: int, note: str) -> None:
        """Show how far it is; off a terminal at most one line in ten seconds."""
        if self.first is None:
            self.first = done  # a run that is resumed does not begin at 1
        now = time.monotonic()
        if self.progress is not None:
            self.progress.update(self.progress.task_ids[0], completed=done, note=note)
        elif now - self.last >= _SECONDS_BETWEEN_LINES:
            self.last = now
            if self.total is None:
                say(f"{self.label} {done:,} · {note}")
                return
            gone, since = done - self.first, now - self.began
            left = f" · {since * (self.total - done) / gone:,.0f} s left" if gone else ""
            say(f"{self.label} {done:,}/{self.total:,} · {note}{left}")


def say(text: str) -> None:
    """A line for people, on standard error."""
    console.print(text, markup=False, soft_wrap=True)


def show_table(title: str, head: list[str], rows: list[list[str]], names: int = 0) -> None:
    """A table on standard output; the first columns hold `names`, the others figures."""
    table = Table(title=title, title_justify="left")
    for i, name in enumerate(head):
        table.add_column(name, justify="left" if i < names else "right", overflow="fold" if i < names else "ellipsis")
    for row in rows:
        table.add_row(*row)
    out = Console(highlight=False)
    if not out.is_terminal:  # a file has no width that lines would have to fit
        unlimited = out.options.update(max_width=_WIDEST)
        out.width = max(out.width, Measurement.get(out, unlimited, table).maximum)
    out.print(table)


def print_json(content: dict[str, Any]) -> None:
    """The result for machines, on standard output."""
    if not IS_MAIN:
        return
    json.dump(content, sys.stdout)
    sys.stdout.write("\n")


def set_threads(threads: int | None) -> None:
    """Compute with this many threads; None leaves PyTorch's choice."""
    if threads is None:
        return
    if threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    torch.set_num_threads(threads)


def _at_end_of_input(call: Callable[[], None]) -> None:
    while os.read(0, 1):  # not through sys.stdin, whose lock would be held when the interpreter ends
        pass
    call()


@contextmanager
def interruptible(message: str) -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C (or SIGTERM) says `message` and makes the yielded function true; the next interrupts at once.

    It becomes true as well when this is a worker of a sweep and the sweep asks for it, or is gone.
    """
    asked = threading.Event()
    if WORKER in os.environ:
        threading.Thread(target=_at_end_of_input, args=(asked.set,), daemon=True).start()

    def handle(number: int, frame: object) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        say(message)

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
