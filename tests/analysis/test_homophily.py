"""Homophily against naive sums over edges."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from dropnode.analysis.homophily import homophily
from dropnode.graph import Graph


def naive(edges: list[tuple[int, int]], labels: list[int]) -> tuple[float, float, float]:
    """The three measures from their definitions, edge by edge."""
    ends = [end for edge in edges for end in edge]
    classes = sorted(set(labels))
    share = {c: sum(labels[end] == c for end in ends) / len(ends) for c in classes}
    equal = sum(labels[a] == labels[b] for a, b in edges) / len(edges)
    chance = sum(value**2 for value in share.values())
    both = [*edges, *((b, a) for a, b in edges)]
    information = 0.0
    for one, other in product(classes, classes):
        joint = sum(labels[a] == one and labels[b] == other for a, b in both) / len(both)
        if joint:
            information += joint * math.log(joint / (share[one] * share[other]))
    entropy = -sum(value * math.log(value) for value in share.values() if value)
    return equal, (equal - chance) / (1 - chance), information / entropy


@pytest.mark.parametrize("seed", range(5))
def test_measures_are_those_of_their_definitions(seed: int) -> None:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, 20).tolist()
    pairs = {tuple(sorted(pair)) for pair in generator.integers(0, 20, (40, 2)).tolist()}
    edges = [(a, b) for a, b in pairs if a != b]
    found = homophily(Graph.from_edges(edges, np.eye(20), labels))
    expected = naive(edges, labels)
    assert (found.edge, found.adjusted, found.informativeness) == pytest.approx(expected)
    assert found.edges == len(edges)


def test_neighbours_that_always_differ_are_informative() -> None:
    edges = [(a, b) for a in range(4) for b in range(4, 8)]
    found = homophily(Graph.from_edges(edges, np.eye(8), [0] * 4 + [1] * 4))
    assert (found.edge, found.adjusted, found.informativeness) == (0.0, -1.0, 1.0)


def test_only_edges_between_labels_count() -> None:
    graph = Graph.from_edges([(0, 1), (1, 2), (2, 3)], np.eye(4), ["a", "a", None, "b"])
    found = homophily(graph)
    assert (found.edges, found.edge) == (1, 1.0)
    assert found.adjusted is None
    nothing = homophily(Graph.from_edges([(0, 1)], np.eye(2), ["a", None]))
    assert (nothing.edges, nothing.edge) == (0, None)
