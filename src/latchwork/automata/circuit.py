"""Circuits of meets and joins over what units hold: how the levels of a cascade know about one another.

Truth is a number: at least 2 for true, at most −2 for false; meet is *and*, join is *or*. States lie in
[−1, 1], so where a gate meets a state nothing ties. A read is affine in one state: it says on which side of a threshold
the state lies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from latchwork.automata.formulas import Formulas

TRUE_VALUE = 2.0
MAX_VALUES = 128
"""The most values of a unit: its values and thresholds, multiples of 1/128 up to 1, are exact in bfloat16."""
FALSE, TRUE = 0, 1
_FAN_IN = 4  # of a gate: larger ones become trees, so that gates of one depth are computed together

Kind = Literal["and", "or"]


@dataclass(frozen=True)
class Unit:
    """A unit of a cascade: scalar, with values in [−1, 1], or vector, with one place of n high and the others low.

    Arguments:
        size: how many values it has; the degree of a vector unit.
        vector: whether it is a vector unit.
        first: the number of its first coordinate among those of all units.
        stage: the number of units, one above another, that what it does depends on.
        exclusive: whether exactly one place of a vector unit is high, as it is unless the unit stands for an NFA.
    """

    size: int
    vector: bool
    first: int
    stage: int
    exclusive: bool = True

    @property
    def width(self) -> int:
        return self.size if self.vector else 1

    def number(self, value: int) -> float:
        """What a scalar unit holds for a value: equally spaced, and a multiple of a power of two."""
        return (2 * value - (self.size - 1)) / _scale(self.size)

    def coordinates(self, value: int) -> list[float]:
        """What the unit holds for a value."""
        if not self.vector:
            return [self.number(value)]
        return [1.0 if place == value else -1.0 for place in range(self.size)]


@dataclass(frozen=True)
class Read:
    """weight · x[coordinate] + bias."""

    coordinate: int
    weight: float
    bias: float


@dataclass(frozen=True)
class Holder:
    """The units that hold the value of a level: one, or the digits of the value, largest first."""

    units: tuple[Unit, ...]

    def digits(self, value: int) -> tuple[int, ...]:
        found = []
        for unit in reversed(self.units):
            value, digit = divmod(value, unit.size)
            found.append(digit)
        return tuple(reversed(found))


class Circuit:
    """Gates, interned: equal ones have one number, and a gate has a larger number than its inputs.

    Numbers `FALSE` and `TRUE` are constants. A node is a `Read` or (kind, inputs); `cost` counts meets and joins of two
    numbers.
    """

    def __init__(self) -> None:
        self.nodes: list[Read | tuple[str, tuple[int, ...]]] = [("false", ()), ("true", ())]
        self.stage = [0, 0]
        self.depth = [0, 0]
        self.cost = 0
        self._numbers: dict[object, int] = {}

    def formula(self, formulas: Formulas, number: int, holders: Sequence[Holder], made: dict[int, int]) -> int:
        """The gate of a formula over values of levels; `made` remembers the formulas that have one."""
        work = [number]
        while work:
            at = work[-1]
            kind, *rest = formulas.nodes[at]
            parts = [int(part) for part in rest]
            if at in made:
                work.pop()
            elif kind in ("and", "or"):
                missing = [part for part in parts if part not in made]
                if missing:
                    work.extend(missing)
                    continue
                inputs = [made[part] for part in parts]
                made[at] = self.every(inputs) if kind == "and" else self.some(inputs)
                work.pop()
            elif kind == "values":
                no, level, *values = parts
                made[at] = self.has(holders[level].units, {holders[level].digits(value) for value in values}, bool(no))
                work.pop()
            else:
                raise ValueError("a formula over values only is needed")
        return made[number]

    def has(self, units: Sequence[Unit], chosen: Collection[tuple[int, ...]], no: bool = False) -> int:
        """Whether the units hold one of these tuples of values; none of them where `no` is true."""
        first, rest = units[0], units[1:]
        by_head: dict[int, set[tuple[int, ...]]] = {}
        for value, *tail in chosen:
            by_head.setdefault(value, set()).add(tuple(tail))
        if not rest:
            return self._one_of(first, set(by_head), no)
        heads: dict[frozenset[tuple[int, ...]], set[int]] = {}
        for value, tails in by_head.items():
            heads.setdefault(frozenset(tails), set()).add(value)
        if no:
            return self.every(
                self.some([self._one_of(first, values, True), self.has(rest, tails, True)])
                for tails, values in heads.items()
            )
        return self.some(
            self.every([self._one_of(first, values, False), self.has(rest, tails)]) for tails, values in heads.items()
        )

    def every(self, inputs: Iterable[int]) -> int:
        return self._gate("and", inputs, TRUE, FALSE)

    def some(self, inputs: Iterable[int]) -> int:
        return self._gate("or", inputs, FALSE, TRUE)

    def _one_of(self, unit: Unit, values: set[int], no: bool) -> int:
        if unit.exclusive and len(values) > unit.size // 2:
            values, no = set(range(unit.size)) - values, not no
        sign = -1 if no else 1
        join = self.every if no else self.some
        if unit.vector:
            return join(self._read(unit, Read(unit.first + value, sign * TRUE_VALUE, 0.0)) for value in sorted(values))
        parts = []
        for low, high in _runs(values):
            ends = [self._side(unit, low, 1 * sign), self._side(unit, high + 1, -1 * sign)]
            parts.append((self.some if no else self.every)(ends))
        return join(parts)

    def _side(self, unit: Unit, value: int, sign: int) -> int:
        """Whether a scalar unit holds `value` or a larger one (sign 1), or a smaller one (sign −1)."""
        if value <= 0 or value >= unit.size:
            return TRUE if (value <= 0) == (sign > 0) else FALSE
        scale = _scale(unit.size)
        threshold = 2 * value - unit.size  # half way between two values, times the scale
        return self._read(unit, Read(unit.first, sign * TRUE_VALUE * scale, -sign * TRUE_VALUE * threshold))

    def _read(self, unit: Unit, read: Read) -> int:
        return self._number(read, read, unit.stage + 1, 0)

    def _gate(self, kind: Kind, inputs: Iterable[int], neutral: int, final: int) -> int:
        kept = sorted(set(inputs) - {neutral})
        if final in kept:
            return final
        if not kept:
            return neutral
        # The inputs that are there first are joined first.
        kept.sort(key=lambda number: (self.stage[number], self.depth[number], number))
        while len(kept) > 1:
            group, kept = tuple(kept[:_FAN_IN]), kept[_FAN_IN:]
            stage = max(self.stage[number] for number in group)
            depth = 1 + max(self.depth[number] for number in group if self.stage[number] == stage)
            kept.append(self._number((kind, frozenset(group)), (kind, group), stage, depth))
        return kept[0]

    def _number(self, key: object, node: Read | tuple[str, tuple[int, ...]], stage: int, depth: int) -> int:
        if key not in self._numbers:
            self._numbers[key] = len(self.nodes)
            self.nodes.append(node)
            self.cost += 0 if isinstance(node, Read) else len(node[1]) - 1
            self.stage.append(stage)
            self.depth.append(depth)
        return self._numbers[key]


def _scale(values: int) -> int:
    """The power of two that brings values that are 2 apart into [−1, 1]."""
    return 1 << max(0, values - 2).bit_length()


def _runs(values: Collection[int]) -> list[tuple[int, int]]:
    """The intervals [first, last] of whole numbers that make up a set."""
    found: list[tuple[int, int]] = []
    for value in sorted(values):
        if found and found[-1][1] == value - 1:
            found[-1] = (found[-1][0], value)
        else:
            found.append((value, value))
    return found
