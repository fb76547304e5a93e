"""The command line, in real processes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from xml.etree import ElementTree

import pytest
import torch

from latchwork import __version__
from latchwork.cli.main import main
from latchwork.ops.scan import has_triton

HAS_GPU = torch.cuda.is_available()
TINY = "--d-model 8 --n-layers 2 --n-units 4 --threads 1"
QUICK = f"{TINY} --batch-size 4 --validation-sequences 2 --validate-every 5 --train-sequences 40"


def latchwork(arguments: str, cwd, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(arguments), cwd=cwd, capture_output=True, text=True, timeout=300, **options)


def command(arguments: str) -> list[str]:
    return [sys.executable, "-m", "latchwork", *arguments.split()]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with a trained run of each task."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "nothing").mkdir()
    (folder / "text.txt").write_bytes(b"the quick brown fox jumps over the lazy dog. " * 200)
    for task in ("latching --size 4", "inductionheads --size 4", "text --data text.txt --window 16"):
        result = latchwork(f"train {task} {QUICK} --steps 7 --out {task.split()[0]}", folder)
        assert result.returncode == 0, result.stderr
    return folder


def steps_of(run) -> list[int]:
    return [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_steps_are_exactly_as_many_as_asked(runs):
    assert max(steps_of(runs / "latching")) == 7
    state = json.loads((runs / "latching" / "checkpoints" / "step-00000007" / "state.json").read_text())
    assert state["step"] == 7
    info = json.loads(latchwork("info latching --json", runs).stdout)
    assert info["updates"] == 7
    assert info["recipe"]["steps"] == 7


@pytest.mark.slow
def test_vector_units_are_trained_continued_and_evaluated(tmp_path):
    assert latchwork(f"train latching --size 4 {QUICK} --steps 5 --degree 3 --out run", tmp_path).returncode == 0
    assert latchwork("train resume run --threads 1", tmp_path).returncode == 0
    info = json.loads(latchwork("info run --json", tmp_path).stdout)
    assert info["model"]["degree"] == 3
    evaluated = latchwork("evaluate run --length 2048 --sequences 2 --threads 1", tmp_path)
    assert evaluated.returncode == 0, evaluated.stderr
    assert "2 layers of 4 units of degree 3" in (tmp_path / "run" / "report.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("flags", "meant"),
    [
        ("--no-output-gate", False),
        ("--output-gate", True),
        ("--set model.output_gate=False", False),
        ("--set model.output_gate=False --output-gate", True),
        ("--output-gate --no-output-gate", False),
    ],
)
def test_flags_mean_what_they_say(tmp_path, flags, meant):
    result = latchwork(f"train latching --size 4 {QUICK} --steps 1 {flags} --out run", tmp_path)
    assert result.returncode == 0, result.stderr
    assert json.loads((tmp_path / "run" / "config.json").read_text())["model"]["output_gate"] is meant


def test_a_flag_takes_no_value(tmp_path):
    result = latchwork(f"train latching --size 4 {QUICK} --steps 1 --output-gate False --out run", tmp_path)
    assert result.returncode == 2
    assert "False" in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        ("train latching --stepz 7", "--steps"),
        ("train latching --sise 7", "--size"),
        ("evaluate run --lenght 1024", "--length"),
        ("demo --sede 3", "--seed"),
    ],
)
def test_unknown_flags_exit_non_zero_and_name_the_near_miss(tmp_path, arguments, near):
    result = latchwork(arguments, tmp_path)
    assert result.returncode == 2
    assert near in result.stdout + result.stderr
    assert "Traceback" not in result.stdout + result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("evaluate nowhere", "nowhere is not a run: it has no config.json"),
        ("generate nowhere", "nowhere is not a run"),
        ("info nowhere", "nowhere is not a run"),
        ("train resume nowhere", "nowhere is not a run"),
        ("train text --data absent.txt", "there is no file or folder"),
        ("train latching --size 1", "size must be at least 2"),
        ("train latching --lr 0", "lr must be a positive number"),
        ("train latching --degree 0", "degree must be a positive integer"),
        ("train latching --threads 0", "threads must be at least 1"),
        (
            "train latching --out latching",
            "latching holds a run already: resume it with `latchwork train resume latching`",
        ),
        ("generate latching", "is a model of latching, not of text"),
        ("generate text --prompt=", "prompt must have at least one character"),
        ("generate text --temperature -1", "temperature must be 0 or more"),
        ("generate text --length -1", "length must be 0 or more"),
        ("evaluate latching --length 1000", "multiple of the chunk of 1024 steps, got 1000"),
        (
            "evaluate text --length 2048",
            "--length is for tasks with endless sequences; of text what",
        ),
        ("evaluate latching --chunk 0", "chunk must be at least 1 step"),
        ("evaluate latching --length -64 --chunk 64", "multiple of the chunk"),
        ("evaluate latching --length 64 --chunk 64 --seed 1180591620717411303424", "seed must be in 0"),
        ("train latching --seed 18446744073709551616", "seed must be below 2^63"),
        ("evaluate latching --length 64 --chunk 64 --seed -1", "seed must be in 0"),
        (
            "evaluate latching --sequences 10000000000000 --length 8 --chunk 8",
            "there is not enough memory: ask for less",
        ),
        ("train latching --train-sequences 10000000000000", "train_sequences must be at most 268,435,456"),
        ("generate text --temperature nan", "temperature must be 0 or more and finite"),
        ("info text.txt", "text.txt is not a run"),
        ("demo --length 1000", "multiple of the chunk"),
        ("evaluate latching --threads 0", "threads must be at least 1"),
        ("compare absent", "there is no file or folder absent"),
        ("compare nothing", "no runs found in nothing"),
        ("compare latching --out r.csv", "--out must end in .html, got 'r.csv'"),
        ("compare latching --out latching/evaluation.html", "is in the folder of a run, whose files it could replace"),
        ("compare latching --out text.txt/r.html", "--out 'text.txt/r.html' cannot be written"),
        ("bench scan --repeats 0", "repeats must be at least 1"),
        pytest.param("bench gpu", "needs an NVIDIA GPU", marks=pytest.mark.skipif(HAS_GPU, reason="has a GPU")),
        ("bench memory --max-time 1000", "max-time must be at least 1,024 steps, got 1,000"),
    ],
)
def test_mistakes_get_one_clear_line(runs, arguments, message):
    result = latchwork(arguments, runs)
    assert result.returncode != 0
    assert message in " ".join((result.stdout + result.stderr).replace("│", " ").split())
    assert "Traceback" not in result.stderr


def test_evaluation_says_what_it_measured_and_writes_it(runs):
    for name, answers in (("latching", 2 * 4096), ("inductionheads", 2 * 4)):
        result = latchwork(f"evaluate {name} --length 4096 --sequences 2 --threads 1", runs)
        assert result.returncode == 0, result.stderr
        for word in ("overall", "worst chunk", "floor", "tokens/s", "4,096", f"{answers:,}"):
            assert word in result.stdout
        written = json.loads((runs / name / "evaluation.json").read_text())
        assert written["scored"] == answers
        assert "Accuracy against length" in (runs / name / "report.html").read_text("utf-8")
        again = json.loads(latchwork(f"evaluate {name} --length 4096 --sequences 2 --json", runs).stdout)
        for key in ("correct", "scored", "chunks", "floor", "worst_chunk"):
            assert again[key] == written[key]


def test_a_comparison_says_what_is_in_it_and_writes_three_files(runs, tmp_path):
    for name in ("latching", "inductionheads"):
        shutil.copytree(runs / name, tmp_path / "runs" / name)
    (tmp_path / "runs" / "latching" / "evaluation.json").unlink(missing_ok=True)
    (tmp_path / "runs" / "half").mkdir()
    (tmp_path / "runs" / "half" / "metrics.jsonl").touch()
    result = latchwork("compare runs --out made/all.html", tmp_path)
    assert result.returncode == 0, result.stderr
    for word in ("latching(4)", "inductionheads(4)", "0 of 1"):
        assert word in result.stdout
    for line in (
        "left out: runs/half is not a run: it has no config.json",
        "runs/latching: not evaluated",
        "report: made/all.html",
        "a row a run: made/all.csv",
        "all figures: made/all.json",
    ):
        assert line in result.stderr
    assert sorted(file.name for file in (tmp_path / "made").iterdir()) == ["all.csv", "all.html", "all.json"]
    printed = json.loads(latchwork("compare runs --json", tmp_path).stdout)
    assert printed == json.loads((tmp_path / "comparison.json").read_text("utf-8"))
    assert printed == json.loads((tmp_path / "made" / "all.json").read_text("utf-8"))
    assert {run["run"] for run in printed["runs"]} == {"runs/latching", "runs/inductionheads"}


def test_text_is_evaluated_in_bits_and_generated(runs):
    result = latchwork("evaluate text", runs)
    assert "bits per byte" in result.stdout
    first = latchwork("generate text --prompt the --length 40 --seed 1", runs)
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("the")
    assert 20 <= len(first.stdout) <= 44
    assert latchwork("generate text --prompt the --length 40 --seed 1", runs).stdout == first.stdout
    assert latchwork("generate text --prompt the --length 40 --seed 2", runs).stdout != first.stdout


def test_generation_into_a_terminal_of_ascii_only_writes_escapes(runs):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    result = latchwork("generate text --prompt ä --length 20 --temperature 5 --seed 1", runs, env=environment)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("\\xe4")


def test_the_version_is_told(tmp_path):
    assert latchwork("--version", tmp_path).stdout.strip() == f"latchwork {__version__}"


def test_generation_ends_quietly_when_nobody_reads(runs):
    with subprocess.Popen(
        command("generate text --length 0"), cwd=runs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.read(20)
        process.stdout.close()
        assert process.wait(timeout=60) == 1
        assert process.stderr.read() == ""


def test_a_demo_refuses_to_replace_another_run(runs):
    result = latchwork("demo --out latching", runs)
    assert result.returncode == 1
    assert "latching holds another run" in result.stderr
    assert latchwork(f"train latching --size 16 {QUICK} --steps 1 --out mine", runs).returncode == 0
    assert "mine holds another run" in latchwork("demo --out mine", runs).stderr
    assert (runs / "mine" / "best.json").exists()


def wait_for(condition, process, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGKILL]
)
def test_interrupted_and_killed_runs_resume_to_the_same_losses(tmp_path, number):
    options = f"{QUICK} --steps 400 --validate-every 20 --dropout 0.3 --patience None"
    whole = latchwork(f"train inductionheads --size 4 {options} --out whole", tmp_path)
    assert whole.returncode == 0, whole.stderr
    process = subprocess.Popen(
        command(f"train inductionheads --size 4 {options} --out cut"),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    metrics = tmp_path / "cut" / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and metrics.read_text().count("validation") >= 2, process)
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    assert "Traceback" not in errors
    if number != signal.SIGKILL:
        assert process.returncode == 130
        assert "go on with `latchwork train resume cut`" in errors
    assert max(steps_of(tmp_path / "cut")) < 400
    resumed = latchwork("train resume cut --threads 1", tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert "going on after step" in resumed.stderr
    cut, uncut = (
        re.sub(r'"seconds": [\d.]+', "", (tmp_path / n / "metrics.jsonl").read_text()) for n in ("cut", "whole")
    )
    assert cut == uncut


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("before", ["{}", None])
def test_an_interrupted_evaluation_leaves_the_former_one(runs, tmp_path, before):
    shutil.copytree(runs / "latching", tmp_path / "run")
    file = tmp_path / "run" / "evaluation.json"
    file.unlink(missing_ok=True) if before is None else file.write_text(before)
    options = "--sequences 1 --chunk 64 --length 67108864 --threads 1"
    with subprocess.Popen(
        command(f"evaluate run {options}"), cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert "evaluating run" in process.stderr.readline()
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    left = "is not written" if before is None else "stays as it was"
    assert errors.splitlines() == [
        "stopping after this chunk; Ctrl-C again stops at once",
        f"interrupted: run/evaluation.json {left}",
    ]
    assert output == ""
    assert (file.read_text() if file.exists() else None) == before
    assert not list(tmp_path.rglob("*.partial"))


def test_a_diverging_loss_is_one_clear_line(tmp_path):
    result = latchwork(f"train latching --size 4 {QUICK} --steps 50 --lr 1e30 --out run", tmp_path)
    assert result.returncode == 1
    line = result.stderr.strip().splitlines()[-1]
    assert line.startswith("latchwork: error: the loss became")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "name",
    [
        "",
        "demo",
        "train",
        "train latching",
        "train text",
        "train resume",
        "sweep",
        "evaluate",
        "compare",
        "generate",
        "view",
        "task",
        "task sequences",
        "decompose",
        "bench",
        *(f"bench {what}" for what in ("scan", "step", "decode", "memory", "scaling", "gpu")),
        "info",
    ],
)
def test_help_is_there_for_every_command(capsys, name):
    with pytest.raises(SystemExit) as end:
        main([*name.split(), "--help"])
    assert end.value.code == 0
    assert "usage: latchwork" in capsys.readouterr().out


def test_info_names_the_parts(tmp_path):
    facts = json.loads(latchwork("info --json", tmp_path).stdout)
    assert facts["scan backends"] == ["reference", "torch", "cpu", *(["triton"] if has_triton() else [])]
    assert {"latchwork", "torch", "numba", "threads", "gpus"} <= facts.keys()


def test_a_bench_writes_json_and_a_chart(tmp_path):
    result = latchwork("bench scaling --max-time 1024 --repeats 1 --out a/b.json --plot a/b.svg --json", tmp_path)
    assert result.returncode == 0, result.stderr
    printed, written = json.loads(result.stdout), json.loads((tmp_path / "a" / "b.json").read_text("utf-8"))
    assert printed == written
    assert written["bench"] == "scaling"
    assert {"processor", "threads", "torch", "command"} <= written["machine"].keys()
    assert all(row["ratio"] > 0 for row in written["rows"])
    assert "scan 1×1024×8" in result.stderr
    assert ElementTree.fromstring((tmp_path / "a" / "b.svg").read_text("utf-8")).tag.endswith("svg")


def test_a_bench_prints_a_table(tmp_path):
    result = latchwork("bench scan --quick --repeats 1 --threads 1", tmp_path)
    assert result.returncode == 0, result.stderr
    for word in ("ours", "against", "theirs", "ratio", "Hillis–Steele"):
        assert word in result.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--out .", "--out '.' cannot be written"),
        ("--plot folder", "--plot 'folder' cannot be written"),
        ("--out file/b.json", "--out 'file/b.json' cannot be written"),
        ("--out same.x --plot same.x", "--out and --plot must be two files"),
    ],
)
def test_a_bench_refuses_files_that_cannot_be_written_before_it_measures(tmp_path, options, message):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    result = latchwork(f"bench scaling --max-time 1024 --repeats 1 {options}", tmp_path)
    assert result.returncode == 1
    assert message in result.stderr
    assert "measuring" not in result.stderr
    assert not list(tmp_path.rglob("*.partial"))
