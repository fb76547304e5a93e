"""InductionHeads(M): when the marker comes again, say what followed it the first time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from latchwork.automata.machine import MooreMachine
from latchwork.fields import settle
from latchwork.tasks import chance
from latchwork.tasks.registry import register
from latchwork.tasks.task import IGNORE, IntArray, RegularTask, Split

_LATEST_MARKER = {"train": 30, "validation": 50, "evaluation": 50}


@register
@dataclass(frozen=True)
class InductionHeads(RegularTask):
    """InductionHeads(M): when the marker comes again, say what followed it the first time.

    M ordinary tokens and a marker (token M). The marker stands once early, then a token, then ordinary tokens.

    The last token is the marker again, and its target is the token that followed the first one; no other step is
    scored. Positions count from 0. An endless sequence has no last token: a copy of the state is probed with the
    marker instead. Source: arXiv 2605.06384, §6.
    """

    size: int = 16
    """Number of ordinary tokens M; the paper has 16 and 30."""

    name: ClassVar[str] = "inductionheads"
    lengths: ClassVar = {"train": (35, 512), "validation": (1024, 2048), "evaluation": (1024, 2048)}

    def __post_init__(self) -> None:
        settle(self)
        if self.size < 2:
            raise ValueError(f"size must be at least 2 ordinary tokens, got {self.size}")

    @property
    def vocab_size(self) -> int:
        return self.size + 1

    @property
    def n_outputs(self) -> None:
        return None

    @property
    def token_names(self) -> list[str]:
        return [*map(str, range(self.size)), "marker"]

    @cached_property
    def machine(self) -> MooreMachine:
        """State 0 has seen no marker, 1 has just seen it, 2 + k remembers k, 2 + M + k answers k."""
        ordinary, marker = np.arange(self.size), self.size
        transitions = np.zeros((2 + 2 * self.size, self.vocab_size), dtype=np.int64)
        transitions[:2, marker] = 1
        transitions[1, ordinary] = 2 + ordinary
        for remembers in (2 + ordinary, 2 + self.size + ordinary):
            transitions[remembers[:, None], ordinary] = (2 + ordinary)[:, None]
            transitions[remembers, marker] = 2 + self.size + ordinary
        return MooreMachine(transitions, np.concatenate([np.full(2 + self.size, IGNORE), ordinary]))

    def inputs(self, keys: chance.Words, split: Split, first: int, count: int) -> IntArray:
        tokens = chance.below(chance.words(keys, first, count), self.size)
        position = chance.below(chance.words(chance.derive(keys, 1), 0, 1)[:, 0], _LATEST_MARKER[split] + 1)
        tokens[np.arange(first, first + count) == position[:, None]] = self.size
        return tokens

    @property
    def probe(self) -> int:
        return self.size

    def finish(self, tokens: IntArray, lengths: IntArray) -> None:
        tokens[np.arange(len(tokens)), lengths - 1] = self.size
