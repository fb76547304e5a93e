"""What the site needs beyond its pages: files from outside docs, help of commands, and nothing from the network.

Links in the Markdown lead from file to file of the repository, so they work where the files are read as they are. Here
a link out of docs/ brings its target into the site: Markdown as a page, other files as they are.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel

sys.path.insert(0, str(Path(__file__).parent))
import commands

ROOT = Path(__file__).parents[2]
OUTSIDE = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Pages that lie outside docs/ and have a place in the navigation; more come in when a page links to them."""

_ELSEWHERE = "repository/"  # the folder of the site for all others
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#|/)([^)#\s]+)")
_EXTERNAL = re.compile(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(?:https?:)?//|<link\b[^>]*stylesheet[^>]*//")


def on_files(files: Files, config: Any) -> Files:
    """Add what lies outside docs/: the pages of OUTSIDE, then whatever the pages link to."""
    waiting = [*OUTSIDE, *(f"docs/{file.src_uri}" for file in files.documentation_pages())]
    while waiting:
        source = waiting.pop()
        uri = site_uri(source)
        if files.get_file_from_path(uri) is None:
            level = InclusionLevel.INCLUDED if source in OUTSIDE else InclusionLevel.NOT_IN_NAV
            files.append(File.generated(config, uri, abs_src_path=str(ROOT / source), inclusion=level))
        if source.endswith(".md"):
            text = (ROOT / source).read_text("utf-8")
            waiting += [t for t in targets(text, source) if files.get_file_from_path(site_uri(t)) is None]
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links at the files of the site, and fill in the help of the commands."""
    source = repository_path(page.file.src_uri)
    here = posixpath.dirname(page.file.src_uri)

    def point(link: re.Match[str]) -> str:
        target = resolve(link[1], source)
        return posixpath.relpath(site_uri(target), here or ".") if (ROOT / target).is_file() else link[1]

    markdown = _LINK.sub(point, markdown)
    if "<!-- commands -->" in markdown:
        markdown = markdown.replace("<!-- commands -->", "\n".join(commands.sections()))
    return markdown


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Refuse pages that would load something from the network."""
    if found := _EXTERNAL.search(output):
        raise PluginError(f"{page.file.src_uri} loads from the network: {output[found.start() : found.start() + 200]}")
    return output


def resolve(link: str, source: str) -> str:
    """The path in the repository that a link in the file `source` leads to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), link))


def targets(text: str, source: str) -> Iterator[str]:
    """The files of the repository that a page links to."""
    for link in _LINK.findall(text):
        target = resolve(link, source)
        if not target.startswith("..") and (ROOT / target).is_file():
            yield target


def site_uri(source: str) -> str:
    """Where a file of the repository is in the site."""
    if source in OUTSIDE:
        return OUTSIDE[source]
    return source.removeprefix("docs/") if source.startswith("docs/") else f"{_ELSEWHERE}{source}"


def repository_path(uri: str) -> str:
    """Where a file of the site is in the repository; the inverse of `site_uri`."""
    for source, there in OUTSIDE.items():
        if uri == there:
            return source
    return uri.removeprefix(_ELSEWHERE) if uri.startswith(_ELSEWHERE) else f"docs/{uri}"
