"""One token at a time: the kernel and the modules say the same."""

from __future__ import annotations

import copy
import itertools
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from helpers import assert_close
from small_models import V, assert_same_outcome, assert_same_step, build, by_modules, draw
from torch.utils.data import DataLoader, Dataset
from torch.utils.flop_counter import FlopCounterMode

import latchwork.state
from latchwork.models import decoding
from latchwork.ops import cpu_step, team
from latchwork.state import LayerState

CHOICES = [
    {},
    {"conv": "gated"},
    {"norm": "rmsnorm"},
    {"norm": "none"},
    {"norm": "none", "conv": "gated", "ffn": "basic"},
    {"ffn": "basic"},
    {"activation": "gelu"},
    {"activation": "silu"},
    {"activation": "tanh", "ffn": "basic"},
    {"activation": "sigmoid"},
    {"output_gate": False},
    {"learned_x0": True},
    {"learned_x0": True, "conv": "gated", "output_gate": False},
    {"tie_embeddings": False},
    {"d_model": 90, "n_units": 40},
    {"d_model": 1, "n_units": 1, "n_layers": 1},
    {"d_model": 129, "n_units": 200, "n_layers": 3},
]


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


@pytest.mark.parametrize("choices", CHOICES, ids=str)
@pytest.mark.parametrize("n_outputs", [None, 5])
def test_every_choice_says_what_the_modules_say(kernel, choices, n_outputs):
    model, state, expected_state = build(n_outputs, **choices), None, None
    for token in draw(50).unbind(1):
        actual, expected = model(token[:, None], state), by_modules(model, token[:, None], expected_state)
        assert_same_step(actual, expected)
        state, expected_state = actual[1], expected[1]
    assert len(kernel) == 50


def test_a_prompt_goes_through_the_modules_and_tokens_go_on_from_its_state(kernel):
    model, tokens = build(), draw(30)
    whole = model(tokens)
    logits, state = model(tokens[:, :20])
    assert not kernel
    for t in range(20, 30):
        step, state = model(tokens[:, t : t + 1], state)
        logits = torch.cat([logits, step], dim=1)
    assert len(kernel) == 10
    assert_same_step((logits, state), whole)
    assert_same_step(model(tokens[:, :5], state), by_modules(model, tokens[:, :5], state))


def test_generation_uses_the_kernel_also_from_training_mode(kernel):
    model, tokens = build(dropout=0.5).train(), draw(3)
    drawn = list(itertools.islice(model.generate(tokens, temperature=0), 12))
    assert len(kernel) == 11
    assert model.training
    for token in drawn:
        assert torch.equal(by_modules(model.eval(), tokens)[0][:, -1].argmax(dim=-1), token)
        tokens = torch.cat([tokens, token[:, None]], dim=1)


def test_states_are_new_tensors_and_the_old_ones_keep_their_values():
    model, token = build(), draw()
    _, state = model(token)
    before = copy.deepcopy(state)
    results = [model(token, state) for _ in range(2)]
    for layer, kept, *new in zip(state, before, *(result[1] for result in results), strict=True):
        for a, b, *others in zip(layer, kept, *new, strict=True):
            assert torch.equal(a, b)
            assert len({x.untyped_storage().data_ptr() for x in (a, *others)}) == 3
    assert results[0][0].data_ptr() != results[1][0].data_ptr()


def test_interleaved_streams_do_not_mix():
    models, streams = [build(), build(conv="gated")], [draw(20), draw(20)]
    alone = {(i, j): _stream(models[i], streams[j]) for i in range(2) for j in range(2)}
    states, logits = dict.fromkeys(alone), {key: [] for key in alone}
    for t in range(20):
        for i, j in alone:
            out, states[i, j] = models[i](streams[j][:, t : t + 1], states[i, j])
            logits[i, j].append(out)
    for key, expected in alone.items():
        assert torch.equal(torch.cat(logits[key], dim=1), expected)


def _stream(model, tokens):
    logits, state = [], None
    for t in range(tokens.shape[1]):
        out, state = model(tokens[:, t : t + 1], state)
        logits.append(out)
    return torch.cat(logits, dim=1)


def test_nan_and_infinities_go_where_they_go_in_the_modules():
    model, token = build(), draw()
    _, state = model(token)
    for i, value in itertools.product(range(2), (torch.nan, torch.inf, -torch.inf)):
        bad = copy.deepcopy(state)
        bad[1][i][0, 3] = value
        (logits, after), (wanted, expected) = model(token, bad), by_modules(model, token, bad)
        pairs = [
            (logits, wanted),
            *((a, b) for x, y in zip(after, expected, strict=True) for a, b in zip(x, y, strict=True)),
        ]
        for a, b in pairs:
            assert torch.equal(a.isnan(), b.isnan())
            assert_close(a.nan_to_num(), b.nan_to_num())


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("value", [0.1, 3.3, 100.0])
def test_inputs_that_hardly_differ_are_normalised_no_worse_than_by_the_modules(norm, value):
    """With a variance below epsilon, a norm multiplies what the mean has lost to rounding by 300."""
    model = build(norm=norm, d_model=91, n_units=40)
    model.embedding.weight[0] = value
    token = torch.tensor([[0]])
    exact = copy.deepcopy(model).double()(token)[0]
    by_kernel, others = (
        (logits.double() - exact).abs().max() for logits in (model(token)[0], by_modules(model, token)[0])
    )
    assert by_kernel <= 1e-5 + 4 * others


def test_states_that_are_negative_views_are_read_as_their_values():
    model, token = build(), draw()
    state = tuple(LayerState(*(torch._neg_view(a) for a in layer)) for layer in model(token)[1])
    assert_same_step(model(token, state), by_modules(model, token, state))


def test_the_default_dtype_does_not_matter(kernel):
    model, token = build(), draw()
    expected = by_modules(model, token)
    torch.set_default_dtype(torch.float64)
    try:
        assert_same_step(model(token), expected)
    finally:
        torch.set_default_dtype(torch.float32)
    assert len(kernel) == 1


def test_gradients_flow_when_they_are_wanted(kernel):
    model, token = build(), draw()
    with torch.enable_grad():
        logits, _ = model(token)
        logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.cascade.layers[0].ffn.parameters())
    assert not kernel


def test_dropout_acts_in_training_mode(kernel):
    model, token = build(dropout=0.5), draw()
    quiet = model(token)[0]
    model.cascade.layers[1].ffn.dropout.train()
    assert not torch.equal(model(token)[0], model(token)[0])
    assert len(kernel) == 1
    model.eval()
    assert torch.equal(model(token)[0], quiet)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::torch.jit.TracerWarning")
def test_transforms_see_the_modules(kernel):
    model, token = build().requires_grad_(False), draw()
    expected = by_modules(model, token)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_same_outcome(lambda: model(token), lambda: by_modules(model, token))
    with FlopCounterMode(display=False) as counter:
        model(token)
    assert counter.get_total_flops() > 0
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert_same_step(compiled(token), expected)
    assert not kernel
    torch.jit.trace(lambda token: _left(model, token), (token,), check_trace=False)
    torch.func.vmap(lambda token: model(token)[0])(token[None])
    assert not kernel


def _left(model, token):
    assert decoding.step(model, token, None, dropout=True) is None
    return token


@pytest.mark.parametrize("token", [-1, V, 1 << 40, -(1 << 62)])
def test_tokens_out_of_range_are_named(token):
    model = build()
    _, state = model(draw())
    for carried in (None, state):
        with pytest.raises(ValueError, match=rf"tokens must be in 0 … {V - 1}, got values from {token} to {token}"):
            model(torch.tensor([[token]]), carried)


def test_wrong_states_are_named(kernel):
    model, token = build(), draw()
    _, state = model(token)
    with pytest.raises(ValueError, match="the state has 1 layers, the model has 2"):
        model(token, state[:1])
    wrong = (state[0], latchwork.state.LayerState(state[1].conv, state[1].unit[:, :-1]))
    with pytest.raises(ValueError, match="the state of layer 1 must be tensors of"):
        model(token, wrong)
    two = latchwork.state.select(state, torch.tensor([0, 0]))
    with pytest.raises(ValueError, match="for a batch of 1"):
        model(token, two)
    assert len(kernel) == 1
    assert_same_step(model(token.expand(2, 1), two), by_modules(model, token.expand(2, 1), two))


def test_states_of_any_layout_are_understood():
    model, token = build(), draw()
    _, state = model(token)
    spread = tuple(
        latchwork.state.LayerState(*(torch.stack([a, a - 9], dim=-1)[..., 0] for a in layer)) for layer in state
    )
    assert not spread[0].conv.is_contiguous()
    assert_same_step(model(token, spread), model(token, state))


def test_other_integers_are_tokens_too():
    model, token = build(), draw()
    assert_same_step(model(token.to(torch.int32)), model(token))


@pytest.mark.parametrize("openmp", [True, False])
def test_bits_do_not_depend_on_the_number_of_threads(threads, monkeypatch, openmp):
    """On PyTorch's own threads and on the pool that stands in for them; and when fewer come than were asked for."""
    monkeypatch.setattr(cpu_step, "_SMALL", 0)
    if not openmp:
        monkeypatch.setattr(team, "_openmp", lambda: None)
    model, tokens = build(d_model=300, n_units=280), draw(10)
    results = []
    for count in (1, 2, 3):
        threads(count)
        results.append(_stream(model, tokens))
    monkeypatch.setattr(team, "run", lambda body, block, threads, run=team.run: run(body, block, 1))
    results.append(_stream(model, tokens))
    for other in results[1:]:
        assert torch.equal(results[0], other)


def test_python_threads_share_a_model():
    model, streams = build(), [draw(20) for _ in range(8)]
    expected = [_stream(model, tokens) for tokens in streams]

    def run(tokens):
        with torch.no_grad():
            return _stream(model, tokens)

    with ThreadPoolExecutor(8) as pool:
        for a, b in zip(expected, pool.map(run, streams), strict=True):
            assert torch.equal(a, b)


class _Steps(Dataset):
    def __init__(self, model, token):
        self.model, self.token = model, token

    def __len__(self):
        return 4

    def __getitem__(self, i):
        torch.set_num_threads(2)
        with torch.no_grad():
            return self.model(self.token)[0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_workers_forked_after_the_kernel_ran(threads, monkeypatch):
    threads(2)
    monkeypatch.setattr(cpu_step, "_SMALL", 0)
    steps = _Steps(build(), draw())
    expected = steps[0]
    loader = DataLoader(steps, num_workers=2, batch_size=None, multiprocessing_context="fork", timeout=60)
    for logits in loader:
        assert torch.equal(logits, expected)
