"""The holonomy decomposition: a finite automaton as a cascade of levels that keep, reset or permute a few values.

A state of the cascade names a chain Q ⊃ P₁ ⊃ … ⊃ {q}, every block a tile of the one before; a level holds the tile
chosen where a block of its depth is refined. The step on letter a walks the old chain and the new one down together,
with P·a ⊆ N for the old block P and the new block N, both of depth d at most. At depth d:

* N is of less depth: nothing is chosen here, and the level is reset to 0.
* N is of depth d and P·a = N: then P is of depth d too and in the class of N, since letters never lead to more depth
  and out of a class always to less. The letter maps the tiles of P onto those of N: the level keeps or permutes.
* N is of depth d and P·a ≠ N: then P·a, a block strictly inside N, lies in a tile of N: the level is reset to that.

P and N depend only on the letter and on the levels above before the step, and P·a ⊆ N holds again one depth down: a
tile of P goes into the tile chosen for N. At the end both are single states, and the new one is where the letter leads.

Sources: Eilenberg, Automata, Languages, and Machines, vol. B, ch. II; Egri-Nagy and Nehaniv, arXiv 1508.06345; Maler,
On the Krohn-Rhodes cascaded decomposition theorem; Knorozova and Ronca, AAAI 2024. Where a group permutes tiles, the
level is split further: first the orbit, which permutations leave alone, then nested blocks of imprimitivity.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from latchwork.automata import cascade_text
from latchwork.automata.dfa import DFA
from latchwork.automata.images import MAX_IMAGES, Images, table_of
from latchwork.automata.levels import KEEP, Action, Coordinates, Tiling
from latchwork.automata.minimal import minimize
from latchwork.automata.search import explore
from latchwork.automata.walk import Walk

MAX_CACHE = 100_000


class Decomposition:
    """A cascade that follows a machine: of the minimal automaton of a language if made by `decompose`.

    States that the start does not lead to are left out.

    Coordinates are one value a level, the top level first. For the coordinates c that `encode` gives or `step` leads
    to from there, and every letter a, decode(step(c, a)) = transitions[decode(c), a]. Others may name no state
    (`ValueError`).

    Arguments:
        table: [S, A] the state after reading letter a in state q.
        start: the state before the first letter.
        limit: the most images of the set of states to list; there can be 2^S.
        alphabet: the A letters, for texts; by default their numbers.
        accepting: the accepting states, for formulas.

    Attributes:
        levels: what each level holds, from the top.
        start: the coordinates before the first letter, 0 everywhere.
        letters: the names of the letters in texts: strings as they are, others as Python writes them.
        accepting: as given.
        degree: the degree of the largest permutations of a level, 1 if there are none: vector units of this degree
            suffice. Not always the least: S₄ on four points has 4 here, though a larger cascade does with 3.
        walk, tiling: the blocks behind the levels.

    Raises: ValueError for a table or a start that is none; BudgetError above `limit` images.
    """

    def __init__(
        self,
        table: ArrayLike,
        start: int = 0,
        limit: int = MAX_IMAGES,
        alphabet: Sequence[Hashable] | None = None,
        accepting: Collection[int] | None = None,
    ) -> None:
        rows = table_of(table)
        if not 0 <= start < len(rows):
            raise ValueError(f"start must be in 0 … {len(rows) - 1}, got {start}")
        self.letters = cascade_text.letter_names(range(len(rows[0])) if alphabet is None else alphabet)
        self.accepting = accepting
        self._names, reached = explore(start, rows.__getitem__, len(rows[0]))
        self.walk = Walk(Images(reached.tolist(), limit), 0)
        self.tiling = Tiling(self.walk)
        self.levels = self.tiling.levels
        self.start: Coordinates = (0,) * len(self.levels)
        self.degree = max((level.degree for level in self.levels), default=1)
        self._pairs: dict[tuple[int, int, Coordinates], tuple[int, int]] = {}
        self._steps: dict[tuple[Coordinates, int], Coordinates] = {}
        self._codes = {self._names[state]: self._code(chain) for state, chain in self.walk.chains().items()}
        self._codes[start] = self.start

    @property
    def n_levels(self) -> int:
        return len(self.levels)

    @property
    def n_letters(self) -> int:
        return len(self.walk.images.column)

    @property
    def is_aperiodic(self) -> bool:
        """Whether every level only keeps and resets: the automaton holds no group."""
        return all(level.kind == "reset" for level in self.levels)

    def flip_flops(self) -> int:
        """The binary memories of the reset levels: ⌈log₂ v⌉ for v values."""
        return sum((level.values - 1).bit_length() for level in self.levels if level.kind == "reset")

    def summary(self) -> str:
        """One line: levels, their values, flip-flops, and the degree where there are permutations."""
        values = "·".join(str(level.values) for level in self.levels) or "none"
        text = f"levels {self.n_levels}, values {values}, flip-flops {self.flip_flops()}"
        return text if self.is_aperiodic else f"{text}, degree {self.degree}"

    def encode(self, state: int) -> Coordinates:
        """Coordinates of a state that the start leads to; `ValueError` for others."""
        if state not in self._codes:
            raise ValueError(f"state {state} is not reached from the start")
        return self._codes[state]

    def decode(self, coordinates: Sequence[int]) -> int:
        """The state that coordinates name; `ValueError` where they name none."""
        values = _of_length(coordinates, self.n_levels)
        block = 0
        for depth, part in self.tiling.at.items():
            tile = self._tile(block, depth, values[part])
            if tile is not None:
                block = self.walk.images.tiles(block)[tile]
        return self.state_of(block)

    def state_of(self, block: int) -> int:
        """The state in a block of the walk that holds only one."""
        return self._names[self.walk.images.blocks[block].bit_length() - 1]

    def step(self, coordinates: Sequence[int], letter: int) -> Coordinates:
        """The coordinates after a letter: every level does its `action`."""
        values = _of_length(coordinates, self.n_levels)
        key = values, self._column(letter)
        if key not in self._steps:
            _make_room(self._steps)
            self._steps[key] = self._stepped(*key)
        return self._steps[key]

    def action(self, level: int, letter: int, upper: Sequence[int]) -> Action:
        """What a level does on a letter, given the values of the levels above it before the letter."""
        if not 0 <= level < self.n_levels:
            raise ValueError(f"level must be in 0 … {self.n_levels - 1}, got {level}")
        values = _of_length(upper, level)
        depth = self.levels[level].depth
        first = self.tiling.at[depth].start
        column = self._column(letter)
        old, new = self._pair(depth, column, values[:first])
        return self.action_between(depth, column, old, new, values[first:])

    def action_between(self, depth: int, column: int, old: int, new: int, inner: Coordinates) -> Action:
        """The action of a level when the walk is at blocks P and N; inner: the values above the level of its depth."""
        stage = len(inner)
        if self.walk.depth[new] != depth:
            return Action(reset=0)
        move = self.walk.move(old, new, column)
        family = self.walk.images.family[new]
        if move.reset is not None:
            return Action(reset=self.tiling.label(family, move.reset)[stage])
        if move.permuted is None:
            return KEEP
        values = self.levels[self.tiling.at[depth].start + stage].values
        return self.tiling.permuted(family, move.permuted, inner, values)

    def table(self, letters: Sequence[str] | None = None, limit: int = cascade_text.MAX_ATOMS) -> str:
        """The cascade in words: every level with its values and when it is set, kept and permuted.

        Arguments:
            letters: a name for every letter; its own by default.
            limit: the most letters and values in one condition; longer conditions are only measured. Cascades of more
                than 64 levels are only summed up.
        """
        return cascade_text.table(self, self.letters if letters is None else letters, limit)

    def past_ltl(
        self,
        letters: Sequence[str] | None = None,
        accepting: Collection[int] | None = None,
        limit: int = cascade_text.MAX_ATOMS,
    ) -> str:
        """The cascade as formulas of linear temporal logic over the past; `ValueError` where it holds a group.

        Arguments:
            letters: a name for every letter; its own by default.
            accepting: states, the accepting ones by default; adds `accept`, true after the words that lead to one of
                them.
            limit: the most letters and values in all formulas; longer texts are only measured. Cascades of more than
                64 levels are only summed up.
        """
        return cascade_text.past_ltl(
            self,
            self.letters if letters is None else letters,
            self.accepting if accepting is None else accepting,
            limit,
        )

    def _stepped(self, values: Coordinates, column: int) -> Coordinates:
        old, new = 0, 0
        after: list[int] = []
        for depth, part in self.tiling.at.items():
            inner = values[part]
            for stage, value in enumerate(inner):
                after.append(self.action_between(depth, column, old, new, inner[:stage])(value))
            old, new = self.walk.follow(depth, column, old, new, self._tile(old, depth, inner))
        return tuple(after)

    def _column(self, letter: int) -> int:
        if not 0 <= letter < self.n_letters:
            raise ValueError(f"letter must be in 0 … {self.n_letters - 1}, got {letter}")
        return self.walk.images.column[letter]

    def _tile(self, block: int, depth: int, values: Coordinates) -> int | None:
        """The tile of a block that values choose; None where it is of another depth."""
        if self.walk.depth[block] != depth:
            return None
        return self.tiling.tile(self.walk.images.family[block], values)

    def _pair(self, depth: int, column: int, upper: Coordinates) -> tuple[int, int]:
        """The old and the new block where the walk arrives at a depth."""
        above = depth
        while above < self.walk.top and (above, column, upper[: self.tiling.at[above].start]) not in self._pairs:
            above += 1
        key = (above, column, upper[: self.tiling.at[above].start])
        old, new = (0, 0) if above == self.walk.top else self._pairs[key]
        while above > depth:
            tile = self._tile(old, above, upper[self.tiling.at[above]])
            old, new = self.walk.follow(above, column, old, new, tile)
            above -= 1
            _make_room(self._pairs)
            self._pairs[above, column, upper[: self.tiling.at[above].start]] = old, new
        return old, new

    def _code(self, chain: dict[int, int]) -> Coordinates:
        values = list(self.start)
        for block, tile in chain.items():
            part = self.tiling.at[self.walk.depth[block]]
            values[part] = self.tiling.label(self.walk.images.family[block], tile)
        return tuple(values)


def decompose(dfa: DFA, limit: int = MAX_IMAGES) -> Decomposition:
    """The holonomy decomposition of the minimal automaton of a language; its states are those of `minimize`.

    Scalar units suffice where its degree is 1, that is where the language is star-free.

    Arguments: limit is the most images of the set of S states to list; there can be 2^S.
    Raises: BudgetError above `limit` images.
    """
    dfa = minimize(dfa)
    accepting = np.flatnonzero(dfa.accepting).tolist()
    return Decomposition(dfa.transitions, dfa.start, limit, dfa.alphabet, accepting)


def _make_room(cache: dict[Any, Any]) -> None:
    if len(cache) >= MAX_CACHE:
        cache.clear()


def _of_length(values: Sequence[int], length: int) -> Coordinates:
    if len(values) != length:
        raise ValueError(f"{length} values are needed, got {len(values)}")
    return tuple(values)
