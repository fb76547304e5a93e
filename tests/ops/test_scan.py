"""The scan: values."""

from __future__ import annotations

import itertools

import pytest
import torch
from helpers import assert_same

from latchwork import minmax_scan
from latchwork.ops import reference

INF, NAN = torch.inf, torch.nan
BACKENDS = ("reference", "torch", "cpu")
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
STATES = {dtype: torch.float64 if dtype == torch.float64 else torch.float32 for dtype in DTYPES}
every_backend = pytest.mark.parametrize("backend", BACKENDS)
every_dtype = pytest.mark.parametrize("dtype", DTYPES)


def column(*values: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """One sequence of one unit, [1, T, 1]."""
    return torch.tensor(values, dtype=dtype).reshape(1, -1, 1)


def draw(batch: int, time: int, units: int, dtype: torch.dtype = torch.float32, special: float = 0.0):
    """r, s, state and x0 with many ties; a share `special` of the values are infinities and NaN."""

    def numbers(*shape: int) -> torch.Tensor:
        values = torch.randint(-3, 4, shape).to(dtype)
        kinds = torch.tensor([INF, -INF, NAN], dtype=dtype)[torch.randint(0, 3, shape)]
        return torch.where(torch.rand(shape) < special, kinds, values)

    r, s, state, x0 = (numbers(*shape) for shape in ((batch, time, units),) * 2 + ((batch, units),) * 2)
    return r, s, state.to(STATES[dtype]), x0.to(STATES[dtype])


@every_backend
@every_dtype
def test_set_wins_where_it_is_above_reset(backend, dtype):
    r, s = column(0.9, 0.3, dtype=dtype), column(0.6, 0.1, dtype=dtype)
    x, last = minmax_scan(r, s, backend=backend)
    assert_same(x, column(0.6, 0.3, dtype=dtype))
    assert_same(last.to(dtype), x[:, -1])
    x, _ = minmax_scan(column(1.0, dtype=dtype), column(2.0, dtype=dtype), backend=backend)
    assert x.item() == 2.0


@every_dtype
@pytest.mark.parametrize("units", [1, 2, 15, 16, 17, 31, 32, 33, 40, 48, 63, 64, 65, 100, 129, 257, 500, 1456])
def test_every_number_of_units_has_the_values_of_the_loop(dtype, units):
    for time in (1, 5, 63):
        for special in (0.0, 0.1):
            inputs = draw(3, time, units, dtype, special)
            mask, reset = torch.rand(3, time) < 0.8, torch.rand(3, time) < 0.2
            for flags in ((None, None), (mask, None), (None, reset), (mask, reset)):
                r, s, state, x0 = inputs
                expected = reference.scan(r, s, state, x0, *flags)
                options = dict(zip(("mask", "reset"), flags, strict=True))
                actual = minmax_scan(r, s, state, x0=x0, backend="cpu", **options)
                for a, e in zip(actual, expected, strict=True):
                    assert_same(a, e)


@every_backend
@pytest.mark.parametrize("time", range(1, 17))
def test_short_lengths_agree_on_all_words_of_three_steps(backend, time):
    """All sequences of a few distinct steps up to length 3, padded by identities to `time`."""
    steps = [(INF, -INF), (0.0, -INF), (INF, 1.0), (0.5, 0.5), (-1.0, 2.0), (1.0, 0.0)]
    words = list(itertools.product(steps, repeat=min(3, time)))
    r = torch.tensor([[step[0] for step in word] for word in words])
    s = torch.tensor([[step[1] for step in word] for word in words])
    pad = torch.full((len(words), time - r.shape[1]), INF)
    r, s = torch.cat([r, pad], 1).unsqueeze(-1), torch.cat([s, -pad], 1).unsqueeze(-1)
    x, _ = minmax_scan(r, s, x0=torch.tensor([0.25]), backend=backend)
    for row, word in enumerate(words):
        state = 0.25
        for t, (reset, set_) in enumerate(word):
            state = max(min(reset, state), set_)
            assert x[row, t, 0].item() == state
        assert x[row, -1, 0].item() == state


@pytest.mark.parametrize("backend", ["torch", "cpu"])
@pytest.mark.parametrize("units", [3, 64])
def test_long_sequences_equal_two_calls_with_the_state_carried(backend, units):
    r, s, state, _ = draw(1, 65_537, units)
    whole, last = minmax_scan(r, s, state, backend=backend)
    first, between = minmax_scan(r[:, :40_000], s[:, :40_000], state, backend=backend)
    second, end = minmax_scan(r[:, 40_000:], s[:, 40_000:], between, backend=backend)
    assert_same(whole, torch.cat([first, second], dim=1))
    assert_same(last, end)
    assert_same(whole[:, :2000], reference.scan(r[:, :2000], s[:, :2000], state, state, None, None)[0])


@every_backend
@every_dtype
@pytest.mark.parametrize("where", ["r", "s", "state"])
def test_nan_stays_in_its_unit_from_its_step_on(backend, dtype, where):
    r, s, state, _ = (torch.randn(a.shape).to(a.dtype) for a in draw(3, 9, 20, dtype))
    clean, _ = minmax_scan(r, s, state, backend=backend)
    if where == "state":
        state[1, 4] = NAN
    else:
        (r if where == "r" else s)[1, 5, 4] = NAN
    x, last = minmax_scan(r, s, state, backend=backend)
    expected = torch.zeros(3, 9, 20, dtype=torch.bool)
    expected[1, 0 if where == "state" else 5 :, 4] = True
    assert torch.equal(x.isnan(), expected)
    assert torch.equal(last.isnan(), expected[:, -1])
    assert_same(x[~expected], clean[~expected])


@every_backend
def test_mask_keeps_the_state_and_reset_goes_back_to_x0(backend):
    r, s = column(9.0, 9.0, 9.0, 9.0, 9.0), column(1.0, 2.0, 3.0, NAN, 4.0)
    mask = torch.tensor([[True, True, True, False, True]])
    reset = torch.tensor([[False, False, True, False, False]])
    x, last = minmax_scan(r, s, x0=torch.tensor([8.5]), mask=mask, reset=reset, backend=backend)
    assert_same(x, column(8.5, 8.5, 8.5, 8.5, 8.5))
    x, last = minmax_scan(r, s, torch.tensor([[0.0]]), x0=torch.tensor([-1.0]), mask=mask, reset=reset, backend=backend)
    assert_same(x, column(1.0, 2.0, 3.0, 3.0, 4.0))
    both = torch.tensor([[False, False, False, True, False]])
    x, last = minmax_scan(r, s, torch.tensor([[0.0]]), x0=torch.tensor([-1.0]), mask=mask, reset=both, backend=backend)
    assert_same(x, column(1.0, 2.0, 3.0, -1.0, 4.0))
    assert last.item() == 4.0


@every_backend
@pytest.mark.parametrize("shape", [(2, 0, 3), (0, 4, 3), (2, 4, 0)])
def test_empty_sequences_batches_and_rows_of_units(backend, shape):
    r = torch.zeros(shape, requires_grad=True)
    state = torch.ones(shape[0], shape[2], requires_grad=True)
    x, last = minmax_scan(r, r - 1, state, backend=backend)
    assert x.shape == shape
    if shape[1] == 0:
        assert_same(last, state)
    last.sum().backward()
    assert state.grad.shape == state.shape


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"s": torch.zeros(2, 3, 5)}, ValueError, r"\(2, 3, 4\).*\(2, 3, 5\)"),
        ({"r": torch.zeros(3, 4), "s": torch.zeros(3, 4)}, ValueError, r"\[B, T, D\].*\(3, 4\)"),
        ({"s": torch.zeros(2, 3, 4).double()}, TypeError, "float32.*float64"),
        ({"r": torch.zeros(2, 3, 4).int(), "s": torch.zeros(2, 3, 4).int()}, TypeError, "int32"),
        ({"r": torch.zeros(2, 3, 4).half()}, TypeError, "float16.*float32"),
        ({"state": torch.zeros(2, 4).int()}, TypeError, "state must be torch.float32.*int32"),
        ({"r": [1.0]}, TypeError, "r must be a tensor, got list"),
        ({"r": torch.zeros(2, 3, 4).to_sparse()}, TypeError, "r must be a dense tensor, got torch.sparse_coo"),
        ({"state": torch.zeros(2, 5)}, ValueError, r"state must be \(2, 4\).*\(2, 5\)"),
        ({"state": torch.zeros(2, 4).double()}, TypeError, "state must be torch.float32"),
        ({"x0": torch.zeros(5)}, ValueError, r"x0 must be \(4,\) or \(2, 4\).*\(5,\)"),
        ({"mask": torch.ones(2, 3)}, TypeError, "mask must be a bool tensor, got torch.float32"),
        ({"mask": torch.ones(2, 4, dtype=torch.bool)}, ValueError, r"mask must be \[B, T\] = \(2, 3\)"),
        ({"reset": [True]}, TypeError, "reset must be a bool tensor, got list"),
        ({"cu_seqlens": torch.tensor([0, 3])}, ValueError, "B must be 1, got 2"),
        ({"backend": "cuda"}, ValueError, "'cuda' is not available.*cpu"),
        ({"r": torch.zeros(2, 3, 4, device="meta")}, TypeError, "meta"),
    ],
)
def test_bad_arguments_are_named(change, kind, message):
    arguments = {"r": torch.zeros(2, 3, 4), "s": torch.zeros(2, 3, 4), **change}
    with pytest.raises(kind, match=message):
        minmax_scan(**arguments)


@pytest.mark.parametrize("boundaries", [[0, 2], [1, 3], [0, 2, 2, 3], [0, 3, 2, 3], [3], [0, -1, 3]])
def test_boundaries_that_do_not_fit_are_refused(boundaries):
    r = torch.zeros(1, 3, 4)
    with pytest.raises(ValueError, match="cu_seqlens must rise from 0 to T = 3"):
        minmax_scan(r, r, cu_seqlens=torch.tensor(boundaries))
