"""`latchwork evaluate`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tyro
from torch import nn

from latchwork.cli.display import Bar, interruptible, print_json, say, set_threads, show_table
from latchwork.cli.train import report
from latchwork.evaluation.extrapolate import check_extent, extrapolate
from latchwork.evaluation.measure import percent, score_streams
from latchwork.evaluation.report import length_rows
from latchwork.memory import peak_resident_bytes
from latchwork.runs.run import Run, write_json
from latchwork.tasks import RegularTask, Task, Text
from latchwork.tasks.task import Stream


@dataclass
class Evaluate:
    """Measure a trained run: far beyond its training lengths, or on held-out samples that end."""

    run_folder: tyro.conf.Positional[Path]
    """The folder of the run."""
    length: int = 1 << 20
    """Steps that every sequence goes, a multiple of the chunk; text, pairs and function have sequences that end."""
    sequences: int = 8
    """Fresh sequences that go side by side; of pairs and text the whole held-out part is read, of function as many as
    the run validates on."""
    chunk: int = 1024
    """Steps that are computed at once; the state is carried from chunk to chunk."""
    seed: int = 1
    """Of the sequences."""
    threads: int | None = None
    """Threads to compute with; by default PyTorch's choice."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> int:
        check_extent(self.length, self.chunk, self.sequences, self.seed)
        run = Run.open(self.run_folder)
        if not isinstance(run.task, RegularTask):
            for name in ("length", "sequences", "chunk"):
                if getattr(self, name) != getattr(Evaluate, name):
                    raise ValueError(
                        f"--{name} is for tasks with endless sequences; of {run.task.name} what is held out is read "
                        "whole"
                    )
        run.check_data()
        model, chosen = run.trained()
        if torch.accelerator.is_available():
            model.to(torch.accelerator.current_accelerator())
        set_threads(self.threads)
        say(f"evaluating {chosen.path}")
        file = run.path / "evaluation.json"
        try:
            with interruptible("stopping after this chunk; Ctrl-C again stops at once") as stop:
                result = {**self.measure(run, model, stop), "checkpoint": chosen.path.name}
        except KeyboardInterrupt:
            say(f"interrupted: {file} {'stays as it was' if file.exists() else 'is not written'}")
            return 130
        if not result["scored"]:
            raise ValueError("no step of these sequences is scored: nothing was measured")
        write_json(file, result)
        if self.json:
            print_json(result)
        else:
            _show(run, result)
        say(f"result: {file}")
        report(run)
        return 0

    def measure(self, run: Run, model: nn.Module, stop: Callable[[], bool] = lambda: False) -> dict[str, Any]:
        """The figures as they are written. Raises: KeyboardInterrupt after the chunk at which `stop()` is true."""
        if isinstance(run.task, RegularTask):
            return self._extrapolate(run.task, model, stop)
        return self._read(run.task, model, run.recipe.validation_sequences, stop)

    def _read(self, task: Task, model: nn.Module, sequences: int, stop: Callable[[], bool]) -> dict[str, Any]:
        """Of one pass over the held-out part."""
        total = len(task.parts["evaluation"]) - 1 if isinstance(task, Text) else None
        with Bar("evaluating", total) as bar:
            streams = _watched(task.streams("evaluation", self.seed, sequences, _CHUNK), bar)
            score = score_streams(model, streams, task.classes, stop)
        if stop():
            raise KeyboardInterrupt
        return {"task": task.name, "seed": self.seed, **score.to_dict()}

    def _extrapolate(self, task: RegularTask, model: nn.Module, stop: Callable[[], bool]) -> dict[str, Any]:
        """Of fresh sequences, chunk after chunk."""
        with Bar("evaluating", self.length // self.chunk) as bar:
            steps = extrapolate(
                model, task, seed=self.seed, sequences=self.sequences, length=self.length, chunk=self.chunk
            )
            for state in steps:
                done = percent(state.total.correct, state.total.scored)
                if stop():
                    raise KeyboardInterrupt
                bar.update(len(state.correct), f"{done} right · {state.tokens_per_second:,.0f} tokens/s")
        peak = peak_resident_bytes()
        return {**state.to_dict(), "peak_memory_mib": None if peak is None else round(peak / (1 << 20), 1)}


_CHUNK = 4096


def _watched(streams: Iterator[Stream], bar: Bar) -> Iterator[Stream]:
    """The same streams; whenever a chunk is asked for, the bar shows how many steps have been read."""
    clock, done = time.perf_counter(), 0

    def watched(stream: Stream) -> Stream:
        nonlocal done
        for batch in stream:
            if done:
                bar.update(done, f"{done / (time.perf_counter() - clock):,.0f} tokens/s")
            yield batch
            done += batch.tokens.size

    return map(watched, streams)


def _show(run: Run, result: dict[str, Any]) -> None:
    if "chunks" not in result and run.task.measure == "accuracy":
        answers = f"{result['correct']:,} of {result['scored']:,} answers"
        print(f"accuracy       {percent(result['correct'], result['scored'])}  ({answers})")
        print(f"floor          {result['floor']:.1%}  (always the commonest label)")
        print(f"loss           {result['loss']:.4f} nats an answer")
        return
    if "chunks" not in result:
        print(f"{result['bits']:.4f} bits per byte ({result['loss']:.4f} nats) over {result['scored']:,} bytes")
        return
    rows = [[f"{length:,}", a, b, f"{answers:,}"] for length, a, b, answers in length_rows(result)]
    show_table(
        f"{run.path.name}, {result['sequences']} sequences", ["length", "in the chunk", "cumulative", "answers"], rows
    )
    worst = result["worst_chunk"]
    answers = f"{result['correct']:,} of {result['scored']:,} answers"
    print(f"overall        {percent(result['correct'], result['scored'])}  ({answers})")
    print(f"worst chunk    {percent(worst['correct'], worst['scored'])}  (chunk {worst['index'] + 1})")
    print(f"floor          {result['floor']:.1%}  (always the commonest label)")
    memory = f", peak memory {result['peak_memory_mib']:.0f} MiB" if result["peak_memory_mib"] is not None else ""
    print(f"speed          {result['tokens_per_second']:,.0f} tokens/s{memory}")
