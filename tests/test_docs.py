"""The documents are true: code runs, links lead somewhere, commands exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from latchwork.tasks import registry

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])


def blocks():
    for page in PAGES:
        for i, block in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), flags=re.S | re.M)):
            yield pytest.param(block, id=f"{page.name}-{i}")


@pytest.mark.parametrize("block", list(blocks()))
def test_code_blocks_run(block, monkeypatch):
    monkeypatch.setattr(registry, "TASKS", dict(registry.TASKS))  # what a block registers is its own
    exec(compile(block, "block", "exec", dont_inherit=True), {})


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text("utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_command_in_the_readme_is_one():
    text = (ROOT / "README.md").read_text("utf-8")
    commands = {tuple(re.findall(r"[a-z]+", m)[:1]) for m in re.findall(r"^    latchwork ([a-z]+)", text, flags=re.M)}
    usage = subprocess.run([sys.executable, "-m", "latchwork", "--help"], capture_output=True, text=True).stdout
    assert commands
    for (name,) in commands:
        assert name in usage
