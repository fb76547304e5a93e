"""A trace is what the model did, and its picture shows it."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
import torch
from helpers import assert_close, run_python

from latchwork import CascadeConfig, CascadeLM, minmax_matrix_scan, minmax_scan
from latchwork.evaluation.heatmap import state_heatmaps
from latchwork.evaluation.trace import LayerTrace, trace

BATCH, TIME, UNITS, VOCABULARY = 2, 23, 5, 7


def model_of(degree: int, **changes) -> CascadeLM:
    config = CascadeConfig(d_model=12, n_layers=3, n_units=UNITS, degree=degree, init="small_init", **changes)
    return CascadeLM(config, VOCABULARY).eval()


def some_tokens(time: int = TIME) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (BATCH, time))


@pytest.mark.parametrize("carried", [False, True])
@pytest.mark.parametrize("degree", [1, 2])
def test_x_is_the_scan_of_r_and_s_and_the_rest_is_the_models(degree, carried):
    model = model_of(degree, learned_x0=True)
    state = model(some_tokens(9))[1] if carried else None
    tokens = some_tokens()
    logits, after = model(tokens, state)
    seen = trace(model, tokens, state)
    assert torch.equal(seen.logits, logits)
    assert all(
        torch.equal(a, b) for own, its in zip(seen.state, after, strict=True) for a, b in zip(own, its, strict=True)
    )
    for i, layer in enumerate(seen.layers):
        shape = (BATCH, TIME, UNITS) if degree == 1 else (BATCH, TIME, UNITS, degree)
        assert layer.x.shape == layer.s.shape == shape
        assert layer.r.shape == (shape if degree == 1 else (*shape, degree))
        before = (model.initial_state(BATCH) if state is None else state)[i].unit
        assert torch.equal(layer.start.flatten(1), before)
        scan = minmax_scan if degree == 1 else minmax_matrix_scan
        x, last = scan(layer.r, layer.s, layer.start)
        assert torch.equal(layer.x, x)
        assert torch.equal(last.flatten(1), after[i].unit)


def test_the_model_is_as_before_and_no_gradient_is_kept():
    model = model_of(1)
    seen = trace(model, some_tokens())
    assert not any(module._forward_hooks for module in model.modules())
    assert not seen.logits.requires_grad
    with pytest.raises(ValueError, match="tokens must be in"):
        trace(model, torch.full((1, 2), VOCABULARY))
    assert not any(module._forward_hooks for module in model.modules())


def test_steps_traced_one_by_one_are_the_same():
    model, tokens = model_of(2), some_tokens()
    whole, state = trace(model, tokens), None
    for t in range(TIME):
        seen = trace(model, tokens[:, t : t + 1], state)
        state = seen.state
        assert_close(seen.logits, whole.logits[:, t : t + 1])
        for one, all_ in zip(seen.layers, whole.layers, strict=True):
            assert_close(one.x, all_.x[:, t : t + 1])
    assert trace(model, tokens[:, :0]).layers[0].x.shape == (BATCH, 0, UNITS, 2)


def test_kept_set_and_lowered_are_told_apart():
    #          set    kept  kept, tie  lowered  set, r < s
    r = torch.tensor([9.0, 5.0, 2.0, 1.0, -9.0]).reshape(1, 5, 1)
    s = torch.tensor([2.0, 0.0, 2.0, 0.0, 4.0]).reshape(1, 5, 1)
    start = torch.zeros(1, 1)
    layer = LayerTrace(r, s, minmax_scan(r, s, start)[0], start)
    assert layer.x.flatten().tolist() == [2, 2, 2, 1, 4]
    assert layer.before.flatten().tolist() == [0, 2, 2, 2, 1]
    assert layer.was_set.flatten().tolist() == [True, False, False, False, True]
    assert layer.kept.flatten().tolist() == [False, True, True, False, False]
    assert layer.was_lowered.flatten().tolist() == [False, False, False, True, False]


@pytest.mark.parametrize("degree", [1, 2])
def test_flags_follow_the_definition_at_every_step(degree):
    for layer in trace(model_of(degree), some_tokens()).layers:
        old = layer.start
        for t in range(TIME):
            x, s = layer.x[:, t], layer.s[:, t]
            assert torch.equal(layer.kept[:, t], x == old)
            assert torch.equal(layer.was_set[:, t], (x == s) & (x != old))
            old = x
        flags = layer.kept.int() + layer.was_set.int() + layer.was_lowered.int()
        assert bool((flags <= 1).all())
        if degree == 1:
            assert bool((flags == 1).all()), "a scalar unit keeps, sets or lowers"


@pytest.mark.parametrize("degree", [1, 2])
def test_heat_maps_are_one_svg_a_layer(degree):
    labels = ["<b>", "$x$", *map(str, range(TIME - 2))]
    seen = trace(model_of(degree), some_tokens())
    pictures = state_heatmaps(seen, labels, row=1)
    assert len(pictures) == 3
    for i, picture in enumerate(pictures, 1):
        assert ElementTree.fromstring(picture).tag.endswith("svg")
        assert f'aria-label="States of the units of layer {i} over {TIME} steps"' in picture
    assert pictures == state_heatmaps(seen, labels, row=1)
    assert pictures != state_heatmaps(seen, labels, row=0)


def test_heat_maps_of_long_sequences_stay_small():
    seen = trace(model_of(1), torch.randint(0, VOCABULARY, (1, 3000)))
    assert max(map(len, state_heatmaps(seen, ["x"] * 3000))) < 1_000_000


@pytest.mark.parametrize(
    ("labels", "row", "message"), [(TIME - 1, 0, "22 labels for 23 steps"), (TIME, 2, "row must be in 0 … 1, got 2")]
)
def test_labels_and_rows_must_fit(labels, row, message):
    with pytest.raises(ValueError, match=message):
        state_heatmaps(trace(model_of(1), some_tokens()), ["x"] * labels, row)


def test_tracing_needs_no_matplotlib():
    assert run_python("import sys, latchwork.evaluation.heatmap; print('matplotlib' in sys.modules)").strip() == "False"
