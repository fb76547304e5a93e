"""The paper's tables: what is planned, and a small version of both that is run, killed, gone on with and reported."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from typing import get_args

import pytest

from latchwork.cli.main import main
from latchwork.experiments.paper import gradients, plan
from latchwork.experiments.paper.grids import Entry, gradients_grid, grids_of
from latchwork.experiments.paper.plan import BUDGETS, CONFIGURATIONS, MODELS, PAPER_ABLATION, TASKS, BudgetName
from latchwork.experiments.paper.report import write
from latchwork.experiments.paper.table import read_table
from latchwork.experiments.sweep import Evaluation
from latchwork.models.architectures import ARCHITECTURES, CASCADE, architecture
from latchwork.runs.run import Run

TINY = dataclasses.replace(
    BUDGETS["small"],
    recipe={"steps": 12, "batch_size": 2, "train_sequences": 8, "validation_sequences": 2, "validate_every": 4},
    recipes={},
    evaluation=Evaluation(length=2048, sequences=2),
    ablation_evaluation=Evaluation(length=2048, sequences=2),
    gradient_length=4096,
)
DRIVER = f"""
import sys
from latchwork.cli.main import main
from latchwork.experiments.paper import plan
from latchwork.experiments.paper.plan import Budget, TaskRow
from latchwork.experiments.sweep import Evaluation
plan.BUDGETS["small"] = {TINY!r}
sys.exit(main(sys.argv[1:]))
"""
CHOSEN = ["--tasks", "latching-4", "inductionheads-16", "--models", "cascade"]


@pytest.fixture
def tiny(monkeypatch, threads):
    threads(1)
    monkeypatch.setitem(plan.BUDGETS, "small", TINY)


@pytest.mark.parametrize("budget", get_args(BudgetName))
@pytest.mark.parametrize("table", ["main", "ablation"])
def test_every_run_of_a_plan_can_be_built_and_has_a_folder_of_its_own(tmp_path, table, budget):
    found = plan.plan(table, tmp_path, budget)
    paths = [planned.run.path for planned in found.runs]
    assert len(set(paths)) == len(paths) == sum(len(cell.runs) for cell in found.cells)
    seeds = [planned.run.recipe.seed for planned in found.runs]
    assert seeds == sorted(seeds)  # something of everything first
    for cell in found.cells:
        assert [planned.run.recipe.seed for planned in cell.runs] == list(range(len(cell.runs)))
        run = cell.runs[0].run
        key, model = (cell.row, cell.column) if table == "main" else (cell.column, CASCADE)
        assert key.startswith(f"{run.task.name}-{run.task.size}")
        assert architecture(run.model) == model
        layers = run.task.size + 1 if key.endswith("-right") and model == CASCADE else 2
        assert run.model.n_layers == layers
        if model == CASCADE and run.model.n_units == 40 and run.model.output_gate:
            assert run.count_parameters(body=True) == pytest.approx(127_432, rel=0.03)


def test_the_paper_budget_is_the_paper_s():
    found = plan.plan("main", plan.Path("out"), "paper")
    assert (set(found.rows), set(found.columns)) == ({task.key for task in TASKS}, set(MODELS))
    assert set(MODELS) == set(ARCHITECTURES)
    recipe = found.cells[0].runs[0].run.recipe
    assert (recipe.batch_size, recipe.epochs, recipe.lr, recipe.schedule, recipe.weight_decay) == (
        64, 30, 1e-3, "step", 1e-4,
    )  # fmt: skip
    assert all(len(cell.runs) == 10 for cell in found.cells)
    cascades = [cell.runs[0].run.model for cell in found.cells if cell.column == CASCADE]
    assert {model.dropout for model in cascades} == {0.1}
    fields = {"n_units": 40, "output_gate": True, "conv": "basic", "init": "keep"}
    rows = [{**fields, **changes} for _, changes in CONFIGURATIONS.values()]
    assert [tuple(row.values()) for row in rows] == [
        (40, False, "basic", "small_init"),
        (40, False, "gated", "small_init"),
        (40, True, "basic", "small_init"),
        (40, True, "basic", "asymmetric"),
        (90, True, "basic", "asymmetric"),
        (40, True, "basic", "keep"),
        (40, False, "basic", "keep"),
    ]
    assert list(PAPER_ABLATION) == list(CONFIGURATIONS)[:5]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["main", "--tasks", "latching-5"], "--tasks has 'latching-5', which is none of latching-4, latching-8"),
        (["main", "--models", "keep"], "--models has 'keep', which is none of cascade, mamba"),
        (["ablation", "--models", "lstm"], "--models has 'lstm', which is none of small_init"),
        (["main", "--seeds", "11"], "seeds must be between 1 and 10, got 11"),
        (["main", "--workers", "0"], "workers must be at least 1, got 0"),
    ],
)
def test_what_no_table_has_is_refused(capsys, tmp_path, flags, message):
    assert main(["reproduce", *flags, "--out", str(tmp_path / "out")]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_dry_run_lists_runs_and_starts_none(capsys, tmp_path):
    assert main(["reproduce", "main", "--dry", "--out", str(tmp_path / "out"), *CHOSEN, "--seeds", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[0] == f"{tmp_path}/out/main/latching-4/cascade/seed-0  not run"
    assert not (tmp_path / "out").exists()


def driven(folder, *flags) -> subprocess.Popen:
    chosen = [*CHOSEN, "--seeds", "1", "--workers", "2", "--threads", "1"]
    command = [sys.executable, "-c", DRIVER, "reproduce", "main", *chosen, *flags]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def figures(folder) -> list[dict]:
    """The cells of the main table."""
    return json.loads((folder / "tables.json").read_text("utf-8"))["main"]["cells"]


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_a_table_that_is_killed_goes_on_to_the_same_figures(tmp_path):
    whole = driven(tmp_path, "--out", "whole")
    out, err = whole.communicate(timeout=300)
    assert whole.returncode == 0, err
    assert "Latching(4)" in out
    process = driven(tmp_path, "--out", "cut")
    deadline = time.monotonic() + 60
    while not list((tmp_path / "cut").glob("**/checkpoints/step-*")):  # a run that is to go on, not to begin again
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    for _ in range(20):
        process = driven(tmp_path, "--out", "cut")
        _, err = process.communicate(timeout=300)
        if process.returncode == 0:
            break
        assert "being trained by another process" in err, err  # workers that lost their sweep end by themselves
        time.sleep(0.5)
    assert process.returncode == 0, err
    assert figures(tmp_path / "cut") == figures(tmp_path / "whole")


@pytest.mark.slow
def test_both_tables_are_run_reported_and_only_what_is_left_is_run_again(tiny, capsys, tmp_path):
    out = tmp_path / "out"
    chosen = ["--out", str(out), "--threads", "1", "--seeds", "1", "--workers", "2"]
    cells = ["--tasks", "latching-4", "--models", "cascade", "lstm"]
    assert main(["reproduce", "main", *chosen, *cells]) == 0
    assert "2 of 2 runs done" in capsys.readouterr().err
    for table in ("main", "ablation"):
        assert f"latchwork reproduce {table} --budget small" in (out / "README.md").read_text("utf-8")
    assert main(["reproduce", "ablation", *chosen, "--tasks", "latching-512", "--models", "keep", "--json"]) == 0
    (cell,) = json.loads(capsys.readouterr().out)["cells"]
    assert (cell["row"], cell["column"], cell["ended"], cell["length"]) == ("keep", "latching-512", 1, 2048)
    assert cell["runs"] == ["ablation/keep/latching-512/seed-0"]

    page = (out / "README.md").read_text("utf-8")
    assert "| Latching | 4 |" in page
    assert "to 2,048 steps" not in page  # of the budget, so that it goes without saying
    links = re.findall(r"\]\(([^)]*)\)", page)
    assert len(links) == 3
    assert all((out / link).exists() for link in links)
    html = (out / "report.html").read_text("utf-8")
    assert "Accuracy against length" in html
    assert "http" not in re.sub(r"http://www.w3.org/\S*|http://purl\S*|http://creativecommons\S*", "", html)
    again = main(["reproduce", "main", *chosen, *cells])
    said = capsys.readouterr().err
    assert again == 0
    assert "perfect" not in said
    assert "finished after" not in said

    # one run is lost, one is damaged: the first is run again, the second is complained of
    shutil.rmtree(out / "main" / "latching-4" / "lstm")
    (out / "main" / "latching-4" / "cascade" / "seed-0" / "config.json").write_text("{", "utf-8")
    written = write(out, "small")
    assert written.tables["main"].get("latching-4", "lstm") is None
    assert len(written.complaints) == 1
    assert "config.json is damaged" in written.complaints[0]
    assert main(["reproduce", "main", *chosen, "--tasks", "latching-4", "--models", "lstm"]) == 0
    assert "seed-0: finished after 12 updates" in capsys.readouterr().err
    assert write(out, "small").tables["main"].get("latching-4", "lstm") is not None


def test_gradients_of_the_trained_models_are_measured_once(tiny, capsys, tmp_path):
    out = tmp_path / "out"
    flags = ["--out", str(out), "--threads", "1", "--seeds", "1", "--tasks", "latching-16"]
    assert main(["reproduce", "main", *flags, "--models", "cascade", "gru"]) == 0
    assert "gradients of states: gru" in capsys.readouterr().err
    found, complaints = gradients.read_gradients(out)
    assert not complaints
    assert set(found) == {"cascade", "gru"}
    assert found["cascade"]["decay"][-1]["length"] == found["cascade"]["kept"][-1]["length"] == 4096
    assert all(layer["inside"] for layer in found["cascade"]["bounds"])
    grid = gradients_grid(found)
    assert grid.head == ("model", "k = 32", "k = 1,024", "k = 4,096", "share kept")
    assert "k = 4,096" in (out / "README.md").read_text("utf-8")
    files = [out / "main" / "latching-16" / model / "seed-0" / gradients.FILE for model in found]
    before = [file.stat().st_mtime_ns for file in files]
    assert main(["reproduce", "main", *flags, "--models", "cascade", "gru"]) == 0
    assert [file.stat().st_mtime_ns for file in files] == before


def test_cells_say_what_a_reader_has_to_know(tiny, tmp_path):
    """A run that the clock has stopped, one that has not ended, and one that was carried less far."""
    asked = plan.plan("main", tmp_path, "small", tasks=["latching-4"], models=["cascade"], seeds=3)
    for planned, end in zip(asked.runs, ("time", "finished", None), strict=True):
        made(planned.run, end)
    (tmp_path / "main/latching-4/cascade/seed-1/evaluation.json").write_text(evaluation(1024), "utf-8")
    (every,) = [grid for grid in grids_of(read_table(asked)) if grid.title == "Every task"]
    ((title, (floor, entry)),) = every.rows
    assert title == "Latching(4)"
    assert floor == Entry("25.0%")
    assert entry.text == "87.5% (50.0%)"  # the median of 75% and 100%
    assert entry.remarks == ("1 not ended", "1 by the clock", "to 1,024 steps")
    assert [name for name, _ in entry.links] == ["0", "1", "2"]


def test_the_ablation_says_how_far_off_the_seeds_were_that_failed(tiny, tmp_path):
    """One answer wrong counts as little as all: a reader sees which it was."""
    asked = plan.plan("ablation", tmp_path, "small", tasks=["latching-512"], models=["small_init"], seeds=4)
    for planned, end, wrong in zip(
        asked.runs, ("perfect", "finished", "time", None), ((3, 0), (3, 1, 2), (4,), (2,)), strict=True
    ):
        made(planned.run, end, wrong)
    table = read_table(asked)
    (grid,) = grids_of(table)
    entry = grid.rows[0][1][0]
    assert entry.text == "1 of 3 [0.06, 0.79] / 10 of 10"
    assert entry.remarks == ("wrong: 1, 4", "75.0% (50.0%)", "1 not ended", "1 by the clock")
    assert table.to_dict(tmp_path)["cells"][0]["misses"] == [1, 4]


def test_figures_that_were_measured_in_another_way_say_so_in_both_tables(tiny, tmp_path):
    asked = plan.plan("main", tmp_path, "small", tasks=["latching-4", "latching-16"], models=["cascade"], seeds=1)
    for planned in asked.runs:
        made(planned.run, "time")
    other = json.loads(evaluation(2048)) | {"sequences": 1, "seed": 9}
    (asked.runs[1].run.path / "evaluation.json").write_text(json.dumps(other), "utf-8")
    beside, every, _ = grids_of(read_table(asked))
    said = ("measured with sequences 1", "measured with seed 9")
    assert [entries[-1].remarks for _, entries in every.rows] == [
        ("stopped by the clock",),
        ("stopped by the clock", *said),
    ]
    ((_, (*_, entry)),) = beside.rows
    assert entry.remarks == ("stopped by the clock", *(f"16: {remark}" for remark in said))


@pytest.mark.parametrize(("log", "shown"), [(0.0, "1.000"), (400.0, "10^400"), (-746.2, "10^-746"), (None, "0")])
def test_gradients_of_any_size_are_shown(log, shown):
    grid = gradients_grid({"gru": {"decay": [{"length": 32, "log10": [log]}]}})
    assert [entry.text for entry in grid.rows[0][1]] == [shown, "–"]


def test_gradients_of_an_earlier_model_are_measured_again(tiny, tmp_path):
    run = plan.plan("main", tmp_path, "small", tasks=["latching-16"], models=["gru"], seeds=1).runs[0].run
    made(run, "time")
    (run.path / gradients.FILE).write_text(
        json.dumps({"checkpoint": "step-00000001", "decay": [{"length": 32, "log10": [0.0]}]}), "utf-8"
    )
    (run.path / "best.json").write_text('{"checkpoint": "step-00000001"}', "utf-8")
    assert set(gradients.read_gradients(tmp_path)[0]) == {"gru"}
    (run.path / "best.json").write_text('{"checkpoint": "step-00000004"}', "utf-8")
    assert gradients.read_gradients(tmp_path) == ({}, {})


def test_a_row_beside_the_paper_s_has_the_sizes_of_the_budget_or_else_what_was_run(tiny, tmp_path):
    for task, models in {
        "latching-4": ["cascade", "lstm"],
        "latching-8": ["cascade"],
        "sequences-3-right": ["lstm"],
    }.items():
        for planned in plan.plan("main", tmp_path, "small", tasks=[task], models=models, seeds=1).runs:
            made(planned.run, "finished")
    grids = grids_of(read_table(plan.begun("main", tmp_path, "small")))
    (beside,) = [grid for grid in grids if grid.title == "The main table beside the paper's"]
    assert {title: [entry.text for entry in entries] for title, entries in beside.rows} == {
        "Latching": ["4", "25.0", "75.0 / 100.0", "75.0"],
        "Sequences, right": ["3", "25.0", "–", "75.0"],
    }


def made(run: Run, end: str | None, wrong: tuple[int, ...] = (0,)) -> None:
    """A run as training leaves it, with so many of 4 answers wrong in each of its validations."""
    run.create()
    shared = {"floor": 0.5, "loss": 0.1, "bits": 0.1, "scored": 4}
    figures = [{"accuracy": 1 - count / 4, "correct": 4 - count, **shared} for count in wrong]
    lines: list[dict] = [{"step": 4 * i, "validation": each} for i, each in enumerate(figures, 1)]
    lines += [{"step": 4 * len(wrong), "end": end}] if end else []
    run.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    (run.path / "evaluation.json").write_text(evaluation(2048), "utf-8")


def evaluation(length: int) -> str:
    counts = {"correct": [4, 2][: length // 1024], "scored": [4, 4][: length // 1024]}
    correct, scored = sum(counts["correct"]), sum(counts["scored"])
    shares = {"accuracy": correct / scored, "floor": 0.25, "loss": 0.1, "bits": 0.1}
    whole = {"length": length, "sequences": 2, "chunk": 1024, "seed": 1, "correct": correct, "scored": scored}
    return json.dumps({**whole, **shares, "chunks": counts, "worst_chunk": {"index": 0, "correct": 2, "scored": 4}})


def test_a_report_does_without_the_library_of_a_model(tiny, tmp_path, monkeypatch):
    asked = plan.plan("main", tmp_path, "small", tasks=["latching-4"], models=["mamba"], seeds=1)
    made(asked.runs[0].run, "time")
    monkeypatch.setitem(sys.modules, "mambapy", None)
    monkeypatch.setitem(sys.modules, "mambapy.mamba", None)
    table = write(tmp_path, "small").tables["main"]
    assert table.texts()[1] == [["Latching(4)", "25.0%", "75.0% (50.0%)"]]
    assert "| Mamba | – | 1 | 4 |" in (tmp_path / "README.md").read_text("utf-8")


def test_cells_say_what_is_not_measured_and_what_the_budget_does_not_have(tiny, tmp_path):
    asked = plan.plan("main", tmp_path, "small", tasks=["latching-4"], models=["cascade", "lstm"], seeds=2)
    first, only, second, _ = [planned.run for planned in asked.runs]
    made(first, "finished")
    made(dataclasses.replace(second, recipe=dataclasses.replace(second.recipe, lr=0.5)), "finished")
    (second.path / "evaluation.json").write_text('{"length": 20', "utf-8")
    only.create()
    only.metrics.write_text('{"step": 1, "end": "diverged"}\n', "utf-8")
    written = write(tmp_path, "small")
    result = written.tables["main"].get("latching-4", "cascade")
    assert result.remarks(TINY.evaluation) == ["1 not measured", "1 with other settings than the budget's"]
    head, rows = written.tables["main"].texts()
    assert head == ["", "floor", "MinMax RNC", "LSTM"]
    assert rows == [["Latching(4)", "25.0%", "75.0% (50.0%)", "diverged"]]


@pytest.mark.parametrize(
    "content",
    [
        '{"decay"',
        "{}",
        '{"decay": []}',
        '{"decay": [1]}',
        '{"decay": [{"length": 1}]}',
        '{"decay": [{"length": 1, "log10": []}]}',
        '{"decay": [{"length": 1, "log10": ["0"]}]}',
        '{"decay": [{"length": 1, "log10": [0, 0]}, {"length": 2, "log10": [0]}]}',
        '{"decay": [{"length": 1, "log10": [0]}], "kept": [{}]}',
        '{"decay": [{"length": 1, "log10": [0]}], "kept": [{"length": 1, "shares": [2]}]}',
        '{"decay": [{"length": 1, "log10": [0]}], "bounds": [{"low": [0]}]}',
        "[]",
        "[" * 100_000,
    ],
)
def test_a_report_does_without_damaged_gradients(tiny, tmp_path, content):
    run = plan.plan("main", tmp_path, "small", tasks=["latching-16"], models=["cascade"], seeds=1).runs[0].run
    made(run, "time")
    (run.path / gradients.FILE).write_text(content, "utf-8")
    heard: list[str] = []
    gradients.measure_gradients(tmp_path, 4096, seen=heard.append)
    (complaint,) = write(tmp_path, "small").complaints
    assert heard == [complaint]
    assert "gradients.json is damaged" in complaint
    assert (tmp_path / "README.md").exists()


def test_a_model_that_cannot_be_measured_is_passed_over(tiny, tmp_path, monkeypatch):
    asked = plan.plan("main", tmp_path, "small", tasks=["latching-16"], models=["cascade", "gru"], seeds=1)
    runs = [planned.run for planned in asked.runs]
    for run in runs:
        made(run, "time")
        (run.checkpoints / "step-4").mkdir(parents=True)
        (run.checkpoints / "step-4" / "model.safetensors").touch()
        (run.path / "best.json").write_text('{"checkpoint": "step-4"}', "utf-8")
    (runs[1].path / "config.json").write_text("{", "utf-8")
    heard: list[str] = []
    gradients.measure_gradients(tmp_path, 4096, seen=heard.append)
    assert heard[0] == "cascade"
    assert heard[1].startswith("cascade cannot be measured: ")
    assert heard[2].startswith("gru cannot be measured: ")


@pytest.mark.parametrize(
    ("file", "message"),
    [("config.json", "is the folder of a run"), ("README.md", "has a README.md that is no report"), (None, "no runs")],
)
def test_a_report_is_written_over_nothing_else_and_not_on_nothing(tmp_path, capsys, file, message):
    if file:
        (tmp_path / file).write_text("mine", "utf-8")
    assert main(["reproduce", "main", "--report", "--out", str(tmp_path)]) == 1
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ([file] if file else [])
