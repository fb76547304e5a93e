"""The report, in a real browser."""

from __future__ import annotations

import json
import re

import pytest

from latchwork import CascadeConfig
from latchwork.evaluation.report import write_report
from latchwork.runs.recipe import Recipe
from latchwork.runs.run import Run, write_json
from latchwork.tasks import get

VALIDATION = {"accuracy": 0.5, "floor": 0.25, "loss": 1.0, "bits": 1.44, "correct": 50, "scored": 100}


@pytest.fixture
def run(tmp_path):
    run = Run(tmp_path / "run <b>", get("latching", size=4), CascadeConfig(), Recipe())
    run.create()
    records = [{"step": 10 * i, "loss": 2.0 / i, "lr": 1e-3} for i in range(1, 20)]
    records += [{"step": 100, "validation": VALIDATION}, {"step": 190, "validation": {**VALIDATION, "correct": 100}}]
    run.metrics.write_text("".join(json.dumps(record) + "\n" for record in records))
    return run


def add_evaluation(run):
    scored, correct = [1000] * 64, [1000] * 63 + [999]
    result = {
        **{"length": 65_536, "sequences": 1, "chunk": 1024, "floor": 0.25, "correct": 63_999, "scored": 64_000},
        "worst_chunk": {"index": 63, "correct": 999, "scored": 1000},
        "chunks": {"correct": correct, "scored": scored},
    }
    write_json(run.path / "evaluation.json", result)


def test_the_report_needs_nothing_from_anywhere(run):
    add_evaluation(run)
    page = write_report(run).read_text("utf-8")
    addresses = set(re.findall(r'(?:src|href)\s*=\s*"([^"]*)"', page)) | set(re.findall(r"url\(([^)]*)\)", page))
    assert all(a.startswith(("#", "data:")) for a in addresses), addresses
    assert "<script" not in page
    assert "@import" not in page
    assert "run &lt;b&gt;" in page


def test_the_report_is_the_same_every_time(run):
    add_evaluation(run)
    first = write_report(run).read_bytes()
    assert write_report(run).read_bytes() == first


def test_the_report_shows_curves_floor_and_configuration_in_a_browser(run, browser):
    add_evaluation(run)
    picture = run.path.parent / "page.png"
    opened = browser(write_report(run), picture)
    assert opened.errors == []
    for shown in ("latchwork: latching(4)", "Learning curve", "Accuracy against length", "100.0%", "99.9%", "65,536"):
        assert shown in opened.text
    for shown in ("in the worst chunk", "floor: always the commonest label", "keep", "train_sequences"):
        assert shown in opened.text
    assert opened.dom.count("<svg") == 2
    import matplotlib.image

    pixels = matplotlib.image.imread(picture)[..., :3]
    blue = (abs(pixels - [0x1F / 255, 0x6F / 255, 0xEB / 255]).max(axis=-1) < 0.1).sum()
    orange = (abs(pixels - [0xD9 / 255, 0x73 / 255, 0x0D / 255]).max(axis=-1) < 0.1).sum()
    assert blue > 300, "the curves are not to be seen"
    assert orange > 100, "the floor is not to be seen"


def test_a_run_that_has_just_begun_has_a_report(tmp_path):
    run = Run(tmp_path / "new", get("latching", size=4), CascadeConfig(), Recipe())
    run.create()
    assert "Configuration" in write_report(run).read_text("utf-8")


def test_a_damaged_evaluation_is_named_in_the_report(run):
    (run.path / "evaluation.json").write_text('{"correct": "all"}')
    page = write_report(run).read_text("utf-8")
    assert "evaluation.json is damaged: it has no chunks" in page
    assert "Learning curve" in page


def test_what_a_file_says_twice_is_not_needed_twice(run):
    """An evaluation without the summary of its chunks, and validations without shares."""
    add_evaluation(run)
    file = run.path / "evaluation.json"
    whole = write_report(run).read_text("utf-8")
    file.write_text(file.read_text("utf-8").replace('"worst_chunk"', '"other"'), "utf-8")
    run.metrics.write_text(run.metrics.read_text("utf-8").replace('"accuracy": 0.5, ', ""), "utf-8")
    assert write_report(run).read_text("utf-8") == whole
