"""Runs notice when the data they were created with have changed, and never read their own files."""

from __future__ import annotations

import json
import sys

import pytest
import torch

from latchwork import CascadeConfig
from latchwork.runs.recipe import Recipe
from latchwork.runs.run import Run, RunError
from latchwork.runs.settings import read_settings
from latchwork.tasks import get
from latchwork.training.loop import train

TINY = CascadeConfig(d_model=8, n_layers=1, n_units=4)
PAIRS = b"a b c\tx y x\nb a\ty x\n" * 20


def make_run(path, task) -> Run:
    recipe = Recipe(train_sequences=8, validation_sequences=4, batch_size=4, validate_every=2, steps=2)
    run = Run(path, task, TINY, recipe)
    run.create()
    return run


@pytest.mark.parametrize(("name", "options"), [("text", {"window": 16}), ("pairs", {})])
def test_changed_files_are_named_on_resume(tmp_path, name, options):
    data = tmp_path / "data.txt"
    data.write_bytes(PAIRS)
    run = make_run(tmp_path / "run", get(name, data=data, **options))
    stored = json.loads((run.path / "config.json").read_text())["data"]
    assert stored["bytes"] == len(PAIRS)
    assert len(stored["sha256"]) == 64
    list(train(run))
    list(train(Run.open(run.path), resume=True))
    data.write_bytes(PAIRS + b"a\tx\n")
    message = rf"data\.txt has changed since .*run was created: bytes {len(PAIRS)} then, {len(PAIRS) + 4} now; sha256"
    with pytest.raises(RunError, match=message):
        list(train(Run.open(run.path), resume=True))
    data.write_bytes(PAIRS.replace(b"x", b"z"))
    with pytest.raises(RunError, match=r"data\.txt has changed .* was created: sha256 \w+ then, \w+ now"):
        list(train(Run.open(run.path), resume=True))
    data.unlink()
    with pytest.raises(ValueError, match=r"there is no file .*data\.txt"):
        list(train(Run.open(run.path), resume=True))


def test_the_model_of_a_run_needs_its_data_no_longer(tmp_path):
    """Names of tokens and classes are in its folder, so that nothing means something else when a file changes."""
    data = tmp_path / "data.txt"
    data.write_bytes(PAIRS)
    run = make_run(tmp_path / "run", get("pairs", data=data))
    list(train(run))
    tokens = torch.arange(run.task.vocab_size)[None]
    names = run.task.token_names, run.task.class_names
    with torch.no_grad():
        wanted, _ = run.trained()[0](tokens)
    for content in (b"new\tlabel\n" * 20, None):
        data.unlink() if content is None else data.write_bytes(content)
        again = Run.open(run.path)
        assert (again.task.token_names, again.task.class_names) == names
        with torch.no_grad():
            assert torch.equal(again.trained()[0](tokens)[0], wanted)
    config = json.loads((run.path / "config.json").read_text())
    for bad in ({"tokens": ["a"]}, {"tokens": [1], "classes": []}, ["a"]):
        (run.path / "config.json").write_text(json.dumps({**config, "names": bad}))
        with pytest.raises(RunError, match=r"config\.json is damaged: TypeError: names must have tokens and classes"):
            Run.open(run.path)


def test_a_changed_file_in_a_folder_of_text_is_noticed(tmp_path):
    folder = tmp_path / "book"
    folder.mkdir()
    (folder / "a").write_bytes(b"a" * 100)
    run = make_run(tmp_path / "run", get("text", data=folder, window=16))
    run.check_data()
    (folder / "b").write_bytes(b"b")
    with pytest.raises(RunError, match="book has changed since"):
        Run.open(run.path).check_data()


def test_a_function_that_makes_other_samples_is_noticed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = "def f(rng, n):\n    t = rng.integers(0, 2, n)\n    return t, t\n"
    (tmp_path / "maker_of_samples.py").write_text(source)
    run = make_run(tmp_path / "run", get("function", function="maker_of_samples:f"))
    assert Run.open(run.path) == run
    run.check_data()
    module = sys.modules.pop("maker_of_samples")
    monkeypatch.setattr("latchwork.tasks.function._load", lambda name: lambda rng, n: module.f(rng, n)[::-1])
    run.check_data()  # tokens and targets are the same, so nothing has changed
    monkeypatch.setattr("latchwork.tasks.function._load", lambda name: lambda rng, n: ([0] * n, [1] * n))
    with pytest.raises(RunError, match=r"the task function has changed since .*run was created"):
        run.check_data()


@pytest.mark.parametrize("where", ["book/run", "book/deep/run", "book", "link/run"])
def test_a_run_inside_its_data_is_refused(tmp_path, where):
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "a").write_bytes(b"a" * 100)
    (tmp_path / "link").symlink_to(tmp_path / "book")
    with pytest.raises(RunError, match=r"lies inside the data folder .*book, so the run would read its own files"):
        make_run(tmp_path / where, get("text", data=tmp_path / "book", window=16))
    assert [p.name for p in (tmp_path / "book").iterdir()] == ["a"]
    make_run(tmp_path / "booklet", get("text", data=tmp_path / "book", window=16))


def test_configurations_without_a_fingerprint_and_with_new_recipes(tmp_path):
    data = tmp_path / "data.txt"
    data.write_bytes(PAIRS)
    run = make_run(tmp_path / "run", get("text", data=data, window=16))
    config = json.loads((run.path / "config.json").read_text())
    run.changed({"steps": 9}).write_config()
    assert json.loads((run.path / "config.json").read_text())["data"] == config["data"]
    assert read_settings(run.path / "config.json").keys() == {"task", "model", "recipe"}
    del config["data"]
    (run.path / "config.json").write_text(json.dumps(config))
    data.write_bytes(PAIRS * 2)
    Run.open(run.path).check_data()
    assert "data" not in json.loads((make_run(tmp_path / "b", get("parity")).path / "config.json").read_text())
