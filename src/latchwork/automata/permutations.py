"""Small permutation groups, given by generators: orbits, blocks of imprimitivity, nested labels.

A group on n points splits into a cascade: which orbit, then which block of it, then which part of the block, down to
the point. Every part but the first is permuted by a primitive group, which is as small as blocks can make it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

Permutation = tuple[int, ...]


def orbits(n: int, generators: Sequence[Permutation]) -> list[list[int]]:
    """The orbits of 0 … n − 1, each ascending, in the order of their first points."""
    seen = [False] * n
    found = []
    for start in range(n):
        if seen[start]:
            continue
        seen[start] = True
        orbit = [start]
        for point in orbit:
            for generator in generators:
                image = generator[point]
                if not seen[image]:
                    seen[image] = True
                    orbit.append(image)
        found.append(sorted(orbit))
    return found


def joined(n: int, generators: Sequence[Permutation], first: int, second: int) -> list[int]:
    """The finest partition of 0 … n − 1 that the group keeps and that has two points in one part (Atkinson 1975).

    Returns: [n] the smallest point of every point's part.
    """
    parent = list(range(n))

    def find(point: int) -> int:
        while parent[point] != point:
            parent[point] = parent[parent[point]]
            point = parent[point]
        return point

    pairs = [(first, second)]
    while pairs:
        one, two = (find(point) for point in pairs.pop())
        if one != two:
            parent[max(one, two)] = min(one, two)
            # Parts need their images joined only where they were joined: for the two points that stood for them.
            pairs.extend((generator[one], generator[two]) for generator in generators)
    return [find(point) for point in range(n)]


def chain(n: int, generators: Sequence[Permutation]) -> list[list[int]]:
    """Partitions of 0 … n − 1 that a transitive group keeps, from the whole to single points, none fits between.

    Returns: for every partition [n] the number of every point's part.
    """
    part = list(range(n))
    partitions = [part]
    count, quotient = n, list(generators)
    while count > 1:
        # The smallest parts that two points make hold no smaller ones.
        best = min((joined(count, quotient, 0, other) for other in range(1, count)), key=lambda p: p.count(0))
        numbers = {root: index for index, root in enumerate(sorted(set(best)))}
        merged = [numbers[root] for root in best]
        above = {merged[point]: point for point in range(count)}
        quotient = [tuple(merged[g[above[index]]] for index in range(len(numbers))) for g in quotient]
        part = [merged[index] for index in part]
        partitions.append(part)
        count = len(numbers)
    return partitions[::-1]


def nested_labels(n: int, generators: Sequence[Permutation]) -> list[list[tuple[int, ...]]]:
    """Labels for the points of every orbit: which part of the whole, which part of that, … down to the point.

    Parts of a part A are labelled as those of a fixed A₀ = g⁻¹A, with one g for each A. A permutation that leads from
    A to B then permutes labels as an element of the group that keeps A₀ does, and that group is primitive on them.

    Returns: for every orbit the labels of its points, in the order of `orbits`; all of one length in an orbit.
    """
    found = []
    for orbit in orbits(n, generators):
        position = {point: index for index, point in enumerate(orbit)}
        local = [tuple(position[generator[point]] for point in orbit) for generator in generators]
        partitions = chain(len(orbit), local)
        columns = [_labels(whole, parts, local) for whole, parts in itertools.pairwise(partitions)]
        found.append([tuple(column[index] for column in columns) for index in range(len(orbit))])
    return found


def _labels(whole: list[int], parts: list[int], generators: Sequence[Permutation]) -> list[int]:
    """The label of every point's part among the parts of its whole."""
    first = whole[0]
    inside = sorted({parts[point] for point in range(len(whole)) if whole[point] == first})
    label = {part: index for index, part in enumerate(inside)}
    carried: dict[int, Permutation] = {first: tuple(range(len(whole)))}
    queue = [first]
    some = {part: point for point, part in enumerate(whole)}
    for part in queue:
        for generator in generators:
            image = tuple(generator[point] for point in carried[part])
            target = whole[generator[some[part]]]
            if target not in carried:
                carried[target] = image
                queue.append(target)
    result = [0] * len(whole)
    for permutation in carried.values():
        for point, image_of_point in enumerate(permutation):
            if whole[point] == first:
                result[image_of_point] = label[parts[point]]
    return result
