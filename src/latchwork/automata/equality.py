"""Proofs that a compiled cascade is an automaton: all states of both together, from the first on."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import torch

from latchwork.automata.compiled import CompiledCascade
from latchwork.automata.dfa import DFA, shown
from latchwork.automata.machine import MooreMachine
from latchwork.automata.mealy import MealyMachine
from latchwork.automata.nfa import NFA
from latchwork.automata.operations import extend
from latchwork.automata.search import BudgetError

PAIRS = 100_000
_ELEMENTS = 1 << 23  # of states, tables and wires, over the steps that are computed together


@dataclass(frozen=True)
class Equality:
    """What exploring a cascade beside an automaton has shown.

    Arguments:
        pairs: how many pairs of a state of the cascade and one of the automaton were found.
        word: a shortest word on which the two differ; None if there is none, of any length.
    """

    pairs: int
    word: tuple[Hashable, ...] | None

    @property
    def holds(self) -> bool:
        return self.word is None


@torch.no_grad()
def compare(
    cascade: CompiledCascade, machine: DFA | NFA | MooreMachine | MealyMachine, budget: int = PAIRS
) -> Equality:
    """Prove that a cascade gives what an automaton does after every word, or find a shortest word where it does not.

    All pairs (state of the cascade, state of the automaton) that words lead to are found, breadth first, and compared.
    A state of a cascade is finitely many numbers, none of which is ever rounded, and what a letter does depends on them
    only; so where no pair is left to find, every word has been answered for. This takes for granted that the cascade
    does the same on one letter as on many, which tests of the scan show.

    Arguments:
        cascade: on any device, in any dtype.
        machine: over the same letters, in any order; those of a Moore or Mealy machine are numbers.
        budget: the most pairs.

    Raises: ValueError for another alphabet; BudgetError above `budget` pairs.
    """
    if not isinstance(cascade, CompiledCascade):
        raise TypeError(f"a compiled cascade is compared, got {type(cascade).__name__}")
    moore = _moore(machine, cascade)
    n_letters = len(cascade.alphabet)
    if moore.n_symbols != n_letters:
        raise ValueError(f"the cascade has {n_letters} letters and the automaton {moore.n_symbols}")
    with cascade.frozen():
        return _explored(cascade, moore, budget)


def _explored(cascade: CompiledCascade, moore: MooreMachine, budget: int) -> Equality:
    n_letters = len(cascade.alphabet)
    expected = moore.outputs.astype(bool) if cascade.labels is None else moore.outputs
    states, at = cascade.initial(1), np.array([moore.start])
    known = {_key(states)[0] + at.tobytes(): 0}
    came: list[tuple[int, int]] = [(-1, -1)]  # the pair and the letter before each pair
    together = max(1, _ELEMENTS // max(1, n_letters * cascade.width))
    first = 0  # the number of the first pair of `states`
    while len(at):
        wrong = np.flatnonzero(cascade.decide(cascade.read(states)).cpu().numpy() != expected[at])
        if len(wrong):
            return Equality(len(came), tuple(cascade.alphabet[a] for a in _path(first + int(wrong[0]), came)))
        fresh_states, fresh = [], []
        for start in range(0, len(at), together):
            part = slice(start, start + together)
            count = len(at[part])
            letters = torch.arange(n_letters, device=states.device).repeat(count)
            after = cascade.advance(letters[:, None], states[part].repeat_interleave(n_letters, 0))
            targets = moore.transitions[at[part]].ravel()
            for row, (key, target) in enumerate(zip(_key(after), targets, strict=True)):
                pair = key + target.tobytes()
                if pair not in known:
                    known[pair] = len(came)
                    came.append((first + start + row // n_letters, row % n_letters))
                    fresh_states.append(after[row])
                    fresh.append(target)
            if len(came) > budget:
                raise BudgetError(f"more than {budget:,} pairs of states; raise `budget` to go on")
        first = len(came) - len(fresh)
        states = torch.stack(fresh_states) if fresh else states[:0]
        at = np.array(fresh, dtype=np.int64)
    return Equality(len(came), None)


def _moore(machine: DFA | NFA | MooreMachine | MealyMachine, cascade: CompiledCascade) -> MooreMachine:
    """The automaton as one with outputs, over the letters of the cascade in their order."""
    if isinstance(machine, NFA):
        machine = machine.determinize()
    if isinstance(machine, DFA):
        if set(machine.alphabet) != set(cascade.alphabet) or machine.other != cascade.other:
            have, need = shown(cascade.alphabet), shown(machine.alphabet)
            raise ValueError(
                f"the cascade reads {have} and the automaton {need}: the same letters are needed; "
                "extend(automaton, cascade.alphabet, other=cascade.other) may help"
            )
        return extend(machine, cascade.alphabet, other=machine.other).machine
    if isinstance(machine, MealyMachine):
        return machine.to_moore()
    if not isinstance(machine, MooreMachine):
        wanted = "a DFA, an NFA, a Moore machine or a Mealy machine"
        raise TypeError(f"a cascade is compared with {wanted}, got {type(machine).__name__}")
    return machine


def _key(states: torch.Tensor) -> list[bytes]:
    """The numbers of each state, as bytes; +0 makes the two zeros one."""
    return [row.tobytes() for row in (states + 0.0).cpu().numpy()]


def _path(pair: int, came: list[tuple[int, int]]) -> list[int]:
    letters = []
    while pair > 0:
        pair, letter = came[pair]
        letters.append(letter)
    return letters[::-1]
