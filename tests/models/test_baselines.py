"""Baselines keep the promises of their interface, and compute what their libraries do."""

from __future__ import annotations

import sys

import pytest
import torch
from helpers import LIBRARIES
from torch import nn

from latchwork import state as states
from latchwork.models.architectures import ARCHITECTURES, architecture, body_size, build
from latchwork.models.baselines import BASELINES, BaselineLM
from latchwork.models.baselines.mamba import selective_scan

V, CLASSES = 11, 5
SMALL = {
    "lstm": {"d_model": 8},
    "gru": {"d_model": 8},
    "elman": {"d_model": 8},
    "mamba": {"d_model": 8, "d_state": 4},
    "mamba2": {"d_model": 8, "d_state": 4, "n_heads": 2, "chunk": 8},
    "xlstm-large": {"d_model": 64, "hidden": 8, "chunk": 16},
    "mlstm": {"d_model": 16, "n_heads": 2, "chunk": 16},
    "slstm": {"d_model": 8, "n_heads": 2, "hidden": 8},
    "xlstm": {"d_model": 16, "n_heads": 2, "hidden": 8, "chunk": 16},
    "transformer": {"d_model": 8, "n_heads": 2, "window": 16},
}
every_baseline = pytest.mark.parametrize("name", BASELINES)


def config_of(name, **sizes):
    if name in LIBRARIES:
        pytest.importorskip(LIBRARIES[name], reason=f"pip install 'latchwork[{BASELINES[name].extra}]'")
    return BASELINES[name](**sizes)


def small(name) -> BaselineLM:
    """A small model away from its start, where many gates do not look at their inputs yet."""
    model = build(config_of(name, **SMALL[name]), V, CLASSES).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def in_chunks(model, tokens, sizes):
    state, logits = None, []
    for chunk in tokens.split(sizes, dim=1):
        y, state = model(chunk, state)
        logits.append(y)
    return torch.cat(logits, dim=1), state


def leaves(state):
    return [state] if isinstance(state, torch.Tensor) else [leaf for part in state for leaf in leaves(part)]


def assert_close(ours, theirs):
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


@every_baseline
def test_bodies_have_about_125_thousand_parameters(name):
    sizes = {body_size(build(config_of(name), *vocabulary)) for vocabulary in ((20, None), (300, 4))}
    assert len(sizes) == 1
    assert sizes.pop() == pytest.approx(125_000, rel=0.05)


@every_baseline
@torch.no_grad()
def test_chunks_equal_one_call(name):
    model, tokens = small(name), torch.randint(0, V, (3, 50))
    whole, last = model(tokens)
    assert whole.shape == (3, 50, CLASSES)
    for sizes in ([1, 2, 1, 13, 16, 17], [33, 17], [1] * 50):
        logits, state = in_chunks(model, tokens, sizes)
        assert_close(logits, whole)
        for ours, theirs in zip(leaves(state), leaves(last), strict=True):
            assert_close(ours, theirs)


@every_baseline
@torch.no_grad()
def test_later_calls_do_not_change_a_state(name):
    model, tokens = small(name), torch.randint(0, V, (2, 40))
    _, state = model(tokens[:, :20])
    before = [leaf.clone() for leaf in leaves(state)]
    for rest in (tokens[:, 20:], tokens[:, 20:21]):
        first, second = model(rest, state)[0], model(rest, state)[0]
        assert torch.equal(first, second)
        assert all(map(torch.equal, leaves(state), before))


@every_baseline
@torch.no_grad()
def test_rows_of_a_state_stand_for_their_sequences(name):
    model, tokens = small(name), torch.randint(0, V, (3, 30))
    rows = torch.tensor([2, 0, 2, 1])
    whole, _ = model(tokens[rows])
    _, state = model(tokens[:, :20])
    logits, _ = model(tokens[rows, 20:], states.select(state, rows))
    assert_close(logits, whole[:, 20:])


@every_baseline
def test_gradients_pass_through_a_carried_state_until_it_is_detached(name):
    model, tokens = small(name), torch.randint(0, V, (2, 40))

    def gradients(run):
        model.zero_grad()
        run().square().sum().backward()
        return [p.grad.clone() for p in model.parameters()]

    def detached():
        _, state = model(tokens[:, :24])
        return model(tokens[:, 24:], states.detach(state))[0]

    carried = gradients(lambda: in_chunks(model, tokens, [24, 1, 1, 14])[0][:, 24:])
    for ours, whole in zip(carried, gradients(lambda: model(tokens)[0][:, 24:]), strict=True):
        torch.testing.assert_close(ours, whole, atol=1e-4 * whole.abs().max().item() + 1e-7, rtol=1e-3)
    assert not all(map(torch.allclose, carried, gradients(detached)))


@every_baseline
def test_every_parameter_is_trained(name):
    model = build(config_of(name, **SMALL[name]), V, CLASSES)
    before = [p.clone() for p in model.parameters()]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randint(0, V, (4, 20)))[0].logsumexp(-1).sum().backward()
        optimizer.step()
    assert not any(map(torch.equal, before, model.parameters()))


@every_baseline
def test_the_head_is_the_embedding_unless_there_are_other_classes(name):
    config = config_of(name, **SMALL[name])
    tied = build(config, V)
    assert tied.head.weight is tied.embedding.weight
    assert tied(torch.zeros(1, 3, dtype=torch.long))[0].shape == (1, 3, V)
    assert build(config, V, CLASSES).head.weight.shape == (CLASSES, config.d_model)


def test_tokens_that_are_none_are_refused():
    model = small("lstm")
    with pytest.raises(ValueError, match=r"tokens must be in 0 … 10, got values from 0 to 11"):
        model(torch.tensor([[0, 11]]))
    with pytest.raises(ValueError, match=r"tokens must be an integer tensor \[B, T\]"):
        model(torch.zeros(1, 2))


@torch.no_grad()
def test_mamba_computes_what_its_library_does():
    library = pytest.importorskip("mambapy.mamba", reason="pip install 'latchwork[baselines]'")
    body = small("mamba").body
    theirs = library.Mamba(library.MambaConfig(d_model=8, n_layers=2, d_state=4))
    theirs.layers = body.layers
    u = torch.randn(2, 21, 8)
    assert_close(body(u)[0], body.norm(theirs(u)))


@torch.no_grad()
def test_mlstm_and_slstm_compute_what_their_library_does():
    library = pytest.importorskip("xlstm", reason="pip install 'latchwork[xlstm]'")
    u = torch.randn(2, 21, 16)
    mlstm = library.mLSTMBlockConfig(mlstm=library.mLSTMLayerConfig(num_heads=2))
    stack = library.xLSTMBlockStackConfig(mlstm_block=mlstm, context_length=21, num_blocks=2, embedding_dim=16)
    _assert_same_stack(small("mlstm").body, library.xLSTMBlockStack(stack), u)
    slstm = library.sLSTMBlockConfig(
        slstm=library.sLSTMLayerConfig(num_heads=2, backend="vanilla", dtype="float32"),
        feedforward=library.FeedForwardConfig(proj_factor=1.0, round_proj_up_to_multiple_of=1),
    )
    stack = library.xLSTMBlockStackConfig(slstm_block=slstm, num_blocks=2, embedding_dim=8)
    _assert_same_stack(small("slstm").body, library.xLSTMBlockStack(stack), u[:, :, :8])
    slstm.feedforward.proj_factor = 0.5
    stack = library.xLSTMBlockStackConfig(mlstm, slstm, context_length=21, num_blocks=2, embedding_dim=16, slstm_at=[1])
    _assert_same_stack(small("xlstm").body, library.xLSTMBlockStack(stack), u)


def _assert_same_stack(body, theirs, u):
    theirs.blocks.load_state_dict(body.blocks.state_dict())
    theirs.post_blocks_norm.load_state_dict(body.norm.state_dict())
    assert_close(body(u)[0], theirs.eval()(u))


@torch.no_grad()
@pytest.mark.parametrize("name", ["mamba2", "xlstm-large", "transformer"])
def test_models_of_transformers_compute_what_their_library_does(name):
    body = small(name).body
    u = torch.randn(2, 16, body.model.config.hidden_size)
    assert_close(body(u)[0], body.model(inputs_embeds=u, use_cache=False).last_hidden_state)


def test_the_selective_scan_is_the_recurrence_with_its_gradients():
    x, delta, state = torch.randn(2, 5, 3), torch.rand(2, 5, 3), torch.randn(2, 3, 4)
    a, b, c = -torch.rand(3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 4)
    inputs = [each.double().requires_grad_() for each in (x, delta, a, b, c, state)]
    x, delta, a, b, c, h = inputs
    y, last = selective_scan(*inputs)
    for t in range(5):
        h = torch.exp(delta[:, t, :, None] * a) * h + (delta[:, t] * x[:, t])[:, :, None] * b[:, t, None]
        torch.testing.assert_close(y[:, t], (h * c[:, t, None]).sum(-1))
    torch.testing.assert_close(last, h)
    assert torch.autograd.gradcheck(selective_scan, inputs)


@torch.no_grad()
def test_the_transformer_sees_half_its_window_at_least_and_the_window_at_most():
    model, tokens = small("transformer"), torch.zeros(1, 60, dtype=torch.long)
    other = tokens.clone()
    other[0, 20] = 1
    (ours, state), (theirs, _) = model(tokens), model(other)
    differs = (ours != theirs).any(-1)[0].nonzero().flatten().tolist()
    assert differs == list(range(20, 32))  # windows of 16 end at 16, 24, 32 …
    assert state.shape[1] <= 16


@pytest.mark.parametrize(("name", "library"), LIBRARIES.items())
def test_absent_libraries_are_named_with_what_to_install(monkeypatch, name, library):
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.setitem(sys.modules, f"{library}.mamba", None)
    extra = BASELINES[name].extra
    with pytest.raises(ModuleNotFoundError, match=rf"{library} is not installed: pip install 'latchwork\[{extra}\]'"):
        build(BASELINES[name](), V)


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        ("lstm", {"d_model": 0}, "d_model must be a positive integer, got 0"),
        ("gru", {"n_layers": 1.5}, "n_layers must be an integer, got 1.5"),
        ("mamba2", {"n_heads": 7}, r"expand · d_model must be a multiple of n_heads = 7, got 180"),
        ("xlstm-large", {"d_model": 72}, "d_model must be a multiple of 64, got 72"),
        ("mlstm", {"n_heads": 5}, "d_model must be a multiple of n_heads = 5, got 96"),
        ("slstm", {"n_heads": 3}, "d_model must be a multiple of n_heads = 3, got 100"),
        ("transformer", {"n_heads": 5}, "d_model must be a multiple of n_heads = 5, got 72"),
        ("transformer", {"window": 9}, "window must be even, got 9"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_at_once(name, sizes, message):
    with pytest.raises(ValueError, match=message):
        BASELINES[name](**sizes)


def test_architectures_are_known_by_their_configurations():
    for name, kind in ARCHITECTURES.items():
        assert architecture(kind()) == name
    assert isinstance(build(ARCHITECTURES["elman"](d_model=4), V).body.cells, nn.RNN)


def test_the_state_of_mamba_has_the_precision_of_its_weights_under_autocast():
    model = small("mamba")
    tokens = torch.randint(V, (2, 9))
    with torch.autocast("cpu", torch.bfloat16):
        logits, state = model(tokens)
        again, _ = model(tokens, state)
    _, inner = state[0]
    assert inner.dtype == torch.float32
    assert torch.isfinite(again).all()
    torch.testing.assert_close(logits.float(), model(tokens)[0], atol=0.05, rtol=0.05)
