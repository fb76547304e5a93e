"""`latchwork decompose`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from latchwork.automata import (
    DFA,
    BudgetError,
    Decomposition,
    Witness,
    decompose,
    group_witness,
    minimize,
    monoid_size,
)
from latchwork.cli.display import console, print_json
from latchwork.cli.language import OfLanguage

_MAX_MAPS = 10_000


@dataclass(kw_only=True)
class Decompose(OfLanguage):
    """Say whether a language is star-free and what cascade recognises it; of a regular expression or an .att file."""

    limit: int = 10_000
    """The most images of the set of states to list."""
    json: bool = False
    """Print as JSON."""

    def run(self) -> int:
        if self.limit < 1:
            raise ValueError(f"limit must be at least 1 image, got {self.limit}")
        dfa = self.automaton()
        smallest = minimize(dfa)
        with console.status(f"decomposing {smallest.n_states:,} states"):
            witness = group_witness(smallest, self.limit)
            cascade = decompose(smallest, self.limit)
            size = _monoid_size(smallest)
        if self.json:
            print_json(_as_json(dfa, smallest, size, witness, cascade))
        else:
            _print(dfa, smallest, size, witness, cascade)
        return 0


def _monoid_size(dfa: DFA) -> int | None:
    """None where it is large."""
    try:
        return monoid_size(dfa, _MAX_MAPS)
    except BudgetError:
        return None


def _print(dfa: DFA, smallest: DFA, size: int | None, witness: Witness | None, cascade: Decomposition) -> None:
    print(f"states     {dfa.n_states:,}, {smallest.n_states:,} after minimisation")
    print(f"star-free  {'yes' if witness is None else f'no: {witness}'}")
    print(f"monoid     size {f'above {_MAX_MAPS:,}' if size is None else f'{size:,}'}")
    one, more = "scalar units suffice", "vector units of this degree suffice, though it is not always the least"
    print(f"degree     {cascade.degree}: {one if cascade.degree == 1 else more}")
    print(f"\n{cascade.table()}", end="")
    if cascade.is_aperiodic:
        print(f"\n{cascade.past_ltl()}", end="")


def _as_json(
    dfa: DFA, smallest: DFA, size: int | None, witness: Witness | None, cascade: Decomposition
) -> dict[str, Any]:
    names = dict(zip(smallest.alphabet, cascade.letters, strict=True))
    return {
        "states": dfa.n_states,
        "minimal_states": smallest.n_states,
        "letters": cascade.letters,
        "star_free": witness is None,
        "witness": witness and {"word": [names[a] for a in witness.word], "states": witness.states},
        "monoid_size": size,
        "degree": cascade.degree,
        "flip_flops": cascade.flip_flops(),
        "levels": [{"values": w.values, "kind": w.kind, "degree": w.degree} for w in cascade.levels],
        "table": cascade.table(),
        "past_ltl": cascade.past_ltl() if cascade.is_aperiodic else None,
    }
