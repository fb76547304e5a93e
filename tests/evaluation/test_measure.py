"""Scores and extrapolation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from latchwork import CascadeConfig, CascadeLM
from latchwork.evaluation.extrapolate import extrapolate
from latchwork.evaluation.measure import Score, percent, score_streams, share_percent
from latchwork.models.architectures import build
from latchwork.tasks import IGNORE, get
from latchwork.tasks.task import Batch
from latchwork.verify import state_decay, state_gradient


class Oracle(nn.Module):
    """Runs the task's own machine; wrong where `lie` says so."""

    def __init__(self, task, lie=lambda step: False):
        super().__init__()
        self.task, self.lie = task, lie
        self.longest = 0

    def forward(self, tokens, state=None):
        states, step = (None, 0) if state is None else state
        self.longest = max(self.longest, tokens.shape[1])
        targets, states = self.task.machine.run(tokens.numpy(), states)
        answers = torch.from_numpy(targets).clamp(min=0)
        if self.lie(step):
            answers = (answers + 1) % self.task.classes
        return nn.functional.one_hot(answers, self.task.classes).float() * 20, (states, step + tokens.shape[1])


def last(iterator):
    for item in iterator:  # noqa: B007
        pass
    return item


@pytest.mark.parametrize("name", ["latching", "inductionheads"])
def test_a_perfect_model_is_right_everywhere(name):
    task = get(name, size=4)
    oracle = Oracle(task)
    result = last(extrapolate(oracle, task, seed=1, sequences=8, length=1 << 14, chunk=256))
    assert result.total.correct == result.total.scored == (8 << 14 if name == "latching" else 8 * 64)
    assert result.correct == result.scored
    assert len(result.correct) == 64
    assert oracle.longest == 256
    assert result.total.floor < 1


@pytest.mark.parametrize("name", ["latching", "inductionheads"])
def test_a_mistake_is_found_in_its_chunk(name):
    task = get(name, size=4)
    wrong_from = 512 if name == "latching" else 768  # a probe comes after its chunk
    oracle = Oracle(task, lie=lambda step: step == wrong_from)
    result = last(extrapolate(oracle, task, seed=1, sequences=3, length=2048, chunk=256))
    assert [c == s for c, s in zip(result.correct, result.scored, strict=True)] == [True, True, False, *[True] * 5]
    assert result.worst == 2
    assert result.correct[2] == 0
    assert result.to_dict()["worst_chunk"] == {"index": 2, "correct": 0, "scored": result.scored[2]}


def test_probing_leaves_the_stream_as_it_was():
    task = get("inductionheads", size=4)
    model = CascadeLM(CascadeConfig(d_model=8, n_layers=2, n_units=4), task.vocab_size, task.n_outputs).eval()
    states = []
    forward = model.forward

    def record(tokens, state=None):
        logits, after = forward(tokens, state)
        if tokens.shape[1] > 1:
            states.append(after)
        return logits, after

    model.forward = record
    list(extrapolate(model, task, seed=1, sequences=2, length=128, chunk=32))
    carried = None
    for seen, piece in zip(states, task.endless("evaluation", 1, range(2), 32), strict=False):
        _, carried = forward(torch.from_numpy(piece.batch.tokens), carried)
        for a, b in zip(seen, carried, strict=True):
            assert torch.equal(a.unit, b.unit)
            assert torch.equal(a.conv, b.conv)


def test_evaluation_streams_are_fresh():
    task = get("latching", size=16)
    trained = {tuple(row[:64]) for row in task.batch("train", 0, range(2000)).tokens.tolist()}
    fresh = next(task.endless("evaluation", 0, range(50), 64)).batch.tokens.tolist()
    assert not trained & {tuple(row) for row in fresh}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 1000}, "multiple of the chunk of 64 steps, got 1000"),
        ({"length": 0}, "multiple of the chunk"),
        ({"sequences": 0}, "sequences must be at least 1"),
    ],
)
def test_bad_lengths_are_named(options, message):
    task = get("latching", size=4)
    with pytest.raises(ValueError, match=message):
        next(extrapolate(Oracle(task), task, **{"seed": 1, "sequences": 1, "length": 64, "chunk": 64, **options}))


class Uniform(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.classes = classes

    def forward(self, tokens, state=None):
        return torch.zeros(*tokens.shape, self.classes), None


def test_uniform_logits_have_perplexity_v(tmp_path):
    (tmp_path / "text").write_bytes(np.random.default_rng(0).bytes(20_000))
    task = get("text", data=tmp_path / "text")
    score = score_streams(Uniform(256), task.streams("validation", 0, 1, 100), 256)
    assert math.exp(score.loss) == pytest.approx(256, rel=1e-5)
    assert score.bits == pytest.approx(8, rel=1e-5)
    assert score.scored == 1999


def test_the_loss_is_a_mean_over_scored_steps_and_not_over_batches():
    score = Score(2)
    for steps, loss in ((8, 1.0), (2, 3.0)):
        right = math.exp(-loss)
        logits = torch.log(torch.tensor([right, 1 - right])).expand(1, steps, 2)
        score.add(logits, torch.zeros(1, steps, dtype=torch.long))
    assert score.loss == pytest.approx(1.4, rel=1e-5)


def test_chunks_with_the_state_carried_equal_one_pass(tmp_path):
    (tmp_path / "text").write_bytes(bytes(i * i % 251 for i in range(6000)))
    task = get("text", data=tmp_path / "text")
    model = CascadeLM(CascadeConfig(d_model=8, n_layers=2, n_units=4), 256)
    scores = [score_streams(model, task.streams("validation", 0, 1, chunk), 256) for chunk in (10_000, 7)]
    assert scores[0].scored == scores[1].scored
    assert scores[0].loss == pytest.approx(scores[1].loss, rel=1e-5)
    assert model.training


def test_floor_and_labels():
    score = Score(3)
    targets = torch.tensor([[0, 0, 1, IGNORE, 2, 0]])
    score.add(torch.zeros(1, 6, 3), targets)
    assert score.labels.tolist() == [3, 1, 1]
    assert score.floor == pytest.approx(0.6)
    assert score.accuracy == pytest.approx(0.6)
    assert math.isnan(Score(3).accuracy)


def test_a_percentage_is_100_only_when_everything_is_right():
    assert percent(10, 10) == "100.0%"
    assert percent(9_999_999, 10_000_000) == "99.9%"
    assert percent(0, 10) == "0.0%"
    assert percent(1, 10_000_000) == "0.1%"
    assert percent(0, 0) == "–"


def test_stopping_gives_the_score_so_far():
    task = get("latching", size=4)
    asked = itertools.count()
    streams = iter([iter([Batch(np.zeros((1, 5), np.int64), np.zeros((1, 5), np.int64))] * 9)])
    score = score_streams(Oracle(task), streams, 4, stop=lambda: next(asked) >= 2)
    assert score.scored == 15


class Recurrent(nn.Module):
    """An LSTM or GRU of PyTorch with the calling convention of a language model."""

    def __init__(self, kind, vocab_size, classes):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, 8)
        self.body = kind(8, 8, num_layers=2, batch_first=True)
        self.head = nn.Linear(8, classes)

    def forward(self, tokens, state=None):
        y, state = self.body(self.embedding(tokens), state)
        return self.head(y), state


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("name", ["latching", "inductionheads", "sequences"])
def test_any_model_with_a_state_is_carried_as_if_run_whole(kind, name):
    task = get(name, size=3)
    model = Recurrent(kind, task.vocab_size, task.classes)
    cut = last(extrapolate(model, task, seed=2, sequences=4, length=512, chunk=64))
    whole = last(extrapolate(model, task, seed=2, sequences=4, length=512, chunk=512))
    if name == "inductionheads":
        assert cut.total.scored == 8 * whole.total.scored
        assert cut.correct[-1] == whole.correct[-1]
    else:
        assert cut.total.to_dict() == pytest.approx(whole.total.to_dict(), rel=1e-4)
    assert score_streams(model, task.streams("validation", 0, 2, 256), task.classes).scored > 0


class Dictionary(Recurrent):
    """Keeps its state in one dictionary and writes into it."""

    def forward(self, tokens, state=None):
        state = {"layers": [None], "seen": 0} if state is None else state
        logits, state["layers"][0] = super().forward(tokens, state["layers"][0])
        state["seen"] += tokens.shape[1]
        return logits, state


def test_a_probe_leaves_alone_a_state_that_the_model_writes_into():
    task = get("inductionheads", size=4)
    torch.manual_seed(1)
    model = Dictionary(nn.LSTM, task.vocab_size, task.classes)
    seen = []
    model.register_forward_hook(lambda module, inputs, output: seen.append((inputs[0].shape[1], output[1]["seen"])))
    list(extrapolate(model, task, seed=1, sequences=2, length=96, chunk=32))
    assert seen == [(32, 32), (1, 33), (32, 64), (1, 65), (32, 96), (1, 97)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_scored_in_float32(dtype):
    logits = (torch.randn(2, 50, 7) * 3).to(dtype)
    targets = torch.randint(0, 7, (2, 50))
    half, full = Score(7), Score(7)
    assert half.add(logits, targets) == full.add(logits.float(), targets)
    assert half.to_dict() == full.to_dict()
    task = get("latching", size=3)
    model = Recurrent(nn.GRU, task.vocab_size, task.classes).to(dtype)
    result = last(extrapolate(model, task, seed=1, sequences=2, length=128, chunk=64))
    assert math.isfinite(result.total.loss)


def test_float64_is_not_rounded():
    score = Score(2)
    score.add(torch.tensor([[[0.0, 1e-12]]], dtype=torch.float64), torch.tensor([[1]]))
    assert score.correct == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no second device")
def test_a_model_is_scored_on_its_own_device():
    task = get("inductionheads", size=3)
    model = Recurrent(nn.LSTM, task.vocab_size, task.classes)
    here = last(extrapolate(model, task, seed=1, sequences=2, length=128, chunk=64)).total.to_dict()
    there = last(extrapolate(model.cuda(), task, seed=1, sequences=2, length=128, chunk=64)).total.to_dict()
    assert there == pytest.approx(here, rel=1e-4)
    assert score_streams(model, task.streams("validation", 0, 2, 256), task.classes).scored == 2


def test_tokens_go_to_the_device_of_the_model():
    task = get("latching", size=3)
    model = Recurrent(nn.LSTM, task.vocab_size, task.classes).to("meta")
    devices = []

    def forward(tokens, state=None):
        devices.append(tokens.device.type)
        return torch.zeros(*tokens.shape, task.classes), state

    model.forward = forward
    list(extrapolate(model, task, seed=1, sequences=1, length=64, chunk=64))
    score_streams(model, task.streams("validation", 0, 1, 4096), task.classes)
    assert devices == ["meta", "meta"]


def test_every_module_trains_as_before_after_a_score():
    task = get("latching", size=3)
    model = nn.Sequential()
    model.add_module("model", Recurrent(nn.GRU, task.vocab_size, task.classes))
    model.forward = lambda tokens, state: model.model(tokens, state)
    model.model.body.eval()
    before = [module.training for module in model.modules()]
    score_streams(model, task.streams("validation", 0, 1, 4096), task.classes)
    list(extrapolate(model, task, seed=1, sequences=1, length=64, chunk=64))
    assert [module.training for module in model.modules()] == before


def test_who_stops_in_the_middle_goes_on_with_a_model_that_trains():
    """Generators leave nothing changed between what they yield."""
    task = get("latching", size=3)
    model = build(CascadeConfig(d_model=8, n_layers=2, n_units=4), task.vocab_size).train()
    enabled = torch.backends.cudnn.enabled
    tokens = torch.randint(task.vocab_size, (1, 9))
    for generator in (
        extrapolate(model, task, seed=1, sequences=1, length=128, chunk=64),
        state_decay(model, tokens),
        state_gradient(model, tokens),
        model.generate(tokens),
    ):
        next(generator)
        assert all(module.training for module in model.modules())
        assert torch.backends.cudnn.enabled == enabled


def test_a_share_is_100_percent_only_if_it_is_one():
    assert share_percent(1.0) == "100.0%"
    assert share_percent(1 - 1e-15) == "99.9%"
    assert share_percent(0.0) == "0.0%"
    assert share_percent(1e-9) == "0.1%"
    for tenths in range(1001):
        assert share_percent(tenths / 1000) == percent(tenths, 1000)
    with pytest.raises(ValueError, match=r"in \[0, 1\], got nan"):
        share_percent(math.nan)
