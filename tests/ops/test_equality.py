"""One grid: every backend, dtype, kind of unit and combination of flags has the values and gradients of the loop."""

from __future__ import annotations

import pytest
import test_matrix_scan
import test_scan
import torch
from helpers import assert_same, run_python
from hypothesis import given, settings
from hypothesis import strategies as st
from test_scan import DTYPES, every_backend

from latchwork import minmax_matrix_scan, minmax_scan
from latchwork.algebra import identity
from latchwork.ops import chunked, cpu
from latchwork.ops.scan import BACKENDS, minmax_last

FAST = [backend for backend in BACKENDS if backend not in ("auto", "reference", "triton")]  # that one: test_triton.py
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-4, torch.bfloat16: 3e-1, torch.float16: 5e-2}
every_fast_backend = pytest.mark.parametrize("backend", FAST)


def inputs_of(degree: int, batch: int, time: int, units: int, dtype: torch.dtype, special: float):
    """The scan for units of a degree (0 for scalar units) and r, s, state and x0 for it."""
    if degree == 0:
        return minmax_scan, test_scan.draw(batch, time, units, dtype, special)
    return minmax_matrix_scan, test_matrix_scan.draw(batch, time, units, degree, dtype, special)


def outcome(scan, inputs, flags, backend, up=None):
    """Outputs, and gradients for an upstream gradient of both of them, which is a fixed one by default."""
    leaves = [a.detach().requires_grad_() for a in inputs]
    r, s, state, x0 = leaves
    results = scan(r, s, state, x0=x0, mask=flags[0], reset=flags[1], backend=backend)
    if up is None:
        generator = torch.Generator().manual_seed(1)
        up = [torch.randint(-4, 5, a.shape, generator=generator).to(a) for a in results]
    return results, torch.autograd.grad(results, leaves, up, allow_unused=True, materialize_grads=True)


def assert_outcome(actual, expected) -> None:
    """The same outputs, and gradients as close as the dtype allows, wherever they were computed."""
    for a, e in zip(actual[0], expected[0], strict=True):
        assert_same(a.cpu(), e)
    for a, e in zip(actual[1], expected[1], strict=True):
        assert a.dtype == e.dtype
        torch.testing.assert_close(a.cpu(), e, rtol=0, atol=TOLERANCE[expected[0][0].dtype])


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_every_backend_has_the_values_and_gradients_of_the_loop(data):
    batch, time = (data.draw(st.integers(1, high)) for high in (4, 40))
    degree = data.draw(st.sampled_from([0, 0, 1, 2, 3, 4, 8]))
    units = data.draw(st.sampled_from([1, 3, 40, 50] if degree == 0 else [1, 5]))  # each makes kernels of its own
    special = data.draw(st.sampled_from([0.0, 0.05, 0.5]))
    dtype = data.draw(st.sampled_from(DTYPES))
    torch.manual_seed(data.draw(st.integers(0, 2**32 - 1)))
    scan, inputs = inputs_of(degree, batch, time, units, dtype, special)
    flags = [torch.rand(batch, time) < share if data.draw(st.booleans()) else None for share in (0.7, 0.2)]
    expected = outcome(scan, inputs, flags, "reference")
    for backend in FAST:
        assert_outcome(outcome(scan, inputs, flags, backend), expected)


@every_fast_backend
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("degree", [0, 2])
def test_half_inputs_keep_a_float32_state_exactly(backend, dtype, degree):
    """A state that the narrow type cannot hold goes on in full; only the copies in x are rounded."""
    scan, (r, s, state, x0) = inputs_of(degree, 2, 9, 5, dtype, 0.0)
    state, x0 = state + 1 / 1024, x0 - 1 / 4096
    mask, reset = torch.rand(2, 9) < 0.6, torch.rand(2, 9) < 0.2
    expected = outcome(scan, (r, s, state, x0), (mask, reset), "reference")
    assert_outcome(outcome(scan, (r, s, state, x0), (mask, reset), backend), expected)


def check_padding(degree: int, dtype: torch.dtype, chunks: int, backend: str, device: str = "cpu") -> None:
    """Chunks of nothing but padding return a float32 state beside half inputs exactly."""
    scan, inputs = inputs_of(degree, 1, 2, 3, dtype, 0.0)
    r, s, state, _ = (a.to(device) for a in inputs)
    state = torch.full_like(state, 1.0009765625)
    padding = torch.zeros(1, 2, dtype=torch.bool, device=device)
    for _ in range(chunks):
        x, state = scan(r, s, state, mask=padding, backend=backend)
    assert x.dtype == dtype
    assert state.dtype == torch.float32
    assert bool((state == 1.0009765625).all())


@every_backend
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("degree", [0, 2])
def test_a_thousand_chunks_of_padding_return_a_float32_state_beside_half_inputs(backend, dtype, degree):
    check_padding(degree, dtype, 1000, backend)


def check_identities(degree: int, time: int, x0: float, backend: str, device: str = "cpu") -> None:
    """Steps that keep every state keep x0 exactly, beside other numbers."""
    scan, unit = (minmax_scan, (3,)) if degree == 0 else (minmax_matrix_scan, (3, degree))
    r, s = identity(2, time, *unit, vector=degree > 0, device=device)
    start = torch.full(unit, x0, device=device)
    start[..., 1:] = -2.0
    x, last = scan(r, s, x0=start, backend=backend)
    assert_same(x, start.expand_as(x))
    assert_same(last, start.expand_as(last))


@every_backend
@pytest.mark.parametrize("time", [1, 2, 3, 31, 33, 63, 65, 1000])
@pytest.mark.parametrize("x0", [torch.inf, -torch.inf, 5.0])
@pytest.mark.parametrize("degree", [0, 2])
def test_identity_steps_keep_any_state_at_every_length(backend, time, x0, degree):
    check_identities(degree, time, x0, backend)


@every_backend
def test_the_last_state_of_packed_documents_is_exact_beside_half_inputs(backend):
    x0 = torch.full((3,), 1.0009765625)
    r = torch.full((1, 4, 3), 2.0, dtype=torch.bfloat16)
    x, last = minmax_scan(r, -r, x0=x0, cu_seqlens=torch.tensor([0, 1, 4]), backend=backend)
    assert x.dtype == torch.bfloat16
    assert last.tolist() == [[1.0009765625] * 3] * 2


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("time", range(1, 17))
def test_every_short_length_through_every_backend_and_chunk(dtype, time):
    scan, inputs = inputs_of(0, 3, time, 5, dtype, 0.1)
    outputs, _ = outcome(scan, inputs, (None, None), "reference")
    for backend in FAST:
        for a, e in zip(outcome(scan, inputs, (None, None), backend)[0], outputs, strict=True):
            assert_same(a, e)
        for cut in range(1, time):
            r, s, state, x0 = inputs
            first, between = scan(r[:, :cut], s[:, :cut], state, x0=x0, backend=backend)
            second, last = scan(r[:, cut:], s[:, cut:], between, x0=x0, backend=backend)
            assert_same(torch.cat([first, second], dim=1), outputs[0])
            assert_same(last, outputs[1])


def cut_time(patch: pytest.MonkeyPatch, length: int) -> None:
    """Make pieces of time `length` steps long: the chunks of tensor operations and the blocks of kernels on a CPU."""
    cut = cpu._cut
    patch.setattr(chunked, "_cut", lambda time: (length, time - time % length))
    patch.setattr(cpu, "_cut", lambda *sizes: cut(*sizes)._replace(block=length))


@every_fast_backend
@pytest.mark.parametrize("degree", [0, 2, 3])
@pytest.mark.parametrize("time", range(1, 17))
def test_pieces_of_time_of_every_length_have_the_values_and_gradients_of_the_loop(backend, degree, time, monkeypatch):
    scan, inputs = inputs_of(degree, 3, time, 5, torch.float32, 0.1)
    for flags in ((None, None), (torch.rand(3, time) < 0.7, torch.rand(3, time) < 0.2)):
        expected = outcome(scan, inputs, flags, "reference")
        for length in range(1, time + 1):
            with monkeypatch.context() as patch:
                cut_time(patch, length)
                assert_outcome(outcome(scan, inputs, flags, backend), expected)


@pytest.mark.parametrize("time", range(1, 17))
def test_chunks_of_every_length_compose_to_the_values_of_the_loop(time, monkeypatch):
    """On a CPU, where only long rows are cut into them and only for several threads."""
    monkeypatch.setattr(
        cpu, "_chunk_plan", lambda plan, _: plan._replace(tile_groups=plan.groups, row_tiles=-(-time // plan.block))
    )
    inputs = test_scan.draw(3, time, 5, special=0.1)
    for flags in ((None, None), (torch.rand(3, time) < 0.7, torch.rand(3, time) < 0.2)):
        expected, _ = outcome(minmax_scan, inputs, flags, "reference")
        for length in range(1, time + 1):
            with monkeypatch.context() as patch:
                cut_time(patch, length)
                actual, _ = outcome(minmax_scan, inputs, flags, "cpu")
            for a, e in zip(actual, expected, strict=True):
                assert_same(a, e)


@pytest.mark.parametrize("units", [1, 3, 8, 40, 64, 130, 200])
@pytest.mark.parametrize("dtype", DTYPES)
def test_one_long_row_cut_into_chunks_of_time_has_the_values_of_the_loop(units, dtype, threads, monkeypatch):
    """On a CPU the chunks of one row compose on several threads; here they are a few steps long."""
    monkeypatch.setattr(cpu, "_BLOCK_ELEMENTS", 8 * units)
    monkeypatch.setattr(cpu, "_SMALL", 0)
    monkeypatch.setattr(cpu, "_cut", cpu._cut.__wrapped__)
    inputs = test_scan.draw(1, 400, units, dtype, 0.0)
    for a in inputs[:2]:
        a[torch.rand(a.shape) < 0.001] = torch.nan
    mask, reset = torch.rand(1, 400) < 0.7, torch.rand(1, 400) < 0.02
    mask[:, 100:160] = False
    for flags in ((None, None), (mask, None), (None, reset), (mask, reset)):
        expected, _ = outcome(minmax_scan, inputs, flags, "reference")
        for count in (1, 2, 5):
            threads(count)
            with torch.no_grad():
                actual = minmax_scan(*inputs[:3], x0=inputs[3], mask=flags[0], reset=flags[1], backend="cpu")
                last = minmax_last(*inputs[:3], x0=inputs[3], mask=flags[0], reset=flags[1])
            for a, e in zip((*actual, last), (*expected, expected[1]), strict=True):
                assert_same(a, e)


def test_a_tensor_that_is_a_negative_view_is_read_as_its_values():
    values = torch.randn(2, 9, 5)
    negative = torch.complex(values, -values).conj().imag  # its negative bit is set
    assert negative.is_neg()
    assert_same(minmax_scan(negative, negative - 1)[0], minmax_scan(values, values - 1)[0])


def test_the_last_state_alone_is_the_scans_and_has_its_gradients():
    r, s, state, x0 = (a.requires_grad_() for a in test_scan.draw(3, 12, 20))
    up = torch.randn(3, 20)
    with torch.no_grad():
        assert_same(minmax_last(r, s, state, x0=x0), minmax_scan(r, s, state, x0=x0)[1])
    last = minmax_last(r, s, state, x0=x0)
    expected = minmax_scan(r, s, state, x0=x0)[1]
    for a, e in zip(*(torch.autograd.grad(y, (r, s, state), up) for y in (last, expected)), strict=True):
        assert_same(a, e)
    assert not torch.equal(last, torch.zeros_like(last))


@every_backend
@pytest.mark.parametrize("start", [torch.finfo(torch.float32).max, torch.finfo(torch.float32).min])
def test_a_state_that_becomes_infinite_in_half_precision_keeps_its_gradient(backend, start):
    r = torch.full((1, 4, 3), torch.inf, dtype=torch.bfloat16)
    state = torch.full((1, 3), start, requires_grad=True)
    minmax_scan(r, -r, state, backend=backend)[1].sum().backward()
    assert state.grad.tolist() == [[1.0, 1.0, 1.0]]


def test_float16_works_where_numba_compiles_for_a_processor_without_it(tmp_path):
    code = """
import torch
from latchwork import minmax_scan
r, s = torch.randn(2, 2, 9, 20, dtype=torch.float16)
print(torch.equal(minmax_scan(r, s)[0], minmax_scan(r, s, backend="reference")[0]))
"""
    assert run_python(code, NUMBA_CPU_NAME="generic", NUMBA_CACHE_DIR=str(tmp_path)).strip() == "True"
