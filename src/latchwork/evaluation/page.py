"""What reports are made of: one HTML file that needs nothing else."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2733; background: #fff; max-width: 60rem; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p.sub { color: #5b6b7b; margin: 0 0 1.5rem; }
.figures { display: flex; flex-wrap: wrap; gap: 1rem 2.5rem; margin: 1rem 0; padding: 0; }
.figures div { min-width: 8rem; } .figures b { display: block; font-size: 1.6rem; line-height: 1.2; }
.figures span { color: #5b6b7b; }
svg { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { text-align: left; padding: .2rem 1.2rem .2rem 0; border-bottom: 1px solid #e3e8ee; font-weight: normal; }
th { color: #5b6b7b; } td.n, th.n { text-align: right; }
.columns { display: flex; flex-wrap: wrap; gap: 1rem 3rem; }
"""


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def escape(text: str) -> Markup:
    """The text as HTML; what is HTML already stays as it is."""
    return text if isinstance(text, Markup) else Markup(html.escape(text))


def page(title: str, body: Iterable[str], style: str = "") -> str:
    """A whole document; `style` is added to the style that all reports share."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">\n'
        f"<style>{STYLE}{style}</style></head>\n<body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def figures(pairs: Iterable[tuple[str, str]]) -> str:
    """Large figures side by side, each with what it is."""
    shown = (f"<div><b>{escape(figure)}</b><span>{escape(what)}</span></div>" for figure, what in pairs)
    return '<div class="figures">' + "".join(shown) + "</div>"


def table(
    rows: Sequence[Sequence[str]],
    *,
    head: Sequence[str] = (),
    numeric: int | None = None,
    above: Sequence[tuple[str, int]] = (),
) -> str:
    """A table below a `head`, if any; the columns from number `numeric` on are aligned to the right.

    `above` names columns together: names and how many columns each spans.
    """
    lines = []
    if above:
        spans = "".join(f'<th colspan="{columns}" class="span">{escape(name)}</th>' for name, columns in above)
        lines.append(f"<tr>{spans}</tr>")
    if head:
        lines.append(_row("th", head, numeric))
    return "<table>" + "".join([*lines, *(_row("td", row, numeric) for row in rows)]) + "</table>"


def _row(tag: str, cells: Sequence[str], numeric: int | None) -> str:
    shown = []
    for i, cell in enumerate(cells):
        kind = ' class="n"' if numeric is not None and i >= numeric else ""
        shown.append(f"<{tag}{kind}>{escape(cell)}</{tag}>")
    return f"<tr>{''.join(shown)}</tr>"
