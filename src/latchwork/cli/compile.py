"""`latchwork compile`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from latchwork.automata import DFA, BudgetError, CompiledCascade, compare, compile, minimize
from latchwork.automata.compiler import Units
from latchwork.automata.dfa import shown
from latchwork.cli.display import console, print_json, say
from latchwork.cli.language import OfLanguage, sizes
from latchwork.files import check_writable


@dataclass(kw_only=True)
class Compile(OfLanguage):
    """Make a network that recognises a language exactly, of a regular expression or an .att file."""

    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])]
    """The .safetensors file to write."""
    units: Units = "auto"
    """What it is made of: scalar units (star-free languages only), one vector unit, both, or what is faster."""
    json: bool = False
    """Print as JSON."""

    def run(self) -> int:
        if self.out.suffix != ".safetensors":
            raise ValueError(f"--out must end in .safetensors, got {str(self.out)!r}")
        dfa = self.automaton()
        smallest = minimize(dfa)
        is_new = not self.out.exists()
        check_writable("--out", self.out)
        try:
            with console.status(f"compiling {smallest.n_states:,} states"):
                cascade = compile(smallest, self.units)
            with console.status("proving that both are equal"):
                pairs, unproved = _proof(cascade, smallest)
            cascade.save(self.out)
        except BaseException:
            if is_new:
                self.out.unlink(missing_ok=True)
            raise
        letters = shown(smallest.alphabet)
        facts = {
            "states": dfa.n_states,
            "minimal_states": smallest.n_states,
            "letters": [str(letter) for letter in smallest.alphabet],
            **sizes(cascade),
            "proved_equal": unproved is None,
            "pairs": pairs,
            "unproved": unproved,
            "file": str(self.out),
            "bytes": self.out.stat().st_size,
        }
        if smallest.n_states == 1:
            which = "every word" if smallest.accepting[0] else "no word at all"
            say(f"careful: {which} is in this language; its letters are {letters}")
        if self.json:
            print_json(facts)
        else:
            _print(facts, letters)
        return 0


def _proof(cascade: CompiledCascade, dfa: DFA) -> tuple[int | None, str | None]:
    """How many pairs of states prove that both are equal, or why there is no proof.

    Raises: RuntimeError where they differ.
    """
    try:
        equality = compare(cascade, dfa)
    except BudgetError as error:
        return None, str(error)
    if equality.word is not None:
        raise RuntimeError(f"the cascade differs from the automaton after {list(equality.word)}; please report this")
    return equality.pairs, None


def _print(facts: dict[str, Any], letters: str) -> None:
    states = f"{facts['states']:,}, {facts['minimal_states']:,} after minimisation"
    proof = f"proved for every word, by the {facts['pairs'] or 0:,} pairs of states that words lead to"
    lines = {
        "states": f"{states}; letters {letters}",
        **{name: f"{facts[name]:,}" for name in ("units", "degree", "stages", "gates", "parameters")},
        "equality": proof if facts["proved_equal"] else f"not proved and not tested: {facts['unproved']}",
        "file": f"{facts['file']}, {facts['bytes']:,} bytes",
    }
    for name, value in lines.items():
        print(f"{name:<10} {value}")
