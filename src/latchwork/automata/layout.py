"""Where the states and edges of a small graph are drawn."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Point = tuple[float, float]
Box = tuple[float, float, float, float]
Points = NDArray[np.float64]
RADIUS = 18
_DOWN = 84.0
_LETTER = 7.2
_BENDS = (0.0, 0.16, -0.16, 0.3, -0.3, 0.48, -0.48, 0.7, -0.7, 1.0, -1.0)
_LABELS = (0.5, 0.38, 0.62, 0.27, 0.73)
_AROUND = (-90, 90, -45, -135, 45, 135, 180, 0)


@dataclass(frozen=True)
class Edge:
    """A drawn edge: its path in SVG's words, its label, and the middle of it."""

    path: str
    label: str
    label_at: Point
    points: Points


@dataclass(frozen=True)
class Layout:
    """Where everything is; the box is left, top, right, bottom."""

    places: dict[int, Point]
    edges: list[Edge]
    box: Box


def arrange(states: list[int], start: int, labels: dict[tuple[int, int], str]) -> Layout:
    """Place states in columns by their distance from the start, and bend edges around states, edges and labels.

    Edges are drawn one after another, short ones first and loops last, each on the best of a few paths: a small picture
    looks drawn by hand, and the same graph gives the same picture.
    """
    places = _places(states, start, labels)
    drawn = _Drawn(places, start)
    by_length = {pair: math.dist(places[pair[0]], places[pair[1]]) or math.inf for pair in labels}  # loops come last
    for pair in sorted(labels, key=lambda pair: (by_length[pair], pair)):
        source, target = pair
        if source == target:
            candidates = [_loop(places[source], angle, labels[pair]) for angle in _AROUND]
        else:
            candidates = _arcs(places[source], places[target], labels[pair], both=(target, source) in labels)
        drawn.add(drawn.best(candidates, pair))
    return Layout(places, drawn.edges, _box(places, drawn.edges))


def _places(states: list[int], start: int, labels: dict[tuple[int, int], str]) -> dict[int, Point]:
    """Columns by distance; in each, states are sorted by the mean height of their neighbours nearer to the start."""
    columns = _columns(states, start, labels)
    longest = max((len(text) for text in labels.values()), default=1)
    across = max(112.0, 2 * RADIUS + 44 + _LETTER * min(longest, 20))
    height: dict[int, float] = {}
    x: dict[int, float] = {}
    for number, column in enumerate(columns):
        before = {q: [height[p] for p, r in sorted(labels) if r == q and p in height] for q in column}
        means = {q: sum(before[q]) / len(before[q]) if before[q] else 0.0 for q in column}
        ordered = sorted(column, key=lambda q: (means[q], q))
        for row, q in enumerate(ordered):
            height[q] = (row - (len(ordered) - 1) / 2) * _DOWN
            x[q] = number * across
            if number % 2 and len(ordered) > 1:  # a little lower, so that edges along a row pass beside states
                height[q] += 0.17 * _DOWN
    return {q: (x[q], height[q]) for q in states}


def _columns(states: list[int], start: int, labels: dict[tuple[int, int], str]) -> list[list[int]]:
    """The states by distance from the start; those that no word leads to come last."""
    found, columns = {start}, [[start]]
    while columns[-1]:
        here = set(columns[-1])
        fresh = sorted({q for p, q in labels if p in here} - found)
        found.update(fresh)
        columns.append(fresh)
    rest = [q for q in states if q not in found]
    columns[-1:] = [rest[i : i + 6] for i in range(0, len(rest), 6)]
    return columns


def _arcs(a: Point, b: Point, label: str, both: bool) -> list[Edge]:
    """Curves from one state to another with different bends, each with its label at different places."""
    (ax, ay), (bx, by) = a, b
    length = math.hypot(bx - ax, by - ay)
    across = (-(by - ay) / length, (bx - ax) / length)
    result = []
    for bend in _BENDS[1:] if both else _BENDS:
        size = bend * max(length, 90.0)
        middle = ((ax + bx) / 2 + across[0] * size, (ay + by) / 2 + across[1] * size)
        begin, end = _towards(a, middle, RADIUS), _towards(b, middle, RADIUS + 1)
        points = _quadratic(begin, middle, end)
        path = f"M{begin[0]:.1f} {begin[1]:.1f}Q{middle[0]:.1f} {middle[1]:.1f} {end[0]:.1f} {end[1]:.1f}"
        for share in _LABELS:
            at = points[round(share * (len(points) - 1))]
            result.append(Edge(path, label, (float(at[0]), float(at[1])), points))
    return result


def _loop(place: Point, degrees: float, label: str) -> Edge:
    """A loop that leaves its state in a direction; 90 is down."""
    x, y = place
    angle = math.radians(degrees)
    ends = [(x + RADIUS * math.cos(angle + turn), y + RADIUS * math.sin(angle + turn)) for turn in (-0.45, 0.45)]
    handles = [(x + 54 * math.cos(angle + turn), y + 54 * math.sin(angle + turn)) for turn in (-0.55, 0.55)]
    path = "M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}".format(
        *ends[0], *handles[0], *handles[1], *ends[1]
    )
    t = np.linspace(0, 1, 13)[:, None]
    p0, p1, p2, p3 = (np.array(p) for p in (ends[0], handles[0], handles[1], ends[1]))
    points = (1 - t) ** 3 * p0 + 3 * t * (1 - t) ** 2 * p1 + 3 * t**2 * (1 - t) * p2 + t**3 * p3
    away = 55 + abs(math.cos(angle)) * (_LETTER * len(label) / 2 - 4)
    return Edge(path, label, (x + away * math.cos(angle), y + away * math.sin(angle)), points)


def _towards(a: Point, b: Point, distance: float) -> Point:
    length = math.dist(a, b) or 1.0
    return a[0] + (b[0] - a[0]) * distance / length, a[1] + (b[1] - a[1]) * distance / length


def _quadratic(a: Point, b: Point, c: Point) -> Points:
    t = np.linspace(0, 1, 25)[:, None]
    result: Points = (1 - t) ** 2 * np.array(a) + 2 * t * (1 - t) * np.array(b) + t**2 * np.array(c)
    return result


class _Drawn:
    """What is on the page already."""

    def __init__(self, places: dict[int, Point], start: int) -> None:
        self.edges: list[Edge] = []
        self._places = places
        self._arrow = np.array([[places[start][0] - RADIUS - 15, places[start][1]]])
        self._points: Points = np.empty((0, 2))
        self._boxes: Points = np.empty((0, 4))

    def add(self, edge: Edge) -> None:
        self.edges.append(edge)
        self._points = np.concatenate([self._points, edge.points])
        self._boxes = np.concatenate([self._boxes, [_label_box(edge)]])

    def best(self, candidates: list[Edge], pair: tuple[int, int]) -> Edge:
        """The path that disturbs least: over no state, over no label, along no other edge; then the simplest."""
        others = np.array([place for q, place in self._places.items() if q not in pair]).reshape(-1, 2)
        paths = {edge.path: self._path_cost(edge.points, others) for edge in {e.path: e for e in candidates}.values()}
        costs = [paths[edge.path] + self._label_cost(edge) + 0.02 * rank for rank, edge in enumerate(candidates)]
        return candidates[int(np.argmin(costs))]

    def _path_cost(self, points: Points, others: Points) -> float:
        over_states = 12.0 * np.sum(_near(points, others) < RADIUS + 7)
        over_arrow = 6.0 * np.sum(_near(points, self._arrow) < 16)
        along_edges = 0.25 * np.sum(_near(points[2:-2], self._points) < 7)
        over_labels = 3.0 * _hits(self._boxes, points, 3)
        return float(over_states + over_arrow + along_edges + over_labels)

    def _label_cost(self, edge: Edge) -> float:
        box = np.array([_label_box(edge)])
        over_states = 10.0 * _hits(box, np.array([*self._places.values()]), RADIUS)
        over_arrow = 10.0 * _hits(box, self._arrow, 14)
        left, top, right, bottom = self._boxes.T
        overlaps = (left < box[0, 2]) & (box[0, 0] < right) & (top < box[0, 3]) & (box[0, 1] < bottom)
        return over_states + over_arrow + 3.0 * _hits(box, self._points, 3) + 8.0 * float(overlaps.sum())


def _near(points: Points, others: Points) -> Points:
    """The distance of each point to the nearest of others."""
    if not len(others):
        return np.full(len(points), np.inf)
    x, y = (points[:, None, axis] - others[None, :, axis] for axis in (0, 1))
    return np.asarray(np.sqrt((x * x + y * y).min(axis=1)))


def _label_box(edge: Edge) -> Box:
    x, y = edge.label_at
    half = _LETTER * len(edge.label) / 2 + 2
    return x - half, y - 8, x + half, y + 8


def _hits(boxes: Points, points: Points, margin: float) -> int:
    """How many times a point lies in a box or close by."""
    left, top, right, bottom = boxes.T[:, :, None]
    x, y = points.T[:, None]
    return int(((x > left - margin) & (x < right + margin) & (y > top - margin) & (y < bottom + margin)).sum())


def _box(places: dict[int, Point], edges: list[Edge]) -> Box:
    boxes = [(x - RADIUS - 28, y - RADIUS, x + RADIUS, y + RADIUS) for x, y in places.values()]
    boxes += [_label_box(edge) for edge in edges]
    boxes += [(*edge.points.min(axis=0).tolist(), *edge.points.max(axis=0).tolist()) for edge in edges]
    left, top, right, bottom = zip(*boxes, strict=True)
    return min(left) - 8, min(top) - 8, max(right) + 8, max(bottom) + 8
