"""When a level of a cascade does what: decision diagrams over the values of levels, and the formulas they are.

A diagram asks for the values of one level after another, from the top, and ends in a leaf. Equal diagrams have one
number, so letters that act alike are found by comparing numbers. Only values that can be met are told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from latchwork.automata.formulas import Formulas
from latchwork.automata.levels import Action, Coordinates
from latchwork.automata.search import BudgetError

if TYPE_CHECKING:
    from latchwork.automata.holonomy import Decomposition

Leaf = Action | bool
T = TypeVar("T")


class Conditions:
    """Formulas for what the levels of a decomposition do, and for where they stand."""

    def __init__(self, cascade: Decomposition, most_nodes: int | None = None) -> None:
        """`most_nodes`: how many places of diagrams to look at before a `BudgetError`."""
        self._cascade = cascade
        self._most_nodes, self._nodes = most_nodes, 0
        self.formulas = Formulas(cascade.n_letters)
        # A diagram is a leaf, or (level, ((value, diagram), …)); made after its parts.
        self._diagrams: list[Leaf | tuple[int, tuple[tuple[int, int], ...]]] = []
        self._numbers: dict[object, int] = {}

    def actions(self, level: int) -> dict[Action, int]:
        """All that the level ever does, each with the formula of letters and earlier values of upper levels."""
        columns = self.by_column(level)
        actions = sorted({action for column in columns for action in column}, key=_order)
        return {action: self._for_letters(action, columns) for action in actions}

    def by_column(self, level: int) -> list[dict[Action, int]]:
        """What the level does on letters of each column, with the formulas of earlier values of upper levels."""
        diagrams = [self._before(level, column) for column in range(len(self._cascade.walk.images.columns))]
        found = {}
        for diagram in set(diagrams):
            leaves = {self._diagrams[number] for number in self._below(diagram)}
            actions = sorted((leaf for leaf in leaves if isinstance(leaf, Action)), key=_order)
            found[diagram] = {action: self._formula(diagram, action) for action in actions}
        return [found[diagram] for diagram in diagrams]

    def standing(self, states: Collection[int]) -> int:
        """The formula, over present values, of the cascade standing at one of these states."""
        walk, cascade = self._cascade.walk, self._cascade

        def below(depth: int, block: int) -> dict[Coordinates, int]:
            return {
                self._label(depth, block, tile): block if tile is None else walk.images.tiles(block)[tile]
                for tile in walk.choices(block, depth)
            }

        diagram = self._built(
            range(walk.top, 0, -1),
            0,
            below,
            lambda block: self._numbered(cascade.state_of(block) in states),
        )
        return self._formula(diagram, True)

    def _before(self, level: int, column: int) -> int:
        """The diagram of the level's action on a letter, by the values before it."""
        walk, cascade = self._cascade.walk, self._cascade
        depth = cascade.levels[level].depth
        first = cascade.tiling.at[depth].start

        def below(above: int, pair: tuple[int, int]) -> dict[Coordinates, tuple[int, int]]:
            return {
                self._label(above, pair[0], tile): walk.follow(above, column, *pair, tile)
                for tile in walk.choices(pair[0], above)
            }

        def leaf(pair: tuple[int, int]) -> int:
            # The levels of the same depth above this one count too.
            inner = {self._label(depth, pair[0], tile)[: level - first] for tile in walk.choices(pair[0], depth)}
            return self._cases(
                first,
                {values: self._numbered(cascade.action_between(depth, column, *pair, values)) for values in inner},
            )

        return self._built(range(walk.top, depth, -1), (0, 0), below, leaf)

    def _label(self, depth: int, block: int, tile: int | None) -> Coordinates:
        """The values that choose a tile; zeros, any would do, where the block is of less depth."""
        if tile is None:
            part = self._cascade.tiling.at[depth]
            return (0,) * (part.stop - part.start)
        return self._cascade.tiling.label(self._cascade.walk.images.family[block], tile)

    def _built(
        self,
        depths: Sequence[int],
        root: T,
        below: Callable[[int, T], dict[Coordinates, T]],
        leaf: Callable[[T], int],
    ) -> int:
        """The diagram that asks, from `root` on, for the values of every depth, and ends in `leaf`."""
        layers: list[dict[T, dict[Coordinates, T]]] = []
        nodes = [root]
        for depth in depths:
            layers.append({node: below(depth, node) for node in nodes})
            nodes = list(dict.fromkeys(node for choices in layers[-1].values() for node in choices.values()))
            self._nodes += len(nodes)
            if self._most_nodes is not None and self._nodes > self._most_nodes:
                raise BudgetError(
                    f"finding out what levels do takes more than {self._most_nodes:,} places of diagrams: too much for "
                    'units="scalar" and "mixed"; units="vector" needs none'
                )
        made = {node: leaf(node) for node in nodes}
        for depth, layer in zip(reversed(depths), reversed(layers), strict=True):
            first = self._cascade.tiling.at[depth].start
            made = {
                node: self._cases(first, {values: made[child] for values, child in choices.items()})
                for node, choices in layer.items()
            }
        return made[root]

    def _cases(self, level: int, entries: dict[Coordinates, int]) -> int:
        """The diagram that looks up what stands at the values of the levels from `level` on."""
        if len(set(entries.values())) == 1:
            return next(iter(entries.values()))
        groups: dict[int, dict[Coordinates, int]] = {}
        for values, diagram in entries.items():
            groups.setdefault(values[0], {})[values[1:]] = diagram
        children = {value: self._cases(level + 1, group) for value, group in groups.items()}
        if len(set(children.values())) == 1:
            return next(iter(children.values()))
        return self._numbered((level, tuple(sorted(children.items()))))

    def _numbered(self, diagram: Leaf | tuple[int, tuple[tuple[int, int], ...]]) -> int:
        if diagram not in self._numbers:
            self._numbers[diagram] = len(self._diagrams)
            self._diagrams.append(diagram)
        return self._numbers[diagram]

    def _below(self, diagram: int) -> list[int]:
        """The diagram's parts and itself, parts first."""
        found = {diagram}
        work = [diagram]
        while work:
            node = self._diagrams[work.pop()]
            if isinstance(node, tuple):
                fresh = {child for _, child in node[1]} - found
                found |= fresh
                work.extend(fresh)
        return sorted(found)

    def _formula(self, diagram: int, leaf: Leaf) -> int:
        """The formula of the values with which a diagram ends in this leaf."""
        formulas = self.formulas
        made: dict[int, int] = {}
        for number in self._below(diagram):
            node = self._diagrams[number]
            if not isinstance(node, tuple):
                made[number] = formulas.true if node == leaf else formulas.false
                continue
            level, children = node
            groups: dict[int, list[int]] = {}
            for value, child in children:
                groups.setdefault(made[child], []).append(value)
            possible = [value for value, _ in children]
            made[number] = formulas.either(groups, partial(formulas.values, level, possible))
        return made[diagram]

    def _for_letters(self, action: Action, columns: Sequence[dict[Action, int]]) -> int:
        """The formula of letters and values for an action; columns: what `by_column` gives."""
        groups: dict[int, list[int]] = {}
        for letter, column in enumerate(self._cascade.walk.images.column):
            groups.setdefault(columns[column].get(action, self.formulas.false), []).append(letter)
        return self.formulas.either(groups, self.formulas.letters)


def _order(action: Action) -> tuple[bool, int, tuple[int, ...]]:
    """Resets by value, then keep, then permutations."""
    return action.reset is None, action.reset or 0, action.permutation or ()
