"""`--config` and `--set`."""

from __future__ import annotations

import json

import pytest

from latchwork.cli.settings import with_settings
from latchwork.runs.settings import SettingsError, assigned, merged, parse_value, read_settings


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.toml").write_text('[task]\nname = "latching"\nsize = 4\n[recipe]\nlr = 1e-3\nsteps = 5\n')
    (tmp_path / "b.yaml").write_text("recipe:\n  lr: 2e-3\n  clip: null\n")
    (tmp_path / "c.json").write_text(json.dumps({"format": 1, "model": {"output_gate": False}}))
    return tmp_path


def test_later_settings_win_and_typed_flags_win_over_all(files):
    flags = "--config a.toml --config b.yaml --config=c.json --set recipe.steps=7 --lr 5 --steps 9"
    arguments = ["train", *flags.split()]
    result = with_settings(arguments)
    assert result[:2] == ["train", "latching"]
    assert set(result[2:7]) == {"--size=4", "--lr=0.002", "--steps=7", "--clip=None", "--no-output-gate"}
    assert result[7:] == arguments[1:]


def test_arguments_without_settings_stay_as_they_are():
    for arguments in (
        ["train"],
        ["train", "latching", "--lr", "3"],
        ["train", "resume", "x", "--set", "recipe.steps=3"],
    ):
        assert with_settings(arguments) == arguments


def test_values_are_read_as_json_or_python_or_text():
    texts = ["1", "1e-3", "true", "False", "None", "null", "adam", "a=b", "[1, 2]", ""]
    values = [1, 1e-3, True, False, None, None, "adam", "a=b", [1, 2], ""]
    assert [parse_value(text) for text in texts] == values
    assert assigned(["recipe.optimizer=adamw", "recipe.lr=1", "recipe.lr=2"]) == {
        "recipe": {"optimizer": "adamw", "lr": 2}
    }
    assert merged({"recipe": {"lr": 1, "steps": 2}}, {"recipe": {"lr": 3}}) == {"recipe": {"lr": 3, "steps": 2}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[task]\nname = "latching"\n[recipe]\nlernrate = 3\n', r"x\.toml: there is no recipe\.lernrate; "),
        ("[recipe]\nstepz = 3\n", r"x\.toml: there is no recipe\.stepz; did you mean recipe\.steps\?"),
        ("[recipes]\nsteps = 3\n", r"x\.toml: there is no section 'recipes'; did you mean recipe\?"),
        ("recipe = 3\n", r"x\.toml: section recipe should be a table of keys and values, got 3"),
        ("[recipe\n", r"x\.toml: .*line 1"),
        ('[task]\nname = "latching"\nwindow = 3\n', r"x\.toml: there is no task\.window"),
    ],
)
def test_mistakes_in_files_are_named(files, content, message):
    (files / "x.toml").write_text(content)
    with pytest.raises(SettingsError, match=message):
        read_settings(files / "x.toml")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.yaml", b"recipe: [1\n", r"x\.yaml: .*line"),
        ("x.json", b"[1]", r"x\.json should hold sections task, model, recipe, not a list"),
        ("x.json", b"{", r"x\.json: .*line 1"),
        ("x.json", b"\xff", r"x\.json cannot be read"),
        ("x.ini", b"", r"x\.ini should end in \.toml"),
        ("x.toml", None, r"x\.toml cannot be read: No such file"),
    ],
)
def test_files_that_cannot_be_read_are_named(files, name, content, message):
    if content is not None:
        (files / name).write_bytes(content)
    with pytest.raises(SettingsError, match=message):
        read_settings(files / name)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--set lr=3", "'lr' has no section, .* did you mean recipe.lr"),
        ("--set recipe", "'recipe' is no assignment"),
        ("latching --set recipe.stepz=3", "--set: there is no recipe.stepz; did you mean recipe.steps"),
        ("--set recipe.steps=3", "no task: name one"),
        ("text --config a.toml", "the settings are of task latching, but the command says text"),
        ("--set task.name=laching", "no task 'laching'"),
    ],
)
def test_mistakes_in_assignments_are_named(files, arguments, message):
    with pytest.raises(SettingsError, match=message):
        with_settings(["train", *arguments.split()])
