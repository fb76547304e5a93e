"""The package as a whole."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest
import torch
from helpers import run_python

import latchwork


def test_public_names_are_there():
    for name in latchwork.__all__:
        assert hasattr(latchwork, name)


def test_importing_costs_little_more_than_torch():
    loaded = run_python("import sys, latchwork; print(*sys.modules)").split()
    heavy = {"numba", "llvmlite", "matplotlib", "tyro", "rich", "accelerate", "transformers", "triton", "tensorboard"}
    torch_alone = run_python("import sys, torch; print(*sys.modules)").split()
    assert not heavy & (set(loaded) - set(torch_alone))


def test_an_absent_backend_is_one_clear_error():
    r = torch.zeros(1, 2, 3)
    with pytest.raises(ValueError, match=r'backend "triton" needs .*; (or )?use backend="auto"'):
        latchwork.minmax_scan(r, r, backend="triton")


def test_nothing_validates_with_assert_or_reads_pickles():
    for path in Path(latchwork.__file__).parent.rglob("*.py"):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            words = line.strip()
            assert not words.startswith("assert "), f"{path}:{number}"
            assert "pickle" not in words, f"{path}:{number}"
            assert "torch.load(" not in words, f"{path}:{number}"


ROOMS = (
    *("__main__", "cli", "viewer", "experiments", "training", "evaluation", "runs", "bench", "verify", "tasks"),
    *("automata", "models", "nn", "ops", "state", "algebra", "chart", "fields", "files", "memory"),
)
"""The house from the roof down: a room uses what is below it, and nothing else."""


def test_imports_go_down():
    root = Path(latchwork.__file__).parent
    for path in root.rglob("*.py"):
        room = path.relative_to(root).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [name.name for name in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                if name.startswith("latchwork."):
                    other = name.split(".")[1]
                    assert ROOMS.index(room) <= ROOMS.index(other), f"{path}:{node.lineno}"


def test_the_tests_need_no_compiler(tmp_path):
    """Kernels are compiled by numba alone: with an empty PATH there is no compiler to be found."""
    code = "import torch, latchwork; r = torch.ones(1, 3, 4); print(latchwork.minmax_scan(r, r - 1)[0].sum())"
    assert run_python(code, PATH="", NUMBA_CACHE_DIR=str(tmp_path)).strip() == "tensor(0.)"


def test_files_of_the_project_do_not_speak_of_one_machine():
    root = Path(__file__).parents[1]
    try:
        names = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    own = Path(__file__).name
    for name in names.splitlines():
        path = root / name
        if path.name == own or path.suffix in {".png", ".svg"} or not path.is_file():
            continue
        text = path.read_text("utf-8")
        for word in ("/" + "work/", "/" + "root/", "pypi" + ".org", "files.pythonhosted"):
            assert word not in text, f"{name} speaks of {word}"
