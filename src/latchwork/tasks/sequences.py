"""Sequences(n): which of two ordered sequences of events are complete?"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latchwork.automata.machine import MooreMachine
from latchwork.fields import settle
from latchwork.tasks import chance
from latchwork.tasks.registry import register
from latchwork.tasks.task import LENGTHS, IntArray, RegularTask, Split

K, SYNONYMS, FILLERS = 2, 2, 10
"""Sequences, tokens for one event, tokens that mean nothing."""

Variant = Literal["right", "published"]

LONGEST = 42
"""Events at most, in the right variant: with more, even guided events do not complete 20% of the training steps."""

_LEAST_COMPLETE, _LEAST_RESETS, _HOLD = 0.2, 0.25, 12_500


class Rates(NamedTuple):
    """How often what comes: probabilities of a step, and of a set-event to be the next one of its sequence."""

    set: float
    """That a step is a set-event; the sequence it belongs to is uniform."""
    reset: float
    """That a step is a reset; the sequence it clears is uniform."""
    guided: float
    """That a set-event is the next one expected of its sequence; otherwise it is uniform over the sequence."""


@register
@dataclass(frozen=True)
class Sequences(RegularTask):
    """Sequences(n): say which of two ordered sequences of events are complete.

    Two sequences of n events each; an event counts only if it is the next one of its sequence, a reset clears it.

    Every event is written by either of 2 tokens, the reset of each sequence too, and 10 tokens mean nothing. The target
    at every step is the set of sequences that are complete, as a class of 4. In training and validation every step is
    drawn by itself. In endless sequences one set-event and one reset stand at a random place of every window of a given
    length, so that every one of them has both and the state is held for more than 10,000 steps on average.
    Source: arXiv 2605.06384, §6; docs/tasks.md says how the rates differ from the paper's.
    """

    size: int = 2
    """Events n of a sequence; the paper has 2, 3, 4, 8 and 16."""
    variant: Variant = "right"
    """"published" stands beside the paper's figures: a sequence is complete after 2 events whatever n is, and no reset
    ever comes."""

    name: ClassVar[str] = "sequences"
    lengths: ClassVar = LENGTHS

    def __post_init__(self) -> None:
        settle(self)
        if self.size < 2:
            raise ValueError(f"size must be at least 2 events, got {self.size}")
        if self.variant == "right" and self.size > LONGEST:
            raise ValueError(
                f"size must be at most {LONGEST} events, since longer sequences are hardly completed in training "
                f"sequences of {self.lengths['train'][1]} steps; got {self.size}"
            )

    @property
    def events(self) -> int:
        """Tokens of set-events: (sequence · n + event) · 2 + synonym. Resets follow, then what means nothing."""
        return K * self.size * SYNONYMS

    @property
    def vocab_size(self) -> int:
        return self.events + K * SYNONYMS + FILLERS

    @property
    def n_outputs(self) -> int:
        return 1 << K

    @cached_property
    def token_names(self) -> list[str]:
        events = [f"{k}{i + 1}{s}" for k in "AB" for i in range(self.size) for s in ("", "'")]
        return events + ["A0", "A0'", "B0", "B0'"] + [f"-{i}" for i in range(FILLERS)]

    @property
    def class_names(self) -> list[str]:
        return ["none", "A", "B", "A+B"]

    @property
    def goal(self) -> int:
        """Events after which a sequence is complete."""
        return self.size if self.variant == "right" else 2

    @cached_property
    def machine(self) -> MooreMachine:
        """State a·(goal + 1) + b has seen a events of the first sequence and b of the second one in their order."""
        stages = self.goal + 1
        same = np.arange(stages**K)
        transitions = np.repeat(same[:, None], self.vocab_size, axis=1)
        for k, (seen, step) in enumerate(zip(self._seen, (stages, 1), strict=True)):
            for event in range(self.goal):
                transitions[:, self._tokens(k, event)] = np.where(seen == event, same + step, same)[:, None]
            resets = self.events + k * SYNONYMS + np.arange(SYNONYMS)
            transitions[:, resets] = (same - step * seen)[:, None]
        return MooreMachine(transitions, (1 << np.arange(K)) @ (self._seen == self.goal))

    @cached_property
    def spelling(self) -> IntArray:
        """Tokens stand for themselves; symbol V + e for the next event of the sequence of e, or e if it is complete."""
        spelled = np.tile(np.arange(self.vocab_size + self.events), (self.machine.n_states, 1))
        spelled[:, self.vocab_size :] -= self.vocab_size
        for k, seen in enumerate(self._seen):
            for event in range(self.size):
                symbols = self.vocab_size + self._tokens(k, event)
                next_ones = self._tokens(k, 0) + SYNONYMS * seen[:, None]
                spelled[:, symbols] = np.where(seen[:, None] < self.goal, next_ones, spelled[:, symbols])
        return spelled

    @property
    def _seen(self) -> IntArray:
        """Events of each sequence that each state has seen, [K, S]."""
        return np.stack(np.divmod(np.arange((self.goal + 1) ** K), self.goal + 1))

    def _tokens(self, k: int, event: int) -> IntArray:
        return (k * self.size + event) * SYNONYMS + np.arange(SYNONYMS)

    def rates(self, split: Split) -> Rates:
        """How often what comes in a split. In training and validation set-events and resets are as often as in the
        paper, and `guided` is the least tenth with which training sequences are complete for 20% of the steps and
        every fourth one sees a complete sequence reset. In evaluation n events take 40% of the time between resets."""
        if self.variant == "published":
            return {
                "train": Rates(0.5, 0.0, 0.0),
                "validation": Rates(0.3, 0.0, 0.0),
                "evaluation": Rates(self.size / (1 << 16), 0.0, 0.0),
            }[split]
        guided = _least_guided(self.size)
        reset_every = _HOLD * (self.size + 1)  # each sequence changes n + 1 times between two of its resets
        set_every = 0.4 * reset_every * (guided + (1 - guided) / self.size) / self.size
        return {
            "train": Rates(0.5, 0.02, guided),
            "validation": Rates(0.3, 0.002, guided),
            "evaluation": Rates(1 / round(set_every), 1 / reset_every, guided),
        }[split]

    def facts(self, split: Split) -> dict[str, str]:
        rates = self.rates(split)
        if split == "evaluation":
            rare = {"set-events": rates.set, "resets": rates.reset}
            events = {k: f"one in {1 / rate:,.0f} steps" if rate else "none" for k, rate in rare.items()}
        else:
            complete, resets = self.expected(split)
            events = {
                "set-events": f"{rates.set:.1%} of the steps",
                "resets": f"{rates.reset:.1%} of the steps",
                "complete": f"{complete:.1%} of the steps (expected)",
                "resets of complete sequences": f"{resets:.2f} a sample (expected)",
            }
        return {
            **super().facts(split),
            **events,
            "guided": f"{rates.guided:.0%} of the set-events are the next one expected, the rest are uniform",
        }

    def inputs(self, keys: chance.Words, split: Split, first: int, count: int) -> IntArray:
        rates, drawn = self.rates(split), chance.words(keys, first, count)
        which, kind = chance.words(chance.derive(keys, 1), first, count), chance.uniform(drawn)
        if split == "evaluation":
            is_set = _once_a_window(chance.derive(keys, 2), rates.set, first, count)
            is_reset = _once_a_window(chance.derive(keys, 3), rates.reset, first, count)
        else:
            is_reset = kind >= 1 - rates.reset
            is_set = kind < rates.set
        guided = chance.uniform(chance.words(chance.derive(keys, 4), first, count)) < rates.guided
        symbols = self.events + K * SYNONYMS + chance.below(which, FILLERS)
        event = chance.below(which, self.events)
        symbols = np.where(is_set, event + self.vocab_size * guided, symbols)
        return np.where(is_reset, self.events + chance.below(which, K * SYNONYMS), symbols)

    def expected(self, split: Literal["train", "validation"]) -> tuple[float, float]:
        """The share of steps with a complete sequence, and complete sequences that are reset in one sample."""
        return _expected(self, self.rates(split), self.lengths[split])


def _once_a_window(keys: chance.Words, rate: float, first: int, count: int) -> NDArray[np.bool_]:
    """True at one random step of each window of 1 / rate steps, [N, count]."""
    if not rate:
        return np.zeros((len(keys), count), dtype=bool)
    window = round(1 / rate)
    steps = np.arange(first, first + count)
    first_window = first // window
    numbers = steps // window - first_window
    places = chance.below(chance.words(keys, first_window, int(numbers[-1]) + 1 if count else 0), window)
    return steps % window == places[:, numbers]


@functools.lru_cache(maxsize=64)
def _least_guided(size: int) -> float:
    task = Sequences(size)

    def enough(guided: float) -> bool:
        complete, resets = _expected(task, Rates(0.5, 0.02, guided), task.lengths["train"])
        return complete >= _LEAST_COMPLETE and resets >= _LEAST_RESETS

    return next(tenths / 10 for tenths in range(11) if enough(tenths / 10))


def _expected(task: Sequences, rates: Rates, lengths: tuple[int, int]) -> tuple[float, float]:
    """By following the distribution of the machine's states; lengths are uniform from the first to the second."""
    machine, spelling = task.machine, task.spelling
    symbol = np.full(spelling.shape[1], 0.0)
    symbol[: task.events] = rates.set * (1 - rates.guided) / task.events
    symbol[task.events : task.events + K * SYNONYMS] = rates.reset / (K * SYNONYMS)
    symbol[task.events + K * SYNONYMS : task.vocab_size] = (1 - rates.set - rates.reset) / FILLERS
    symbol[task.vocab_size :] = rates.set * rates.guided / task.events
    after = np.take_along_axis(machine.transitions, spelling, axis=1)
    states = np.arange(machine.n_states)
    # a state has few successors, so the chain is kept as its edges
    edges, numbers = np.unique(states[:, None] * machine.n_states + after, return_inverse=True)
    weights = np.bincount(numbers.ravel(), np.broadcast_to(symbol, after.shape).ravel())
    source, target = np.divmod(edges, machine.n_states)
    complete = machine.outputs > 0
    lost = (rates.reset / K) * (task._seen == task.goal).sum(0)
    distribution = (states == machine.start).astype(float)
    shares, losses = [], []
    for _ in range(lengths[1]):
        losses.append(distribution @ lost)
        distribution = np.bincount(target, distribution[source] * weights, machine.n_states)
        shares.append(distribution @ complete)
    ends = np.arange(lengths[0], lengths[1] + 1)
    return float(np.cumsum(shares)[ends - 1].sum() / ends.sum()), float(np.cumsum(losses)[ends - 1].mean())
