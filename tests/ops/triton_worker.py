"""Compiles what a scan would launch on a card that need not be there: python triton_worker.py CAPABILITY CASES."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from latchwork.ops.triton import scan, scan_backward

_TOOL = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"


class Card:
    """All that the compiler asks of a card."""

    def __init__(self, capability: int) -> None:
        self.capability = capability

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)


def registers_and_stack(binary: bytes) -> tuple[int, int]:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        found = subprocess.run(
            [_TOOL, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    registers, stack = re.search(r"REG:(\d+) STACK:(\d+)", found).groups()
    return int(registers), int(stack)


def main(capability: int, cases: list[dict]) -> None:
    driver.set_active(Card(capability))
    compiled: dict[tuple, dict] = {}
    case: dict = {}
    launch = JITFunction.run

    def compile_only(self, *args, grid, warmup, **options):
        made = launch(self, *args, grid=grid, warmup=True, **options)
        ptx = made.asm["ptx"]
        registers, stack = registers_and_stack(made.asm["cubin"])
        compiled[made.hash, self.__name__] = {
            **case,
            "kernel": self.__name__,
            "target": re.search(r"\.target (\w+)", ptx).group(1),
            "registers": registers,
            "stack": stack,
            "waits": ptx.count("ld.volatile"),
            "flushes": ".ftz" in ptx,
            "extremes": sorted(set(re.findall(r"\b(?:min|max)\.(?:NaN\.)?f\d+", ptx))),
        }
        return made

    JITFunction.run = compile_only
    for case in cases:
        degree, dtype = case["degree"], getattr(torch, case["dtype"])
        matrix, vector = ((degree, degree), (degree,)) if degree else ((), ())
        r, s = torch.empty(2, 4096, 64, *matrix, dtype=dtype), torch.empty(2, 4096, 64, *vector, dtype=dtype)
        state = torch.zeros(2, 64, *vector, dtype=torch.promote_types(dtype, torch.float32))
        flags = torch.ones(2, 4096, dtype=torch.bool) if case["flags"] else None
        x, _ = scan(r, s, state, state, flags, flags)
        scan_backward(s, state, r, s, state, state, flags, flags, x)
        for time in case.get("other_times", ()):
            scan(r[:, :time], s[:, :time], state, state, None, None)
    print(json.dumps(list(compiled.values())))


if __name__ == "__main__":
    main(int(sys.argv[1]), json.loads(sys.argv[2]))
