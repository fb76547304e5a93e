"""Parity, modular addition and flip-flops against slow definitions written from their descriptions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latchwork import tasks
from latchwork.tasks import IGNORE
from latchwork.tasks.task import SPLITS


def slow_parity(tokens, options):
    return [["even", "odd"][tokens[: i + 1].count("1") % 2] for i in range(len(tokens))]


def slow_sum(tokens, options):
    return [str(sum(map(int, tokens[: i + 1])) % options.get("size", 5)) for i in range(len(tokens))]


def slow_flipflop(tokens, options):
    answers, stored = [], None
    for i, token in enumerate(tokens):
        answers.append(stored if token == "r" else None)
        if i % 2 and tokens[i - 1] == "w":
            stored = token
    return answers


CASES = [
    ("parity", {}, slow_parity),
    ("modularaddition", {}, slow_sum),
    ("modularaddition", {"size": 2}, slow_sum),
    ("flipflop", {}, slow_flipflop),
    ("flipflop", {"size": 5, "write": 0.3, "read": 0.7}, slow_flipflop),
]
every_case = pytest.mark.parametrize(("name", "options", "slow"), CASES)


def named(task, tokens, targets):
    return (
        [task.token_names[t] for t in tokens],
        [None if t == IGNORE else task.class_names[t] for t in targets],
    )


@every_case
@pytest.mark.parametrize("split", SPLITS)
def test_samples_are_what_the_description_says(name, options, slow, split):
    task = tasks.get(name, **options)
    for i in range(10):
        tokens, targets = named(task, *(a[0] for a in task.batch(split, 2, [i])))
        shortest, longest = (256, 512) if split == "train" else (1024, 2048)
        assert shortest <= len(tokens) <= longest
        assert targets == slow(tokens, options)


@every_case
def test_endless_streams_do_not_depend_on_the_chunk(name, options, slow):
    task = tasks.get(name, **options)
    whole = next(task.endless("evaluation", 1, range(4), 700)).batch
    for chunk in (1, 7, 100):
        pieces = itertools.islice(task.endless("evaluation", 1, range(4), chunk), 700 // chunk)
        for field, parts in zip(("tokens", "targets"), zip(*(p.batch for p in pieces), strict=True), strict=True):
            assert np.array_equal(np.concatenate(parts, axis=1), getattr(whole, field))
    for row in zip(*whole, strict=True):
        tokens, targets = named(task, *row)
        assert targets == slow(tokens, options)


@given(st.lists(st.integers(0, 4), max_size=40))
def test_flip_flop_machines_answer_reads_of_any_word(word):
    """Also of words that the sampler never makes: what is no turn of a value changes nothing."""
    task, stored, writing, expected = tasks.get("flipflop"), None, False, []
    for token in word:
        name = task.token_names[token]
        expected.append(int(stored) if name == "r" and stored is not None else IGNORE)
        if name in "01" and writing:
            stored = name
        writing = name == "w"
    assert task.machine.run(np.array([word], dtype=np.int64).reshape(1, -1))[0][0].tolist() == expected


@settings(max_examples=20)
@given(st.floats(0.05, 0.5), st.floats(0.05, 0.5))
def test_flip_flop_instructions_come_at_their_rates(write, read):
    task = tasks.get("flipflop", write=write, read=read)
    tokens = next(task.endless("evaluation", 0, range(4), 5000)).batch.tokens
    assert (tokens[:, 0] == 0).all()
    instructions, values = tokens[:, 2::2], tokens[:, 1::2]
    for token, rate in enumerate((write, read, task.ignore)):
        assert abs((instructions == token).mean() - rate) < 0.025
    assert (instructions < 3).all()
    assert (values >= 3).all()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("modularaddition", {"size": 1}, "size must be a modulus of at least 2, got 1"),
        ("flipflop", {"size": 1}, "size must be at least 2 values, got 1"),
        ("flipflop", {"write": 0.0}, "write must be between 0 and 1, got 0.0"),
        ("flipflop", {"write": 0.6, "read": 0.6}, "write and read must be at most 1 together"),
        ("flipflop", {"read": "x"}, "read must be a number, got 'x'"),
        ("parity", {"size": 3}, "task parity has no option size; it has none"),
    ],
)
def test_bad_options_are_named(name, options, message):
    with pytest.raises(ValueError, match=message):
        tasks.get(name, **options)
