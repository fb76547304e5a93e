"""Star-free or not: does any word permute states in a circle?"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from latchwork.automata.dfa import DFA, Word
from latchwork.automata.images import MAX_IMAGES, Images, Map
from latchwork.automata.machine import IntArray
from latchwork.automata.minimal import minimize
from latchwork.automata.search import BudgetError

MAX_MAPS = 100_000
_SHOWN = 20


@dataclass(frozen=True)
class Witness:
    """A word that moves states in a circle of two or more.

    Arguments:
        word: its letters.
        states: q0, q1, … such that the word leads from each to the next and from the last to the first.
    """

    word: Word
    states: tuple[int, ...]

    @property
    def period(self) -> int:
        return len(self.states)

    def __str__(self) -> str:
        more = [] if self.period <= _SHOWN else ["…"]
        circle = " → ".join([*map(str, self.states[:_SHOWN]), *more, str(self.states[0])])
        period = f" ({self.period} states)" if more else ""
        return f"the word {_shown(self.word)} moves state {circle}{period}"


def group_witness(dfa: DFA, limit: int = MAX_IMAGES) -> Witness | None:
    """None if the language is star-free, else a word that moves states of the minimal automaton in a circle.

    A language is star-free exactly where no word does that (Schützenberger). States are numbered as `minimize` does.

    Exact, without listing the transition monoid. Let β_P be the bijection from the representative R of a class of
    images to P.
    (1) Some edge P → N = P·a inside a class has a·β_P ≠ β_N. With u, v the words of β_P, β_N and z a word from N back
    to R, both u·a·z and v·z permute R, and differently: one of them is not the identity on R and moves states in a
    circle. (2) No edge has. Then a word that returns to P from P is the identity on P, by going along it edge by edge.
    If a word w moved q0 → q1 → … → q0, the images Q·w^k, which fall with k, would stop at some P = P·w that holds all
    q_i: w would permute P and not be the identity on it.

    Arguments: limit is the most images of the set of states to look at (deciding this is PSPACE-complete).
    Raises: BudgetError above `limit` images.
    """
    dfa = minimize(dfa)
    return witness_of(dfa.transitions, dfa.alphabet, limit)


def witness_of(transitions: IntArray, alphabet: Sequence[Hashable], limit: int = MAX_IMAGES) -> Witness | None:
    """As `group_witness`, for a table [S, A] as it stands, all of whose states count."""
    images = Images(transitions.tolist(), limit)
    for block, column, image in images.inner_edges():
        if images.discrepancy(block, column) is not None:
            back = _way_back(images, image)
            for columns in ([*_tree_word(images, block), column, *back], [*_tree_word(images, image), *back]):
                states = _circle(images, images.family[block], columns)
                if states:
                    return Witness(tuple(alphabet[images.column.index(c)] for c in columns), states)
    return None


def is_aperiodic(dfa: DFA, limit: int = MAX_IMAGES) -> bool:
    """Whether the language is star-free; arguments and errors as for `group_witness`."""
    return group_witness(dfa, limit) is None


def monoid_size(dfa: DFA, limit: int = MAX_MAPS) -> int:
    """The size of the language's syntactic monoid: how many maps of the minimal automaton's states words make.

    The empty word counts, too; there can be S^S maps.

    Raises: BudgetError above `limit` maps.
    """
    dfa = minimize(dfa)
    letters: set[Map] = set(map(tuple, dfa.transitions.T.tolist()))
    identity: Map = tuple(range(dfa.n_states))
    found = {identity}
    queue = [identity]
    for map_ in queue:
        for letter in letters:
            longer = tuple([letter[state] for state in map_])
            if longer not in found:
                if len(found) >= limit:
                    raise BudgetError(
                        f"words make more than {limit:,} maps of the {dfa.n_states:,} states; a larger limit may help,"
                        " or a simpler language"
                    )
                found.add(longer)
                queue.append(longer)
    return len(found)


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


def _circle(images: Images, root: int, columns: list[int]) -> tuple[int, ...]:
    """The circle that a word that returns to R moves states of R in; empty where it moves none."""
    moves: Map = images.points[root]
    for column in columns:
        moves = tuple(images.columns[column][state] for state in moves)
    target = dict(zip(images.points[root], moves, strict=True))
    for start, end in target.items():
        if start != end:
            states = [start]
            while target[states[-1]] != start:
                states.append(target[states[-1]])
            return tuple(states)
    return ()


def _shown(word: tuple[Hashable, ...]) -> str:
    """A word as Python writes it, in one string where its letters are single characters, cut off when it is long."""
    begin = word[:_SHOWN]
    characters = [letter for letter in begin if isinstance(letter, str) and len(letter) == 1]
    text = repr("".join(characters)) if len(characters) == len(begin) else repr(begin)
    return text if len(word) <= _SHOWN else f"{text} … ({len(word)} letters)"
