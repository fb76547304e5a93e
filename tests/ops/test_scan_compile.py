"""The scan as an operator of `torch.library`."""

from __future__ import annotations

import shutil
import warnings

import pytest
import test_matrix_scan
import test_scan
import torch
from helpers import assert_same

from latchwork import CascadeConfig, CascadeLM, MinMaxRNN, minmax_matrix_scan, minmax_scan
from latchwork.state import LayerState, detach

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.mark.parametrize("backend", ["cpu", "torch"])
@pytest.mark.parametrize("flags", [False, True])
@pytest.mark.parametrize("draw", [test_scan.draw, lambda *shape: test_matrix_scan.draw(*shape, 2)])
def test_the_operators_keep_their_promises(backend, flags, draw):
    operator = getattr(torch.ops.latchwork, f"scan_{backend}").default
    backward = getattr(torch.ops.latchwork, f"scan_{backend}_backward").default
    r, s, state, x0 = draw(2, 6, 5)
    mask, reset = (torch.rand(2, 6) < 0.7, torch.rand(2, 6) < 0.3) if flags else (None, None)
    leaves = tuple(a.clone().requires_grad_() for a in (r, s, state, x0))
    torch.library.opcheck(operator, (*leaves, mask, reset))
    x, last = operator(r, s, state, x0, mask, reset)
    gradients = torch.randn_like(x), torch.randn_like(last)
    torch.library.opcheck(backward, (*gradients, r, s, state, x0, mask, reset, x))


@pytest.mark.parametrize("compiler", ["aot_eager", "inductor"])
def test_a_compiled_scan_has_the_same_bits_and_gradients(compiler):
    if compiler == "inductor" and shutil.which("g++") is None:
        pytest.skip("inductor needs a C++ compiler")

    def run(r, s, state):
        x, last = minmax_scan(r * 2, s, state)
        return x * 3, last

    leaves = [a.clone().requires_grad_() for a in test_scan.draw(2, 9, 20)[:3]]
    compiled = torch.compile(run, backend=compiler, fullgraph=True)
    results = []
    for function in (run, compiled):
        x, last = function(*leaves)
        results.append((x, last, *torch.autograd.grad(x.sum() + last.sum(), leaves)))
    for a, b in zip(*results, strict=True):
        assert_same(b, a)


def test_a_model_exported_for_one_short_sequence_takes_other_sizes_and_a_state():
    from torch.fx.experimental import _config

    model = CascadeLM(CascadeConfig(d_model=12, n_layers=2, n_units=7, dropout=0.0), 11).eval()
    batch, time = torch.export.Dim("batch"), torch.export.Dim("time", min=3)
    state = model.initial_state(1)
    by_layer = tuple(LayerState({0: batch}, {0: batch}) for _ in state)
    with _config.patch("backed_size_oblivious", True):  # a batch of 1 may become another
        exported = torch.export.export(
            model, (torch.randint(0, 11, (1, 8)), state), dynamic_shapes=({0: batch, 1: time}, by_layer)
        ).module()
    tokens = torch.randint(0, 11, (3, 13))
    _, between = model(torch.randint(0, 11, (3, 5)))
    for actual, expected in zip(
        torch.utils._pytree.tree_leaves(exported(tokens, detach(between))),
        torch.utils._pytree.tree_leaves(model(tokens, between)),
        strict=True,
    ):
        torch.testing.assert_close(actual, expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("backend", ["cpu", "torch", "reference"])
def test_vmap_over_a_new_dimension_equals_a_loop_over_it(backend):
    r, s, state, _ = test_scan.draw(4, 9, 5)
    mask = torch.rand(2, 9) < 0.7
    r, s = r.reshape(2, 2, 9, 5), s.reshape(2, 2, 9, 5)

    def run(r, s):
        return minmax_scan(r, s, state[:2], mask=mask, backend=backend)

    both = torch.vmap(run, in_dims=(1, 0))(r, s)
    for i in range(2):
        for a, e in zip(both, run(r[:, i], s[i]), strict=True):
            assert_same(a[i], e)

    def loss(r, s):
        x, last = run(r, s)
        return (x * x).sum() + last.sum()

    by_sample = torch.vmap(torch.func.grad(loss, argnums=(0, 1)), in_dims=(1, 0))(r, s)
    for i in range(2):
        for a, e in zip(by_sample, torch.func.grad(loss, argnums=(0, 1))(r[:, i], s[i]), strict=True):
            assert_same(a[i], e)


@pytest.mark.parametrize("degree", [1, 2])
def test_autocast_trains_and_keeps_state_and_parameter_gradients_in_full(degree):
    model = CascadeLM(CascadeConfig(d_model=12, n_layers=2, n_units=7, degree=degree, learned_x0=True), 11)
    with torch.no_grad():
        model.cascade.layers[0].unit.reset.bias.fill_(1e5)
    tokens = torch.randint(0, 11, (2, 9))
    with torch.autocast("cpu", torch.bfloat16):
        logits, state = model(tokens)
        again, state = model(tokens, detach(state))
    (logits.float().pow(2).mean() + again.float().pow(2).mean()).backward()
    assert all(layer.unit.dtype == torch.float32 for layer in state)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.dtype == parameter.dtype
        assert parameter.grad.isfinite().all(), name


def test_a_model_in_bfloat16_and_an_rnn_under_autocast_carry_float32_states():
    model = CascadeLM(CascadeConfig(d_model=12, n_layers=2, n_units=7), 11).bfloat16()
    tokens = torch.randint(0, 11, (2, 9))
    logits, state = model(tokens)
    assert logits.dtype == torch.bfloat16
    assert state[0].unit.dtype == torch.float32
    end = model(tokens[:, 4:], model(tokens[:, :4])[1])[1]
    assert_same(end[0].unit, state[0].unit)
    logits.float().sum().backward()
    rnn = MinMaxRNN(5, 6, num_layers=2, degree=2)
    with torch.autocast("cpu", torch.bfloat16):
        y, h = rnn(torch.randn(9, 2, 5))
        y, h = rnn(torch.randn(9, 2, 5), h)
    assert h.dtype == torch.float32
    y.float().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in rnn.parameters())


def test_a_compiled_model_equals_the_eager_one():
    model = CascadeLM(CascadeConfig(d_model=12, n_layers=2, n_units=7, dropout=0.0), 11)
    tokens = torch.randint(0, 11, (2, 9))
    compiled = torch.compile(model, backend="aot_eager")
    logits, state = model(tokens)
    again, _ = compiled(tokens)
    torch.testing.assert_close(again, logits, atol=1e-6, rtol=1e-6)
    with torch.no_grad():
        torch.testing.assert_close(compiled(tokens, detach(state))[0], model(tokens, state)[0], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("backend", ["cpu", "torch"])
def test_a_mask_of_one_row_is_shared_by_all_samples_of_a_vmap(backend):
    r, s = torch.full((3, 1, 4, 1), 2.0), torch.arange(12.0).reshape(3, 1, 4, 1)
    mask = torch.tensor([[True, False, True, False]])
    expected = torch.stack([minmax_scan(a, b, mask=mask, backend=backend)[0] for a, b in zip(r, s, strict=True)])
    assert_same(torch.vmap(lambda r, s: minmax_scan(r, s, mask=mask, backend=backend)[0])(r, s), expected)
    nobody = torch.vmap(lambda r, s: minmax_scan(r, s, mask=mask, backend=backend)[0])(r[:0], s[:0])
    assert nobody.shape == (0, 1, 4, 1)


@pytest.mark.parametrize("backend", ["cpu", "torch"])
def test_operators_and_exported_programs_take_flags_of_any_strides(backend):
    r, s, state, x0 = test_scan.draw(4, 9, 3)
    mask, reset = (torch.rand(9, 4) < 0.5).T, torch.rand(9, 4).T < 0.3
    expected = minmax_scan(r, s, state, x0=x0, mask=mask, reset=reset, backend="reference")
    operator = getattr(torch.ops.latchwork, f"scan_{backend}")
    for a, e in zip(operator(r, s, state, x0, mask, reset), expected, strict=True):
        assert_same(a, e)

    class Scan(torch.nn.Module):
        def forward(self, r, s, mask):
            return minmax_scan(r, s, mask=mask, backend=backend)[0]

    exported = torch.export.export(Scan(), (r, s, mask.contiguous())).module()
    assert_same(exported(r, s, mask), Scan()(r, s, mask))


def test_a_default_device_does_not_move_the_scan():
    r, s, state, _ = test_scan.draw(2, 9, 5)
    expected = minmax_scan(r, s, state)
    with torch.device("meta"):
        actual = minmax_scan(r, s, state)
    for a, e in zip(actual, expected, strict=True):
        assert_same(a, e)


def test_large_degrees_run_without_a_kernel_of_their_own():
    r, s, state, _ = test_matrix_scan.draw(1, 3, 1, 33)
    expected = minmax_matrix_scan(r, s, state, backend="reference")
    for a, e in zip(minmax_matrix_scan(r, s, state), expected, strict=True):
        assert_same(a, e)


def test_an_rnn_can_be_traced_and_exported_for_other_batches():
    rnn = MinMaxRNN(3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(rnn, (torch.randn(5, 2, 3),))
    batch = torch.export.Dim("batch", min=2)
    exported = torch.export.export(rnn, (torch.randn(5, 6, 3),), dynamic_shapes=({1: batch},)).module()
    u = torch.randn(5, 9, 3)
    for program in (traced, exported):
        for a, e in zip(program(u), rnn(u), strict=True):
            torch.testing.assert_close(a, e)
