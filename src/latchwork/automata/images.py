"""The images of a set of states under words: what aperiodicity and the holonomy decomposition are read from.

Notation: Q all states, P·a the image of a set P under letter a. The *blocks* are the images Q·w and the singletons.
Two blocks are in one class when letters lead from each to the other; every letter inside a class is a bijection, since
sizes cannot grow. After Eilenberg (Automata, Languages, and Machines, vol. B, ch. II) and Egri-Nagy and Nehaniv
(arXiv 1508.06345).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike

from latchwork.automata.search import BudgetError

MAX_IMAGES = 10_000
Map = tuple[int, ...]


def table_of(transitions: ArrayLike) -> list[list[int]]:
    """A complete table [S, A] as lists; `ValueError` where it is none."""
    table = np.asarray(transitions)
    if table.ndim != 2 or not len(table):
        raise ValueError(f"transitions must be [S, A] with S ≥ 1, got shape {table.shape}")
    if table.size and not np.issubdtype(table.dtype, np.integer):
        raise ValueError(f"transitions must be integers, got {table.dtype}")
    if table.size and not (table.min() >= 0 and table.max() < len(table)):
        raise ValueError(f"transitions must lead to states 0 … {len(table) - 1}")
    return [[int(state) for state in row] for row in table]


def members(block: int) -> Iterator[int]:
    """The states of a bit mask, ascending."""
    while block:
        lowest = block & -block
        yield lowest.bit_length() - 1
        block ^= lowest


class Images:
    """Blocks, their classes, representatives, bijections, tiles and depths.

    Arguments:
        table: [S][A] the state after reading letter a in state q.
        limit: the most blocks to list; `BudgetError` beyond.

    Blocks are numbered in the order of a breadth-first search, Q first. Letters that act alike are one *column*.

    Attributes:
        columns: the distinct letters, each as the tuple of where it sends the states.
        column: the column of every letter.
        blocks: every block as a bit mask.
        after: [block][column] the block P·a.
        family: the class of every block, as the number of its representative R.
        points: for every P the bijection β_P from R: where the states of R, ascending, are sent.
        parent: for every P the (block, column) before it on the tree that β_P runs along; None at R.
    """

    def __init__(self, table: Sequence[Sequence[int]], limit: int = MAX_IMAGES) -> None:
        letters = [tuple(row[a] for row in table) for a in range(len(table[0]))]
        self.columns: list[Map] = list(dict.fromkeys(letters))
        self.column = [self.columns.index(letter) for letter in letters]
        self._list_blocks(len(table), limit)
        self._order = self._components()
        self._span(self._order)
        self._tiles: dict[int, tuple[int, ...]] = {}
        # Large tiles first: a reset goes to the first tile that fits, so that few tiles are ever used.
        self._falling = sorted(self.blocks, key=lambda block: (-block.bit_count(), block))

    def _list_blocks(self, n_states: int, limit: int) -> None:
        self.blocks = [(1 << n_states) - 1]
        self.number = {self.blocks[0]: 0}
        self.after: list[list[int]] = []

        def add(block: int) -> int:
            if block not in self.number:
                if len(self.blocks) >= limit:
                    raise BudgetError(
                        f"more than {limit:,} images of the {n_states:,} states; a larger limit may help, or a simpler"
                        " language"
                    )
                self.number[block] = len(self.blocks)
                self.blocks.append(block)
            return self.number[block]

        def explore() -> None:
            while len(self.after) < len(self.blocks):
                states = list(members(self.blocks[len(self.after)]))
                images = []
                for column in self.columns:
                    image = 0
                    for state in states:
                        image |= 1 << column[state]
                    images.append(add(image))
                self.after.append(images)

        explore()
        for state in range(n_states):
            add(1 << state)
        explore()
        self.size = [block.bit_count() for block in self.blocks]

    def _components(self) -> list[list[int]]:
        """Strongly connected components of the blocks (Tarjan's algorithm without recursion), successors first.

        Only letters that keep the size can lie on a cycle.
        """
        found: list[list[int]] = []
        entered: dict[int, int] = {}
        low: dict[int, int] = {}
        done: set[int] = set()
        stack: list[int] = []
        for root in range(len(self.blocks)):
            if root in entered:
                continue
            work = [(root, self._same_size(root))]
            entered[root] = low[root] = len(entered)
            stack.append(root)
            while work:
                block, successors = work[-1]
                for successor in successors:
                    if successor not in entered:
                        entered[successor] = low[successor] = len(entered)
                        stack.append(successor)
                        work.append((successor, self._same_size(successor)))
                        break
                    if successor not in done:
                        low[block] = min(low[block], entered[successor])
                else:
                    work.pop()
                    if work:
                        low[work[-1][0]] = min(low[work[-1][0]], low[block])
                    if low[block] == entered[block]:
                        component = [stack.pop()]
                        while component[-1] != block:
                            component.append(stack.pop())
                        done.update(component)
                        found.append(sorted(component))
        return found

    def _same_size(self, block: int) -> Iterator[int]:
        return (image for image in self.after[block] if self.size[image] == self.size[block])

    def _span(self, components: list[list[int]]) -> None:
        count = len(self.blocks)
        self.family = [0] * count
        self.points: list[Map] = [()] * count
        self.parent: list[tuple[int, int] | None] = [None] * count
        for component in components:
            root = component[0]
            for block in component:
                self.family[block] = root
            self.points[root] = tuple(members(self.blocks[root]))
            queue = [root]
            for block in queue:
                for column, image in enumerate(self.after[block]):
                    if self.family[image] == root and not self.points[image] and self.size[image] == self.size[root]:
                        self.points[image] = self._moved(block, column)
                        self.parent[image] = (block, column)
                        queue.append(image)

    def _moved(self, block: int, column: int) -> Map:
        letter = self.columns[column]
        return tuple(letter[state] for state in self.points[block])

    def inner_edges(self) -> Iterator[tuple[int, int, int]]:
        """All (P, column, P·a) inside classes of two states or more."""
        for block, images in enumerate(self.after):
            if self.size[block] > 1:
                for column, image in enumerate(images):
                    if self.family[image] == self.family[block]:
                        yield block, column, image

    def discrepancy(self, block: int, column: int) -> Map | None:
        """β_N⁻¹ · a · β_P on the positions 0 … |R| − 1 of the states of R, for an edge P → N = P·a inside a class.

        None where it is the identity, that is where going on along the edge agrees with the tree.
        """
        target = self.points[self.after[block][column]]
        moved = self._moved(block, column)
        if moved == target:
            return None
        position = {state: at for at, state in enumerate(target)}
        return tuple(position[state] for state in moved)

    def tiles(self, block: int) -> tuple[int, ...]:
        """The maximal blocks strictly inside P, in the order of R's tiles carried over by β_P.

        β_P is made of letters and undone by letters, so it maps the blocks inside R onto the blocks inside P and
        keeps inclusion: tiles go to tiles.
        """
        if block not in self._tiles:
            root = self.family[block]
            if block == root:
                self._tiles[block] = self._maximal_inside(block)
            else:
                self._tiles[block] = tuple(self._carried(root, tile, block) for tile in self.tiles(root))
        return self._tiles[block]

    def _carried(self, root: int, tile: int, block: int) -> int:
        inside = self.blocks[tile]
        pairs = zip(self.points[root], self.points[block], strict=True)
        return self.number[sum(1 << target for state, target in pairs if inside >> state & 1)]

    def _maximal_inside(self, block: int) -> tuple[int, ...]:
        whole = self.blocks[block]
        outside = ~whole
        found: list[int] = []
        for other in self._falling:
            if not other & outside and other != whole and not any(not other & ~tile for tile in found):
                found.append(other)
        return tuple(self.number[tile] for tile in found)

    def depths(self) -> list[int]:
        """The longest path from every block to a singleton over P → P·a out of the class and P → tile.

        Both kinds of edge never let the size grow and the second lets it fall, so a cycle would lie inside one class.
        """
        depth = [0] * len(self.blocks)
        # Ascending in size; the order of equal sizes (successors first) is kept by the stable sort.
        for component in sorted(self._order, key=lambda blocks: self.size[blocks[0]]):
            if self.size[component[0]] == 1:
                continue
            below = set(self.tiles(component[0]))
            for block in component:
                below.update(image for image in self.after[block] if self.family[image] != component[0])
            height = 1 + max(depth[block] for block in below)
            for block in component:
                depth[block] = height
        return depth
