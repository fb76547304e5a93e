"""Tasks against slow definitions written from their descriptions, and the promises of seeded streams."""

from __future__ import annotations

import dataclasses
import itertools
import json

import numpy as np
import pytest
from helpers import run_python

from latchwork import CascadeConfig, tasks
from latchwork.runs.recipe import Recipe
from latchwork.tasks import IGNORE, chance
from latchwork.tasks.latching import Latching
from latchwork.tasks.task import SPLITS

UNIFORM = [("latching", 4), ("latching", 16), ("inductionheads", 16), ("inductionheads", 30)]
SYNTHETIC = [*UNIFORM, ("sequences", 2), ("sequences", 16)]
every_task = pytest.mark.parametrize(("name", "size"), SYNTHETIC)


def unpadded(batch):
    """The sequences of a batch, each cut after its last scored step."""
    for tokens, targets in zip(*batch, strict=True):
        end = int(np.flatnonzero(targets != IGNORE)[-1]) + 1
        yield tokens[:end].tolist(), targets[:end].tolist()


def check_latching(tokens, targets, size, split):
    assert 0 <= tokens[0] < size
    assert all(0 <= token < 5 * size for token in tokens)
    assert targets == [tokens[0]] * len(tokens)


def check_inductionheads(tokens, targets, size, split):
    marker = size
    first, *others = [i for i, token in enumerate(tokens) if token == marker]
    assert first <= (30 if split == "train" else 50)
    assert others == [len(tokens) - 1]
    assert all(0 <= token <= size for token in tokens)
    assert targets == [IGNORE] * (len(tokens) - 1) + [tokens[first + 1]]


CHECKS = {"latching": check_latching, "inductionheads": check_inductionheads}
LENGTHS = {
    "latching": {"train": (256, 512), "validation": (1024, 2048), "evaluation": (1024, 2048)},
    "inductionheads": {"train": (35, 512), "validation": (1024, 2048), "evaluation": (1024, 2048)},
}


@pytest.mark.parametrize(("name", "size"), UNIFORM)
@pytest.mark.parametrize("split", SPLITS)
def test_samples_are_what_the_description_says(name, size, split):
    task = tasks.get(name, size=size)
    lengths = []
    for tokens, targets in unpadded(task.batch(split, 0, range(300))):
        CHECKS[name](tokens, targets, size, split)
        lengths.append(len(tokens))
    shortest, longest = LENGTHS[name][split]
    assert shortest <= min(lengths)
    assert max(lengths) <= longest
    middle = (shortest + longest) / 2
    assert abs(np.mean(lengths) - middle) < 4 * (longest - shortest) / (12 * 300) ** 0.5


@every_task
def test_a_sample_is_the_same_in_every_batch_and_process(name, size):
    task = tasks.get(name, size=size)
    whole = list(unpadded(task.batch("train", 5, range(20))))
    alone = [next(unpadded(task.batch("train", 5, [i]))) for i in range(20)]
    shuffled = list(unpadded(task.batch("train", 5, [7, 3, 19])))
    assert whole == alone
    assert shuffled == [whole[7], whole[3], whole[19]]
    code = (
        "from latchwork import tasks; "
        f"b = tasks.get({name!r}, size={size}).batch('train', 5, [7, 3]); print(b.tokens.tolist(), b.targets.tolist())"
    )
    again = task.batch("train", 5, [7, 3])
    assert run_python(code).strip() == f"{again.tokens.tolist()} {again.targets.tolist()}"


@every_task
def test_seeds_splits_and_samples_differ(name, size):
    task = tasks.get(name, size=size)
    rows = [
        tuple(task.batch(split, seed, [i]).tokens[0, :100].tolist())
        for split, seed, i in itertools.product(SPLITS, (0, 1), (0, 1))
    ]
    assert len(set(rows)) == len(rows)


@every_task
@pytest.mark.parametrize("chunk", [1, 7, 64, 500])
def test_endless_streams_do_not_depend_on_the_chunk(name, size, chunk):
    task = tasks.get(name, size=size)
    whole = next(task.endless("evaluation", 1, range(6), 1000))
    pieces = list(itertools.islice(task.endless("evaluation", 1, range(6), chunk), 1000 // chunk))
    length = len(pieces) * chunk
    for field in ("tokens", "targets"):
        joined = np.concatenate([getattr(piece.batch, field) for piece in pieces], axis=1)
        assert np.array_equal(joined, getattr(whole.batch, field)[:, :length])


def test_latching_streams_ask_for_the_first_token_for_ever():
    stream = tasks.get("latching", size=16).endless("evaluation", 1, range(8), 1 << 16)
    first = next(stream)
    memory = first.batch.tokens[:, :1]
    for piece in (first, *itertools.islice(stream, 15)):
        assert piece.answers is None
        assert np.array_equal(piece.batch.targets, np.broadcast_to(memory, piece.batch.targets.shape))


def test_inductionheads_streams_never_repeat_the_marker_and_say_what_a_probe_should_answer():
    stream = tasks.get("inductionheads", size=16).endless("evaluation", 1, range(8), 1000)
    first = next(stream)
    rows, positions = np.nonzero(first.batch.tokens == 16)
    assert rows.tolist() == list(range(8))
    memory = first.batch.tokens[rows, positions + 1]
    for piece in (first, *itertools.islice(stream, 50)):
        assert np.array_equal(piece.answers, memory)
        assert (piece.batch.targets == IGNORE).all()
        if piece is not first:
            assert (piece.batch.tokens != 16).all()


@pytest.mark.parametrize(("name", "size"), UNIFORM)
def test_labels_are_uniform(name, size):
    task = tasks.get(name, size=size)
    shares = task.label_distribution("validation", 0, 2000)
    assert shares.sum() == pytest.approx(1)
    assert shares.shape == (task.vocab_size,)
    assert shares.max() < 1.5 / size + 0.01
    assert shares[:size].min() > 0.5 / size - 0.01
    assert not shares[size:].any()


def test_validation_streams_hold_every_sequence_once():
    task = tasks.get("latching", size=4)
    scored = sum((b.targets != IGNORE).sum() for stream in task.streams("validation", 0, 100, 300) for b in stream)
    assert scored == (task.batch("validation", 0, range(100)).targets != IGNORE).sum()


def test_draws_are_uniform_and_addressable():
    keys = chance.derive(np.uint64(3), np.arange(50))
    draws = chance.words(keys, 0, 2000)
    assert np.array_equal(draws[:, 700:900], chance.words(keys, 700, 200))
    counts = np.bincount(chance.below(draws, 10).ravel(), minlength=10)
    assert ((counts - 10_000) ** 2 / 10_000).sum() < 27.9  # the 99.9% quantile of chi-square with 9 degrees
    assert len(np.unique(draws)) == draws.size
    together = np.corrcoef(draws[:20].astype(np.float64))
    assert np.abs(together - np.eye(20)).max() < 0.11


def test_text_is_cut_by_position_and_every_byte_trains_once_an_epoch(tmp_path):
    (tmp_path / "b.txt").write_bytes(bytes(range(100, 200)) * 2)
    (tmp_path / "a.txt").write_bytes(bytes(range(100)) * 8)
    task = tasks.get("text", data=tmp_path, window=10)
    assert task.parts["train"].tolist() == (list(range(100)) * 8 + list(range(100, 200)))
    assert task.parts["validation"].tolist() == list(range(100, 200))
    size = task.epoch_size(0)
    epochs = [task.batch("train", 0, np.arange(size) + e * size) for e in range(3)]
    for batch in epochs:
        assert np.array_equal(batch.tokens[:, 1:], batch.targets[:, :-1])
        assert np.array_equal(batch.tokens[1:, 0], batch.targets[:-1, -1])
    assert len({batch.tokens[0, 0] for batch in epochs}) > 1
    stream = list(next(task.streams("validation", 0, 1, 7)))
    assert np.concatenate([b.targets[0] for b in stream]).tolist() == list(range(101, 200))
    assert np.concatenate([b.tokens[0] for b in stream]).tolist() == list(range(100, 199))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: tasks.get("laching"), "no task 'laching'.*did you mean latching"),
        (lambda p: tasks.get("latching", sise=4), "no option sise; it has size"),
        (lambda p: tasks.get("latching", size=1), "size must be at least 2"),
        (lambda p: Latching("16"), "size must be an integer, got '16'"),
        (lambda p: tasks.get("inductionheads", size=0), "size must be at least 2"),
        (lambda p: tasks.get("text", data=p / "absent").parts, "no file or folder .*absent"),
        (lambda p: tasks.get("text", data=p).parts, "folder without files"),
        (lambda p: tasks.get("text", data=p, train_share=1.0), "train_share"),
        (lambda p: tasks.get("latching").batch("test", 0, [0]), "split must be one of train, validation, evaluation"),
    ],
)
def test_bad_options_are_named(tmp_path, make, message):
    with pytest.raises(ValueError, match=message):
        make(tmp_path)


def test_numbers_of_numpy_are_as_good_as_python_s():
    """They come out of sweeps and arrays, and have to be written as JSON."""
    task, recipe = tasks.get("latching", size=np.int64(8)), Recipe(seed=np.int32(3), lr=np.float32(0.5))
    config = CascadeConfig(n_layers=np.int64(1), dropout=np.float64(0.5))
    for fields in (dataclasses.asdict(task), recipe.to_dict(), config.to_dict()):
        assert json.loads(json.dumps(fields)) == fields
    assert task == Latching(8)


@pytest.mark.parametrize(("window", "share"), [(4, 0.9), (512, 0.9), (7, 0.5), (1, 0.05), (3, 0.99)])
def test_text_that_is_too_short_says_how_long_it_must_be(tmp_path, window, share):
    """So many bytes are enough, one less is not; targets are shifted once."""
    path = tmp_path / "t"
    path.write_bytes(b"x")
    with pytest.raises(ValueError, match=rf"1 bytes.*too few for windows of {window}, which need at least") as error:
        _ = tasks.get("text", data=path, window=window, train_share=share).parts
    need = int(str(error.value).split()[-2].replace(",", ""))
    path.write_bytes(b"x" * (need - 1))
    with pytest.raises(ValueError, match=f"at least {need:,} bytes"):
        _ = tasks.get("text", data=path, window=window, train_share=share).parts
    path.write_bytes(bytes(i % 256 for i in range(need)))
    task = tasks.get("text", data=path, window=window, train_share=share)
    size = task.epoch_size(0)
    assert size >= 1
    batch = task.batch("train", 0, range(size * 50 * window if window < 100 else 50))
    assert np.array_equal(batch.tokens[:, 1:], batch.targets[:, :-1])
    if window == 4:
        assert {row[0] for row in batch.tokens} == set(range(4 * size)), "over the epochs windows begin everywhere"


def test_measuring_a_part_shorter_than_two_windows_by_samples_is_refused(tmp_path):
    (tmp_path / "t").write_bytes(b"x" * 100)
    with pytest.raises(ValueError, match=r"validation part of .* has 10 bytes; windows of 8 need at least 17"):
        tasks.get("text", data=tmp_path / "t", window=8).batch("validation", 0, [0])
