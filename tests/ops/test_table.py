"""The scan over letters is the scan over tables that are spread over time: the same bits, the same gradients."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import forward_ad

from latchwork import minmax_matrix_scan
from latchwork.ops.table import minmax_table_scan, sparse_table

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def case(letters: int, n: int, batch: int, time: int, dtype: torch.dtype):
    wide = torch.promote_types(dtype, torch.float32)
    return (
        torch.randn(letters, n, n).to(dtype),
        torch.randn(letters, n).to(dtype),
        torch.randint(letters, (batch, time)),
        torch.randn(batch, n).to(wide),
        torch.rand(batch, time) < 0.7,
    )


def spread(R, s, letters, state, mask=None):  # noqa: N803
    wide = R[letters].unsqueeze(2), s[letters].unsqueeze(2)
    x, last = minmax_matrix_scan(*wide, state.unsqueeze(1), mask=mask, backend="reference")
    return x.squeeze(2), last.squeeze(1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape", [(2, 1, 3, 7), (4, 3, 2, 63), (2, 17, 5, 1), (3, 40, 2, 9), (3, 4, 0, 5), (3, 4, 2, 0)]
)
@pytest.mark.parametrize("masked", [False, True])
def test_values_are_those_of_tables_spread_over_time(shape, dtype, masked, threads):
    R, s, letters, state, mask = case(*shape, dtype)  # noqa: N806
    keep = mask if masked else None
    expected = spread(R, s, letters, state, keep)
    for count in (1, 2):
        threads(count)
        for got, wanted in zip(minmax_table_scan(R, s, letters, state, mask=keep), expected, strict=True):
            assert got.dtype == wanted.dtype
            assert torch.equal(got, wanted)


@pytest.mark.parametrize("n", [1, 3, 40])
def test_gradients_are_those_of_tables_spread_over_time(n, monkeypatch):
    monkeypatch.setattr("latchwork.ops.table._SPREAD_ELEMENTS", 5 * 2 * n * n)  # several pieces
    R, s, letters, state, mask = case(3, n, 2, 12, torch.float64)  # noqa: N806
    inputs = [a.requires_grad_() for a in (R, s, state)]
    cotangents = torch.randn(2, 12, n).double(), torch.randn(2, n).double()
    found = []
    for run in (minmax_table_scan, spread):
        x, last = run(R, s, letters, state, mask=mask)
        loss = (x * cotangents[0]).sum() + (last * cotangents[1]).sum()
        found.append(torch.autograd.grad(loss, inputs))
    for got, wanted in zip(*found, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # by torch's own formulas
def test_tangents_are_those_of_tables_spread_over_time():
    R, s, letters, state, mask = case(3, 4, 2, 9, torch.float64)  # noqa: N806
    found = []
    for run in (minmax_table_scan, spread):
        with forward_ad.dual_level():
            dual = [forward_ad.make_dual(a, a.cos()) for a in (R, s, state)]
            x, last = run(*dual[:2], letters, dual[2], mask=mask)
            found.append((forward_ad.unpack_dual(x).tangent, forward_ad.unpack_dual(last).tangent))
    for got, wanted in zip(*found, strict=True):
        assert torch.equal(got, wanted)


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("kind", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.uint16, torch.uint64])
def test_letters_of_any_integers(kind, gradients):
    R, s, letters, state, mask = case(3, 4, 2, 9, torch.float32)  # noqa: N806
    R.requires_grad_(gradients)
    for got, wanted in zip(
        minmax_table_scan(R, s, letters.to(kind), state, mask=mask), spread(R, s, letters, state, mask), strict=True
    ):
        assert torch.equal(got, wanted)


@pytest.mark.parametrize("gradients", [False, True])
def test_an_empty_alphabet_has_empty_words(gradients):
    state = torch.randn(2, 3)
    R, s = torch.zeros(0, 3, 3, requires_grad=gradients), torch.zeros(0, 3)  # noqa: N806
    x, last = minmax_table_scan(R, s, torch.zeros(2, 0, dtype=torch.int64), state)
    assert x.shape == (2, 0, 3)
    assert torch.equal(last, state)


@pytest.mark.parametrize("time", [1, 9])
@pytest.mark.parametrize("where", [0, 1, 2])
def test_nan_wins_as_in_the_scan(where, time):
    R, s, letters, state, mask = case(12, 4, 2, time, torch.float32)  # noqa: N806
    (R, s, state)[where].view(-1)[5::7] = float("nan")
    got, wanted = minmax_table_scan(R, s, letters, state, mask=mask), spread(R, s, letters, state, mask)
    torch.testing.assert_close(got, wanted, rtol=0, atol=0, equal_nan=True)
    if where < 2:
        assert sparse_table(R, s) is None


def test_a_table_that_is_ready_gives_the_same_bits():
    R, s, letters, state, mask = case(12, 4, 2, 9, torch.float32)  # noqa: N806
    table = sparse_table(R, s)
    for time in (0, 1, 9):
        arguments = R, s, letters[:, :time], state
        got = minmax_table_scan(*arguments, mask=mask[:, :time], table=table)
        for one, other in zip(got, minmax_table_scan(*arguments, mask=mask[:, :time]), strict=True):
            assert torch.equal(one, other)


def test_infinite_tables_keep_and_forget():
    big = float("inf")
    R = torch.where(torch.eye(2, dtype=torch.bool), big, -big).expand(1, 2, 2).contiguous()  # noqa: N806
    x, _ = minmax_table_scan(
        R, torch.full((1, 2), -big), torch.zeros(1, 5, dtype=torch.int64), torch.tensor([[3.0, 4.0]])
    )
    assert torch.equal(x, torch.tensor([3.0, 4.0]).expand(1, 5, 2))


BAD = [
    ({"letters": torch.tensor([[3]])}, ValueError, r"letters must be in 0 … 2, got 3 … 3"),
    ({"letters": torch.tensor([[-1]])}, ValueError, r"letters must be in 0 … 2, got -1 … -1"),
    ({"letters": torch.tensor([0])}, ValueError, r"letters must be integers \[B, T\]"),
    ({"letters": torch.tensor([[0.0]])}, ValueError, r"letters must be integers"),
    ({"s": torch.zeros(3, 3)}, ValueError, r"R must be \[A, n, n\] and s \[A, n\]"),
    ({"s": torch.zeros(3, 2).double()}, TypeError, r"share a dtype"),
    (
        {"R": torch.zeros(3, 2, 2, dtype=torch.int32), "s": torch.zeros(3, 2, dtype=torch.int32)},
        TypeError,
        r"share a dtype of float32, float64, bfloat16, float16, got torch.int32 and torch.int32",
    ),
    ({"state": torch.zeros(2, 2)}, ValueError, r"state must be torch.float32 of \(1, 2\)"),
    ({"state": torch.zeros(1, 2).double()}, ValueError, r"state must be torch.float32"),
    ({"state": [[0.0, 0.0]]}, TypeError, r"state must be a tensor, got list"),
    ({"mask": torch.ones(1, 2, dtype=torch.bool)}, ValueError, r"mask must be \[B, T\] = \(1, 1\)"),
]


@pytest.mark.parametrize(("change", "error", "message"), BAD)
def test_arguments_that_do_not_fit_are_refused(change, error, message):
    arguments = {
        "R": torch.zeros(3, 2, 2),
        "s": torch.zeros(3, 2),
        "letters": torch.tensor([[0]]),
        "state": torch.zeros(1, 2),
        **change,
    }
    with pytest.raises(error, match=message):
        minmax_table_scan(**arguments)
