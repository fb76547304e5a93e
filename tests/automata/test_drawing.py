"""Pictures of automata."""

from __future__ import annotations

import itertools
import math
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from languages import random_dfa

from latchwork.automata import DFA, OTHER, draw, from_regex
from latchwork.automata.drawing import label
from latchwork.automata.layout import RADIUS, arrange

SVG = "{http://www.w3.org/2000/svg}"


def texts(picture: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def circles(picture: str) -> list[tuple[float, float, float]]:
    found = ElementTree.fromstring(picture).iter(f"{SVG}circle")
    return [(float(circle.get("cx")), float(circle.get("cy")), float(circle.get("r"))) for circle in found]


def test_states_letters_and_acceptance_are_shown():
    picture = draw(from_regex("(a|b)*abb", "ab"))
    assert sorted(texts(picture)) == sorted(["0", "1", "2", "3", *"abababab"])
    assert len(circles(picture)) == 4 + 1  # the accepting one is doubled
    assert picture.count("marker-end") == 8 + 1  # every edge and the arrow to the start


def test_a_sink_may_be_left_out():
    dfa = from_regex("ab", "ab")
    assert "any" in texts(draw(dfa))
    assert sorted(texts(draw(dfa, sink=False)))[-2:] == ["a", "b"]
    assert len(circles(draw(dfa, sink=False))) == 3 + 1
    assert len(circles(draw(from_regex("(?!)", "ab"), sink=False))) == 1  # the start stays


@pytest.mark.parametrize("seed", range(12))
def test_pictures_are_the_same_every_time_and_nothing_lies_outside(seed):
    dfa = random_dfa(seed, 1 + 2 * seed, "ab")
    picture = draw(dfa)
    assert picture == draw(dfa)
    left, top, width, height = map(float, re.search(r'viewBox="([^"]+)"', picture)[1].split())
    for x, y, radius in circles(picture):
        assert left <= x - radius
        assert x + radius <= left + width
        assert top <= y - radius
        assert y + radius <= top + height
    states = [circle for circle in circles(picture) if circle[2] == RADIUS]
    assert len(states) == dfa.n_states
    assert all(math.dist(p[:2], q[:2]) > 2 * RADIUS for p, q in itertools.combinations(states, 2))


def test_edges_of_small_graphs_pass_beside_states():
    dfa = from_regex("(a|b)*a(a|b){2}", "ab")
    pairs = {(q, target): "x" for q, row in enumerate(dfa.transitions.tolist()) for target in row}
    layout = arrange(list(range(dfa.n_states)), 0, pairs)
    for edge in layout.edges:
        for x, y in layout.places.values():
            inside = np.hypot(*(edge.points - (x, y)).T) < RADIUS - 1
            assert not inside.any()


@pytest.mark.parametrize(
    ("alphabet", "columns", "text"),
    [
        ("ab", [0, 1], "any"),
        ("a", [0], "a"),
        ("abcdefgh", [0, 1, 2, 5, 7], "a–c, f, h"),
        ("abcdefgh", [0, 2, 4, 5, 7], "not b, d, g"),
        ("abcdefgh", [0, 1, 2, 3, 4, 6, 7], "not f"),
        ("a b", [0, 1], "a, ␣"),
        ("a\n\t,", [1, 2, 3], "\\n, \\t, ','"),
        ((1, 2, OTHER), [0, 2], "1, other"),
        (("", "<&>", "–", "é\x00"), [0, 1, 2], "'', <&>, '–'"),
        (("", "<&>", "–", "é\x00"), [3], "é\\x00"),
        ([f"letter{n}" for n in range(20)], list(range(10)), "letter0, letter1, letter2, l …"),
    ],
)
def test_letters_of_one_edge_stand_together(alphabet, columns, text):
    dfa = DFA(tuple(alphabet), np.zeros((1, len(alphabet)), int), np.array([True]))
    assert label(dfa, columns) == text


def test_hostile_letters_leave_a_picture():
    letters = ("<", "&", '"', "\x00", "\ud800", "]]>", "</text>")
    picture = draw(DFA(letters, np.array([[0, 1, 1, 1, 0, 1, 0], [1, 1, 1, 1, 1, 0, 1]]), np.array([True, False])))
    assert any("<" in text for text in texts(picture))
    picture.encode("utf-8")


def test_large_automata_are_refused_with_what_to_do():
    assert draw(random_dfa(0, 60))
    with pytest.raises(ValueError, match="at most 60 states, this one has 61: minimize may help"):
        draw(random_dfa(0, 61))
