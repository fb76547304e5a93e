"""Folders of runs: what they keep, what damages them, and what is refused."""

from __future__ import annotations

import json
import shutil
import threading

import pytest
import torch
from filelock import FileLock
from small_runs import TINY, losses, make_run
from torch import nn

from latchwork.files import write_text
from latchwork.runs import checkpoint
from latchwork.runs.checkpoint import CheckpointError
from latchwork.runs.recipe import Recipe
from latchwork.runs.run import Run, RunError
from latchwork.tasks import get
from latchwork.training.loop import End, Resumed, Step, train


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
    assert list(run.checkpoints.glob(".partial-*"))
    checkpoint.save(run.checkpoints, 9, model, {}, {})
    assert not list(run.checkpoints.glob(".partial-*"))


def test_a_run_that_is_removed_takes_nothing_of_the_user_s_along(tmp_path):
    run = make_run(tmp_path / "run", steps=3)
    list(train(run))
    (run.path / "notes.txt").write_text("mine", "utf-8")
    with FileLock(run.path / "run.lock"), pytest.raises(RunError, match="being trained by another process"):
        run.remove()
    assert run.best().step == 3
    run.remove()
    assert {path.name for path in run.path.iterdir()} <= {"notes.txt", "run.lock"}
    assert (run.path / "notes.txt").read_text("utf-8") == "mine"
    run.create()


def test_the_last_record_is_the_last_of_all_whole_ones(tmp_path):
    run = make_run(tmp_path / "run", steps=3)
    assert run.last_record() is None
    list(train(run))
    assert run.last_record() == list(run.records())[-1]
    with run.metrics.open("a", encoding="utf-8") as file:
        file.write("".join(f'{{"step": {step}, "loss": {"1" * 60}}}\n' for step in range(4, 3000)) + '{"step": 3')
    assert run.last_record() == list(run.records())[-1]
    assert run.last_record()["step"] == 2999


def test_files_are_whole_whoever_writes_them(tmp_path):
    """Two writers at a time: none fails, and a reader sees one of their files."""
    path = tmp_path / "file"
    texts = ["a" * 100_000, "b" * 50_000]
    write_text(path, texts[0])
    failures: list[BaseException] = []

    def write(text: str) -> None:
        try:
            for _ in range(60):
                write_text(path, text)
        except BaseException as error:
            failures.append(error)

    writers = [threading.Thread(target=write, args=(text,)) for text in texts]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert path.read_text("utf-8") in texts
    assert not failures
    assert [left.name for left in tmp_path.iterdir()] == ["file"]


def test_checkpoints_hold_no_pickle_and_tied_weights_stay_tied(tmp_path, text):
    run = make_run(tmp_path / "run", task=text, steps=3)
    list(train(run))
    assert {p.suffix for p in run.path.rglob("*") if p.is_file()} <= {".safetensors", ".json", ".jsonl", ".lock"}
    model, _ = run.trained()
    assert model.head.weight is model.embedding.weight
    assert not model.training


def test_weights_that_are_parts_of_one_tensor_are_saved_and_loaded(tmp_path):
    """As those of an LSTM are on a GPU."""

    def built() -> nn.LSTM:
        lstm = nn.LSTM(3, 4, num_layers=2)
        parts = nn.utils.parameters_to_vector(lstm.parameters()).detach()
        nn.utils.vector_to_parameters(parts, lstm.parameters())  # views of one vector
        return lstm

    saved, loaded = built(), built()
    assert len({a.untyped_storage().data_ptr() for a in saved.parameters()}) == 1
    written = checkpoint.save(tmp_path, 1, saved, {}, {})
    written.load_weights(loaded)
    for a, b in zip(saved.parameters(), loaded.parameters(), strict=True):
        assert torch.equal(a, b)
    assert len({a.untyped_storage().data_ptr() for a in loaded.parameters()}) == 1
    with pytest.raises(CheckpointError, match=r"weights of this model: only one of them has .*weight_ih_l1"):
        written.load_weights(nn.LSTM(3, 4))


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


@pytest.mark.parametrize("steps", [1, 4, 5])
def test_a_run_that_is_to_end_before_where_it_is_ends(tmp_path, steps):
    """It was stopped before a validation; now fewer updates are asked for than are done."""
    run = make_run(tmp_path / "run", steps=9, validate_every=9)
    seen: list[object] = []
    for event in train(run, stop=lambda: sum(isinstance(each, Step) for each in seen) == 5):
        seen.append(event)
    assert seen[-1] == End(5, "stopped")
    shorter = Run.open(run.path).changed({"steps": steps})
    assert list(train(shorter, resume=True))[-1] == End(5, "finished")
    assert run.best().step == 5


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


def test_a_validation_whose_record_is_lost_is_measured_again(tmp_path):
    run = make_run(tmp_path / "run", steps=9)
    list(train(run))
    whole = [record for record in run.records() if "validation" in record]
    run.metrics.write_text("", "utf-8")
    resumed, validation, end = train(run, resume=True)
    assert (resumed.step, validation.step, end.reason) == (9, 9, "finished")
    assert [record for record in run.records() if "validation" in record] == whole[-1:]
    assert run.ended == "finished"


def test_one_of_two_commands_that_take_the_same_folder_at_once_is_refused(tmp_path):
    """The check comes before the data are read; what counts is who writes first."""
    runs = [Run(tmp_path / "run", get("latching", size=size), TINY, Recipe()) for size in (4, 8)]
    object.__setattr__(runs[0].task, "fingerprint", runs[1].create)  # the other one comes in between
    with pytest.raises(RunError, match="holds a run already, of another command"):
        runs[0].create()
    assert Run.open(tmp_path / "run").task.size == 8
