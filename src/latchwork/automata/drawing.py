"""Pictures of automata as SVG, without any other program."""

from __future__ import annotations

import html
from collections.abc import Hashable, Iterable

from latchwork.automata.dfa import DFA, OTHER, check_dfa, shown
from latchwork.automata.layout import RADIUS, Edge, Layout, Point, arrange
from latchwork.automata.operations import is_empty
from latchwork.chart import BLUE, GREY, ORANGE

MOST = 60
"""How many states are still drawn."""


def draw(dfa: DFA, *, sink: bool = True) -> str:
    """The state graph as one ``<svg>`` element, the same text every time.

    Columns are distances from the start, which has an arrow; accepting states are doubled. Letters of one edge stand
    together, as ranges or as what is left out where that is shorter.

    Arguments: sink, if False, leaves out states that no word leads from to acceptance, with the edges to them.
    Raises: ValueError above 60 states.
    """
    check_dfa(dfa)
    if dfa.n_states > MOST:
        what = f"this one has {dfa.n_states:,}"
        raise ValueError(f"pictures have at most {MOST} states, {what}: minimize may help, write_att keeps it as text")
    states = [q for q in range(dfa.n_states) if sink or q == dfa.start or not _is_sink(dfa, q)]
    labels: dict[tuple[int, int], list[int]] = {}
    for source in states:
        for letter, target in enumerate(dfa.transitions[source].tolist()):
            if target in states:
                labels.setdefault((source, target), []).append(letter)
    layout = arrange(states, dfa.start, {pair: label(dfa, columns) for pair, columns in labels.items()})
    return _svg(dfa, states, layout)


def _is_sink(dfa: DFA, state: int) -> bool:
    return is_empty(DFA(dfa.alphabet, dfa.transitions, dfa.accepting, state, dfa.other))


def label(dfa: DFA, columns: list[int]) -> str:
    """The letters with these numbers, in few words."""
    chosen = [dfa.alphabet[a] for a in columns]
    rest = [letter for a, letter in enumerate(dfa.alphabet) if a not in set(columns)]
    if not rest and len(chosen) > 1:
        return "any"
    text = _listed(chosen)
    without = f"not {_listed(rest)}"
    return without if len(chosen) > 3 and len(without) < len(text) else text


def _listed(letters: Iterable[Hashable]) -> str:
    """Letters with commas between them; three and more neighbours as a range."""
    runs: list[list[Hashable]] = []
    for letter in letters:
        if runs and _follows(runs[-1][-1], letter):
            runs[-1].append(letter)
        else:
            runs.append([letter])
    parts = []
    for run in runs:
        names = [_named(letter) for letter in run]
        parts += [f"{names[0]}–{names[-1]}"] if len(run) > 2 else names
    text = ", ".join(parts)
    return text if len(text) <= 30 else f"{text[:28].rstrip(', ')} …"


def _follows(before: Hashable, letter: Hashable) -> bool:
    alike = isinstance(before, str) and isinstance(letter, str) and len(before) == len(letter) == 1
    if not alike or not (str(before).isalnum() and str(letter).isalnum()):
        return False
    return ord(str(letter)) == ord(str(before)) + 1


def _named(letter: Hashable) -> str:
    if letter is OTHER:
        return "other"
    if letter == " ":
        return "␣"
    text = str(letter)
    if text.isprintable() and text == text.strip() and text not in ("", ",", "–"):
        return text
    quoted = repr(letter)
    return quoted[1:-1] if "\\" in quoted else quoted  # \n needs no quotes, a comma does


def _svg(dfa: DFA, states: list[int], layout: Layout) -> str:
    left, top, right, bottom = layout.box
    title = html.escape(f"state graph of an automaton over {shown(dfa.alphabet)}", quote=True)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{title}" width="{right - left:.0f}" '
        f'height="{bottom - top:.0f}" viewBox="{left:.0f} {top:.0f} {right - left:.0f} {bottom - top:.0f}" '
        'font-family="system-ui, sans-serif" font-size="13" text-anchor="middle">',
        f'<defs><marker id="tip" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        f'<path d="M0 .8L8 4L0 7.2z" fill="{GREY}"/></marker></defs>',
        f'<rect x="{left:.0f}" y="{top:.0f}" width="100%" height="100%" fill="#fff"/>',
    ]
    x, y = layout.places[dfa.start]
    parts.append(_path(f"M{x - RADIUS - 26:.1f} {y:.1f}L{x - RADIUS:.1f} {y:.1f}"))
    parts += [_path(edge.path) for edge in layout.edges]
    parts += [_state(q, layout.places[q], bool(dfa.accepting[q])) for q in states]
    parts += [_text(edge) for edge in layout.edges]
    return "\n".join([*parts, "</svg>"])


def _path(path: str) -> str:
    return f'<path d="{path}" fill="none" stroke="{GREY}" stroke-width="1.4" marker-end="url(#tip)"/>'


def _state(number: int, place: Point, accepting: bool) -> str:
    x, y = place
    colour = BLUE if accepting else "#57606a"
    circle = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}" fill="#fff" stroke="{colour}" stroke-width="1.6"/>'
    inner = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS - 4}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
    return f'{circle}{inner if accepting else ""}<text x="{x:.1f}" y="{y + 4.5:.1f}" fill="{colour}">{number}</text>'


def _text(edge: Edge) -> str:
    x, y = edge.label_at
    halo = 'stroke="#fff" stroke-width="4" stroke-linejoin="round" paint-order="stroke"'
    return f'<text x="{x:.1f}" y="{y + 4.5:.1f}" fill="{ORANGE}" {halo}>{html.escape(edge.label, quote=False)}</text>'
