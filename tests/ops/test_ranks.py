"""Sequences that are split over real processes equal whole ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from latchwork import CascadeConfig, CascadeLM, minmax_scan

WORKER = Path(__file__).with_name("ranks_worker.py")


@pytest.mark.skipif(os.name != "posix", reason="gloo in processes of POSIX")
@pytest.mark.parametrize("processes", [*(pytest.param(n, marks=pytest.mark.slow) for n in (2, 3)), 4])
def test_outputs_gradients_and_training_equal_those_of_one_process(processes):
    many = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    result = subprocess.run(
        [sys.executable, *many, str(WORKER)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("done") == processes


def test_without_a_process_group_there_is_one_clear_error():
    r = torch.zeros(1, 2, 1)
    with pytest.raises(ValueError, match=r"process_group needs torch\.distributed\.init_process_group\(\) first"):
        minmax_scan(r, r, process_group=object())
    model = CascadeLM(CascadeConfig(d_model=4, n_units=2), 3)
    with pytest.raises(ValueError, match=r"process_group needs torch\.distributed\.init_process_group\(\) first"):
        model(torch.zeros(1, 2, dtype=torch.long), process_group=object())
    with pytest.raises(ValueError, match="cu_seqlens packs documents in one process"):
        minmax_scan(r, r, cu_seqlens=torch.tensor([0, 1, 2]), process_group=object())
