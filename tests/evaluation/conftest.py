"""Trained runs, and a browser that opens reports."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from latchwork import CascadeConfig
from latchwork.evaluation.extrapolate import extrapolate
from latchwork.evaluation.measure import score_streams
from latchwork.runs.recipe import Recipe
from latchwork.runs.run import Run, write_json
from latchwork.tasks import RegularTask, get
from latchwork.training.loop import train

TINY = CascadeConfig(d_model=8, n_layers=2, n_units=4)


@pytest.fixture(autouse=True)
def _one_thread(threads):
    threads(1)


class Opened(NamedTuple):
    """What a browser has made of a page."""

    dom: str
    text: str
    """Of the page, without styles and pictures."""
    errors: list[str]
    """Messages of the console."""


@pytest.fixture
def browser(tmp_path) -> Callable[..., Opened]:
    """Open a file in headless Chromium; with `picture`, draw the page into that file."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")
    if chromium is None:
        pytest.skip("no Chromium on this machine")
    options = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
        "--disable-component-update --disable-sync --enable-logging=stderr --window-size=1000,1800"
    )
    command = [chromium, *options.split(), f"--user-data-dir={tmp_path / 'profile'}"]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120, check=True)

    def open_page(path: Path, picture: Path | None = None) -> Opened:
        opened = run("--dump-dom", path.as_uri())
        if picture is not None:
            run(f"--screenshot={picture}", path.as_uri())
        text = re.sub(r"<style.*?</style>|<svg.*?</svg>", "", opened.stdout, flags=re.S)
        errors = [line for line in opened.stderr.splitlines() if "CONSOLE" in line]
        return Opened(opened.stdout, text.replace("&nbsp;", " "), errors)

    return open_page


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Path:
    """A folder with runs of 20 updates: latching with two sizes of models and two seeds, inductionheads, text.

    All are evaluated but "few-1".
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "words.txt").write_bytes(b"the quick brown fox jumps over the lazy dog. " * 200)
    text = get("text", data=folder / "words.txt", window=16)
    for name, task, model in (
        ("many", get("latching", size=4), TINY),
        ("few", get("latching", size=4), CascadeConfig(d_model=8, n_layers=2, n_units=2)),
        ("heads", get("inductionheads", size=4), TINY),
        ("text", text, TINY),
    ):
        for seed in (0, 1) if task.name == "latching" else (0,):
            recipe = Recipe(seed=seed, steps=20, batch_size=2, validate_every=10, validation_sequences=2)
            run = Run(folder / f"{name}-{seed}", task, model, recipe)
            run.create()
            list(train(run))
            if run.path.name != "few-1":
                evaluate(run)
    torch.set_num_threads(before)
    return folder


def evaluate(run: Run, length: int = 1024, chunk: int = 128) -> None:
    """Write a small evaluation."""
    task, (model, chosen) = run.task, run.trained()
    if isinstance(task, RegularTask):
        *_, result = extrapolate(model, task, seed=1, sequences=2, length=length, chunk=chunk)
        found = result.to_dict()
    else:
        score = score_streams(model, task.streams("evaluation", 1, 1, 256), task.classes)
        found = {"task": task.name, **score.to_dict()}
    write_json(run.path / "evaluation.json", {**found, "checkpoint": chosen.path.name})
