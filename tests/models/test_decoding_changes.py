"""One token at a time: the kernel sees every change of a model, and steps aside where it should."""

from __future__ import annotations

import copy
import gc
import io
import weakref

import pytest
import torch
from helpers import assert_close
from small_models import SIZES, V, assert_same_outcome, assert_same_step, build, by_modules, draw
from torch import nn
from torch.nn.utils import parametrize

from latchwork import CascadeConfig, CascadeLM
from latchwork.models import decoding
from latchwork.nn.layer import CascadeLayer
from latchwork.nn.units import Units


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


def _scale(model):
    for parameter in model.parameters():
        parameter.mul_(1.5)


def _load(model):
    model.load_state_dict({name: a + 0.1 for name, a in model.state_dict().items()})


def _replace(model):
    model.cascade.layers[1].unit.set.weight = nn.Parameter(torch.randn(11, 18))


def _data(model):
    model.cascade.layers[0].ffn.inner.bias.data = torch.randn(24)


def _swapped(model):
    unit = model.cascade.layers[0].unit
    unit.reset, unit.set = unit.set, unit.reset


def _exchanged_names(model):
    norm = model.cascade.layers[0].ffn_norm
    weight, bias = norm.weight, norm.bias
    norm.weight, norm.bias = bias, weight


def _reordered(model):
    """As removing a parametrization does it."""
    norm = model.cascade.layers[0].ffn_norm
    weight = norm.weight
    del norm.weight
    norm.weight = weight
    weight.add_(0.5)


def _activation(model):
    model.cascade.layers[1].ffn.activation = torch.tanh


def _own_activation(model):
    model.cascade.layers[1].ffn.activation = lambda x: x * 0.5


def _epsilon(model):
    model.cascade.norm.eps = 1.0


def _fewer_layers(model):
    del model.cascade.layers[1]


def _another_bias(model):
    model.head.bias = nn.Parameter(torch.randn(V))


def _vocabulary(model):
    model.embedding.weight = nn.Parameter(torch.randn(V + 3, 18))


def _wide(model):
    model.double().float()
    _scale(model)


def _negative_view(model):
    model.cascade.layers[0].unit.set.weight = nn.Parameter(torch._neg_view(torch.randn(11, 18)))


CHANGES = [
    _negative_view,
    *(_scale, _load, _replace, _data, _swapped, _exchanged_names, _reordered, _activation, _own_activation, _epsilon),
    *(_fewer_layers, _another_bias, _vocabulary, _wide),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_changed_model_is_seen_at_the_next_token(change):
    model, tokens = build(), draw(2)
    before, _ = model(tokens[:, :1])
    change(model)
    actual, expected = model(tokens[:, :1]), by_modules(model, tokens[:, :1])
    assert not torch.equal(actual[0], before)
    assert_same_step(actual, expected)
    assert_same_step(model(tokens[:, 1:], actual[1]), by_modules(model, tokens[:, 1:], expected[1]))


@pytest.mark.parametrize("kind", [nn.Linear, Units, CascadeLayer])
def test_code_that_was_replaced_is_used(kernel, monkeypatch, kind):
    """As profilers, quantisers and accelerators do it."""
    model, token, called = build(), draw(), []
    original = kind.forward
    monkeypatch.setattr(kind, "forward", lambda self, *inputs: called.append(1) or original(self, *inputs))
    model(token)
    assert called
    assert not kernel


def test_which_of_the_learned_starts_and_gates_there_are_is_seen():
    model, token = build(conv="gated", learned_x0=True), draw()
    for layer in model.cascade.layers:
        layer.conv.first = None
    assert_same_step(model(token), by_modules(model, token))
    for layer in model.cascade.layers:
        layer.conv.first, layer.conv.gate = layer.conv.gate, None
    with pytest.raises(RuntimeError, match="must match the size"):
        by_modules(model, token)
    with pytest.raises(RuntimeError, match="must match the size"):
        model(token)


def test_a_weight_seen_through_other_strides_is_another_weight():
    """The same memory, at the same address."""
    model, token = build(n_units=18), draw()
    model(token)
    weight = model.cascade.layers[1].unit.out.weight
    weight.data = weight.data.t()
    assert_same_step(model(token), by_modules(model, token))


def test_weights_swapped_for_one_call_count_for_that_call():
    model, token = build(tie_embeddings=False), draw()
    before = model(token)[0]
    weights = {name: a * 2 for name, a in model.state_dict().items()}
    logits, _ = torch.func.functional_call(model, weights, (token,))
    assert_close(logits, torch.func.functional_call(model, weights, (token.expand(2, 1),))[0][:1])
    assert torch.equal(model(token)[0], before)


def test_hooks_on_parts_fire_and_hooks_on_the_model_cost_nothing(kernel):
    model, token, seen = build(), draw(), []
    model.register_forward_hook(lambda *_: seen.append("model"))
    model(token)
    assert (len(kernel), seen) == (1, ["model"])
    unit = model.cascade.layers[1].unit
    registrations = [
        unit.gate.register_forward_hook(lambda *_: seen.append("part")),
        unit.out.register_forward_pre_hook(lambda *_: seen.append("before")),
    ]
    model(token)
    assert seen == ["model", "part", "before", "model"]
    for registration in registrations:
        registration.remove()
    with nn.modules.module.register_module_forward_hook(lambda *_: seen.append("all")):
        model(token)
    assert seen.count("all") > 10
    assert len(kernel) == 1
    model(token)
    assert len(kernel) == 2


class _Loud(nn.Linear):
    def forward(self, x):
        return super().forward(x) * 3


class _Double(nn.Module):
    def forward(self, x):
        return x * 2


class _Subclass(CascadeLM):
    def _embed(self, tokens):
        return super()._embed(tokens) * 2


def _subclassed_part(model):
    model.cascade.layers[0].unit.reset = _Loud(18, 11)


def _another_function(model):
    part = model.cascade.layers[0].unit.reset
    part.forward = lambda x: nn.Linear.forward(part, x) * 3


def _parametrized(model):
    parametrize.register_parametrization(model.cascade.layers[0].unit.reset, "weight", _Double())


def _without_norm(model):
    model.cascade.layers[0].unit_norm = nn.Dropout(0.0)


def _no_gate(model):
    model.cascade.layers[0].unit.gate = None


def _own_parent(model):
    model.cascade.layers[0].ffn.parent = model.cascade.layers[0]


def _narrower(model):
    model.cascade.layers[0].unit.gate = nn.Linear(18, 1)


def _sparse(model):
    model.cascade.layers[0].unit.reset.weight = nn.Parameter(torch.eye(11, 18).to_sparse())


@pytest.mark.parametrize(
    "change",
    [_subclassed_part, _another_function, _parametrized, _without_norm, _no_gate, _own_parent, _narrower, _sparse],
    ids=lambda change: change.__name__,
)
def test_models_of_other_parts_are_left_to_their_parts(kernel, change):
    model, token = build(), draw()
    model(token)
    change(model)
    for _ in range(2):
        assert_same_step(model(token), by_modules(model, token))
    assert len(kernel) == 1


def test_a_subclass_is_left_to_itself(kernel):
    model, token = _Subclass(CascadeConfig(**SIZES), V).eval(), draw()
    assert_same_step(model(token), by_modules(model, token))
    assert not kernel


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes_are_left_to_the_modules(kernel, dtype):
    model, token = build().to(dtype), draw()
    assert_same_outcome(lambda: model(token), lambda: by_modules(model, token))
    assert not kernel


def test_copies_and_saved_models_are_as_before():
    model, token = build(), draw()
    expected = model(token)[0]
    twin = copy.deepcopy(model)
    assert torch.equal(twin(token)[0], expected)
    _scale(twin)
    assert torch.equal(model(token)[0], expected)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(token)[0], expected)


def test_a_model_that_nobody_holds_is_gone():
    model = build()
    model(draw())
    gone = weakref.ref(model)
    assert model in decoding._plans
    del model
    gc.collect()
    assert gone() is None
