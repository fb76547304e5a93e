"""The scan on accelerators; skipped where there is none."""

from __future__ import annotations

import pytest
import torch
from helpers import assert_same
from test_equality import assert_outcome, inputs_of, outcome
from test_layouts import check_far_apart, check_many
from test_scan import DTYPES

from latchwork import CascadeConfig, CascadeLM, minmax_scan

DEVICE = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else None
pytestmark = pytest.mark.skipif(DEVICE is None, reason="needs a GPU")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("degree", [0, 1, 2, 3, 8])
@pytest.mark.parametrize("special", [0.0, 0.1])
def test_values_and_gradients_are_those_of_the_loop_on_the_cpu(dtype, degree, special):
    if DEVICE == "mps" and dtype == torch.float64:
        pytest.skip("MPS has no float64")
    for time in (1, 3, 31, 65):
        scan, inputs = inputs_of(degree, 3, time, 9, dtype, special)
        for flags in ((None, None), (torch.rand(3, time) < 0.7, torch.rand(3, time) < 0.2)):
            there = [a.to(DEVICE) for a in inputs], [None if a is None else a.to(DEVICE) for a in flags]
            actual = outcome(scan, *there, "auto")
            assert all(a.device.type == DEVICE for a in actual[0])
            assert_outcome(actual, outcome(scan, inputs, flags, "reference"))


def test_a_long_sequence_equals_the_cpu():
    r, s = torch.randn(1, 100_003, 7), torch.randn(1, 100_003, 7) - 1
    expected = minmax_scan(r, s)
    for a, e in zip(minmax_scan(r.to(DEVICE), s.to(DEVICE)), expected, strict=True):
        assert_same(a.cpu(), e)


@pytest.fixture
def large_memory():
    """Room for tensors of more elements than 32 bits count."""
    free = torch.cuda.mem_get_info()[0] >> 30 if DEVICE == "cuda" else 0
    if free < 16:
        pytest.skip("needs 16 GiB of free memory on an NVIDIA GPU")


@pytest.mark.usefixtures("large_memory")
@pytest.mark.parametrize("degree", [0, 2])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_inputs_may_lie_further_apart_than_32_bits_count(degree, dim):
    check_far_apart(degree, dim, 1 << 31, "auto", DEVICE)


@pytest.mark.usefixtures("large_memory")
@pytest.mark.parametrize("degree", [0, 4])
@pytest.mark.parametrize("long", [True, False])
def test_more_states_and_gradients_than_32_bits_count_are_those_of_the_loop(degree, long):
    check_many(degree, long, 1 << 31, "auto", DEVICE)


def test_a_model_trains_on_the_device():
    model = CascadeLM(CascadeConfig(d_model=12, n_layers=2, n_units=7), 11).to(DEVICE)
    tokens = torch.randint(0, 11, (2, 65), device=DEVICE)
    with torch.autocast(DEVICE, torch.bfloat16):
        logits, state = model(tokens)
    logits.float().pow(2).mean().backward()
    assert state[0].unit.device.type == DEVICE
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


def test_the_backend_for_the_cpu_refuses_other_devices():
    r = torch.zeros(1, 2, 3, device=DEVICE)
    with pytest.raises(ValueError, match=r'needs tensors on the CPU.*use backend="auto"'):
        minmax_scan(r, r, backend="cpu")
