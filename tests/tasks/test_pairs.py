"""Tasks of files with lines of inputs and targets."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from latchwork import CascadeConfig, CascadeLM, tasks
from latchwork.evaluation.measure import score_streams
from latchwork.tasks import IGNORE
from latchwork.tasks.pairs import _parse
from latchwork.tasks.task import SPLITS


def task_of(tmp_path, content: str | bytes, **options):
    path = tmp_path / "data.tsv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return tasks.get("pairs", data=path, **options)


def examples(task, split):
    """Tokens and targets by name."""
    for i in range(len(task.parts[split])):
        tokens, targets = (a[0] for a in task.batch(split, 0, [i]))
        yield (
            " ".join(task.token_names[t] for t in tokens),
            " ".join("-" if t == IGNORE else task.class_names[t] for t in targets),
        )


def test_every_example_is_in_one_split_and_as_it_stands_in_the_file(tmp_path):
    lines = [(f"a {i} b", f"x - {i % 3}") for i in range(50)] + [(f"{i}  c", "y") for i in range(50)]
    text = "\ufeff# a comment\n\n" + "\n".join("\t".join(line) for line in lines) + "\r\n   \n"
    task = task_of(tmp_path, text)
    found = {split: list(examples(task, split)) for split in SPLITS}
    assert [len(found[split]) for split in SPLITS] == [80, 10, 10]
    expected = lines[:50] + [(tokens.replace("  ", " "), "- y") for tokens, _ in lines[50:]]
    assert sorted(itertools.chain(*found.values())) == sorted(expected)
    assert task.token_names == sorted({"a", "b", "c", *map(str, range(50))})
    assert task.class_names == ["0", "1", "2", "x", "y"]
    assert task.n_outputs == 5
    assert task.epoch_size(20_000) == 80
    again = task_of(tmp_path, text)
    assert list(examples(again, "validation")) == found["validation"]
    assert any(int(tokens.split()[1]) < 25 for tokens, _ in found["validation"] if tokens[0] == "a")


words = st.text(st.characters(exclude_characters="\t\n\r ", exclude_categories=["Cs"]), min_size=1, max_size=3)


@given(st.lists(st.tuples(words, words), min_size=1, max_size=9), st.booleans())
def test_what_is_written_is_what_is_read(pairs, whole):
    """Any words but tabs, spaces and ends of lines, as one line of many tokens or many lines of one."""
    inputs, targets = zip(*pairs, strict=True)
    lines = [(" ".join(inputs), " ".join(targets))] if whole else [*pairs]
    content = "\n".join("\t".join(line) for line in lines)
    if set(targets) == {"-"}:
        with pytest.raises(ValueError, match="no scored target"):
            _parse(content.encode(), "f")
        return
    table = _parse(content.encode(), "f")
    assert table.vocabulary == sorted(set(inputs))
    assert table.classes == sorted({*targets} - {"-"})
    # a byte order mark at the very beginning is none of the words
    assert [table.vocabulary[t].lstrip("\ufeff") for t in table.tokens] == [w.lstrip("\ufeff") for w in inputs]
    assert ["-" if t == IGNORE else table.classes[t] for t in table.targets] == list(targets)
    assert np.diff(table.ends).tolist() == ([len(pairs)] if whole else [1] * len(pairs))


GOOD = "a b\tx y\n" * 10


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (GOOD + "a b c\tx y\n", r"data\.tsv, line 11: 2 targets for 3 tokens"),
        (GOOD + "a b c x\n", r"data\.tsv, line 11: 0 tabs; one stands between the input tokens and their targets"),
        (GOOD + "a\tx\ty\n", r"data\.tsv, line 11: 2 tabs"),
        (GOOD + " \tx\n", r"data\.tsv, line 11: no input tokens before the tab"),
        (GOOD + "a b\t\n", r"data\.tsv, line 11: 0 targets for 2 tokens"),
        (GOOD + "# b\tx y z\n", r"data\.tsv, line 11: 3 targets for 2 tokens"),
        (GOOD.encode() + b"a\n\xff\tb\n", r"data\.tsv, line 12: byte 0xff is not UTF-8"),
        ("# nothing\n\n", r"data\.tsv has no examples"),
        ("", r"data\.tsv has no examples"),
        ("a\t-\n" * 10, r"data\.tsv has no scored target"),
        ("a\tx\n" * 3, r"data\.tsv has 3 examples, of which 80% train and 10% validate: none is left for evaluation"),
    ],
)
def test_mistakes_are_named_with_file_and_line(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        task_of(tmp_path, content).batch("train", 0, [0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_share": 0.0}, "train_share must be between 0 and 1, got 0.0"),
        ({"train_share": 0.9, "validation_share": 0.1}, "must leave something to evaluate"),
        ({"data": "absent.tsv"}, "there is no file .*absent.tsv"),
        ({"data": 3}, "data must be a path, got 3"),
    ],
)
def test_bad_options_are_named(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        tasks.get("pairs", **{"data": tmp_path / "x", **options}).batch("train", 0, [0])


def test_padded_batches_score_what_single_sequences_score(tmp_path):
    chance = np.random.default_rng(0)
    lines = []
    for _ in range(60):
        tokens = chance.integers(0, 5, chance.integers(1, 12))
        lines.append(" ".join(map(str, tokens)) + "\t" + " ".join(map(str, tokens % 3)))
    task = task_of(tmp_path, "\n".join(lines), train_share=0.2, validation_share=0.6)
    model = CascadeLM(CascadeConfig(d_model=8, n_layers=2, n_units=4), task.vocab_size, task.n_outputs)
    together = score_streams(model, task.streams("validation", 0, 1, 4), task.classes)
    singly = ([task.batch("validation", 0, [i])] for i in range(len(task.parts["validation"])))
    alone = score_streams(model, singly, task.classes)
    assert (together.scored, together.correct) == (alone.scored, alone.correct)
    assert together.loss == pytest.approx(alone.loss, rel=1e-5)
    uniform = score_streams(Uniform(3), task.streams("evaluation", 0, 1, 4096), 3)
    assert math.exp(uniform.loss) == pytest.approx(3, rel=1e-5)


class Uniform(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.classes = classes

    def forward(self, tokens, state=None):
        return torch.zeros(*tokens.shape, self.classes), None


def test_facts_say_how_many_inputs_also_train(tmp_path):
    task = task_of(tmp_path, "a b\tx y\n" * 20 + "c\tx\n")
    assert task.facts("train")["examples"] == "17"
    known = sum(tokens == "a b" for tokens, _ in examples(task, "evaluation"))
    assert task.facts("evaluation")["inputs that also train"] == str(known)
