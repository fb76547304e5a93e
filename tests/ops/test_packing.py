"""Documents packed in one row: each as if it were alone."""

from __future__ import annotations

import itertools

import pytest
import torch
from helpers import assert_same
from test_equality import TOLERANCE, inputs_of
from test_scan import every_backend, every_dtype

BOUNDARIES = (0, 3, 4, 6)
DOCUMENTS = [slice(*ends) for ends in itertools.pairwise(BOUNDARIES)]


def run(scan, inputs, up, **options):
    """x and last, and the gradients of r, s and x0 for upstream gradients of both."""
    r, s, x0 = leaves = [a.detach().requires_grad_() for a in inputs]
    results = scan(r, s, x0=x0, **options)
    return *results, *torch.autograd.grad(results, leaves, up)


def by_document(x, last, to_r, to_s):
    """What belongs to each document."""
    return [(x[:, part], last[i : i + 1], to_r[:, part], to_s[:, part]) for i, part in enumerate(DOCUMENTS)]


def check_packed(degree: int, dtype: torch.dtype, backend: str, device: str = "cpu") -> None:
    """Every document has the values and gradients of a run of its own, whatever the other ones are, even NaN."""
    scan, inputs = inputs_of(degree, 1, BOUNDARIES[-1], 5, dtype, 0.0)
    r, s, _, x0 = (a.to(device) for a in inputs)
    r, s, x0 = r + 2, s - 2, x0[0]  # so that most of what a state is comes from the one before it
    up_x, up_last = torch.randint_like(s, -4, 5), torch.randint_like(x0.expand(len(DOCUMENTS), *x0.shape), -4, 5)
    alone = [
        run(scan, (r[:, part], s[:, part], x0), (up_x[:, part], up_last[i : i + 1]), backend=backend)
        for i, part in enumerate(DOCUMENTS)
    ]

    def check(r, s, mask, documents):
        options = {"cu_seqlens": torch.tensor(BOUNDARIES, device=device), "mask": mask, "backend": backend}
        *packed, to_x0 = run(scan, (r, s, x0), (up_x, up_last), **options)
        for i in documents:
            actual, expected = by_document(*packed)[i], alone[i][:-1]
            for a, e in zip(actual[:2], expected[:2], strict=True):
                assert_same(a, e)
            for a, e in zip(actual[2:], expected[2:], strict=True):
                torch.testing.assert_close(a, e, rtol=0, atol=TOLERANCE[dtype])
        return to_x0

    for mask in (None, torch.ones(1, BOUNDARIES[-1], dtype=torch.bool, device=device)):
        to_x0 = check(r, s, mask, range(len(DOCUMENTS)))
        torch.testing.assert_close(to_x0, sum(document[-1] for document in alone), rtol=0, atol=TOLERANCE[dtype])
    for spoiled, part in enumerate(DOCUMENTS):
        bad_r, bad_s = r.clone(), s.clone()
        bad_r[:, part], bad_s[:, part] = torch.nan, torch.nan
        check(bad_r, bad_s, None, [i for i in range(len(DOCUMENTS)) if i != spoiled])


@every_backend
@every_dtype
@pytest.mark.parametrize("degree", [0, 2, 3])
def test_packed_documents_equal_separate_runs_and_do_not_reach_each_other(backend, dtype, degree):
    check_packed(degree, dtype, backend)
