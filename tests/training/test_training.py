"""The loop, its data, checkpoints and resuming."""

from __future__ import annotations

import itertools
import json
import math
import shutil

import pytest
import torch
from torch.nn import functional as F

from latchwork import CascadeConfig
from latchwork.tasks import IGNORE, get
from latchwork.training import checkpoint
from latchwork.training.checkpoint import CheckpointError
from latchwork.training.data import batches
from latchwork.training.loop import End, Resumed, Step, TrainingDivergedError, Validation, loss_of, train
from latchwork.training.recipe import Recipe
from latchwork.training.run import Run, RunError

TINY = CascadeConfig(d_model=8, n_layers=2, n_units=4, dropout=0.2)


def make_run(path, task=None, **recipe) -> Run:
    options = {"train_sequences": 24, "validation_sequences": 4, "batch_size": 8, "validate_every": 3, **recipe}
    run = Run(path, task or get("inductionheads", size=4), TINY, Recipe(**options))
    run.create()
    return run


def losses(events) -> list[float]:
    return [event.loss for event in events if isinstance(event, Step)]


def weights(run: Run) -> dict[str, torch.Tensor]:
    model = run.build()
    found, _ = checkpoint.newest(run.checkpoints)
    found.load_weights(model)
    return dict(model.named_parameters())


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(bytes(i * i % 251 for i in range(4000)))
    return get("text", data=path, window=32)


@pytest.mark.parametrize("name", ["inductionheads", "text"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning", "ignore:This DataLoader will create:UserWarning")
def test_workers_change_nothing_and_epochs_differ(name, text):
    task = text if name == "text" else get("inductionheads", size=4)

    def order(workers, seed=0):
        recipe = Recipe(seed=seed, train_sequences=30, batch_size=8, epochs=2, workers=workers)
        return [(t.tolist(), y.tolist()) for t, y in batches(task, recipe)]

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
    rows = [tuple(row[:35]) for tokens, _ in batches(get("latching", size=4), recipe) for row in tokens.tolist()]
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


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_taken(tmp_path):
    run = make_run(tmp_path / "run", steps=9)
    expected = losses(train(run))
    damages = {
        "cut short": lambda p: (p / "model.safetensors").write_bytes((p / "model.safetensors").read_bytes()[:100]),
        "missing": lambda p: (p / "training.safetensors").unlink(),
        "not JSON": lambda p: (p / "state.json").write_text("{", "utf-8"),
    }
    for name, damage in damages.items():
        copy = tmp_path / name
        shutil.copytree(run.path, copy)
        newest = copy / "checkpoints" / "step-00000009"
        damage(newest)
        with pytest.raises(CheckpointError, match="step-00000009"):
            checkpoint.Checkpoint(newest).check()
        rest = list(train(Run.open(copy), resume=True))
        assert rest[0].step == 6
        assert "step-00000009" in rest[0].complaints[0]
        assert losses(rest) == expected[6:]


def test_a_checkpoint_that_was_being_written_does_not_count(tmp_path, monkeypatch):
    run = make_run(tmp_path / "run", steps=3)
    list(train(run))
    real = checkpoint.os.replace

    def die(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint.os, "replace", die)
    model = run.build()
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(run.checkpoints, 6, model, torch.optim.Adam(model.parameters()), {})
    monkeypatch.setattr(checkpoint.os, "replace", real)
    found, complaints = checkpoint.newest(run.checkpoints)
    assert found.step == 3
    assert not complaints


def test_a_loss_that_is_not_finite_ends_training(tmp_path):
    run = make_run(tmp_path / "run", steps=50, lr=1e30)
    with pytest.raises(TrainingDivergedError, match=r"the loss became (nan|inf) at step \d+"):
        list(train(run))


def test_the_message_of_divergence_names_the_checkpoint_that_is_left(tmp_path, monkeypatch):
    run = make_run(tmp_path / "run", steps=50)
    from latchwork.training import loop

    real, calls = loop._update, itertools.count()
    monkeypatch.setattr(loop, "_update", lambda *a: real(*a) if next(calls) < 4 else math.nan)
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


def test_checkpoints_hold_no_pickle_and_tied_weights_stay_tied(tmp_path, text):
    run = make_run(tmp_path / "run", task=text, steps=3)
    list(train(run))
    assert {p.suffix for p in run.path.rglob("*") if p.is_file()} <= {".safetensors", ".json", ".jsonl"}
    model, _ = run.trained()
    assert model.head.weight is model.embedding.weight
    assert not model.training


def test_folders_that_are_not_runs_are_named(tmp_path):
    with pytest.raises(RunError, match=r"has no config\.json"):
        Run.open(tmp_path)
    run = make_run(tmp_path / "run")
    with pytest.raises(RunError, match="holds a run already: resume it"):
        run.create()
    with pytest.raises(RunError, match=r"no trained model yet"):
        run.trained()
    config = json.loads((run.path / "config.json").read_text())
    for content, message in (
        ("{", "config.json is damaged"),
        (json.dumps({**config, "format": 99}), "format 99"),
        (json.dumps({k: v for k, v in config.items() if k != "model"}), "damaged: KeyError: 'model'"),
        (json.dumps({**config, "recipe": {"speed": 1}}), "damaged: TypeError"),
    ):
        (run.path / "config.json").write_text(content)
        with pytest.raises(RunError, match=message):
            Run.open(run.path)


def test_the_configuration_survives_a_round_trip(tmp_path, text):
    for i, task in enumerate((text, get("latching", size=8))):
        run = make_run(tmp_path / f"run{i}", task=task, steps=5, clip=0.5)
        assert Run.open(run.path) == run


def test_loss_counts_scored_steps_only():
    logits = torch.randn(3, 5, 4, requires_grad=True)
    targets = torch.randint(0, 4, (3, 5))
    targets[0] = IGNORE
    expected = F.cross_entropy(logits[1:].flatten(0, 1), targets[1:].flatten())
    torch.testing.assert_close(loss_of(logits, targets), expected)
    nothing = loss_of(logits, torch.full((3, 5), IGNORE))
    assert nothing.item() == 0
    assert torch.autograd.grad(nothing, logits)[0].abs().max() == 0


def test_a_run_without_a_whole_checkpoint_is_not_started_over(tmp_path):
    run = make_run(tmp_path / "run", steps=6)
    list(train(run))
    before = run.metrics.read_text()
    for path in run.checkpoints.glob("*/model.safetensors"):
        path.write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"no whole checkpoint to go on from: .*step-00000006.*step-00000003"):
        list(train(Run.open(run.path), resume=True))
    assert run.metrics.read_text() == before


def test_a_run_killed_before_its_first_checkpoint_starts_again(tmp_path):
    run = make_run(tmp_path / "run", steps=4)
    run.metrics.write_text(json.dumps({"step": 1, "loss": 9.0}) + "\n")
    events = list(train(Run.open(run.path), resume=True))
    assert events[0] == Resumed(0, [])
    assert [r["step"] for r in run.records() if "loss" in r] == [4]


def test_damaged_lines_of_the_metrics_are_left_out_and_the_rest_is_kept(tmp_path):
    run = make_run(tmp_path / "run", steps=6)
    list(train(run))
    good = list(run.records())
    lines = run.metrics.read_text().splitlines()
    run.metrics.write_text("\n".join(["garbage", "5", "{}", '{"step": 1, "validation": 5}', *lines, '{"step":']))
    assert list(run.records()) == good
    list(train(Run.open(run.path), resume=True))
    assert list(run.records()) == good


def test_leftovers_of_another_run_are_not_taken_over(tmp_path):
    run = make_run(tmp_path / "run", steps=3)
    list(train(run))
    (run.path / "config.json").unlink()
    with pytest.raises(RunError, match="parts of a run without config"):
        run.create()


def test_a_damaged_best_json_is_named(tmp_path):
    run = make_run(tmp_path / "run", steps=3)
    list(train(run))
    for content in (b"\xff", b'{"checkpoint": 5}', b'{"checkpoint": "../x"}', b"[]"):
        (run.path / "best.json").write_bytes(content)
        with pytest.raises(RunError, match=r"best\.json is damaged"):
            run.trained()


def test_a_long_plan_costs_nothing_before_it_begins():
    recipe = Recipe(steps=10**12)
    tokens, _ = next(batches(get("latching", size=4), recipe))
    assert len(tokens) == 64
