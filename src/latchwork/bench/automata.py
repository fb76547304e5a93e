"""How fast do compiled cascades read, one long word or many?"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch

from latchwork.automata import DFA, CompiledCascade, compile, from_regex
from latchwork.bench.rows import Row
from latchwork.bench.timing import compare

FULL, QUICK = 1_000_000, 2_000  # letters of the word
BATCH = 64


def bench_automata(letters: int = FULL, repeats: int = 10) -> Iterator[Row]:
    """Seconds a letter, a verdict after each, against looking states up in the automaton's table.

    Details: letters times units a second, and the sizes.
    """
    for name, dfa in automata().items():
        for units in ("scalar", "vector"):
            cascade = compile(dfa, units)
            for batch in (1, BATCH):
                yield _row(f"{name}, {units}", cascade, dfa, (batch, letters // batch), repeats)


def automata() -> dict[str, DFA]:
    """What is read: small, middle and large alphabets and numbers of states."""
    return {
        "(a|b)*abb": from_regex("(a|b)*abb", "ab"),
        "two keywords of 128 letters": from_regex(".*(error|timeout).*", "".join(map(chr, range(128)))),
        "a letter six from the end": from_regex("(a|b)*a(a|b){5}", "ab"),
    }


def _row(name: str, cascade: CompiledCascade, dfa: DFA, shape: tuple[int, int], repeats: int) -> Row:
    words = torch.from_numpy(np.random.default_rng(0).integers(0, dfa.n_symbols, shape))

    @torch.no_grad()
    def ours() -> torch.Tensor:
        return cascade.decide(cascade(words)[0])

    seconds, theirs = compare(ours, _look_up(dfa, words), repeats)
    return Row(
        what=name,
        shape=shape,
        unit="s/letter",
        ours=seconds / words.numel(),
        against="table in Python" if shape[0] == 1 else "table in NumPy",
        theirs=None if theirs is None else theirs / words.numel(),
        details={
            "letters_times_units_a_second": int(words.numel() * cascade.n_units / seconds),
            "units": cascade.n_units,
            "degree": cascade.degree,
            "gates": cascade.n_gates,
            "states": dfa.n_states,
        },
    )


def _look_up(dfa: DFA, words: torch.Tensor) -> Callable[[], object]:
    """Verdicts after every letter by the table: of one word in a loop of Python, of many in steps of NumPy."""
    if len(words) > 1:
        codes = words.numpy()
        return lambda: dfa.accepting[dfa.machine.visit(codes)]
    table, accepting, word = dfa.transitions.tolist(), dfa.accepting.tolist(), words[0].tolist()

    def walk() -> list[bool]:
        state, verdicts = dfa.start, []
        for letter in word:
            state = table[state][letter]
            verdicts.append(accepting[state])
        return verdicts

    return walk
