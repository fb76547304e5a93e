"""`latchwork bench`; what measures is imported when it runs, since it needs numba."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Union

import torch
import tyro

from latchwork import chart
from latchwork.bench import plot
from latchwork.bench.rows import HEAD, Row, cells
from latchwork.bench.timing import machine
from latchwork.cli.display import print_json, say, set_threads, show_table
from latchwork.files import check_writable
from latchwork.memory import keep_freed
from latchwork.runs.run import write_json


@dataclass(kw_only=True)
class _Bench:
    threads: int | None = None
    """Threads to compute with; by default PyTorch's choice."""
    out: Path | None = None
    """A JSON file to write the result to."""
    plot: Path | None = None
    """An SVG file to draw the result to."""
    json: bool = False
    """Print the result as JSON instead of a table."""

    name: ClassVar[str]
    draw: ClassVar[Callable[[str, Sequence[Row]], str]]

    def rows(self) -> Iterator[Row]:
        """Measure."""
        raise NotImplementedError

    def run(self) -> int:
        set_threads(self.threads)
        self._prepare()
        title = f"bench {self.name}"
        say(f"measuring {self.name}, {torch.get_num_threads()} threads")
        rows = []
        for row in self.rows():
            say(" · ".join(cells(row)))
            rows.append(row)
        result: dict[str, Any] = {"bench": self.name, "machine": machine(), "rows": [row.to_dict() for row in rows]}
        if self.json:
            print_json(result)
        else:
            show_table(title, HEAD, [cells(row) for row in rows])
        if self.out is not None:
            write_json(self.out, result)
            say(f"result: {self.out}")
        if self.plot is not None:
            self.plot.write_text(type(self).draw(title, rows), encoding="utf-8")
            say(f"chart: {self.plot}")
        return 0

    def _prepare(self) -> None:
        """What would fail in the end fails before minutes of measuring."""
        if self.plot is not None and self.plot == self.out:
            raise ValueError(f"--out and --plot must be two files, both are {self.plot}")
        for option, file in (("--out", self.out), ("--plot", self.plot)):
            if file is not None:
                check_writable(option, file)
        if self.plot is not None:
            chart.blank()


@dataclass(kw_only=True)
class _Timed(_Bench):
    repeats: int = 40
    """Timed calls of each side, taken in turns; medians are shown."""

    def run(self) -> int:
        if self.repeats < 1:
            raise ValueError(f"repeats must be at least 1, got {self.repeats}")
        return super().run()


@dataclass(kw_only=True)
class _Sized(_Timed):
    quick: bool = False
    """Small sizes, to see that it works; the figures mean nothing."""


@dataclass(kw_only=True)
class BenchScan(_Sized):
    """The scan alone, against the limits of memory and arithmetic and other ways to compute it."""

    name = "scan"
    draw = plot.ratios

    def rows(self) -> Iterator[Row]:
        from latchwork.bench import scan

        return scan.bench_scan(scan.QUICK if self.quick else scan.FULL, self.repeats)


@dataclass(kw_only=True)
class BenchStep(_Sized):
    """Training steps of whole models with bodies of equal size."""

    name = "step"
    draw = plot.ratios

    def rows(self) -> Iterator[Row]:
        from latchwork.bench import step

        keep_freed()  # as `latchwork train` has it
        return step.bench_step(step.QUICK if self.quick else step.FULL, self.repeats)


@dataclass(kw_only=True)
class BenchDecode(_Sized):
    """Latency of one token, batch 1, at the beginning and after a long context."""

    repeats: int = 400
    """Timed tokens of each side, taken in turns of 20; medians are shown."""

    name = "decode"
    draw = plot.ratios

    def rows(self) -> Iterator[Row]:
        from latchwork.bench import decode

        return decode.bench_decode(decode.QUICK if self.quick else decode.FULL, self.repeats)


@dataclass(kw_only=True)
class BenchScaling(_Timed):
    """Time of the scan against the length of the sequence."""

    max_time: int = 1 << 24
    """Steps of the longest sequence; the shortest has 2^10, the next ones twice as many each."""

    name = "scaling"
    draw = plot.against_length

    def rows(self) -> Iterator[Row]:
        from latchwork.bench import scaling

        return scaling.bench_scaling(self.max_time, self.repeats)


@dataclass(kw_only=True)
class BenchMemory(_Bench):
    """Peak memory against the context, each figure in a fresh process."""

    max_time: int = 1 << 20
    """Steps of the longest context; the shortest has 2^10, the next ones four times as many each."""

    name = "memory"
    draw = plot.against_length

    def rows(self) -> Iterator[Row]:
        from latchwork.bench import memory

        return memory.bench_memory(self.max_time)


@dataclass(kw_only=True)
class BenchAutomata(_Sized):
    """Compiled cascades, against looking states up in the automaton's table."""

    repeats: int = 10
    """Timed calls of each side, taken in turns; medians are shown."""

    name = "automata"
    draw = plot.ratios

    def rows(self) -> Iterator[Row]:
        from latchwork.bench import automata

        return automata.bench_automata(automata.QUICK if self.quick else automata.FULL, self.repeats)


@dataclass(kw_only=True)
class BenchGpu(_Sized):
    """The scan on an NVIDIA GPU against copies of as many bytes, the paper's language model against GPT-2."""

    repeats: int = 50
    """Timed calls of each side, taken in turns; medians are shown."""

    name = "gpu"
    draw = plot.ratios

    def rows(self) -> Iterator[Row]:
        from latchwork.bench import gpu, gpu_model

        yield from gpu.bench_gpu(gpu.QUICK if self.quick else gpu.FULL, self.repeats)
        yield from gpu_model.bench_gpu_model(gpu_model.QUICK if self.quick else gpu_model.FULL, self.repeats)


BENCH = Union[  # noqa: UP007
    Annotated[BenchScan, tyro.conf.subcommand("scan")],
    Annotated[BenchStep, tyro.conf.subcommand("step")],
    Annotated[BenchDecode, tyro.conf.subcommand("decode")],
    Annotated[BenchMemory, tyro.conf.subcommand("memory")],
    Annotated[BenchScaling, tyro.conf.subcommand("scaling")],
    Annotated[BenchAutomata, tyro.conf.subcommand("automata")],
    Annotated[BenchGpu, tyro.conf.subcommand("gpu")],
]
