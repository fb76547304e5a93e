"""The levels of a cascade: how choices of tiles are written as values, and what happens to values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from latchwork.automata.permutations import Permutation, nested_labels, orbits
from latchwork.automata.walk import Walk

Coordinates = tuple[int, ...]


@dataclass(frozen=True)
class Action:
    """What a level does in one step: reset to a value, permute the values, or keep (neither is given)."""

    reset: int | None = None
    permutation: Permutation | None = None

    @property
    def kind(self) -> Literal["keep", "reset", "permute"]:
        if self.reset is not None:
            return "reset"
        return "keep" if self.permutation is None else "permute"

    def __call__(self, value: int) -> int:
        """The value after the step."""
        if self.reset is not None:
            return self.reset
        return value if self.permutation is None else self.permutation[value]


KEEP = Action()


@dataclass(frozen=True)
class Level:
    """One level of a cascade.

    Arguments:
        values: how many values it holds, at least 2; 0 at the start.
        kind: "reset" where it only keeps and resets, "permutation" where letters permute its values too.
        generators: the permutations that occur.
        degree: the points of their largest orbit; 1 for "reset".
        depth: of the blocks whose tiles it chooses.
    """

    values: int
    kind: Literal["reset", "permutation"]
    generators: tuple[Permutation, ...]
    degree: int
    depth: int


class Tiling:
    """Tiles of blocks as values of levels.

    A depth has a level for the orbit of the tile under the group of its class, and, where groups permute tiles, levels
    for the nested parts of the orbit. Only tiles that can be chosen are counted, in each class from 0; levels with one
    value are left out; values are exchanged so that the start has 0 everywhere.

    Attributes:
        levels: from the top.
        at: {depth: slice} its levels among all.
        labels: {class: {tile: values of the levels of its depth}}.
    """

    def __init__(self, walk: Walk) -> None:
        roots: dict[int, list[int]] = {depth: [] for depth in range(walk.top, 0, -1)}
        chosen: dict[int, set[int]] = {}
        for block in sorted(walk.used):
            chosen.setdefault(walk.images.family[block], set()).update(walk.used[block])
        for root in chosen:
            roots[walk.depth[root]].append(root)
        self.labels: dict[int, dict[int, Coordinates]] = {}
        self.at: dict[int, slice] = {}
        levels: list[Level] = []
        for depth, families in roots.items():
            generators = {root: walk.generators(root) for root in families}
            for root in families:
                self.labels[root] = _labelled(len(walk.images.tiles(root)), generators[root], chosen[root])
            sizes = self._align(families, self._start_label(walk, depth))
            self.at[depth] = slice(len(levels), len(levels) + len(sizes))
            for stage, values in enumerate(sizes):
                levels.append(self._level(families, generators, stage, values, depth))
        self.levels = tuple(levels)
        self._tiles = {root: {label: tile for tile, label in labels.items()} for root, labels in self.labels.items()}

    def tile(self, family: int, values: Coordinates) -> int:
        """The tile that values of the levels of its depth choose."""
        tile = self._tiles.get(family, {}).get(values)
        if tile is None:
            raise ValueError(f"the values {values} name no state here")
        return tile

    def label(self, family: int, tile: int) -> Coordinates:
        """The values that choose a tile."""
        label = self.labels.get(family, {}).get(tile)
        if label is None:
            raise ValueError("these values name no state")
        return label

    def permuted(self, family: int, permutation: Permutation, inner: Coordinates, values: int) -> Action:
        """What a permutation of tiles does to the level after `inner`, the values above it of its depth."""
        stage = len(inner)
        image = list(range(values))
        labels = self.labels.get(family, {})
        for tile, label in labels.items():
            if label[:stage] == inner:
                image[label[stage]] = labels[permutation[tile]][stage]
        return KEEP if image == list(range(values)) else Action(permutation=tuple(image))

    def _start_label(self, walk: Walk, depth: int) -> Coordinates:
        for block, tile in walk.chain.items():
            if walk.depth[block] == depth:
                return self.labels[walk.images.family[block]][tile]
        return ()

    def _align(self, families: list[int], start: Coordinates) -> list[int]:
        """Give the classes of a depth labels of one length, without constants and 0 at the start; values by level."""
        length = max((len(label) for root in families for label in self.labels[root].values()), default=0)
        padded = {
            root: {tile: label + (0,) * (length - len(label)) for tile, label in self.labels[root].items()}
            for root in families
        }
        sizes = [
            max(label[stage] + 1 for labels in padded.values() for label in labels.values()) for stage in range(length)
        ]
        stages = [stage for stage in range(length) if sizes[stage] > 1]
        start += (0,) * (length - len(start))

        def exchanged(stage: int, value: int) -> int:
            return {0: start[stage], start[stage]: 0}.get(value, value)

        for root, labels in padded.items():
            self.labels[root] = {
                tile: tuple(exchanged(stage, label[stage]) for stage in stages) for tile, label in labels.items()
            }
        return [sizes[stage] for stage in stages]

    def _level(
        self, families: list[int], generators: dict[int, list[Permutation]], stage: int, values: int, depth: int
    ) -> Level:
        found: set[Action] = set()
        for root in families:
            for inner in {label[:stage] for label in self.labels[root].values()}:
                found.update(self.permuted(root, generator, inner, values) for generator in generators[root])
        moving = tuple(sorted(action.permutation for action in found if action.permutation is not None))
        degree = max(len(orbit) for orbit in orbits(values, moving))
        return Level(values, "permutation" if moving else "reset", moving, degree, depth)


def _labelled(n: int, generators: list[Permutation], chosen: set[int]) -> dict[int, Coordinates]:
    """Labels (orbit, part of it, part of that, …) of the tiles in orbits that hold a chosen tile."""
    labels: dict[int, Coordinates] = {}
    kept = 0
    for orbit, inner in zip(orbits(n, generators), nested_labels(n, generators), strict=True):
        if chosen.intersection(orbit):
            labels.update((tile, (kept, *label)) for tile, label in zip(orbit, inner, strict=True))
            kept += 1
    return labels
