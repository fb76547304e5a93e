"""The loop, its data and resuming."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_runs import losses, make_run, weights
from torch.nn import functional as F

from latchwork import CascadeConfig, CascadeLM
from latchwork.evaluation.measure import Score
from latchwork.runs import checkpoint
from latchwork.runs.recipe import Recipe
from latchwork.runs.run import Run
from latchwork.tasks import IGNORE, get
from latchwork.training.data import updates
from latchwork.training.learner import Learner, by_length, cross_entropy
from latchwork.training.loop import End, Resumed, Step, TrainingDivergedError, Validation, make_accelerator, train


@pytest.mark.parametrize("name", ["inductionheads", "text"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning", "ignore:This DataLoader will create:UserWarning")
def test_workers_change_nothing_and_epochs_differ(name, text):
    task = text if name == "text" else get("inductionheads", size=4)

    def order(workers, seed=0):
        recipe = Recipe(seed=seed, train_sequences=30, batch_size=8, epochs=2, workers=workers)
        return [(t.tolist(), y.tolist()) for [(t, y)] in updates(task, recipe)]

    expected = order(0)
    assert order(1) == expected
    assert order(4) == expected
    assert order(0) == expected
    assert order(0, seed=1) != expected
    half = len(expected) // 2
    first, second = expected[:half], expected[half:]
    assert first != second
    rows = [tuple(row) for tokens, _ in first for row in tokens]
    assert len(set(rows)) == len(rows), "a sample came twice in an epoch"


def test_fixed_sets_repeat_their_samples_in_another_order():
    recipe = Recipe(train_sequences=30, batch_size=8, epochs=2)
    # the end of a row depends on the longest row beside it, so compare what comes before
    rows = [tuple(row[:35]) for [(tokens, _)] in updates(get("latching", size=4), recipe) for row in tokens.tolist()]
    assert rows[:30] != rows[30:]
    assert sorted(rows[:30]) == sorted(rows[30:])


def test_exactly_the_asked_number_of_updates(tmp_path):
    events = list(train(make_run(tmp_path / "run", steps=7)))
    assert [e.step for e in events if isinstance(e, Step)] == [1, 2, 3, 4, 5, 6, 7]
    assert [e.step for e in events if isinstance(e, Validation)] == [3, 6, 7]
    assert events[-1] == End(7, "finished")


@pytest.mark.parametrize("stop_at", [1, 4, 6, 9, 10])
def test_resuming_gives_the_losses_and_weights_of_an_uninterrupted_run(tmp_path, stop_at):
    """Dropout is on; an epoch has 3 updates, so runs are cut inside epochs, at their ends, and at validations."""
    whole = make_run(tmp_path / "whole", steps=12)
    expected = losses(train(whole))
    cut = make_run(tmp_path / "cut", steps=12)
    seen: list = []
    for event in train(cut, stop=lambda: len(losses(seen)) >= stop_at):
        seen.append(event)
    assert seen[-1] == End(stop_at, "stopped")
    torch.manual_seed(123)  # what a new process would have is not what the run had
    rest = list(train(Run.open(cut.path), resume=True))
    assert rest[0] == Resumed(stop_at, [])
    assert losses(seen) + losses(rest) == expected
    for name, value in weights(whole).items():
        assert torch.equal(value, weights(cut)[name]), name
    assert [r["step"] for r in cut.records() if "validation" in r] == [3, 6, 9, 12]


def test_a_loss_that_is_not_finite_ends_training(tmp_path):
    run = make_run(tmp_path / "run", steps=50, lr=1e30)
    with pytest.raises(TrainingDivergedError, match=r"the loss became (nan|inf) at step \d+"):
        list(train(run))


def test_the_message_of_divergence_names_the_checkpoint_that_is_left(tmp_path, monkeypatch):
    run = make_run(tmp_path / "run", steps=50)
    real, calls = Learner.update, itertools.count()
    monkeypatch.setattr(Learner, "update", lambda *a: real(*a) if next(calls) < 4 else math.nan)
    with pytest.raises(
        TrainingDivergedError, match=r"became nan at step 5; the last good checkpoint is .*step-00000003"
    ):
        list(train(run))
    assert checkpoint.newest(run.checkpoints)[0].step == 3
    assert run.trained()[0].embedding.weight.isfinite().all()


def test_training_stops_when_every_answer_is_right_or_patience_is_out(tmp_path, monkeypatch):
    from latchwork.training import loop

    real = loop.validate

    def perfect(*args):
        score = real(*args)
        score.correct = score.scored
        return score

    monkeypatch.setattr(loop, "validate", perfect)
    assert list(train(make_run(tmp_path / "a", steps=30)))[-1] == End(3, "perfect")

    def same(*args):
        score = real(*args)
        score.nats, score.correct = score.scored, 0
        return score

    monkeypatch.setattr(loop, "validate", same)
    run = make_run(tmp_path / "b", steps=60, patience=2)
    assert list(train(run))[-1] == End(9, "patience")
    assert json.loads((run.path / "best.json").read_text())["checkpoint"] == "step-00000003"
    assert {p.name for p in run.checkpoints.iterdir()} == {"step-00000003", "step-00000006", "step-00000009"}
    assert list(train(Run.open(run.path), resume=True))[-1] == End(9, "patience")


def test_loss_counts_scored_steps_only():
    logits = torch.randn(3, 5, 4, requires_grad=True)
    targets = torch.randint(0, 4, (3, 5))
    targets[0] = IGNORE
    expected = F.cross_entropy(logits[1:].flatten(0, 1), targets[1:].flatten(), reduction="sum")
    torch.testing.assert_close(cross_entropy(logits, targets), expected)
    nothing = cross_entropy(logits, torch.full((3, 5), IGNORE))
    assert nothing.item() == 0
    assert torch.autograd.grad(nothing, logits)[0].abs().max() == 0


def test_a_long_plan_costs_nothing_before_it_begins():
    recipe = Recipe(steps=10**12)
    [(tokens, _)] = next(updates(get("latching", size=4), recipe))
    assert len(tokens) == 64


def test_micro_batches_weigh_every_scored_step_the_same(tmp_path):
    """One step with 110 targets, in one batch and as micro-batches with 10 and 100 of them."""
    config = CascadeConfig(d_model=8, n_layers=2, n_units=4, dropout=0.0)
    task = get("latching", size=4)
    tokens = torch.randint(0, task.vocab_size, (2, 100))
    targets = torch.randint(0, task.vocab_size, (2, 100))
    targets[0, 10:] = IGNORE
    gradients = []
    for batches in ([(tokens, targets)], [(tokens[:1], targets[:1]), (tokens[1:], targets[1:])]):
        torch.manual_seed(0)
        learner = Learner(lambda: CascadeLM(config, task.vocab_size).double(), Recipe(), make_accelerator())
        loss = learner.update(batches, lr=1e-3)
        gradients.append([p.grad for p in learner.model.parameters()] + [torch.tensor(loss)])
    for one, many in zip(*gradients, strict=True):
        assert (one - many).abs().max() <= 1e-6


lengths = st.lists(st.integers(0, 600), min_size=1, max_size=40)


@given(lengths, st.integers(0, 2**32 - 1))
def test_parts_of_similar_length_hold_all_that_is_scored(lengths, seed):
    random = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 1 << 40, (len(lengths), 600), generator=random)
    targets = torch.randint(0, 2, tokens.shape, generator=random)
    for row, length in zip(targets, lengths, strict=True):
        row[length:] = IGNORE
        row[max(length - 1, 0) : length] = 1
        row[: length // 2][row[: length // 2] == 0] = IGNORE  # gaps
    parts = by_length(tokens, targets)
    assert sum(len(rows) for rows, _ in parts) == len(lengths)
    found = [(t.tolist(), y.tolist()) for part in parts for t, y in zip(*part, strict=True)]
    for row, target, length in zip(tokens.tolist(), targets.tolist(), lengths, strict=True):
        [(kept, scored)] = [pair for pair in found if pair[0][0] == row[0]]
        assert len(kept) >= length
        assert (kept, scored) == (row[: len(kept)], target[: len(kept)])
    computed = sum(rows.numel() for rows, _ in parts)
    longest = max(*lengths, 1)
    assert computed <= len(lengths) * longest - 512 * (len(parts) - 1), "every cut is worth it"
    assert max(rows.shape[1] for rows, _ in parts) == longest


def test_an_update_in_parts_is_the_update_of_the_whole(monkeypatch):
    task = get("inductionheads", size=4)
    [batch] = next(updates(task, Recipe(batch_size=32)))
    assert len(by_length(*batch)) > 2
    config = CascadeConfig(d_model=8, n_layers=2, n_units=4, dropout=0.0)
    gradients = []
    for parts in (by_length, lambda *whole: [whole]):
        monkeypatch.setattr("latchwork.training.learner.by_length", parts)
        torch.manual_seed(0)
        learner = Learner(lambda: CascadeLM(config, task.vocab_size).double(), Recipe(), make_accelerator())
        loss = learner.update([batch], lr=1e-3)
        gradients.append([p.grad for p in learner.model.parameters()] + [torch.tensor(loss)])
    for one, many in zip(*gradients, strict=True):
        assert (one - many).abs().max() <= 1e-6


def test_micro_batches_hold_the_samples_of_the_update():
    task = get("inductionheads", size=4)
    whole = Recipe(train_sequences=22, batch_size=8, epochs=1)
    parts = dataclasses.replace(whole, micro_batches=3)
    for [(tokens, _)], pieces in zip(updates(task, whole), updates(task, parts), strict=True):
        rows = [row[:35].tolist() for piece, _ in pieces for row in piece]
        assert rows == [row[:35].tolist() for row in tokens]


@pytest.mark.parametrize("processes", [2, 3])
def test_processes_share_the_samples_of_an_update(processes):
    task = get("inductionheads", size=4)
    recipe = Recipe(train_sequences=10, batch_size=4, epochs=2)  # the last update of an epoch has 2 samples
    shares = [list(updates(task, recipe, 0, process, processes)) for process in range(processes)]
    for step, [(tokens, targets)] in enumerate(updates(task, recipe)):
        scored = [
            (row[:35].tolist(), int(target[target != IGNORE]))
            for share in shares
            for row, target in zip(*share[step][0], strict=True)
            if (target != IGNORE).any()
        ]
        expected = [(row[:35].tolist(), int(t[t != IGNORE])) for row, t in zip(tokens, targets, strict=True)]
        assert sorted(scored) == sorted(expected)


def test_a_running_average_of_the_weights_is_validated_kept_and_resumed(tmp_path):
    whole = make_run(tmp_path / "whole", steps=9, ema=0.9)
    expected = losses(train(whole))
    assert expected == losses(train(make_run(tmp_path / "plain", steps=9))), "the average is only watched"
    cut = make_run(tmp_path / "cut", steps=9, ema=0.9)
    seen: list = []
    for event in train(cut, stop=lambda: len(losses(seen)) >= 4):
        seen.append(event)
    assert losses(seen) + losses(train(Run.open(cut.path), resume=True)) == expected
    for name, value in weights(whole).items():
        assert torch.equal(value, weights(cut)[name]), name
        kept = checkpoint.newest(whole.checkpoints)[0].tensors()[f"weights/{name}"]
        assert not torch.equal(value, kept), f"{name} is not an average"


def test_the_average_is_that_of_the_weights_after_every_update(tmp_path, monkeypatch):
    seen = []
    real = Learner.update

    def watch(learner, *args):
        loss = real(learner, *args)
        seen.append({name: p.detach().clone() for name, p in learner.model.named_parameters()})
        return loss

    monkeypatch.setattr(Learner, "update", watch)
    run = make_run(tmp_path / "run", steps=6, ema=0.75)
    list(train(run))
    for name, value in weights(run).items():
        average = seen[0][name]
        for after in seen[1:]:
            average = 0.75 * average + 0.25 * after[name]
        torch.testing.assert_close(value.cpu(), average.cpu())


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_mixed_precision_trains_close_to_float32_and_resumes(tmp_path, precision):
    exact = losses(train(make_run(tmp_path / "exact", steps=6)))
    run = make_run(tmp_path / "run", steps=6, precision=precision)
    mixed = losses(train(run))
    assert mixed != exact
    assert max(abs(a - b) for a, b in zip(mixed, exact, strict=True)) < 0.1
    assert all(value.dtype == torch.float32 for value in weights(run).values())
    cut = make_run(tmp_path / "cut", steps=6, precision=precision)
    seen: list = []
    for event in train(cut, stop=lambda: len(losses(seen)) >= 4):
        seen.append(event)
    assert losses(seen) + losses(train(Run.open(cut.path), resume=True)) == mixed


def test_metrics_go_to_tensorboard_too(tmp_path):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = make_run(tmp_path / "run", steps=12, tensorboard=True)
    list(train(run))
    events = event_accumulator.EventAccumulator(str(run.path / "tensorboard"))
    events.Reload()
    for name, tag, of in (("loss", "train/loss", None), ("validation", "validation/accuracy", "accuracy")):
        expected = [(r["step"], r[name][of] if of else r[name]) for r in run.records() if name in r]
        found = [(e.step, e.value) for e in events.Scalars(tag)]
        assert [s for s, _ in found] == [s for s, _ in expected]
        assert [v for _, v in found] == pytest.approx([v for _, v in expected])


def test_a_run_may_go_on_when_every_answer_is_right(tmp_path, monkeypatch):
    monkeypatch.setattr(Score, "correct", property(lambda self: self.scored, lambda self, value: None))
    assert list(train(make_run(tmp_path / "a", steps=9)))[-1] == End(3, "perfect")
    assert list(train(make_run(tmp_path / "b", steps=9, stop_when_perfect=False)))[-1] == End(9, "finished")


def test_a_run_that_diverged_says_so(tmp_path):
    run = make_run(tmp_path / "run", steps=50, lr=1e30)
    with pytest.raises(TrainingDivergedError):
        list(train(run))
    assert run.ended == "diverged"


def test_patience_counts_validations_without_a_lower_loss(tmp_path, monkeypatch):
    """The share of right answers does not move, and the loss falls: training goes on."""
    from latchwork.training import loop

    real, losses_seen = loop.validate, itertools.count()

    def falling(*args):
        score = real(*args)
        score.nats, score.correct = score.scored * (10 - next(losses_seen)), 0
        return score

    monkeypatch.setattr(loop, "validate", falling)
    assert list(train(make_run(tmp_path / "run", steps=18, patience=2)))[-1] == End(18, "finished")


def test_a_validation_set_without_scored_steps_is_named(tmp_path, monkeypatch):
    from latchwork.training import loop

    monkeypatch.setattr(loop, "validate", lambda *args: Score(4))
    with pytest.raises(ValueError, match="the validation set has no scored step"):
        list(train(make_run(tmp_path / "run", steps=3)))


def test_what_ends_with_the_last_update_or_an_answer_was_not_stopped_by_the_clock(tmp_path, monkeypatch):
    from latchwork.training import loop

    assert list(train(make_run(tmp_path / "last", steps=1, minutes=1e-9)))[-1] == End(1, "finished")
    monkeypatch.setattr(loop, "validate", lambda *args: Score(4, scored=2, correct=2, nats=0.1))
    assert list(train(make_run(tmp_path / "perfect", steps=9, minutes=1e-9)))[-1] == End(1, "perfect")


def test_time_for_updates_ends_a_run_with_a_validation_over_all_resumptions(tmp_path):
    run = make_run(tmp_path / "run", steps=9, minutes=1e-9)
    events = list(train(run))
    assert [type(event) for event in events] == [Step, Validation, End]
    assert events[-1] == End(1, "time")
    assert (run.ended, run.best().path.name) == ("time", "step-00000001")
    last = list(run.records())[-1]
    assert last["tokens"] > 0 < last["seconds"]
    assert list(train(Run.open(run.path), resume=True))[-1] == End(1, "time")
    longer = Run.open(run.path).changed({"minutes": (last["seconds"] + 0.001) / 60})  # what was spent before counts
    assert list(train(longer, resume=True))[-1] == End(2, "time")
    assert list(train(longer.changed({"minutes": None}), resume=True))[-1] == End(9, "finished")
    whole = make_run(tmp_path / "whole", steps=9)
    list(train(whole))
    assert [r["loss"] for r in whole.records() if "loss" in r] == [r["loss"] for r in run.records() if "loss" in r]
    assert all(torch.equal(weights(run)[name], weight) for name, weight in weights(whole).items())
