"""The scan of vector units."""

from __future__ import annotations

import pytest
import torch
from helpers import assert_same
from test_scan import STATES, every_backend, every_dtype

from latchwork import minmax_matrix_scan, minmax_scan

INF, NAN = torch.inf, torch.nan


def draw(batch: int, time: int, units: int, degree: int, dtype: torch.dtype = torch.float32, special: float = 0.0):
    """R, s, state and x0 with many ties; a share `special` of the values are infinities and NaN."""

    def numbers(*shape: int) -> torch.Tensor:
        values = torch.randint(-3, 4, shape).to(dtype)
        kinds = torch.tensor([INF, -INF, NAN], dtype=dtype)[torch.randint(0, 3, shape)]
        return torch.where(torch.rand(shape) < special, kinds, values)

    lead = (batch, time, units, degree)
    state, x0 = (numbers(batch, units, degree).to(STATES[dtype]) for _ in range(2))
    return numbers(*lead, degree), numbers(*lead), state, x0


def permutation(order: list[int]) -> torch.Tensor:
    """The reset matrix that moves state order[i] to i: +inf there, −inf elsewhere."""
    eye = torch.eye(len(order), dtype=torch.bool)[order]
    return torch.where(eye, INF, -INF)


@every_backend
@pytest.mark.parametrize("degree", [2, 3, 4, 5])
def test_a_unit_of_degree_n_permutes_n_values_exactly_for_ever(backend, degree):
    """What no scalar unit can do: count modulo n."""
    time = 50
    cycle = permutation([(i + 1) % degree for i in range(degree)])
    matrices = cycle.expand(1, time, 1, degree, degree)
    state = torch.rand(1, 1, degree)
    x, last = minmax_matrix_scan(matrices, torch.full((1, time, 1, degree), -INF), state, backend=backend)
    for t in range(time):
        assert_same(x[0, t, 0], state[0, 0].roll(-(t + 1)))
    assert_same(last, x[:, -1])


@every_backend
@every_dtype
def test_degree_one_is_the_scalar_scan(backend, dtype):
    r, s, state, x0 = draw(3, 20, 18, 1, dtype, special=0.1)
    x, last = minmax_matrix_scan(r, s, state, x0=x0, backend=backend)
    y, end = minmax_scan(r[..., 0, 0], s[..., 0], state[..., 0], x0=x0[..., 0], backend=backend)
    assert_same(x[..., 0], y)
    assert_same(last[..., 0], end)


@every_backend
def test_weights_of_a_step_sum_to_one(backend):
    inputs = draw(3, 1, 10, 3, torch.float64, special=0.2)
    leaves = [a.requires_grad_() for a in inputs[:3]]
    x, _ = minmax_matrix_scan(*leaves, backend=backend)
    gradients = torch.autograd.grad(x.sum(), leaves)
    total = sum(g.sum() for g in gradients)
    assert total.item() == pytest.approx(x.numel(), rel=1e-12)


@pytest.mark.parametrize("shape", [(2, 0, 3, 2), (0, 4, 3, 2), (2, 4, 0, 2), (2, 4, 3, 0)])
def test_empty_dimensions(shape):
    s = torch.zeros(shape, requires_grad=True)
    r = torch.zeros(*shape, shape[-1], requires_grad=True)
    x, last = minmax_matrix_scan(r, s)
    assert x.shape == shape
    assert last.shape == (shape[0], *shape[2:])
    (x.sum() + last.sum()).backward()


def test_bad_shapes_are_named():
    s = torch.zeros(2, 3, 4, 5)
    with pytest.raises(ValueError, match=r"R must be \[B, T, U, n, n\].*\(2, 3, 4, 5, 6\)"):
        minmax_matrix_scan(torch.zeros(2, 3, 4, 5, 6), s)
    with pytest.raises(ValueError, match=r"state must be \(2, 4, 5\).*\(2, 5, 4\)"):
        minmax_matrix_scan(torch.zeros(2, 3, 4, 5, 5), s, torch.zeros(2, 5, 4))
    with pytest.raises(TypeError, match="R and s must share dtype"):
        minmax_matrix_scan(torch.zeros(2, 3, 4, 5, 5).double(), s)
