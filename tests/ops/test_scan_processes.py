"""The scan under threads, forks, fresh processes and installations that cannot be written."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from helpers import assert_same, run_python
from test_equality import every_fast_backend, inputs_of, outcome
from torch.utils.data import DataLoader, Dataset

import latchwork
from latchwork import minmax_scan
from latchwork.ops import team

_DIGEST = """
import hashlib, torch
from latchwork import minmax_scan
torch.manual_seed(3)
r, s = torch.randn(4, 300, 70, requires_grad=True), torch.randn(4, 300, 70)
for _ in range(2):
    x, last = minmax_scan(r, s)
    (g,) = torch.autograd.grad((x * x).sum(), r)
    print(hashlib.sha256(b"".join(a.detach().numpy().tobytes() for a in (x, last, g))).hexdigest())
"""


def test_first_call_and_later_calls_agree_in_cold_and_warm_processes(tmp_path):
    digests = [run_python(_DIGEST, NUMBA_CACHE_DIR=str(tmp_path)).split() for _ in range(2)]
    assert any(tmp_path.rglob("*.nbc")), "nothing was cached"
    assert len({*digests[0], *digests[1]}) == 1


_KERNELS = """
import sys, torch
from latchwork import minmax_matrix_scan, minmax_scan
degrees = [0, 1, 2, 3, 4, 5]
if sys.argv[1:] == ["backwards"]:
    degrees.reverse()
found = {}
for degree in degrees:
    torch.manual_seed(degree)
    r, s = ((2, 40, 3),) * 2 if degree == 0 else ((2, 40, 1, degree, degree), (2, 40, 1, degree))
    r, s = torch.randn(r, requires_grad=True), torch.randn(s)
    x, _ = (minmax_scan if degree == 0 else minmax_matrix_scan)(r, s, backend="cpu")
    (g,) = torch.autograd.grad((x * x).sum(), r)
    found[degree] = x.double().sum().item(), g.double().sum().item()
print(*sorted(found.items()))
"""


def test_kernels_that_several_processes_compile_at_once_are_never_exchanged(tmp_path):
    """numba keeps all kernels of one name in one index, where two writers at a time mix up what belongs to which."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", _KERNELS]

    def start(*arguments: str) -> subprocess.Popen:
        return subprocess.Popen([*command, *arguments], env=environment, stdout=subprocess.PIPE, text=True)

    outputs = [process.communicate(timeout=300)[0] for process in [start(), start("backwards"), start()]]
    outputs.append(start().communicate(timeout=300)[0])  # from what they have left
    assert len({*outputs}) == 1
    assert outputs[0]
    assert len(list(tmp_path.rglob("*.nbi"))) == len(list(tmp_path.rglob("*.nbc"))) >= 12


@every_fast_backend
@pytest.mark.parametrize(
    ("degree", "shape"),
    [(0, (1, 3000, 40)), (0, (3, 2000, 70)), (0, (8, 300, 257)), (0, (64, 100, 8)), (2, (1, 600, 8)), (3, (3, 400, 5))],
)
def test_bits_do_not_depend_on_the_number_of_threads(backend, degree, shape, threads):
    scan, inputs = inputs_of(degree, *shape, torch.float32, 0.0)
    inputs = [torch.randn_like(a) for a in inputs]
    reset = torch.rand(shape[:2]) < 0.01
    up = torch.randn_like(inputs[1]), torch.randn_like(inputs[2])
    results = []
    for count in (1, 2, 8):
        threads(count)
        results.append(outcome(scan, inputs, (None, reset), backend, up))
    for other in results[1:]:
        for a, b in zip(itertools.chain(*results[0]), itertools.chain(*other), strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("openmp", [True, False])
def test_python_threads_at_once_get_the_same_bits(threads, monkeypatch, openmp):
    """On PyTorch's own threads, and on the pool that stands in for them on other systems."""
    threads(2)
    if not openmp:
        monkeypatch.setattr(team, "_openmp", lambda: None)
    inputs = [(torch.randn(4, 500, 40), torch.randn(4, 500, 40)) for _ in range(8)]
    expected = [minmax_scan(*pair)[0] for pair in inputs]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            for a, b in zip(expected, pool.map(lambda pair: minmax_scan(*pair)[0], inputs), strict=True):
                assert torch.equal(a, b)


class _Scans(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        torch.set_num_threads(2)
        generator = torch.Generator().manual_seed(i)
        r = torch.randn(2, 400, 40, generator=generator)  # few enough that PyTorch itself does not use threads
        return minmax_scan(r, r - 1)[0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_workers_forked_after_the_kernels_ran(threads):
    threads(2)
    expected = [_Scans()[i] for i in range(8)]
    loader = DataLoader(_Scans(), num_workers=2, batch_size=None, multiprocessing_context="fork", timeout=60)
    for a, b in zip(expected, loader, strict=True):
        assert_same(b, a)
    assert_same(_Scans()[0], expected[0])


@pytest.mark.skipif(os.name != "posix", reason="folders are made read-only the POSIX way")
@pytest.mark.parametrize("home", ["writable", "read-only"])
def test_an_installation_that_cannot_be_written_works(tmp_path, home):
    """The code is cached in the user's folder, or compiled in every process when there is none."""
    package, folder = tmp_path / "site" / "latchwork", tmp_path / "home"
    shutil.copytree(Path(latchwork.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    folder.mkdir()
    for path in [p for p in package.rglob("*") if p.is_dir()] + [package]:
        path.chmod(0o555)
    folder.chmod(0o755 if home == "writable" else 0o555)
    environment = {**os.environ, "PYTHONPATH": str(package.parent), "HOME": str(folder)}
    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        environment.pop(name, None)
    code = _DIGEST + "import latchwork; print(latchwork.__file__)"
    try:
        result = subprocess.run(
            [*_without_privileges(), sys.executable, "-c", code],
            capture_output=True,
            text=True,
            env=environment,
            timeout=300,
        )
    finally:
        for path in tmp_path.rglob("*"):
            path.chmod(path.stat().st_mode | 0o200)
    assert result.returncode == 0, result.stderr
    *digests, file = result.stdout.split()
    assert file.startswith(str(package))
    assert digests == run_python(_DIGEST).split()
    assert not list(package.rglob("*.nbc"))
    assert bool(list(folder.rglob("*.nbc"))) == (home == "writable")


def _without_privileges() -> list[str]:
    """A command prefix under which a read-only folder is read-only for root too."""
    if os.getuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("root writes everywhere, and there is no setpriv to prevent it")
    return ["setpriv", "--bounding-set=-all"]
