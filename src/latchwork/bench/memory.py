"""How much memory does a context need?

Every figure is that of a fresh process, ``python -m latchwork.bench.memory SUBJECT CONTEXT THREADS``: its peak resident
memory beyond what it held when libraries and model were loaded.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from latchwork.bench.peers import TransformerLM, read
from latchwork.bench.rows import Row
from latchwork.bench.scaling import lengths
from latchwork.bench.timing import NOT_SAID, attempt
from latchwork.memory import peak_resident_bytes, resident_bytes
from latchwork.models.baselines import BaselineLM, LSTMConfig
from latchwork.models.cascade_lm import CascadeLM
from latchwork.nn.config import CascadeConfig
from latchwork.ops.scan import minmax_scan

UNITS, CHUNK, VOCABULARY = 64, 1024, 50
SECONDS = 120.0  # a process that takes longer is stopped

Run = Callable[[int], object]


def bench_memory(max_time: int = 1 << 20) -> Iterator[Row]:
    """Bytes at contexts of 2^10, 2^12 … `max_time` steps, of the scan and the small model with their state carried."""
    contexts = lengths(max_time, shortest=CHUNK, factor=4)
    for context in contexts[:2]:  # a first process that compiles a kernel for these shapes would count the compiler
        for subject in dict.fromkeys(subject for subject, _ in PAIRS):
            measure(subject, context)
    measured = {}
    for context in contexts:
        measured[context] = {subject: measure(subject, context) for subject in SUBJECTS}
        for subject, peer in PAIRS:
            yield _row(subject, peer, measured[context][subject], measured[context][peer], (1, context))
    first, last = contexts[:2][-1], contexts[-1]  # the allocator has its working set after a few chunks
    for subject in dict.fromkeys(subject for subject, _ in PAIRS):
        what, against = f"{subject}, {last:,} steps", f"the same, {first:,} steps"
        yield _row(what, against, measured[last][subject], measured[first][subject])


def measure(subject: str, context: int) -> dict[str, Any]:
    """The bytes of one subject by a fresh process, or a note that says why there are none."""
    code = [sys.executable, "-m", "latchwork.bench.memory", subject, str(context), str(torch.get_num_threads())]
    try:
        process = subprocess.run(code, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return {"note": f"not finished in {SECONDS:.0f} s"}
    if process.returncode != 0:
        return {"note": f"failed: {(process.stderr.strip().splitlines() or ['without a word'])[-1]}"}
    return json.loads(process.stdout)


def _row(what: str, against: str, ours: dict[str, Any], theirs: dict[str, Any], shape: tuple[int, ...] = ()) -> Row:
    sides = (("ours", ours), ("theirs", theirs))
    return Row(
        what=what,
        shape=shape,
        unit="B",
        ours=ours.get("bytes"),
        against=against,
        theirs=theirs.get("bytes"),
        note=ours.get("note") or theirs.get("note") or "",
        details={f"{side}_whole_process": figures["whole_process"] for side, figures in sides if "bytes" in figures},
    )


def _scan(chunk: int | None = None) -> Run:
    def run(context: int) -> None:
        size, state = chunk or context, None
        for _ in range(context // size):
            r, s = torch.randn(2, 1, size, UNITS)
            state = minmax_scan(r, s, state)[1]

    return run


def _chunks(model: nn.Module) -> Run:
    model.eval()
    return lambda context: read(model, context, VOCABULARY, CHUNK)


def _transformer() -> Run:
    """Only the last tokens of the context are computed, one at a time; the cache for the ones before is filled."""
    model = TransformerLM(VOCABULARY, 72).eval()

    def run(context: int) -> None:
        state, token = model.filled(context - 8), torch.zeros(1, 1, dtype=torch.long)
        for _ in range(8):
            state = model(token, state)[1]

    return run


SUBJECTS: dict[str, Callable[[], Run]] = {
    "scan in chunks": lambda: _scan(CHUNK),
    "scan of the whole sequence": _scan,
    "model in chunks": lambda: _chunks(CascadeLM(CascadeConfig.small(), VOCABULARY)),
    "torch.nn.LSTM in chunks": lambda: _chunks(BaselineLM(LSTMConfig(), VOCABULARY)),
    "Transformer, GPT-2 (transformers)": _transformer,
}
# what is ours, and what it is held against
PAIRS = (
    ("scan in chunks", "scan of the whole sequence"),
    ("model in chunks", "torch.nn.LSTM in chunks"),
    ("model in chunks", "Transformer, GPT-2 (transformers)"),
)


@torch.no_grad()
def measure_here(subject: str, context: int) -> dict[str, Any]:
    """As `measure`, of this process: right only if it has done nothing else yet."""
    minmax_scan(*torch.zeros(2, 1, 1, UNITS))  # loads what kernels need
    run, note = attempt(SUBJECTS[subject])
    before = resident_bytes()
    if run is None or before is None:
        return {"note": note or NOT_SAID}
    run(context)
    peak = peak_resident_bytes() or before
    return {"bytes": peak - before, "whole_process": peak}


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[3]))
    print(json.dumps(measure_here(sys.argv[1], int(sys.argv[2]))))
