"""Parity of the ones so far, at every step: learned from at most 40 bits, asked for at 10,000.

    python examples/parity.py
    python examples/parity.py --models rnn --seeds 3 --degrees 1 2

A scalar unit cannot count modulo 2. A vector unit of degree 2 can: it keeps its two states at a zero and swaps them at
a one, and since neither rounds, what is right after 40 steps is right after 10,000.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from latchwork import CascadeConfig, CascadeLM, MinMaxRNN
from latchwork.bench.timing import machine
from latchwork.runs.run import write_json

LONGEST, BATCH, LEARNING_RATE = 40, 32, 3e-3
CHECK_EVERY, CHECK_LENGTH = 25, 256


class BitRNN(nn.Module):
    """Embedding, MinMaxRNN, Linear: tokens [B, T] -> logits [B, T, 2]."""

    def __init__(self, degree: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(2, 16)
        self.rnn = MinMaxRNN(16, 16 * degree, degree=degree, batch_first=True)
        self.head = nn.Linear(16 * degree, 2)

    def forward(self, bits: Tensor) -> Tensor:
        return self.head(self.rnn(self.embedding(bits))[0])


class BitCascade(nn.Module):
    """A small CascadeLM: tokens [B, T] -> logits [B, T, 2]."""

    def __init__(self, degree: int, layers: int) -> None:
        super().__init__()
        config = CascadeConfig(d_model=32, n_layers=layers, n_units=16, degree=degree, dropout=0.0)
        self.model = CascadeLM(config, vocab_size=2, n_outputs=2)

    def forward(self, bits: Tensor) -> Tensor:
        return self.model(bits)[0]


MODELS: dict[str, Callable[[int], nn.Module]] = {
    "rnn": BitRNN,
    "cascade-1": lambda degree: BitCascade(degree, 1),
    "cascade-2": lambda degree: BitCascade(degree, 2),
}


def draw(sequences: int, length: int, chance: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random bits [B, T] and the parity of the ones up to and with each."""
    bits = torch.randint(0, 2, (sequences, length), generator=chance)
    return bits, bits.cumsum(1) % 2


def train(model: nn.Module, chance: torch.Generator, updates: int) -> Iterator[int]:
    """Update the model on sequences of 1 to LONGEST bits; yields the number of updates so far."""
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    for update in range(1, updates + 1):
        length = int(torch.randint(1, LONGEST + 1, (1,), generator=chance))
        bits, parity = draw(BATCH, length, chance)
        loss = F.cross_entropy(model(bits).flatten(0, 1), parity.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield update


@torch.no_grad()
def correct(model: nn.Module, sequences: int, length: int, chance: torch.Generator) -> float:
    """Share of right answers over fresh sequences."""
    bits, parity = draw(sequences, length, chance)
    return (model(bits).argmax(-1) == parity).double().mean().item()


def run(name: str, degree: int, seed: int, updates: int, length: int) -> dict[str, Any]:
    """Train one model until it is right on sequences of CHECK_LENGTH bits, then ask it at `length`."""
    torch.manual_seed(seed)
    data, check = (torch.Generator().manual_seed(2 * seed + i) for i in (0, 1))
    model = MODELS[name](degree)
    for update in train(model, data, updates):
        if update % CHECK_EVERY == 0 and correct(model, 64, CHECK_LENGTH, check) == 1:
            break
    return {"seed": seed, "updates": update, "accuracy": correct(model, 8, length, check)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="what is trained")
    parser.add_argument("--degrees", nargs="+", type=int, default=[2], help="states of a unit; 16 units a layer")
    parser.add_argument("--seeds", type=int, default=10, help="runs of each model")
    parser.add_argument("--updates", type=int, default=800, help="updates of the weights at most")
    parser.add_argument("--length", type=int, default=10_000, help="bits of the sequences that decide")
    parser.add_argument("--out", type=Path, help="a JSON file to write the result to")
    options = parser.parse_args()
    for name in ("seeds", "updates", "length"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(options, name)}")
    if min(options.degrees) < 1:
        parser.error(f"--degrees must be at least 1, got {min(options.degrees)}")

    rows = []
    for name, degree in itertools.product(options.models, options.degrees):
        runs = []
        for seed in range(options.seeds):
            runs.append(run(name, degree, seed, options.updates, options.length))
            print(
                f"{name}, degree {degree}, seed {seed}: {runs[-1]['accuracy']:.2%} right at length "
                f"{options.length:,} after {runs[-1]['updates']} updates",
                file=sys.stderr,
            )
        perfect = sum(r["accuracy"] == 1 for r in runs)
        rows.append({"model": name, "degree": degree, "perfect": perfect, "seeds": len(runs), "runs": runs})
    command = " ".join(["python examples/parity.py", *sys.argv[1:]])
    setting = {"trained_on": LONGEST, "length": options.length, "batch": BATCH, "lr": LEARNING_RATE}
    result = {"what": "parity", **setting, "machine": {**machine(), "command": command}, "rows": rows}
    if options.out is not None:
        write_json(options.out, result)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
