"""Two chains of blocks, before and after a letter, followed down together: the dynamics behind the holonomy cascade."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from latchwork.automata.images import Images
from latchwork.automata.permutations import Permutation

MAX_TRIPLES = 500_000


@dataclass(frozen=True)
class Move:
    """What a letter does to the choice of a tile: go to tile `reset` of N; else take that of P through `permuted`."""

    reset: int | None = None
    permuted: Permutation | None = None


class Walk:
    """What happens to tiles when P·a ⊆ N for the old block P and the new block N of one depth d, or less.

    Arguments:
        images: the blocks of the automaton.
        start: its start state.

    Attributes:
        depth: of every block.
        top: the depth of Q.
        chain: {block: tile} from Q down to the start state.
        used: {block: tiles} that can be chosen after some word, or more; all tiles where finding out costs too much.
    """

    def __init__(self, images: Images, start: int) -> None:
        self.images = images
        self.depth = images.depths()
        self.top = self.depth[0]
        self._moves: dict[tuple[int, int, int], Move] = {}
        self.chain = self._chain(start)
        self.used = self._used_tiles()

    def move(self, old: int, new: int, column: int) -> Move:
        """What the letter does to the tiles of N; see the module `holonomy` for why this is all that can happen."""
        key = (old, new, column)
        if key not in self._moves:
            image = self.images.after[old][column]
            if image == new and self.depth[old] == self.depth[new]:
                self._moves[key] = Move(permuted=self._permutation(old, new, column))
            else:
                self._moves[key] = Move(reset=self._first_over(image, new))
        return self._moves[key]

    def follow(self, depth: int, column: int, old: int, new: int, tile: int | None) -> tuple[int, int]:
        """The blocks P and N below this depth; tile: the one chosen in P, None where P is of less depth."""
        if self.depth[new] == depth:
            move = self.move(old, new, column)
            if move.reset is not None:
                chosen = move.reset
            elif tile is not None:
                chosen = move.permuted[tile] if move.permuted else tile
            else:
                raise ValueError("a tile of the old block is needed to carry it on")
            new = self.images.tiles(new)[chosen]
        return (old if tile is None else self.images.tiles(old)[tile]), new

    def choices(self, block: int, depth: int) -> Sequence[int | None]:
        """The tiles that can be chosen in P at this depth: [None] where it is of less depth."""
        return sorted(self.used[block]) if self.depth[block] == depth else [None]

    def generators(self, root: int) -> list[Permutation]:
        """What letters inside the class of a representative do to its tiles, the identity left out."""
        found = set()
        for block, family in enumerate(self.images.family):
            if family == root:
                for column, image in enumerate(self.images.after[block]):
                    if self.images.family[image] == root:
                        found.add(self.move(block, image, column).permuted)
        return sorted(permutation for permutation in found if permutation is not None)

    def chains(self) -> dict[int, dict[int, int]]:
        """For every state that the start leads to a chain {block: tile} of used tiles down to it."""
        came: dict[int, tuple[int, int] | None] = {0: None}
        queue = [0]
        for block in queue:
            for tile in sorted(self.used.get(block, ())):
                below = self.images.tiles(block)[tile]
                if below not in came:
                    came[below] = (block, tile)
                    queue.append(below)
        found = {}
        for block in queue:
            if self.depth[block] == 0:
                chain: dict[int, int] = {}
                step = came[block]
                while step is not None:
                    chain[step[0]] = step[1]
                    step = came[step[0]]
                found[self.images.blocks[block].bit_length() - 1] = chain
        return found

    def _permutation(self, old: int, new: int, column: int) -> Permutation | None:
        """Where the letter sends the tiles of P among those of N = P·a, in one class; None for the identity.

        Tiles are numbered through β, so the identity is what every edge of the tree gives and, if no word permutes
        states in a circle, every edge.
        """
        place = {tile: at for at, tile in enumerate(self.images.tiles(new))}
        moved = tuple(place[self.images.after[tile][column]] for tile in self.images.tiles(old))
        return None if moved == tuple(range(len(moved))) else moved

    def _first_over(self, image: int, block: int) -> int:
        inside = self.images.blocks[image]
        tiles = self.images.tiles(block)
        return next(at for at, tile in enumerate(tiles) if not inside & ~self.images.blocks[tile])

    def _chain(self, start: int) -> dict[int, int]:
        single = self.images.number[1 << start]
        chain, block = {}, 0
        while self.depth[block]:
            chain[block] = self._first_over(single, block)
            block = self.images.tiles(block)[chain[block]]
        return chain

    def _used_tiles(self) -> dict[int, set[int]]:
        """Tiles that can be chosen, found depth by depth from the triples (P, N, letter) that can be met there.

        Every triple met by a run is found (by induction on the depth: a run's tile of P was found for P, so the
        triple below is added), hence so is every tile that a run chooses. There are at most as many triples as pairs
        of blocks times letters, however many coordinates there are.
        """
        columns = range(len(self.images.columns))
        triples = {(0, 0, column) for column in columns}
        used: dict[int, set[int]] = {block: {tile} for block, tile in self.chain.items()}
        for depth in range(self.top, 0, -1):
            self._choose(depth, triples, used)
            below = set()
            for old, new, column in triples:
                for tile in sorted(used[old]) if self.depth[old] == depth else (None,):
                    below.add((*self.follow(depth, column, old, new, tile), column))
                if len(below) > MAX_TRIPLES:
                    blocks = range(len(self.images.blocks))
                    return {block: set(range(len(self.images.tiles(block)))) for block in blocks if self.depth[block]}
            triples = below
        return used

    def _choose(self, depth: int, triples: set[tuple[int, int, int]], used: dict[int, set[int]]) -> None:
        """Add the tiles that triples choose in the blocks of a depth."""
        carried = []
        for old, new, column in triples:
            if self.depth[new] == depth:
                move = self.move(old, new, column)
                if move.reset is not None:
                    used.setdefault(new, set()).add(move.reset)
                else:
                    carried.append((old, new, move.permuted))
        growing = True
        while growing:
            growing = False
            for old, new, permuted in carried:
                tiles = {permuted[tile] if permuted else tile for tile in used.get(old, ())}
                if not tiles <= used.setdefault(new, set()):
                    used[new] |= tiles
                    growing = True
