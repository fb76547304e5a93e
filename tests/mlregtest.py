"""Reads the automata of MLRegTest and minimises them, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np


class Minimal(NamedTuple):
    transitions: np.ndarray
    accepting: list[int]
    letters: list[str]


def read(path: Path) -> Minimal:
    """The minimal complete automaton of an .att file; start state 0."""
    edges, accepting = [], set()
    for line in path.read_text("utf-8").splitlines():
        fields = line.split()
        if len(fields) == 1:
            accepting.add(int(fields[0]))
        elif fields:
            edges.append((int(fields[0]), int(fields[1]), fields[2]))
    letters = sorted({letter for *_, letter in edges})
    sink = 1 + max([state for edge in edges for state in edge[:2]] + list(accepting))
    table = np.full((sink + 1, len(letters)), sink)
    for source, target, letter in edges:
        table[source, letters.index(letter)] = target
    transitions, found = minimal(table, accepting, edges[0][0])
    return Minimal(transitions, found, letters)


def minimal(table: np.ndarray, accepting: set[int], start: int) -> tuple[np.ndarray, list[int]]:
    """States that are reached, merged by refining accepting / not accepting until nothing splits; start state 0."""
    reached = [start]
    for state in reached:
        reached.extend(dict.fromkeys(int(target) for target in table[state] if target not in reached))
    part = {state: int(state in accepting) for state in reached}
    count = len(set(part.values()))
    while True:
        keys = {state: (part[state], *(part[target] for target in table[state])) for state in reached}
        numbers: dict[tuple, int] = {}
        part = {state: numbers.setdefault(keys[state], len(numbers)) for state in reached}
        if len(numbers) == count:
            break
        count = len(numbers)
    merged = np.zeros((count, table.shape[1]), dtype=np.int64)
    for state in reached:
        merged[part[state]] = [part[target] for target in table[state]]
    return merged, sorted({part[state] for state in reached if state in accepting})
