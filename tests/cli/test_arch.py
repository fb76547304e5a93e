"""Baselines in the commands."""

from __future__ import annotations

import json
import sys

import pytest
from helpers import LIBRARIES

from latchwork.cli.main import main
from latchwork.experiments.sweep import read_sweep
from latchwork.models.baselines import BASELINES, GRUConfig, LSTMConfig
from latchwork.nn.config import CascadeConfig
from latchwork.runs.run import Run, RunError
from latchwork.runs.settings import SettingsError

SIZES = {
    "mamba2": "--d-model 8 --n-heads 2 --d-state 4",
    "xlstm-large": "--d-model 64 --hidden 8",
    "mlstm": "--d-model 16",
    "xlstm": "--d-model 16 --hidden 8",
    "transformer": "--d-model 8 --window 64",
}
QUICK = "--size 4 --batch-size 2 --validation-sequences 1 --train-sequences 8 --validate-every 3 --threads 1"


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch, threads):
    monkeypatch.chdir(tmp_path)
    threads(1)


def latchwork(arguments: str) -> int:
    return main(arguments.split())


def trained(arch: str = "lstm", out: str = "run", more: str = "") -> Run:
    sizes = SIZES.get(arch, "--d-model 8")
    assert latchwork(f"train latching --arch {arch} {sizes} {QUICK} --steps 3 --out {out} {more}") == 0
    return Run.open(out)


@pytest.mark.parametrize("arch", BASELINES)
def test_baselines_are_trained_continued_and_evaluated(capsys, arch):
    if arch in LIBRARIES:
        pytest.importorskip(LIBRARIES[arch], reason=f"pip install 'latchwork[{BASELINES[arch].extra}]'")
    run = trained(arch)
    assert type(run.model) is BASELINES[arch]
    assert json.loads((run.path / "config.json").read_text())["model"]["arch"] == arch
    assert latchwork("train resume run --set recipe.steps=5 --threads 1") == 0
    assert max(record["step"] for record in run.records()) == 5
    assert latchwork("evaluate run --length 4096 --sequences 2 --threads 1") == 0
    evaluation = json.loads((run.path / "evaluation.json").read_text())
    assert (evaluation["length"], evaluation["scored"]) == (4096, 2 * 4096)
    report = run.report.read_text("utf-8")
    assert f"{arch}, " in report
    assert "cascades only" in report  # instead of states of units
    capsys.readouterr()
    assert latchwork("info run --json") == 0
    info = json.loads(capsys.readouterr().out)
    assert info["model"]["arch"] == arch
    assert 0 < info["body parameters"] < info["parameters"]


def test_a_run_that_goes_on_is_the_run_that_was_not_interrupted():
    trained(out="whole", more="--set recipe.steps=6 --set recipe.seed=1")
    trained(out="parts", more="--set recipe.seed=1")
    assert latchwork("train resume parts --set recipe.steps=6 --threads 1") == 0
    whole, parts = (
        [r.get("validation", {}).get("loss") for r in Run.open(out).records()] for out in ("whole", "parts")
    )
    assert whole[-1] == parts[-1]


def test_settings_name_the_model(capsys):
    settings = "--set model.arch=gru --set model.d_model=6"
    assert latchwork(f"train latching {settings} {QUICK} --steps 1") == 0
    run = Run.open("runs/latching-4-gru-seed0")
    assert run.model == GRUConfig(6)
    assert latchwork("train --config runs/latching-4-gru-seed0/config.json --n-layers 1 --threads 1 --out again") == 0
    assert Run.open("again").model == GRUConfig(6, 1)
    for arguments, message in (
        ("train latching --set model.arch=lstm --set model.n_units=3", "there is no model.n_units"),
        ("train latching --arch mamba2 --n-heads 7", "expand · d_model must be a multiple of n_heads = 7, got 180"),
    ):
        assert latchwork(arguments) == 1
        assert message in capsys.readouterr().err


def test_runs_without_a_model_name_are_cascades():
    run = trained("cascade", more="--n-units 4")
    config = json.loads((run.path / "config.json").read_text())
    assert config["model"].pop("arch") == "cascade"
    (run.path / "config.json").write_text(json.dumps(config))
    assert Run.open("run") == run
    assert isinstance(run.model, CascadeConfig)
    config["model"]["arch"] = "perceptron"
    (run.path / "config.json").write_text(json.dumps(config))
    with pytest.raises(RunError, match=r"config\.json, model: arch must be one of cascade, lstm, .*, got 'perceptron'"):
        Run.open("run")


def test_what_only_cascades_have_is_refused(capsys, tmp_path):
    trained()
    assert latchwork("view run --no-browser") == 1
    assert "run is a run of lstm: this is there for cascades only" in capsys.readouterr().err
    (tmp_path / "text.txt").write_bytes(b"the quick brown fox jumps over the lazy dog. " * 50)
    settings = "--batch-size 2 --steps 1 --d-model 4 --window 16 --threads 1"
    assert latchwork(f"train text --data text.txt --arch gru {settings} --out text") == 0
    assert latchwork("generate text") == 1
    assert "text is a run of gru: this is there for cascades only" in capsys.readouterr().err


def test_sweeps_and_comparisons_tell_models_apart(capsys, tmp_path):
    shared = "[task]\nname = 'latching'\nsize = 4\n[recipe]\nsteps = 1\ntrain_sequences = 4\nbatch_size = 2\n"
    grids = "[[grid]]\nmodel.arch = ['lstm', 'gru']\nmodel.d_model = 6\n[[grid]]\nmodel.n_units = [4]\n"
    (tmp_path / "s.toml").write_text(shared + "validation_sequences = 1\n" + grids)
    runs = [planned.run for planned in read_sweep(tmp_path / "s.toml", tmp_path / "runs")]
    assert [run.path.name for run in runs] == ["arch-lstm", "arch-gru", "n_units-4"]
    assert [run.model for run in runs] == [LSTMConfig(6), GRUConfig(6), CascadeConfig(n_units=4)]
    for run in runs:
        run.create()
    assert latchwork("compare runs --json") == 0
    labels = [group["label"] for group in json.loads(capsys.readouterr().out)["groups"]]
    assert [next(a for a in ("cascade", "lstm", "gru") if a in label) for label in labels]
    assert len(set(labels)) == 3
    (tmp_path / "s.toml").write_text(shared + "[grid]\nmodel.arch = ['lstm']\nmodel.degree = 2\n")
    with pytest.raises(SettingsError, match=r"there is no model\.degree"):
        read_sweep(tmp_path / "s.toml", tmp_path / "runs")


def test_an_absent_library_is_an_error_before_there_is_a_folder(monkeypatch, capsys, tmp_path):
    for name in ("mambapy", "mambapy.mamba"):
        monkeypatch.setitem(sys.modules, name, None)
    assert latchwork("train latching --arch mamba --out run") == 1
    assert "mambapy is not installed: pip install 'latchwork[baselines]'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
