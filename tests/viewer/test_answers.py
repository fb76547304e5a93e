"""What the viewer answers, without its server."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from latchwork import CascadeConfig
from latchwork.evaluation.trace import trace
from latchwork.runs.checkpoint import save
from latchwork.runs.recipe import Recipe
from latchwork.runs.run import Run
from latchwork.tasks import get
from latchwork.viewer.answers import MOST_TOKENS, Viewer
from latchwork.viewer.tokens import TokenError, read_tokens


def make_viewer(folder, task, **changes) -> Viewer:
    run = Run(folder, task, CascadeConfig(d_model=8, n_units=6, **changes), Recipe())
    run.create()
    run.set_best(save(run.checkpoints, 1, run.build(), {}, {"progress": {"step": 1}}))
    return Viewer(run)


@pytest.fixture(scope="module")
def latching(tmp_path_factory):
    return make_viewer(tmp_path_factory.mktemp("latching") / "run", get("latching", size=4))


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    (folder / "book.txt").write_bytes("ein schönes Buch. ".encode() * 100)
    return make_viewer(folder / "run", get("text", data=folder / "book.txt", window=16))


def test_tokens_are_read_by_name_and_by_number(latching):
    names = latching.token_names
    assert read_tokens("m1  -3\n0 19", names) == [1, 7, 0, 19]
    assert read_tokens(["m3", 2], names) == [3, 2]
    assert read_tokens("", names) == []
    assert read_tokens("3 marker", get("inductionheads", size=4).token_names) == [3, 4]


@pytest.mark.parametrize(
    ("items", "position", "message"),
    [
        ("m1 m2 mm1", 3, "token 3, 'mm1', is unknown; did you mean m1"),
        ("zzz", 1, "token 1, 'zzz', is unknown$"),
        ("m1 20", 2, "token 2 must be in 0 … 19, got '20'"),
        (["m1", -1], 2, "token 2 must be in 0 … 19, got -1"),
        (["m1", None], 2, "token 2 must be a name or a number, got None"),
        ([True], 1, "token 1 must be a name or a number, got True"),
        (["²"], 1, "is unknown"),
        (["9" * 5000], 1, "is unknown"),
        ([["m1"]], 1, "must be a name or a number"),
    ],
)
def test_what_is_no_token_is_named_with_its_place(latching, items, position, message):
    with pytest.raises(TokenError, match=message) as caught:
        read_tokens(items, latching.token_names)
    assert caught.value.position == position
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("degree", [1, 2])
def test_an_answer_is_the_trace(tmp_path, degree):
    viewer = make_viewer(tmp_path / "run", get("latching", size=4), degree=degree)
    tokens = [2, 7, 0, 19, 5, 5, 1]
    answer = viewer.answer(tokens)
    seen = trace(viewer.model, torch.tensor([tokens]))
    assert answer["first"] == 0
    assert answer["tokens"] == tokens
    assert answer["targets"] == [2] * 7
    assert [step[0][0] for step in answer["top"]] == seen.logits[0].argmax(-1).tolist()
    assert all(
        len(step) == 5 and abs(step[0][1] - p) < 1e-3
        for step, p in zip(answer["top"], seen.logits[0].softmax(-1).max(-1).values.tolist(), strict=True)
    )
    for described, layer in zip(answer["layers"], seen.layers, strict=True):
        rows = 6 * degree
        assert np.shape(described["r"]) == ((rows, 7) if degree == 1 else (rows, 7, degree))
        for name in ("x", "s"):
            wanted = getattr(layer, name)[0].flatten(1).T
            assert np.allclose(described[name], wanted, rtol=1e-3, atol=1e-30)
        wanted = layer.r[0].T if degree == 1 else layer.r[0].flatten(1, 2).movedim(1, 0)
        assert np.allclose(described["r"], wanted, rtol=1e-3)
        flags = np.array([list(row) for row in described["flags"]])
        assert np.array_equal(flags == "k", layer.kept[0].flatten(1).T.numpy())
        assert np.array_equal(flags == "s", layer.was_set[0].flatten(1).T.numpy())
        assert set(flags.flat) <= set("ksr" if degree == 1 else "ksm")


def test_the_columns_after_those_that_are_known_are_the_same(latching):
    tokens = [1, 7, 3, 3, 19, 4]
    whole = latching.answer(tokens)
    for skip in (0, 1, 4, 6):
        for _ in range(2):  # computed, and from a state that is remembered
            part = latching.answer(tokens, skip)
            assert part["tokens"] == tokens[skip:]
            assert part["targets"] == whole["targets"][skip:]
            for a, b in zip(part["layers"], whole["layers"], strict=True):
                assert np.allclose(np.array(a["x"]), np.array(b["x"])[:, skip:], rtol=1e-3, atol=1e-6)
                assert a["flags"] == [row[skip:] for row in b["flags"]]


def test_tasks_without_a_question_at_a_step_have_no_target_there(tmp_path):
    viewer = make_viewer(tmp_path / "run", get("inductionheads", size=4))
    assert viewer.reply({"tokens": "0 marker 3 1 marker"})["targets"] == [None, None, None, None, 3]
    example = viewer.example(0, 60)["tokens"]
    assert len(example) == 60
    assert example[-1] == "marker"
    assert viewer.reply({"tokens": example})["targets"][-1] is not None


def test_text_is_bytes(text):
    assert text.reply({"text": "aé"})["tokens"] == [97, 0xC3, 0xA9]
    assert text.reply({"text": "a"})["targets"] is None
    assert text.reply({"text": "\ud800"})["tokens"] == [63]
    assert text.reply({"tokens": "a \\x0a 10"})["tokens"] == [97, 10, 10]
    assert len(text.example(0, 12)["text"]) >= 11


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ([], "either"),
        ({}, "either"),
        ({"tokens": "m1", "text": "a"}, "either"),
        ({"tokens": {"a": 1}}, "tokens must be a list"),
        ({"tokens": "m1", "tokenz": 1}, "no 'tokenz'"),
        ({"tokens": "m1", "skip": 2}, "skip must be an integer in 0 … 1"),
        ({"tokens": "m1", "skip": -1}, "skip must be"),
        ({"tokens": "m1", "skip": True}, "skip must be"),
        ({"tokens": "m1", "partial": 1}, "partial must be"),
        ({"text": "m1"}, "reads tokens and not text"),
        ({"tokens": [0] * (MOST_TOKENS + 1)}, "at most 2,000 tokens of this model are shown, got 2,001"),
    ],
)
def test_what_is_no_question_is_one_line(latching, question, message):
    with pytest.raises(ValueError, match=message) as caught:
        latching.reply(question)
    assert "\n" not in str(caught.value)


def test_a_partial_answer_goes_up_to_the_first_unknown_token(latching):
    answer = latching.reply({"tokens": "m1 -3 m9 m0", "partial": True})
    assert answer["tokens"] == [1, 7]
    assert answer["problem"]["position"] == 3
    assert "m1" in answer["problem"]["near"]
    assert latching.reply({"tokens": "m1", "partial": True})["problem"] is None


def test_weights_that_are_not_finite_are_still_json(tmp_path):
    viewer = make_viewer(tmp_path / "run", get("latching", size=4))
    torch.nn.init.constant_(viewer.model.cascade.layers[0].unit.set.weight, torch.nan)
    answer = viewer.answer([1, 2])
    json.dumps(answer, allow_nan=False)
    assert answer["layers"][0]["x"][0] == [None, None]


def test_large_models_are_shown_fewer_tokens(tmp_path):
    viewer = make_viewer(tmp_path / "run", get("latching", size=4), n_layers=8, degree=64)
    assert viewer.most_tokens < 100
    with pytest.raises(ValueError, match="at most"):
        viewer.reply({"tokens": [0] * (viewer.most_tokens + 1)})
    with pytest.raises(ValueError, match="length must be"):
        viewer.example(0, viewer.most_tokens + 1)
