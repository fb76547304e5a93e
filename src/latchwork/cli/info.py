"""`latchwork info`."""

from __future__ import annotations

import importlib.metadata
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tyro

import latchwork
from latchwork.automata import CompiledCascade
from latchwork.automata.dfa import shown
from latchwork.cli.display import print_json
from latchwork.cli.language import sizes
from latchwork.ops.scan import BACKENDS, has_triton
from latchwork.runs.run import Run


@dataclass
class Info:
    """Say what is installed, what is in a run folder, or what a compiled cascade is."""

    run_folder: tyro.conf.Positional[Path | None] = None
    """The folder of a run, or a file of `latchwork compile`."""
    json: bool = False
    """Print as JSON."""

    def run(self) -> int:
        path = self.run_folder
        if path is None:
            facts = _installation()
        else:
            facts = _compiled(path) if path.suffix == ".safetensors" else _run(Run.open(path))
        if self.json:
            print_json(facts)
        else:
            _print(facts)
        return 0


def _installation() -> dict[str, Any]:
    return {
        "latchwork": latchwork.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "torch": torch.__version__,
        "numba": importlib.metadata.version("numba"),
        "threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "scan backends": [name for name in BACKENDS if name != "auto" and (name != "triton" or has_triton())],
    }


def _run(run: Run) -> dict[str, Any]:
    records = list(run.records())
    validations = [record for record in records if "validation" in record]
    return {
        "run": str(run.path),
        **{key: value for key, value in run.to_dict().items() if key != "format"},
        "parameters": run.count_parameters(),
        "body parameters": run.count_parameters(body=True),
        "updates": records[-1]["step"] if records else 0,
        "last validation": validations[-1]["validation"] if validations else None,
        "report": str(run.report) if run.report.exists() else None,
    }


def _compiled(path: Path) -> dict[str, Any]:
    cascade = CompiledCascade.load(path)
    return {
        "cascade": str(path),
        "letters": shown(cascade.alphabet),
        "outputs": cascade.labels,
        **sizes(cascade),
        "dtype": str(cascade.start.dtype).removeprefix("torch."),
        "bytes": path.stat().st_size,
    }


def _print(facts: dict[str, Any], indent: str = "") -> None:
    for name, value in facts.items():
        if isinstance(value, dict):
            print(f"{indent}{name}")
            _print(value, indent + "  ")
        else:
            shown = ", ".join(map(str, value)) if isinstance(value, list) else value
            print(f"{indent}{name:<22} {'–' if shown in (None, '') else shown}")
