"""The documents are true: code runs and prints what is shown, links lead somewhere, commands exist, pages are found."""

from __future__ import annotations

import importlib.util
import platform
import re
import subprocess
import sys
from pathlib import Path

import documents
import matplotlib
import pytest
import yaml
from documents import PAGES, ROOT

import latchwork
import latchwork.automata
import latchwork.tasks
from latchwork.tasks import registry

pages = pytest.mark.parametrize("page", PAGES, ids=documents.name_of)
NAVIGATION = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]


def having(language: str):
    """The pages with a block of this language."""
    found = [page for page in PAGES if any(block.language == language for block in documents.blocks(page))]
    return pytest.mark.parametrize("page", found, ids=documents.name_of)


def script(path: str):
    """A Python file of the documentation as a module."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@having("python")
def test_code_runs_and_prints_what_is_shown(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "TASKS", dict(registry.TASKS))  # what a page registers is its own
    documents.run(page, shell=False)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="the commands are for a POSIX shell")
@having("console")
def test_commands_and_code_say_what_is_shown(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "TASKS", dict(registry.TASKS))
    documents.run(page, shell=True)


@pages
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


def places(navigation) -> list[str]:
    """The pages that the navigation of the site leads to."""
    if isinstance(navigation, str):
        return [navigation]
    entries = navigation.values() if isinstance(navigation, dict) else navigation
    return [place for entry in entries for place in places(entry)]


def test_every_page_is_in_the_navigation_once():
    outside = ["contributing.md", "changelog.md"]
    inside = [page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")]
    assert sorted(places(NAVIGATION)) == sorted(inside + outside)


def test_every_public_name_is_in_the_reference():
    reference = "".join(page.read_text("utf-8") for page in (ROOT / "docs" / "reference").glob("*.md"))
    documented = set(re.findall(r"^::: (\S+)$", reference, flags=re.M))
    wanted = {f"latchwork.{name}" for name in latchwork.__all__ if not name.startswith("__")}
    wanted |= {"latchwork.algebra", "latchwork.state", "latchwork.ops.scan.minmax_last"}
    wanted |= {f"latchwork.tasks.{name}" for name in latchwork.tasks.__all__ if not name.isupper()}
    wanted |= {f"latchwork.automata.{name}" for name in latchwork.automata.__all__ if name != "OTHER"}
    assert wanted <= documented


def test_the_figures_are_what_their_script_draws(tmp_path):
    pinned = re.search(r"^matplotlib==(\S+)", (ROOT / "constraints.txt").read_text("utf-8"), flags=re.M)
    assert pinned is not None
    if matplotlib.__version__ != pinned[1] or platform.system() != "Linux" or platform.machine() != "x86_64":
        pytest.skip(f"drawn with matplotlib {pinned[1]} on x86-64 Linux")
    script("docs/figures/make.py").main(tmp_path)
    drawn = sorted(tmp_path.glob("*.svg"))
    assert [file.name for file in drawn] == sorted(file.name for file in (ROOT / "docs" / "figures").glob("*.svg"))
    for file in drawn:
        assert file.read_bytes() == (ROOT / "docs" / "figures" / file.name).read_bytes(), f"{file.name} is out of date"


def test_the_reference_has_every_command_with_its_help():
    commands = script("docs/theme/commands.py")
    page = "\n".join(commands.sections())
    for command in (), ("train",), ("train", "latching"), ("bench", "scan"), ("info",):
        assert f" latchwork {' '.join(command)}".rstrip() in page
    for command in ("evaluate",), ("train", "resume"):
        help = subprocess.run(
            [sys.executable, "-m", "latchwork", *command, "--help"],
            capture_output=True,
            text=True,
            encoding="utf-8",
            env={**commands.PLAIN, "PYTHONIOENCODING": "utf-8"},
        ).stdout
        assert words(help) in words(page)
    assert "<!-- commands -->" in (ROOT / "docs" / "reference" / "commands.md").read_text("utf-8")


def words(help: str) -> str:
    """Help without frames and line breaks: a terminal has them elsewhere."""
    return " ".join(re.sub(r"[─│╭╮╰╯]|-{9,}", " ", help).split())
