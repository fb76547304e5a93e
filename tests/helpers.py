"""What several test files need."""

from __future__ import annotations

import os
import subprocess
import sys

import torch
from torch import Tensor

LIBRARIES = {
    "mamba": "mambapy",
    "mamba2": "transformers",
    "xlstm-large": "transformers",
    "mlstm": "xlstm",
    "slstm": "xlstm",
    "xlstm": "xlstm",
    "transformer": "transformers",
}
"""What a baseline needs, by the name of its architecture."""


def assert_same(actual: Tensor, expected: Tensor) -> None:
    """Equal NaN masks and equal values elsewhere; the sign of a zero does not matter."""
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    assert torch.equal(actual.isnan(), expected.isnan())
    assert torch.equal(actual.nan_to_num(7.0, posinf=None), expected.nan_to_num(7.0, posinf=None))


def assert_close(actual: Tensor, expected: Tensor) -> None:
    """Within 1e-5·max(1, |value|) in float32 and 1e-12 in float64: what matrix products around a scan may differ by."""
    tolerance = 1e-12 if actual.dtype == torch.float64 else 1e-5
    difference = (actual.double() - expected.double()).abs()
    assert bool((difference <= tolerance * expected.double().abs().clamp(min=1)).all()), difference.max()


def run_python(code: str, **environment: str) -> str:
    """Run code in a fresh interpreter and return what it prints."""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}, timeout=300
    )
    assert result.returncode == 0, result.stderr
    return result.stdout
