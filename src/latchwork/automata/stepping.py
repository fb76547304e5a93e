"""Run a program on all characters at once: the deterministic automaton of a regular expression, found state by state.

A run is a node to go on from, with what is owed there: assertions about the rest of the word, each with the runs of its
own program so far. The state of the automaton is the set of all runs, what is known of the last character, and the runs
of look-behinds, which begin anew at every position. Runs rest *before* the nodes that read nothing: those are walked
through when the next character is known, for some of them ask for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from latchwork.automata.program import ACCEPT, After, Ahead, Before, Behind, Boundary, Node, Program, Read, Split
from latchwork.automata.search import BudgetError
from latchwork.automata.surroundings import EDGE, Surroundings


class Debt(NamedTuple):
    """An assertion about the rest of the word: a run of these accepts a beginning of it (`inverted`: none does)."""

    runs: Runs
    inverted: bool


Debts = frozenset[Debt]
Run = tuple[int, Debts]
Runs = frozenset[Run]
FREE: Debts = frozenset()


class State(NamedTuple):
    """What the automaton knows after a beginning of the word; without runs, nothing is accepted any more."""

    last: int
    behinds: tuple[Runs, ...]
    runs: Runs


DEAD = State(EDGE, (), frozenset())


class Stepper:
    """The start of the automaton, its states after each character, and which of them accept.

    Arguments: work is how many nodes are visited before a BudgetError.
    """

    def __init__(self, program: Program, around: Surroundings, work: int) -> None:
        self.nodes, self.behinds, self.around, self.work = program.nodes, program.behinds, around, work
        self.start = State(EDGE, tuple(frozenset() for _ in self.behinds), frozenset({(program.start, FREE)}))

    def after(self, state: State) -> list[State]:
        """The states after each character."""
        if state == DEAD:
            return [DEAD] * self.around.n_symbols
        here = {coming: Position(self, state, coming) for coming in set(self.around.coming)}
        pairs = enumerate(zip(self.around.coming, self.around.last, strict=True))
        return [here[coming].step(symbol, last) for symbol, (coming, last) in pairs]

    def accepts(self, state: State) -> bool:
        """Whether the word may end here."""
        return Position(self, state, EDGE).holds(state.runs)


class Position:
    """A place in the word whose next character is known as far as the program asks for it."""

    def __init__(self, stepper: Stepper, state: State, coming: int) -> None:
        self._stepper, self._state, self._coming = stepper, state, coming
        self._closed: dict[Runs, list[Run]] = {}
        self._behinds: list[Runs] = []
        self._owed: list[frozenset[Debts]] = []  # what each look-behind takes to hold here, one way or another
        for start, runs in zip(stepper.behinds, state.behinds, strict=False):
            self._behinds.append(runs | {(start, FREE)})
            ends = {run for run in self._close(self._behinds[-1]) if run[0] == ACCEPT}
            self._owed.append(frozenset(debts for _, debts in _least(ends)))

    def step(self, symbol: int, last: int) -> State:
        """The state after the next character, which is known as `last` from then on."""
        runs = self._read(self._state.runs, symbol, keep=False)
        if not runs:
            return DEAD
        return State(last, tuple(self._read(behind, symbol, keep=False) for behind in self._behinds), runs)

    def holds(self, runs: Runs) -> bool:
        """Whether one of these runs accepts when the word ends here."""
        ends = (debts for node, debts in self._close(runs) if node == ACCEPT)
        return any(all(self.holds(debt.runs) != debt.inverted for debt in debts) for debts in ends)

    def _read(self, runs: Runs, symbol: int, keep: bool) -> Runs:
        """The runs after a character; those that have accepted go on only if they are to be kept for their debts."""
        nodes, inside, moved = self._stepper.nodes, self._stepper.around.inside, set()
        for number, debts in self._close(runs):
            node = nodes[number]
            if isinstance(node, Read):
                if symbol not in inside[number]:
                    continue
                target = node.next
            elif keep:
                target = ACCEPT
            else:
                continue
            rest = self._pay(debts, symbol) if debts else debts
            if rest is not None:
                moved.add((target, rest))
        return _least(moved)

    def _pay(self, debts: Debts, symbol: int) -> Debts | None:
        """What is still owed after a character; None when an assertion has failed."""
        rest = set()
        for debt in debts:
            verdict = self._follow(debt.runs, symbol)
            if not isinstance(verdict, bool):
                rest.add(Debt(verdict, debt.inverted))
            elif verdict == debt.inverted:
                return None
        return frozenset(rest)

    def _follow(self, runs: Runs, symbol: int) -> Runs | bool:
        """The runs of an assertion after a character, or whether it holds where that is known."""
        if (ACCEPT, FREE) in self._close(runs):
            return True
        moved = self._read(runs, symbol, keep=True)
        return (ACCEPT, FREE) in moved or moved or False

    def _close(self, runs: Runs) -> list[Run]:
        """The runs at nodes that read or accept, after all nodes that do neither."""
        if runs in self._closed:
            return self._closed[runs]
        nodes, seen, waiting, found = self._stepper.nodes, set(runs), list(runs), []
        while waiting:
            number, debts = run = waiting.pop()
            node = nodes[number]
            if number == ACCEPT or isinstance(node, Read):
                found.append(run)
                continue
            for following in self._pass(number, node, debts):
                if following not in seen:
                    seen.add(following)
                    waiting.append(following)
                    self._work()
        self._work(len(runs))
        self._closed[runs] = found
        return found

    def _work(self, done: int = 1) -> None:
        self._stepper.work -= done
        if self._stepper.work < 0:
            raise BudgetError("the pattern takes too much work; a larger budget may help, or a simpler pattern")

    def _pass(self, number: int, node: Node, debts: Debts) -> Iterable[Run]:
        """Where a node that reads nothing leads."""
        if isinstance(node, Split):
            return [(target, debts) for target in node.next]
        if isinstance(node, Ahead):
            return [(node.next, debts | {Debt(frozenset({(node.start, FREE)}), node.inverted)})]
        if isinstance(node, Behind):
            owed = self._owed[node.number]
            return ((node.next, debts | more) for more in (_inverted(owed) if node.inverted else owed))
        if isinstance(node, Before | After | Boundary) and self._stepper.around.holds(
            number, node, self._state.last, self._coming
        ):
            return [(node.next, debts)]
        return []


def _least(runs: Iterable[Run]) -> Runs:
    """Without runs that owe all that another run at their node owes, and more."""
    runs = frozenset(runs)
    if not any(debts for _, debts in runs):
        return runs
    owed: dict[int, list[Debts]] = {}
    for node, debts in runs:
        owed.setdefault(node, []).append(debts)
    return frozenset((node, debts) for node, debts in runs if not any(less < debts for less in owed[node]))


def _inverted(owed: frozenset[Debts]) -> Iterator[Debts]:
    """The ways in which none of several sets of debts is met: one debt of each is not."""
    for choice in itertools.product(*owed):
        yield frozenset(Debt(debt.runs, not debt.inverted) for debt in choice)
