"""Compile a folder of automata and prove that the cascades are them.

    python examples/mlregtest.py FOLDER --out docs/results/mlregtest.json

For every file in AT&T format (those of MLRegTest, arXiv 2304.07687, are named alphabet.tier.class.k.j.i.att): is its
language star-free, the scalar units that recognise it if so, the vector unit that does, and for each whether all pairs
of states of network and automaton agree. Where there are too many pairs, all words to length 5 and a word of 10^6
letters are compared instead.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from latchwork.automata import DFA, BudgetError, CompiledCascade, compare, compile, group_witness, minimize, read_att

PAIRS = 20_000
LETTERS = 1_000_000


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path)
    options.add_argument("--out", type=Path, help="a JSON file for the result")
    chosen = options.parse_args()
    files = sorted(chosen.folder.glob("*.att"))
    if not files:
        options.error(f"no .att files in {chosen.folder}")
    began = time.perf_counter()
    rows = []
    for count, file in enumerate(files, 1):
        rows.append(row(file))
        if count % 20 == 0 or count == len(files):
            print(f"{count} of {len(files)} · {time.perf_counter() - began:.0f} s", file=sys.stderr)
    seconds = time.perf_counter() - began
    print("\n".join(table(rows)))
    wrong = [(r["file"], form) for r in rows for form in ("scalar", "vector") if r.get(form, {}).get("equal") is False]
    print(f"{len(rows)} automata in {seconds:.0f} s; cascades that differ from their automaton: {wrong or 'none'}")
    if chosen.out:
        machine = {"python": platform.python_version(), "torch": torch.__version__, "threads": torch.get_num_threads()}
        result = {"seconds": round(seconds, 1), "machine": machine, "rows": rows}
        chosen.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 1 if wrong else 0


def row(file: Path) -> dict[str, Any]:
    """All about one automaton."""
    dfa = minimize(read_att(file))
    witness = group_witness(dfa)
    found: dict[str, Any] = {
        "file": file.name,
        "class": file.name.split(".")[2],
        "letters": dfa.n_symbols,
        "states": dfa.n_states,
        "star_free": witness is None,
        "witness": None if witness is None else str(witness),
    }
    if witness is None:
        found["scalar"] = compiled(dfa, "scalar")
    found["vector"] = compiled(dfa, "vector")
    return found


def compiled(dfa: DFA, units: str) -> dict[str, Any]:
    """A cascade, its sizes, the time it took, and whether it is the automaton."""
    began = time.perf_counter()
    cascade = compile(dfa, units)
    built = time.perf_counter() - began
    try:
        equality = compare(cascade, dfa, PAIRS)
        verdict = {"equal": equality.holds, "proved": True, "pairs": equality.pairs}
    except BudgetError:
        verdict = {"equal": all(agree(cascade, dfa, word) for word in words(dfa.n_symbols)), "proved": False}
    return {
        "units": cascade.n_units,
        "degree": cascade.degree,
        "stages": len(cascade.structure.stages),
        "gates": cascade.n_gates,
        "compile_seconds": round(built, 3),
        "check_seconds": round(time.perf_counter() - began - built, 3),
        **verdict,
    }


def words(n_letters: int) -> Iterator[np.ndarray]:
    """[B, T] all words of 5 letters, whose beginnings are all shorter ones; then a long one at random."""
    for first in range(n_letters):
        rest = itertools.product(range(n_letters), repeat=4)
        yield np.array([(first, *word) for word in rest])
    yield np.random.default_rng(0).integers(0, n_letters, (1, LETTERS))


@torch.no_grad()
def agree(cascade: CompiledCascade, dfa: DFA, letters: np.ndarray) -> bool:
    """Whether a cascade accepts the beginnings of words that the automaton accepts."""
    expected = dfa.accepting[dfa.machine.visit(letters)]
    first = cascade.decide(cascade.read(cascade.initial(1))).item()
    got = cascade.decide(cascade(torch.from_numpy(letters))[0]).numpy()
    return bool(first == expected[0, 0]) and np.array_equal(got, expected[:, 1:])


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """The rows by class, in Markdown."""
    head = ["class", "automata", "states", "star-free", "scalar units", "stages", "gates", "proved"]
    head += ["vector: degree", "proved", "s"]
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    names = sorted({r["class"] for r in rows})
    for name in [*names, None]:
        here = [r for r in rows if name in (None, r["class"])]
        scalar, vector = [r["scalar"] for r in here if r["star_free"]], [r["vector"] for r in here]
        seconds = sum(part["compile_seconds"] + part["check_seconds"] for part in scalar + vector)
        cells = [
            name or "**all**",
            len(here),
            spread(r["states"] for r in here),
            sum(r["star_free"] for r in here),
            *(spread(part[key] for part in scalar) for key in ("units", "stages", "gates")),
            proved(scalar),
            spread(part["degree"] for part in vector),
            proved(vector),
            f"{seconds:.1f}",
        ]
        yield f"| {' | '.join(map(str, cells))} |"


def spread(values: Iterator[int]) -> str:
    """The median, and the largest."""
    found = list(values)
    return f"{statistics.median(found):g} (≤ {max(found)})" if found else "–"


def proved(parts: list[dict[str, Any]]) -> str:
    return f"{sum(part['proved'] and part['equal'] for part in parts)} of {len(parts)}" if parts else "–"


if __name__ == "__main__":
    sys.exit(main())
