"""Triton's kernels become machine code for NVIDIA GPUs; no GPU is needed for that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from latchwork import minmax_matrix_scan, minmax_scan
from latchwork.ops import scan
from latchwork.ops.scan import TRITON_NEEDED, has_triton

needs_triton = pytest.mark.skipif(not has_triton(), reason=f"needs {TRITON_NEEDED}")
WORKER = Path(__file__).with_name("triton_worker.py")


def compiled(capability: int, cases: list[dict], cache: Path) -> list[dict]:
    """What `triton_worker.py` says of the kernels that these cases launch."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, str(WORKER), str(capability), json.dumps(cases)]
    result = subprocess.run(
        command, capture_output=True, text=True, env={**environment, "TRITON_CACHE_DIR": str(cache)}
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


def check(capability: int, cases: list[dict], cache: Path) -> None:
    kernels = compiled(capability, cases, cache)
    kinds = {"vector" if case["degree"] else "scalar" for case in cases}
    assert {kernel["kernel"] for kernel in kernels} == {
        f"{kind}_{way}" for kind in kinds for way in ("forward", "backward")
    }
    for kernel in kernels:
        assert kernel["target"].startswith(f"sm_{capability}"), kernel
        assert not kernel["flushes"], kernel  # numbers near zero stay what they are
        if kernel["dtype"] != "float64":  # which has no such instructions
            assert kernel["extremes"] == ["max.NaN.f32", "min.NaN.f32"], kernel
        # who waits for another program reads memory again every time
        assert kernel["waits"] == (2 if kernel["kernel"].startswith("scalar") else 0), kernel
        # nearly everything stays in registers; bytes that do not
        assert kernel["stack"] <= (1024 if kernel["dtype"] == "float64" else 32), kernel


def some_cases() -> Iterator[dict]:
    """Every degree and every dtype, with flags and without."""
    for degree in (0, 1, 2, 3, 4, 8):
        for dtype, flags in (("float32", True), ("bfloat16", False)):
            yield {"degree": degree, "dtype": dtype, "flags": flags}
    for degree in (0, 2):
        for dtype in ("float16", "float64"):
            yield {"degree": degree, "dtype": dtype, "flags": True}


@needs_triton
def test_kernels_become_machine_code_for_a_card_that_is_not_there(tmp_path):
    cases = [{"degree": 0, "dtype": "float32", "flags": False}, {"degree": 2, "dtype": "bfloat16", "flags": True}]
    check(90, cases, tmp_path)


@needs_triton
def test_batches_of_other_lengths_are_not_compiled_again(tmp_path):
    (case,) = [{"degree": 1, "dtype": "float32", "flags": False, "other_times": [4095, 512, 509, 440, 33, 31, 2]}]
    kernels = compiled(90, [case], tmp_path)
    assert [kernel["kernel"] for kernel in kernels] == ["vector_forward", "vector_backward"]


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90, 100])
def test_every_kernel_becomes_machine_code(tmp_path, capability):
    check(capability, list(some_cases()), tmp_path)


class _Operators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        if operator.namespace == "latchwork":
            self.names.append(operator._opname)
        return operator(*args, **(kwargs or {}))


@pytest.mark.parametrize("degree", [0, 8, 9])
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_auto_takes_tritons_kernels_on_nvidia_gpus_where_it_is_installed(device, degree, monkeypatch):
    monkeypatch.setattr("latchwork.ops.scan._runs", [True])
    with FakeTensorMode(), _Operators() as seen:
        if degree:
            s = torch.empty(2, 5, 3, degree, device=device)
            x, _ = minmax_matrix_scan(torch.empty(2, 5, 3, degree, degree, device=device), s)
        else:
            s = torch.empty(2, 5, 3, device=device)
            x, _ = minmax_scan(s, s)
    triton = has_triton() and degree <= 8 and torch.version.hip is None
    assert x.shape == s.shape
    assert seen.names == ["scan_cpu" if device == "cpu" else "scan_triton" if triton else "scan_torch"]


@needs_triton
@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_triton_that_cannot_build_is_passed_over_with_a_reason(monkeypatch):
    monkeypatch.setattr("latchwork.ops.scan._runs", [])
    with FakeTensorMode(), _Operators() as seen:
        s = torch.empty(2, 5, 3, device="cuda")
        with pytest.warns(UserWarning, match="Triton's kernels are not used, since it cannot build them: "):
            minmax_scan(s, s)
        minmax_scan(s, s)
    assert seen.names == ["scan_torch", "scan_torch"]


def test_what_is_asked_of_triton_is_a_constant_of_compiled_programs(monkeypatch):
    monkeypatch.setattr("latchwork.ops.scan._runs", [True])
    compiled_function = torch.compile(lambda x: x + scan._triton_runs(), backend="eager", fullgraph=True)
    assert compiled_function(torch.ones(2)).tolist() == [2, 2]
