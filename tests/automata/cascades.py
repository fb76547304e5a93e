"""Compiled cascades of all forms, and what they say of all short words."""

from __future__ import annotations

import itertools

import numpy as np
import torch

from latchwork.automata import (
    DFA,
    CompiledCascade,
    compile,
    is_aperiodic,
)

FORMS = ["scalar", "vector", "mixed", "auto"]


def all_words(n_letters: int, length: int) -> torch.Tensor:
    """[A^T, T] every word of a length: their beginnings are all shorter ones."""
    words = list(itertools.product(range(n_letters), repeat=length))
    return torch.tensor(words, dtype=torch.int64).reshape(len(words), length)


def prefix_verdicts(cascade: CompiledCascade, letters: torch.Tensor) -> np.ndarray:
    """[B, T + 1] what a cascade gives after every beginning of every word."""
    with torch.no_grad():
        first = cascade.decide(cascade.read(cascade.initial(len(letters))))
        rest = cascade.decide(cascade(letters)[0])
    return torch.cat([first[:, None], rest], 1).numpy()


def forms(dfa: DFA) -> list[CompiledCascade]:
    """The cascades of all forms that there are for a language."""
    return [compile(dfa, units) for units in FORMS if units != "scalar" or is_aperiodic(dfa)]
