"""Nodes without features get their degree, and their place in the graph."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from dropnode.graph import Graph
from dropnode.tables.structure import DIMENSIONS, Structure


def communities(seed: int = 0) -> tuple[sp.csr_array, np.ndarray]:
    """Three groups of forty nodes, dense inside, sparse between; one node has no edge."""
    generator = np.random.default_rng(seed)
    group = np.repeat(np.arange(3), 40)
    near = group[:, None] == group
    edges = generator.random((120, 120)) < np.where(near, 0.2, 0.01)
    edges[7] = edges[:, 7] = False
    upper = sp.csr_array(np.triu(edges, 1).astype(np.float32))
    return sp.csr_array(upper + upper.T), group


def test_the_same_seed_gives_the_same_places() -> None:
    adjacency, _ = communities()
    structure, features = Structure.fit(adjacency, 3)
    again, same = Structure.fit(adjacency, 3)
    assert structure == again
    np.testing.assert_array_equal(features, same)
    assert features.shape == (120, DIMENSIONS + 1) == (120, structure.width)
    assert np.isfinite(features).all()
    assert not np.array_equal(features, Structure.fit(adjacency, 4)[1])


def test_places_have_length_one_and_neighbours_are_near() -> None:
    adjacency, group = communities()
    _, features = Structure.fit(adjacency, 0)
    places = features[:, :-1]
    np.testing.assert_allclose(np.linalg.norm(places, axis=1), 1.0, rtol=1e-5)
    likeness = places @ places.T
    np.fill_diagonal(likeness, 0.0)
    to_groups = np.stack([likeness[:, group == each].mean(axis=1) for each in range(3)], axis=1)
    at_home = to_groups.argmax(axis=1) == group
    assert at_home[np.arange(120) != 7].mean() > 0.95


def test_degrees_are_standardised_logarithms() -> None:
    adjacency, _ = communities()
    _, features = Structure.fit(adjacency, 0)
    degrees = np.log1p((adjacency.toarray() > 0).sum(axis=1))
    expected = 0.1 * (degrees - degrees.mean()) / degrees.std()
    np.testing.assert_allclose(features[:, -1], expected, rtol=1e-4, atol=1e-6)


def test_a_new_node_is_where_its_neighbours_are() -> None:
    adjacency, group = communities()
    structure, features = Structure.fit(adjacency, 0)
    members = np.flatnonzero(group == 1)[:5]
    links = np.zeros((3, 120), np.float32)
    links[0, members] = 1.0
    links[1, 8] = 0.5
    among = sp.csr_array(np.array([[0, 0, 0], [0, 0, 1], [0, 1, 0]], np.float32))
    found = structure.transform(sp.csr_array(links), among, features)
    centre = features[members, :-1].sum(axis=0)
    np.testing.assert_allclose(found[0, :-1], centre / np.linalg.norm(centre), rtol=1e-5)
    np.testing.assert_allclose(found[1, :-1], features[8, :-1], rtol=1e-5)
    assert not found[2, :-1].any()
    # Of the degrees 5, 2 and 1.
    expected = 0.1 * (np.log1p([5, 2, 1]) - structure.mean) / structure.deviation
    np.testing.assert_allclose(found[:, -1], expected, rtol=1e-5)


def test_tiny_graphs_have_fewer_dimensions() -> None:
    for nodes in (1, 2, 5):
        adjacency = sp.csr_array((nodes, nodes), dtype=np.float32)
        structure, features = Structure.fit(adjacency, 0)
        assert features.shape == (nodes, structure.width)
        Graph.from_scipy(adjacency, features)


@pytest.mark.parametrize("nodes", [10, 12, 30])
def test_equal_degrees_have_a_deviation_of_one(nodes: int) -> None:
    ring = np.roll(np.eye(nodes, dtype=np.float32), 1, axis=0)
    structure, features = Structure.fit(sp.csr_array(ring + ring.T), seed=0)
    assert structure.deviation == 1.0
    np.testing.assert_allclose(features[:, -1], 0.0, atol=1e-6)
    links = sp.csr_array(np.ones((1, nodes), dtype=np.float32))
    new = structure.transform(links, sp.csr_array((1, 1)), features)
    assert abs(new[0, -1]) < 1
