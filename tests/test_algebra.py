"""The laws of the (max, min) algebra."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from latchwork import algebra, minmax_scan

VALUES = st.sampled_from([-torch.inf, -2.0, -1.0, 0.0, 0.5, 1.0, torch.inf])


def matrices(rows: int, columns: int):
    return st.lists(VALUES, min_size=rows * columns, max_size=rows * columns).map(
        lambda v: torch.tensor(v).reshape(rows, columns)
    )


def steps(n: int | None):
    if n is None:
        return st.tuples(matrices(1, 3).map(lambda a: a[0]), matrices(1, 3).map(lambda a: a[0]))
    return st.tuples(matrices(n, n), matrices(1, n).map(lambda a: a[0]))


@settings(max_examples=200, deadline=None)
@given(matrices(2, 3), matrices(3, 4), matrices(4, 2), matrices(3, 4))
def test_matmul_is_associative_and_distributes_over_join(a, b, c, d):
    assert torch.equal(algebra.matmul(algebra.matmul(a, b), c), algebra.matmul(a, algebra.matmul(b, c)))
    left = algebra.matmul(a, algebra.join(b, d))
    assert torch.equal(left, algebra.join(algebra.matmul(a, b), algebra.matmul(a, d)))


@settings(max_examples=200, deadline=None)
@given(st.data(), st.sampled_from([None, 1, 2, 3]))
def test_composition_is_associative_and_means_one_after_the_other(data, degree):
    first, second, third = (data.draw(steps(degree)) for _ in range(3))
    x = data.draw(matrices(1, degree or 3))[0]
    left = algebra.compose(algebra.compose(first, second), third)
    right = algebra.compose(first, algebra.compose(second, third))
    assert torch.equal(left[0], right[0])
    assert torch.equal(left[1], right[1])
    assert torch.equal(algebra.apply(left, x), algebra.apply(third, algebra.apply(second, algebra.apply(first, x))))


@settings(max_examples=100, deadline=None)
@given(st.data(), st.sampled_from([None, 1, 2, 3]))
def test_identity_changes_nothing(data, degree):
    step, x = data.draw(steps(degree)), data.draw(matrices(1, degree or 3))[0]
    one = algebra.identity(degree or 3, vector=degree is not None)
    assert torch.equal(algebra.apply(one, x), x)
    for composed in (algebra.compose(one, step), algebra.compose(step, one)):
        assert torch.equal(composed[0], step[0])
        assert torch.equal(composed[1], step[1])


def test_composition_is_not_commutative():
    first, second = (torch.tensor([0.9]), torch.tensor([0.6])), (torch.tensor([0.3]), torch.tensor([0.1]))
    assert algebra.compose(first, second)[1].item() == pytest.approx(0.3)
    assert algebra.compose(second, first)[1].item() == pytest.approx(0.6)


def test_a_scan_is_the_composition_of_its_steps():
    r, s, x0 = torch.randn(2, 9, 5), torch.randn(2, 9, 5), torch.randn(5)
    step = algebra.identity(2, 5)
    for t in range(9):
        step = algebra.compose(step, (r[:, t], s[:, t]))
    assert torch.equal(algebra.apply(step, x0), minmax_scan(r, s, x0=x0)[1])


@pytest.mark.parametrize("operation", [algebra.join, algebra.meet])
def test_gradient_weights_sum_to_one_at_ties_and_at_nan(operation):
    a = torch.tensor([1.0, 2.0, 2.0, torch.nan, 1.0, torch.nan, torch.inf], requires_grad=True)
    b = torch.tensor([2.0, 1.0, 2.0, 1.0, torch.nan, torch.nan, torch.inf], requires_grad=True)
    by_a, by_b = torch.autograd.grad(operation(a, b).sum(), (a, b))
    assert (by_a + by_b).tolist() == [1.0] * 7
    assert by_a[2:].tolist() == [0.5, 1.0, 0.0, 0.5, 0.5]


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"\(2, 3\) and \(2, 3\)"):
        algebra.matmul(torch.zeros(2, 3), torch.zeros(2, 3))
    with pytest.raises(ValueError, match="one more dimension"):
        algebra.apply((torch.zeros(2, 2, 3), torch.zeros(3)), torch.zeros(3))
