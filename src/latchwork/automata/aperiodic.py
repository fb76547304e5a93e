"""Aperiodicity: does any word permute states in a circle?"""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import ArrayLike

from latchwork.automata.images import MAX_IMAGES, Images, Map, table_of


@dataclass(frozen=True)
class Witness:
    """A word that moves states in a circle of two or more.

    Arguments:
        word: letters, as columns of the table.
        states: q0, q1, … such that the word leads from each to the next and from the last to the first.
    """

    word: tuple[int, ...]
    states: tuple[int, ...]

    @property
    def period(self) -> int:
        return len(self.states)


def group_witness(transitions: ArrayLike, limit: int = MAX_IMAGES) -> Witness | None:
    """None if the transition semigroup is aperiodic, else a word that moves two or more states in a circle.

    The language of a minimal complete automaton is star-free exactly where this is None (Schützenberger).

    Exact, without listing the semigroup. Let β_P be the bijection from the representative R of a class of images to P.
    (1) Some edge P → N = P·a inside a class has a·β_P ≠ β_N. With u, v the words of β_P, β_N and z a word from N back
    to R, both u·a·z and v·z permute R, and differently: one of them is not the identity on R and moves states in a
    circle. (2) No edge has. Then a word that returns to P from P is the identity on P, by going along it edge by edge.
    If a word w moved q0 → q1 → … → q0, the images Q·w^k, which fall with k, would stop at some P = P·w that holds all
    q_i: w would permute P and not be the identity on it.

    Arguments:
        transitions: [S, A] the state after reading letter a in state q.
        limit: the most images to look at; `ValueError` beyond (deciding aperiodicity is PSPACE-complete).
    """
    images = Images(table_of(transitions), limit)
    for block, column, image in images.inner_edges():
        if images.discrepancy(block, column) is not None:
            back = _way_back(images, image)
            first = [*_tree_word(images, block), column, *back]
            second = [*_tree_word(images, image), *back]
            return _circle(images, images.family[block], first) or _circle(images, images.family[block], second)
    return None


def is_aperiodic(transitions: ArrayLike, limit: int = MAX_IMAGES) -> bool:
    """Whether no word moves two or more states in a circle; arguments as for `group_witness`."""
    return group_witness(transitions, limit) is None


def monoid_size(transitions: ArrayLike, limit: int = 100_000) -> int | None:
    """The number of maps of states that words (the empty one too) make; None where there are more than `limit`."""
    table = table_of(transitions)
    letters = {tuple(row[a] for row in table) for a in range(len(table[0]))}
    identity = tuple(range(len(table)))
    found = {identity}
    queue = [identity]
    for map_ in queue:
        for letter in letters:
            longer = tuple([letter[state] for state in map_])
            if longer not in found:
                found.add(longer)
                queue.append(longer)
                if len(found) > limit:
                    return None
    return len(found) if limit >= 1 else None


def _tree_word(images: Images, block: int) -> list[int]:
    """The columns of β_P, from R to P."""
    word = []
    step = images.parent[block]
    while step is not None:
        block, column = step
        word.append(column)
        step = images.parent[block]
    return word[::-1]


def _way_back(images: Images, block: int) -> list[int]:
    """The columns of a shortest way from P to its representative."""
    root = images.family[block]
    came: dict[int, list[int]] = {block: []}
    queue = [block]
    for at in queue:
        if at == root:
            break
        for column, image in enumerate(images.after[at]):
            if images.family[image] == root and image not in came:
                came[image] = [*came[at], column]
                queue.append(image)
    return came[root]


def _circle(images: Images, root: int, columns: list[int]) -> Witness | None:
    """The circle that a word that returns to R moves states of R in; None where it moves none."""
    moves: Map = images.points[root]
    for column in columns:
        moves = tuple(images.columns[column][state] for state in moves)
    target = dict(zip(images.points[root], moves, strict=True))
    for start, end in target.items():
        if start != end:
            states = [start]
            while target[states[-1]] != start:
                states.append(target[states[-1]])
            return Witness(tuple(images.column.index(column) for column in columns), tuple(states))
    return None
