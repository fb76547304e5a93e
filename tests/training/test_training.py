"""The loop, its data, checkpoints and resuming."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import shutil

import pytest
import torch
from filelock import FileLock
from torch.nn import functional as F

from latchwork import CascadeConfig, CascadeLM
from latchwork.evaluation.measure import Score
from latchwork.tasks import IGNORE, get
from latchwork.training import checkpoint
from latchwork.training.checkpoint import CheckpointError
from latchwork.training.data import updates
from latchwork.training.learner import Learner, cross_entropy
from latchwork.training.loop import End, Resumed, Step, TrainingDivergedError, Validation, make_accelerator, train
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
    found, _, _ = checkpoint.newest(run.checkpoints)
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
        checkpoint.save(run.checkpoints, 6, model, {}, {})
    monkeypatch.setattr(checkpoint.os, "replace", real)
    found, _, complaints = checkpoint.newest(run.checkpoints)
    assert found.step == 3
    assert not complaints


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


def test_checkpoints_hold_no_pickle_and_tied_weights_stay_tied(tmp_path, text):
    run = make_run(tmp_path / "run", task=text, steps=3)
    list(train(run))
    assert {p.suffix for p in run.path.rglob("*") if p.is_file()} <= {".safetensors", ".json", ".jsonl", ".lock"}
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
        (json.dumps({**config, "recipe": {"speed": 1}}), "config.json, recipe: there is no speed"),
        (json.dumps({**config, "recipe": []}), "config.json is damaged"),
        (json.dumps({**config, "task": {"name": "latching", "size": "4"}}), "task: size must be an integer, got '4'"),
        (json.dumps({**config, "task": {"name": "latching", "size": -1}}), "task: size must be at least 2"),
        (json.dumps({**config, "task": {"name": "latching", "sise": 4}}), "task: task latching has no option sise"),
        (json.dumps({**config, "task": {"name": "text"}}), "task: task text needs data"),
        (json.dumps({**config, "recipe": {"lr": "x"}}), "recipe: lr must be a number, got 'x'"),
        (json.dumps({**config, "recipe": {"lr": -1}}), "recipe: lr must be a positive number, got -1"),
        (json.dumps({**config, "recipe": {"steps": 1.5}}), r"recipe: steps must be an integer or None, got 1\.5"),
        (json.dumps({**config, "model": {"dropout": None}}), "model: dropout must be a number, got None"),
        (json.dumps({**config, "model": {"output_gate": 1}}), "model: output_gate must be True or False, got 1"),
        (json.dumps({**config, "model": {"conv": "x"}}), "model: conv must be one of basic, gated, got 'x'"),
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
    expected = F.cross_entropy(logits[1:].flatten(0, 1), targets[1:].flatten(), reduction="sum")
    torch.testing.assert_close(cross_entropy(logits, targets), expected)
    nothing = cross_entropy(logits, torch.full((3, 5), IGNORE))
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
        torch.testing.assert_close(value, average)


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"optimizer": "adamw"}, "optimizer of a run that has begun cannot be changed"),
        ({"ema": 0.9}, "ema of a run"),
        ({"precision": "bfloat16"}, "precision of a run"),
        ({"seed": 1}, "seed of a run"),
        ({"stop_when_perfect": 0}, "stop_when_perfect must be True or False, got 0"),
        ({"lr": "1.e-3"}, "lr must be a number"),
        ({"stepz": 3}, "there is no stepz"),
    ],
)
def test_what_a_run_remembers_depends_on_cannot_be_changed(tmp_path, change, message):
    run = make_run(tmp_path / "run", steps=3)
    with pytest.raises(ValueError, match=message):
        run.changed(change)


def test_a_changed_recipe_is_written_only_when_it_is_taken_up(tmp_path):
    run = make_run(tmp_path / "run", steps=3)
    list(train(run))
    changed = run.changed({"steps": 5, "lr": 0.5})
    assert Run.open(run.path) == run
    with FileLock(run.path / "run.lock"), pytest.raises(RunError, match="another process"):
        list(train(changed, resume=True))
    assert Run.open(run.path) == run
    assert list(train(changed, resume=True))[-1] == End(5, "finished")
    assert Run.open(run.path) == changed


def test_a_best_checkpoint_that_was_not_named_yet_is_named_when_the_run_goes_on(tmp_path, monkeypatch):
    whole = make_run(tmp_path / "whole", steps=9)
    list(train(whole))
    run = make_run(tmp_path / "run", steps=9)

    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Run, "set_best", die)
        with pytest.raises(KeyboardInterrupt):
            list(train(run))
    assert not (run.path / "best.json").exists()
    list(train(Run.open(run.path), resume=True))
    assert run.best().path.name == whole.best().path.name
    run.best().check()


def test_a_trained_run_is_not_started_over(tmp_path):
    run = make_run(tmp_path / "run", steps=3)
    list(train(run))
    with pytest.raises(RunError, match="has been trained already; resume it"):
        list(train(run))


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


@pytest.mark.parametrize("damage", [False, True])
def test_a_trained_run_without_its_checkpoints_is_not_trained_anew(tmp_path, damage):
    run = make_run(tmp_path / "run", steps=3)
    list(train(run))
    shutil.rmtree(run.checkpoints)
    if damage:
        run.metrics.write_bytes(run.metrics.read_bytes()[:-5])
    before = run.metrics.read_bytes()
    with pytest.raises(CheckpointError, match="has been trained and its checkpoints are gone"):
        list(train(Run.open(run.path), resume=True))
    assert run.metrics.read_bytes() == before


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
