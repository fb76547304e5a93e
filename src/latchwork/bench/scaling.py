"""Does the time of the scan grow with its length and no faster?"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from latchwork.bench.peers import hillis_steele, loop
from latchwork.bench.rows import Row
from latchwork.bench.timing import compare
from latchwork.ops import cpu

UNITS = 8
_LIMIT = "torch.add(r, s, out=x)"
_LONGEST_PEERS = 1 << 14  # beyond, the loop and the log-depth scan take too long
_IN_MEMORY = 1 << 20  # steps from which no cache holds the data


def bench_scaling(max_time: int = 1 << 24, repeats: int = 40) -> Iterator[Row]:
    """Seconds a step of one sequence of 8 units at 2^10, 2^11 … `max_time` steps, against a limit and peers."""
    limits = {}
    for time in lengths(max_time):
        for row in _at(time, repeats):
            yield row
            if row.against == _LIMIT:
                limits[time] = row
    last = max(limits)
    first = next((time for time in limits if time >= _IN_MEMORY), min(limits))
    yield Row(
        what=f"scan at {last:,} steps",
        unit="s/step",
        ours=limits[last].ours,
        against=f"the same at {first:,} steps",
        theirs=limits[first].ours,
    )


def lengths(longest: int, shortest: int = 1 << 10, factor: int = 2) -> list[int]:
    """`shortest` times the powers of `factor`, up to `longest`."""
    if longest < shortest:
        raise ValueError(f"max-time must be at least {shortest:,} steps, got {longest:,}")
    result = [shortest]
    while result[-1] * factor <= longest:
        result.append(result[-1] * factor)
    return result


def _at(time: int, repeats: int) -> Iterator[Row]:
    r, s = torch.randn(2, 1, time, UNITS)
    x, zeros = torch.empty_like(r), torch.zeros(1, UNITS)
    peers: dict[str, Callable[[], object]] = {_LIMIT: lambda: torch.add(r, s, out=x)}
    if time <= _LONGEST_PEERS:
        peers["Hillis–Steele"] = lambda: hillis_steele(r, s)
        peers["loop in Python"] = lambda: loop(r, s)
    for name, peer in peers.items():
        # a few calls in a row, since a slow peer leaves nothing of short sequences in cache
        ours, theirs = compare(lambda: cpu.scan(r, s, zeros, zeros, None, None, out=x), peer, repeats, in_a_row=5)
        yield Row(
            what="scan",
            shape=(1, time, UNITS),
            unit="s/step",
            ours=ours / time,
            against=name,
            theirs=None if theirs is None else theirs / time,
        )
