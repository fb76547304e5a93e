"""Sequences against a slow definition that reads the names of tokens, and the rates that make it learnable."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from latchwork import tasks
from latchwork.tasks import IGNORE, sequences
from latchwork.tasks.task import SPLITS

SIZES = (2, 3, 4, 8, 16)
VARIANTS = ("right", "published")
every_size = pytest.mark.parametrize("size", SIZES)
every_variant = pytest.mark.parametrize("variant", VARIANTS)


class Slow:
    """The rule, one named token after another: which sequences are complete, as the name of a class."""

    def __init__(self, size: int, variant: str) -> None:
        self.size, self.enough = size, size if variant == "right" else 2
        self.seen = {"A": 0, "B": 0}

    def read(self, token: str) -> str:
        event = re.fullmatch(r"([AB])(\d+)'?", token)
        if event:
            sequence, number = event[1], int(event[2])
            if number == 0:
                self.seen[sequence] = 0
            elif number == self.seen[sequence] + 1 and self.seen[sequence] < self.enough:
                self.seen[sequence] += 1
        else:
            assert re.fullmatch(r"-\d", token)
        return "+".join(k for k, seen in self.seen.items() if seen == self.enough) or "none"


def named(task, tokens, targets):
    """Names of tokens and targets of one sequence, up to its last scored step."""
    end = int(np.flatnonzero(targets != IGNORE)[-1]) + 1
    return [task.token_names[t] for t in tokens[:end]], [task.class_names[t] for t in targets[:end]]


@every_size
@every_variant
@pytest.mark.parametrize("split", SPLITS)
def test_targets_are_what_the_rule_says(size, variant, split):
    task = tasks.get("sequences", size=size, variant=variant)
    batch = task.batch(split, 3, range(40 if split == "train" else 10))
    resets = 0
    for row in zip(*batch, strict=True):
        tokens, targets = named(task, *row)
        rule = Slow(size, variant)
        assert targets == [rule.read(token) for token in tokens]
        resets += sum(token[1] == "0" for token in tokens if token[0] in "AB")
        shortest, longest = task.lengths[split]
        assert shortest <= len(tokens) <= longest
    if variant == "published":
        assert resets == 0
    elif split != "evaluation":
        assert resets > 0


@every_size
def test_every_event_has_two_names_and_there_are_ten_fillers(size):
    task = tasks.get("sequences", size=size)
    names = task.token_names
    assert len(set(names)) == len(names) == task.vocab_size == 2 * (size + 1) * 2 + 10
    assert sum(name.startswith("-") for name in names) == 10
    assert {n for n in names if n.endswith("'")} == {n + "'" for n in names if n[0] in "AB" and not n.endswith("'")}
    seen = np.unique(task.batch("train", 0, range(500)).tokens)
    assert seen.tolist() == list(range(task.vocab_size))


@every_size
def test_training_sequences_are_complete_and_reset_often_enough(size):
    """At least 20% of the steps, and one loss of a complete sequence in 4 samples; both as `expected` says."""
    task = tasks.get("sequences", size=size)
    for split, count in (("train", 2000), ("validation", 300)):
        batch = task.batch(split, 1, range(count))
        scored = batch.targets != IGNORE
        complete = (batch.targets > 0) & scored
        lost = np.zeros(count)
        for bit in (1, 2):
            has = (batch.targets & bit > 0) & scored
            lost += (has[:, :-1] & ~has[:, 1:] & scored[:, 1:]).sum(axis=1)
        share, resets = task.expected(split)
        shares = complete.sum(axis=1) / scored.sum(axis=1)
        assert abs(complete.sum() / scored.sum() - share) < 5 * shares.std() / count**0.5 + 0.002
        assert abs(lost.mean() - resets) < 5 * lost.std() / count**0.5
        if split == "train":
            assert complete.sum() / scored.sum() >= 0.2
            assert lost.mean() >= 0.25


def changes(task, batch, rules, counts):
    """Play the slow rule over events alone; counts gets completions, resets of complete ones, and changes of state."""
    names = np.array(task.token_names)
    fillers = task.vocab_size - 10
    for row, rule in enumerate(rules):
        places = np.flatnonzero(batch.tokens[row] < fillers)
        # between two events the target stays what it was, so targets are compared where they change
        moved = np.flatnonzero(np.diff(batch.targets[row])) + 1
        assert set(moved.tolist()) <= set(places.tolist())
        for place, name in zip(places, names[batch.tokens[row, places]], strict=True):
            before = dict(rule.seen)
            answer = rule.read(name)
            assert answer == task.class_names[batch.targets[row, place]]
            done = [(before[k] == rule.enough, rule.seen[k] == rule.enough) for k in before]
            counts[row] += (done.count((False, True)), done.count((True, False)), before != rule.seen)


def test_every_stream_of_a_million_steps_completes_loses_and_holds():
    """8 streams at every n: completions and resets of complete sequences in each, state held for 10^4 steps."""
    for size in SIZES:
        task = tasks.get("sequences", size=size)
        stream = task.endless("evaluation", 1, range(8), 1 << 17)
        rules, counts = [Slow(size, "right") for _ in range(8)], np.zeros((8, 3), dtype=int)
        for piece in itertools.islice(stream, 8):
            changes(task, piece.batch, rules, counts)
        completions, resets, moves = counts.T
        assert completions.min() >= 1, size
        assert resets.min() >= 1, size
        assert 8 * (1 << 20) / moves.sum() >= 10_000, size


def test_published_streams_complete_and_stay_complete():
    task = tasks.get("sequences", size=16, variant="published")
    pieces = list(itertools.islice(task.endless("evaluation", 1, range(8), 1 << 14), 4))
    targets = np.concatenate([piece.batch.targets for piece in pieces], axis=1)
    assert ((targets[:, :-1] & ~targets[:, 1:]) == 0).all()


def test_the_longest_sequences_are_the_longest_that_are_completed_in_training(monkeypatch):
    task = tasks.get("sequences", size=sequences.LONGEST)
    assert task.rates("train").guided == 1
    assert task.expected("train")[0] >= 0.2
    monkeypatch.setattr(sequences, "LONGEST", sequences.LONGEST + 1)
    longer = tasks.get("sequences", size=sequences.LONGEST)
    assert sequences._expected(longer, task.rates("train"), (256, 512))[0] < 0.2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 1}, "size must be at least 2 events, got 1"),
        ({"size": 300}, "size must be at most 42 events.*got 300"),
        ({"variant": "wrong"}, "variant must be one of right, published, got 'wrong'"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        tasks.get("sequences", **options)
