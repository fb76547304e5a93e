"""`latchwork bench`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import tyro

from latchwork.bench.scan import bench_scan
from latchwork.bench.step import bench_step
from latchwork.bench.timing import machine
from latchwork.cli.display import print_json, say, set_threads, show_table
from latchwork.training.run import write_json

_BENCHES = {"scan": bench_scan, "step": bench_step}


@dataclass
class Bench:
    """Measure speed and memory against peers and limits, in ratios within one run."""

    what: tyro.conf.Positional[Literal["scan", "step"]]
    """The scan alone, or a training step of a whole model."""
    repeats: int = 40
    """Timed calls of each side, taken in turns; medians are shown."""
    threads: int | None = None
    """Threads to compute with; by default PyTorch's choice."""
    out: Path | None = None
    """A JSON file to write the result to."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> int:
        if self.repeats < 1:
            raise ValueError(f"repeats must be at least 1, got {self.repeats}")
        set_threads(self.threads)
        say(f"measuring {self.what}, {torch.get_num_threads()} threads")
        rows = _BENCHES[self.what](self.repeats)
        result: dict[str, Any] = {"bench": self.what, "machine": machine(), "rows": rows}
        if self.json:
            print_json(result)
        else:
            head = ["what", "shape", "ours", "against", "theirs", "ratio"]
            show_table(f"bench {self.what}", head, [_cells(row) for row in rows])
        if self.out is not None:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            write_json(self.out, result)
            say(f"result: {self.out}")
        return 0


def _cells(row: dict[str, Any]) -> list[str]:
    shape, ratio = " × ".join(map(str, row["shape"])), row["ratio"]
    shown = "–" if ratio is None else f"{ratio:.2f}" if "times_faster" not in row else f"1 / {row['times_faster']:.0f}"
    return [row["what"], shape, row["ours"], row["against"], row["theirs"], shown]
