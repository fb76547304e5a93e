"""Every bench runs at a tiny size; what it measures there means nothing, so no test looks at how large a figure is."""

from __future__ import annotations

import json
import math
from xml.etree import ElementTree

import pytest
import torch

from latchwork import CascadeConfig
from latchwork.bench import decode, gpu, gpu_model, memory, plot, scaling, scan, step
from latchwork.bench.peers import MODEL_PEERS, ModelPeer
from latchwork.bench.rows import Row, cells, quantity, result
from latchwork.bench.timing import NOT_SAID, attempt, compare, interleaved, resident_bytes

FIELDS = {"what", "shape", "dtype", "unit", "ours", "against", "theirs", "ratio", "note", "details"}
TINY_DECODE = decode.Sizes(models={"tiny": CascadeConfig(d_model=8, n_layers=1, n_units=4)}, context=32)
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
NOT_INSTALLED = "is not installed: pip install 'latchwork[baselines]'"


def check(rows: list[Row]) -> None:
    """The promises of a row: finite positive figures, or a note that says why there are none."""
    for row in rows:
        written = json.loads(json.dumps(row.to_dict()))
        assert written.keys() == FIELDS
        assert row.ours is None or row.ours > 0
        if row.note:
            assert row.ratio is None
        else:
            assert math.isfinite(row.ratio)
            assert row.ratio == row.ours / row.theirs > 0
        assert len(cells(row)) == 5


@needs_gpu
def test_the_scan_on_a_gpu_is_measured_against_copies():
    rows = list(gpu.bench_gpu(gpu.QUICK, repeats=1))
    check(rows)
    ways = {f"{way}{kind}" for way in ("forward", "backward") for kind in ("", *(f", degree {n}" for n in (2, 4, 8)))}
    assert {(row.what, row.dtype) for row in rows} == {(way, t) for way in ways for t in ("float32", "bfloat16")}


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
def test_a_language_model_is_measured_against_gpt2_and_a_copy(device):
    training, decoding, *context = gpu_model.bench_gpu_model(gpu_model.QUICK, repeats=1, device=device)
    check([training, decoding, *context])
    assert (training.against, training.unit) == (gpu_model.GPT2, "s/token")
    assert training.note == "" or "transformers is not installed" in training.note
    assert decoding.ratio is not None
    assert len(context) == (device == "cuda")


def test_the_scan_is_measured_against_limits_and_peers():
    rows = list(scan.bench_scan(scan.QUICK, repeats=1))
    check(rows)
    assert {row.note for row in rows} <= {"", NOT_SAID}
    measured = {(row.what, row.dtype) for row in rows}
    assert {("forward", "float32"), ("backward", "bfloat16"), ("last state only", "float32")} <= measured
    assert {f"forward, degree {n}" for n in (2, 4, 8)} <= {row.what for row in rows}
    peers = [row.against for row in rows if row.what == "forward and backward"]
    assert peers == ["Hillis–Steele", "torch associative_scan", "loop in Python"]


def test_the_limits_of_the_scan_leave_its_inputs_as_they_are():
    data = scan._Scan((2, 5, 40))
    before = [a.clone() for a in (data.r, data.s, data.grad_x, data.x)]
    data.read_four_write_two()
    assert all(map(lambda a, b: a.equal(b), before, (data.r, data.s, data.grad_x, data.x)))


def test_steps_are_measured_against_every_peer(no_libraries):
    rows = list(step.bench_step(step.Sizes(batch=1, length=4), repeats=1))
    check(rows)
    assert [row.against for row in rows] == [peer.name for peer in MODEL_PEERS]
    assert [row.note for row in rows[:2]] == ["", ""]
    assert all(row.note.endswith(NOT_INSTALLED) for row in rows[2:])
    assert rows[0].details == {"ours_body_parameters": 127_432, "theirs_body_parameters": 128_160}


@pytest.mark.parametrize("bench", ["step", "decode"])
def test_libraries_that_are_there_are_measured(bench):
    for name in ("transformers", "mambapy"):
        pytest.importorskip(name, reason="pip install 'latchwork[baselines]'")
    if bench == "step":
        rows = list(step.bench_step(step.Sizes(batch=1, length=4), repeats=1))
    else:
        rows = list(decode.bench_decode(TINY_DECODE, repeats=1))
    check(rows)
    assert not [row.against for row in rows if row.note]


def test_decoding_is_measured_early_and_late(no_libraries):
    rows = list(decode.bench_decode(TINY_DECODE, repeats=1))
    check(rows)
    assert (rows[0].what, rows[0].against) == ("tiny model at token 32", "the same at token 0")
    assert [(row.what, row.against) for row in rows[1:3]] == [
        ("tiny model at token 0", "torch.nn.LSTM"),
        ("tiny model at token 32", "torch.nn.LSTM"),
    ]
    assert {row.note for row in rows[5:]} == {f"{name} {NOT_INSTALLED}" for name in ("transformers", "mambapy")}


def test_only_the_first_model_meets_every_peer(no_libraries):
    config = CascadeConfig(d_model=8, n_layers=1, n_units=4)
    rows = list(decode.bench_decode(decode.Sizes(models={"a": config, "b": config}, context=8), repeats=1))
    assert [row.against for row in rows if row.what.startswith("b")] == ["the same at token 0"] + ["torch.nn.LSTM"] * 2


def test_scaling_is_measured_at_powers_of_two():
    rows = list(scaling.bench_scaling(max_time=5000, repeats=1))
    check(rows)
    assert [row.shape for row in rows if row.against == "torch.add(r, s, out=x)"] == [
        (1, 1024, 8),
        (1, 2048, 8),
        (1, 4096, 8),
    ]
    assert (rows[-1].what, rows[-1].against) == ("scan at 4,096 steps", "the same at 1,024 steps")
    with pytest.raises(ValueError, match="max-time must be at least 1,024 steps, got 1,000"):
        list(scaling.bench_scaling(max_time=1000))


@pytest.mark.skipif(resident_bytes() is None, reason=NOT_SAID)
def test_memory_is_measured_in_processes_of_their_own():
    figures = memory.measure("scan in chunks", 2048)
    assert 0 < figures["bytes"] < figures["whole_process"]
    assert memory.measure("nothing", 2048)["note"] == "failed: KeyError: 'nothing'"


def test_a_process_that_takes_too_long_is_a_note(monkeypatch):
    monkeypatch.setattr(memory, "SECONDS", 0.01)
    assert memory.measure("scan in chunks", 2048) == {"note": "not finished in 0 s"}


def test_memory_rows_compare_with_whole_sequences_and_peers(monkeypatch):
    monkeypatch.setattr(memory, "measure", lambda subject, context: {"bytes": context, "whole_process": 2 * context})
    rows = list(memory.bench_memory(max_time=1 << 14))
    check(rows)
    assert len(rows) == 3 * len(memory.PAIRS) + 2
    assert rows[0].details == {"ours_whole_process": 2048, "theirs_whole_process": 2048}
    assert rows[-1].ratio == 4  # from the second context on


def test_an_absent_peer_of_memory_is_named(monkeypatch, no_libraries):
    note = memory.measure_here("Transformer, GPT-2 (transformers)", 1024)["note"]
    assert note == f"transformers {NOT_INSTALLED}"
    figures = {"bytes": 8, "whole_process": 9}
    monkeypatch.setattr(memory, "measure", lambda subject, _: {"note": note} if "GPT" in subject else figures)
    rows = list(memory.bench_memory(max_time=1024))
    assert [row.note for row in rows if row.against.startswith("Transformer")] == [note]
    check(rows)


@pytest.mark.parametrize("subject", memory.SUBJECTS)
def test_every_subject_of_memory_runs(subject):
    if "transformers" in subject:
        pytest.importorskip("transformers", reason="pip install 'latchwork[baselines]'")
    run, note = attempt(memory.SUBJECTS[subject])
    assert note == ""
    run(1024)


def test_a_peer_that_fails_costs_its_row_only(monkeypatch):
    def broken(vocab_size):
        raise AttributeError("another version")

    monkeypatch.setattr(step, "MODEL_PEERS", (ModelPeer("broken", broken), MODEL_PEERS[0]))
    rows = list(step.bench_step(step.Sizes(batch=1, length=4), repeats=1))
    check(rows)
    assert [row.note for row in rows] == ["failed with AttributeError: another version", ""]


def test_calls_are_interleaved():
    calls: list[str] = []
    seconds = interleaved({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, repeats=4, in_a_row=2)
    assert "".join(calls) == "aaabbb" + "aabb" * 2
    assert {name: len(values) for name, values in seconds.items()} == {"a": 4, "b": 4}
    assert compare(lambda: None, None, repeats=1)[1] is None


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (2.5, "s", "2.5 s"),
        (0.0123, "s", "12.3 ms"),
        (4.56e-6, "s", "4.56 µs"),
        (9e-10, "s/step", "0.9 ns/step"),
        (1e-4, "s/token", "10,000 tokens/s"),
        (3 << 20, "B", "3.0 MiB"),
        (None, "s", "–"),
    ],
)
def test_figures_are_readable(value, unit, text):
    assert quantity(value, unit) == text


@pytest.mark.parametrize(("ours", "text"), [(2.0, "2.00"), (0.1, "0.10"), (0.004, "1 / 250"), (None, "why")])
def test_ratios_are_readable(ours, text):
    note = "why" if ours is None else ""
    assert result(Row(what="x", ours=ours, against="y", theirs=1.0, note=note)) == text


ROWS = [
    Row(what="ours", shape=(1, 1024), ours=1.0, against="theirs", theirs=2.0),
    Row(what="ours", shape=(1, 2048), ours=1.5, against="theirs", theirs=None, note="absent"),
    Row(what="ours, 2,048", ours=1.5, against="the same, 1,024", theirs=1.0),
]


@pytest.mark.parametrize("draw", [plot.ratios, plot.against_length])
def test_charts_are_valid_and_the_same_every_time(draw):
    pytest.importorskip("matplotlib")
    svg = draw("bench <x>", ROWS)
    assert ElementTree.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
    assert draw("bench <x>", ROWS) == svg
