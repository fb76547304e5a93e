"""Several runs side by side: grouping, figures, files, and what is wrong with some of them."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
import shutil

import pytest

from latchwork import CascadeConfig
from latchwork.evaluation.comparison import find_runs, read_runs, sum_up, to_csv, to_dict
from latchwork.evaluation.comparison_charts import thinned
from latchwork.evaluation.comparison_page import comparison_page
from latchwork.evaluation.groups import differences, group
from latchwork.evaluation.outcome import length_curve, read_evaluation, read_outcome, worst_chunk
from latchwork.evaluation.report import write_report
from latchwork.evaluation.states import run_states, sample
from latchwork.evaluation.statistics import bootstrap, wilson
from latchwork.runs.recipe import Recipe
from latchwork.runs.run import Run, RunError
from latchwork.tasks import get

WHOLE = (
    '{"chunks": {"correct": [1], "scored": [1]}, "chunk": 8, "length": 8, "sequences": 1, '
    '"correct": 1, "scored": 1, "floor": 1}'
)
LATCHING = get("latching", size=4)
QUICK = Recipe(steps=30, validate_every=10)


def made(path, correct=(50, 100), *, task=LATCHING, model=None, recipe=QUICK, chunks=None, end="finished"):
    """A run folder whose validations, 10 updates apart, had so many right answers of 100."""
    run = Run(path, task, model or CascadeConfig(), recipe)
    run.create()
    records = [{"step": 5, "loss": 1.5, "lr": 1e-3}]
    for i, right in enumerate(correct, 1):
        score = {"accuracy": right / 100, "floor": 0.25, "loss": 1 / i, "bits": 1.4 / i}
        records.append({"step": 10 * i, "validation": {**score, "correct": right, "scored": 100}})
    if end is not None:
        records.append({"step": 10 * len(correct), "end": end})
    run.metrics.write_text("".join(json.dumps(record) + "\n" for record in records))
    if chunks is not None:
        evaluation = {"length": 1024 * len(chunks), "sequences": 1, "chunk": 1024, "seed": 1, "floor": 0.375}
        evaluation |= {"correct": sum(chunks), "scored": 1000 * len(chunks), "loss": 0.1, "bits": 0.14}
        evaluation |= {"chunks": {"correct": chunks, "scored": [1000] * len(chunks)}}
        (run.path / "evaluation.json").write_text(json.dumps(evaluation))
    return run


def seeded(seed, **options):
    return dataclasses.replace(QUICK, seed=seed, **options)


def test_runs_that_differ_in_their_seed_only_are_one_group(tmp_path):
    for seed in range(3):
        made(tmp_path / f"a{seed}", recipe=seeded(seed))
        made(tmp_path / f"b{seed}", recipe=seeded(seed), model=CascadeConfig(degree=5, n_units=8))
        made(tmp_path / f"c{seed}", recipe=seeded(seed), task=get("latching", size=16))
    comparison = read_runs(find_runs([tmp_path]))
    assert [g.label for g in comparison.groups] == [
        "size 4, n_units 8, degree 5",
        "size 4, n_units 40, degree 1",
        "size 16, n_units 40, degree 1",
    ]
    for found in comparison.groups:
        assert [o.run.recipe.seed for o in found.outcomes] == [0, 1, 2]
    assert comparison.differences() == ["task.size", "model.n_units", "model.degree"]


def test_every_setting_but_the_seed_separates(tmp_path):
    base = made(tmp_path / "base")
    others = [
        made(tmp_path / "lr", recipe=seeded(0, lr=0.002)),
        made(tmp_path / "task", task=get("latching", size=5)),
        made(tmp_path / "model", model=CascadeConfig(dropout=0.2)),
    ]
    for other in others:
        assert len(group([read_outcome(base), read_outcome(other)])) == 2
    assert len(group([read_outcome(base), read_outcome(made(tmp_path / "seed", recipe=seeded(9)))])) == 1


def test_a_number_without_a_point_is_the_same_setting(tmp_path):
    """As 0 of a file beside 0.0 of a flag."""
    for seed, zero in enumerate((0, 0.0)):
        made(tmp_path / str(seed), model=CascadeConfig(dropout=zero), recipe=seeded(seed, weight_decay=zero, clip=1))
    (found,) = read_runs(find_runs([tmp_path])).groups
    assert len(found.outcomes) == 2


def test_other_data_under_the_same_name_are_another_configuration(tmp_path):
    file = tmp_path / "words"
    for name, size in (("a", 1000), ("b", 1000), ("c", 2000)):
        file.write_bytes(b"words " * size)
        made(tmp_path / name, task=get("text", data=file))
    groups = read_runs([tmp_path / name for name in "abc"]).groups
    assert [len(g.outcomes) for g in groups] == [2, 1]
    assert groups[0].label.startswith("bytes 6000, sha256 ")


def test_labels_name_the_task_when_there_are_several(tmp_path):
    made(tmp_path / "a")
    made(tmp_path / "b", recipe=seeded(0, clip=1.0))
    made(tmp_path / "c", task=get("inductionheads", size=4), recipe=seeded(0, lr=0.5))
    labels = [g.label for g in read_runs(find_runs([tmp_path])).groups]
    assert labels == ["inductionheads(4)", "latching(4), clip None", "latching(4), clip 1.0"]
    assert [g.label for g in read_runs([tmp_path / "a"]).groups] == ["latching(4)"]


def test_a_setting_that_only_one_task_has_is_no_difference():
    assert differences([{"task.name": "a", "task.window": 3}, {"task.name": "b"}]) == ["task.name"]


def test_a_group_is_summed_up_over_its_seeds(tmp_path):
    rights = [(50, 100), (40, 99, 98), (100,), (10, 20, 30)]
    chunks = [[1000, 1000], [1000, 900], [1000, 1000], None]
    for seed, (correct, counts) in enumerate(zip(rights, chunks, strict=True)):
        made(tmp_path / f"{seed}", correct, recipe=seeded(seed), chunks=counts)
    comparison = read_runs(find_runs([tmp_path]))
    (found,) = comparison.groups
    summary = sum_up(found)
    assert summary.successes == 2
    assert summary.success_interval == wilson(2, 4)
    accuracies = [1.0, 0.99, 1.0, 0.3]
    assert summary.figures["validation_accuracy"] == (4, 0.995, bootstrap(accuracies))
    assert summary.figures["updates_needed"] == (2, 15.0, bootstrap([20, 10]))
    assert summary.figures["evaluation_accuracy"] == (3, 1.0, bootstrap([1.0, 0.95, 1.0]))
    assert summary.figures["worst_chunk_accuracy"] == (3, 1.0, bootstrap([1.0, 0.9, 1.0]))
    assert summary.figures["evaluation_floor"].median == 0.375
    assert summary.notes == ["1 of 4 not evaluated"]


def test_runs_that_have_not_ended_are_left_out_and_said_to_be(tmp_path):
    made(tmp_path / "whole", (100,), chunks=[1000])
    made(tmp_path / "half", (10,), recipe=seeded(1), chunks=[1], end=None)
    made(tmp_path / "begun", (), recipe=seeded(2), end=None)
    comparison = read_runs(find_runs([tmp_path]))
    summary = sum_up(comparison.groups[0])
    assert summary.successes == 1
    assert summary.success_interval == wilson(1, 1)
    assert summary.figures["validation_accuracy"].runs == 1
    assert summary.figures["evaluation_accuracy"].median == 1.0
    assert "2 of 3 runs not ended, left out of the figures" in summary.notes
    notes = {o.run.path.name: o.notes for o in comparison.runs}
    assert notes["half"] == ["training has not ended: 10 updates so far"]
    assert notes["begun"] == ["training has not ended: 5 updates so far", "not evaluated"]


def test_the_best_validation_is_that_of_the_kept_model(tmp_path):
    outcome = read_outcome(made(tmp_path / "run", (90, 95, 94, 93), end="patience"))
    assert outcome.best[0] == 20
    assert outcome.end == "patience"
    assert outcome.perfect is None
    (tmp_path / "gone").write_bytes(b"words " * 1000)
    run = made(tmp_path / "text", (50, 40), task=get("text", data=tmp_path / "gone"))
    (tmp_path / "gone").unlink()
    text = read_outcome(Run.open(run.path))
    assert text.best[0] == 20  # the lower loss
    assert text.perfect is None
    assert read_outcome(made(tmp_path / "odd", end=3)).end is None


def test_what_makes_intervals_doubtful_is_said(tmp_path):
    made(tmp_path / "a", (100,), chunks=[1000])
    made(tmp_path / "b", (100,), chunks=[1000, 1000])
    (found,) = read_runs(find_runs([tmp_path])).groups
    notes = "\n".join(sum_up(found).notes)
    assert "more than one run of seed 0" in notes
    assert "evaluated with different length: 1,024, 2,048" in notes


def test_an_evaluation_of_an_older_checkpoint_is_told(trained, tmp_path):
    shutil.copytree(trained / "many-0", tmp_path / "run")
    run = Run.open(tmp_path / "run")
    assert read_outcome(run).notes == []
    evaluation = json.loads((run.path / "evaluation.json").read_text())
    (run.path / "evaluation.json").write_text(json.dumps({**evaluation, "checkpoint": "step-00000003"}))
    assert re.match(
        "evaluated at checkpoint step-00000003, and the best one is step-000000", read_outcome(run).notes[0]
    )


def test_curves_go_in_doubling_steps():
    chunks = {"correct": [10, 9, 8, 8, 0, 0, 5], "scored": [10] * 7}
    evaluation = {"length": 7 * 64, "chunk": 64, "chunks": chunks}
    assert list(length_curve(evaluation)) == [(64, 1.0), (128, 0.9), (256, 0.8), (448, 5 / 30)]
    assert worst_chunk(evaluation) == (4, 0.0)
    assert worst_chunk({"chunks": {"correct": [0], "scored": [0]}}) is None


def test_long_lines_are_thinned_to_means():
    points = [(i, float(i % 2)) for i in range(10_000)]
    thin = thinned(points)
    assert len(thin) == 300
    assert all(y == pytest.approx(0.5, abs=0.05) for _, y in thin)
    assert thinned(points[:5]) == points[:5]


def test_csv_and_json_hold_every_figure_unrounded(trained):
    comparison = read_runs(find_runs([trained]))
    content = json.loads(json.dumps(to_dict(comparison), allow_nan=False))
    rows = {row["run"]: row for row in csv.DictReader(io.StringIO(to_csv(comparison)))}
    assert len(rows) == len(content["runs"]) == len(comparison.runs) == 6
    for outcome in comparison.runs:
        name = str(outcome.run.path)
        row, entry = rows[name], next(run for run in content["runs"] if run["run"] == name)
        for key, value in outcome.figures().items():
            assert entry[key] == value
            assert row[key] == ("" if value is None else str(value))
            if isinstance(value, float):
                assert float(row[key]) == value
        config = outcome.run.to_dict()
        assert entry["config"] == {k: v for k, v in config.items() if k != "format"}
        assert row["model.d_model"] == "8"
        assert row["recipe.seed"] == row["seed"] == str(config["recipe"]["seed"])
        if outcome.run.task.name == "latching":
            assert float(row["evaluation_accuracy"]) == int(row["evaluation_correct"]) / int(row["evaluation_scored"]) \
                if outcome.evaluation else row["evaluation_accuracy"] == ""  # fmt: skip
    many = next(g for g in content["groups"] if "n_units 4" in g["label"])
    assert many["ended"] == many["evaluated"] == 2
    assert [point["length"] for point in many["extrapolation"]] == [128, 256, 512, 1024]
    assert many["success_interval"] == list(wilson(many["successes"], 2))
    text = next(g for g in content["groups"] if g["label"] == "text")
    assert text["successes"] is None
    assert text["figures"]["evaluation_bits"]["runs"] == 1


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", "{", "config.json is damaged"),
        ("config.json", None, "is not a run: it has no config.json"),
        ("config.json", '{"format": 99}', "this version reads format"),
        ("metrics.jsonl", '{"step": 1, "validation": {"loss": 1}}\n', "metrics.jsonl is damaged: step 1: bits is None"),
        ("metrics.jsonl", f'{{"step": 1, "validation": {{"loss": 1{"0" * 400}}}}}\n', "step 1: loss is 1000"),
    ],
)
def test_a_broken_run_among_good_ones_is_named_and_the_rest_goes_on(trained, tmp_path, file, content, message):
    for name in ("many-0", "few-0"):
        shutil.copytree(trained / name, tmp_path / "runs" / name)
    broken = tmp_path / "runs" / "few-0"
    (broken / file).unlink() if content is None else (broken / file).write_text(content)
    comparison = read_runs(find_runs([tmp_path]))
    assert [o.run.path.name for o in comparison.runs] == ["many-0"]
    ((path, problem),) = comparison.damaged
    assert path == broken
    assert message in problem
    assert "few-0" in comparison_page(comparison, tmp_path)
    assert to_dict(comparison)["damaged"] == [{"run": str(broken), "problem": problem}]
    last = to_csv(comparison).splitlines()[-1]
    assert str(broken) in last
    assert "damaged" in last
    with pytest.raises(ValueError, match="no run can be read: "):
        read_runs([broken])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "holds no object"),
        ("{", "Expecting property name"),
        ('{"correct": 1}', "it has no chunks"),
        ('{"chunks": {"correct": [1], "scored": ["a"]}}', "no lists of counts"),
        ('{"chunks": {"correct": [1], "scored": [1, 2]}}', "do not fit together"),
        ('{"chunks": {"correct": [2], "scored": [1]}}', "do not fit together"),
        ('{"chunks": {"correct": [1], "scored": [1]}, "chunk": 8, "length": 9}', "1 chunks are not its length"),
        (WHOLE.replace('"correct": 1,', '"correct": NaN,'), "correct is nan and no number"),
        (WHOLE.replace('"correct": 1,', '"correct": 2,'), "its counts do not fit together"),
        (WHOLE.replace('"floor": 1', '"floor": 37.5'), "its counts do not fit together"),
        (WHOLE.replace('"correct": 1, "scored": 1', '"correct": 0, "scored": 0'), "its counts do not fit together"),
        (WHOLE.replace('"floor"', '"tokens_per_second": "fast", "floor"'), "tokens_per_second is 'fast' and no number"),
        (WHOLE.replace('"correct": 1,', f'"correct": 1{"0" * 400},'), "correct is 1000000000"),
    ],
)
def test_a_broken_evaluation_costs_the_evaluation_only(tmp_path, content, message):
    run = made(tmp_path / "run")
    (run.path / "evaluation.json").write_text(content)
    with pytest.raises(RunError, match=message):
        read_evaluation(run)
    outcome = read_outcome(run)
    assert outcome.evaluation is None
    assert message in outcome.notes[0]
    assert outcome.best[0] == 20


def test_runs_are_found_once_below_folders_and_links(tmp_path):
    made(tmp_path / "sweep" / "deep" / "a")
    made(tmp_path / "sweep" / "b")
    made(tmp_path / "sweep" / ".hidden" / "c")
    (tmp_path / "sweep" / "empty").mkdir()
    (tmp_path / "sweep" / "circle").symlink_to(tmp_path / "sweep")
    (tmp_path / "sweep" / "link").symlink_to(tmp_path / "sweep" / "b")
    places = [tmp_path / "sweep", tmp_path / "sweep" / "deep" / "a"]
    assert sorted(p.resolve().name for p in find_runs(places)) == ["a", "b"]
    with pytest.raises(ValueError, match=r"no runs found in .*empty"):
        find_runs([tmp_path / "sweep" / "empty"])
    with pytest.raises(ValueError, match="there is no file or folder"):
        find_runs([tmp_path / "sweep", tmp_path / "absent"])


def test_the_report_shows_everything_in_a_browser(trained, tmp_path, browser):
    shutil.copytree(trained, tmp_path / "runs <i>")
    broken = tmp_path / "runs <i>" / "broken"
    broken.mkdir()
    (broken / "config.json").write_text("{")
    (tmp_path / "runs <i>" / "many-0" / "report.html").write_text("<p>the report")
    comparison = read_runs(find_runs([tmp_path / "runs <i>"]))
    page = tmp_path / "out" / "c.html"
    page.parent.mkdir()
    page.write_text(comparison_page(comparison, page.parent), "utf-8")
    opened = browser(page)
    assert opened.errors == []
    for shown in ("latching(4), n_units 4", "latching(4), n_units 2", "inductionheads(4)", "text(words.txt)"):
        assert shown in opened.text
    for shown in ("Summary", "What differs", "succeeded", "Wilson", "0 of 2", "[0.00, 0.66]", "1 of 2 not evaluated"):
        assert shown in opened.text
    assert "could not be read" in opened.text
    assert "broken/config.json is damaged" in opened.text
    assert 'href="../runs%20%3Ci%3E/many-0/report.html"' in opened.dom
    assert opened.dom.count("report.html") == 1
    assert "<i>" not in opened.dom
    assert opened.dom.count("accuracy against length") == 2
    assert opened.dom.count("States of the units of layer") == 2 * 4
    assert opened.dom.count("<details open") == 1
    assert "the first 64 bytes of the held-out part" in opened.text
    addresses = re.findall(r'(?:src|href)\s*=\s*"([^"]*)"', page.read_text("utf-8"))
    assert all(a.startswith(("#", "data:", "../runs")) for a in addresses)
    assert "<script" not in opened.dom


def test_the_report_is_the_same_every_time(trained):
    pages = [comparison_page(read_runs(find_runs([trained])), trained) for _ in range(2)]
    assert pages[0] == pages[1]


def test_a_run_without_a_whole_checkpoint_has_no_states_and_says_why(trained, tmp_path):
    shutil.copytree(trained / "many-0", tmp_path / "runs" / "many-0")
    run = Run.open(tmp_path / "runs" / "many-0")
    page = write_report(run).read_text("utf-8")
    assert page.count("States of the units of layer") == 2
    weights = run.best().path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    for text in (
        write_report(run).read_text("utf-8"),
        comparison_page(read_runs(find_runs([tmp_path / "runs"])), tmp_path),
    ):
        assert "Not shown: " in text
        assert "is damaged: its checksum is not the one written with it" in text
        assert "States of the units" not in text


@pytest.mark.parametrize("name", ["many-0", "heads-0", "text-0"])
def test_states_are_those_of_the_sample(trained, name):
    run = Run.open(trained / name)
    tokens = sample(run.task, run.recipe.seed)
    assert len(tokens) == 64
    what, pictures = run_states(run)
    assert "64" in what
    assert len(pictures) == 2
    if name == "text-0":
        assert bytes(tokens.tolist()) in (trained / "words.txt").read_bytes()
