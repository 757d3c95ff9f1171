"""Places of nodes: repulsion as the naive sum, neighbours near each other, any graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from dropnode.serve.layout import _repulsion, place_nodes
from dropnode.serve.workplace import Workplace


def test_repulsion_on_the_grid_is_that_of_all_on_all() -> None:
    generator = np.random.default_rng(0)
    places = generator.uniform(-5, 5, (300, 2))
    weights = generator.uniform(1, 4, 300)
    away = places[:, None] - places[None]
    squared = (away**2).sum(axis=2)
    np.fill_diagonal(squared, 1.0)
    exact = (away / squared[:, :, None] * weights[None, :, None]).sum(axis=1)
    found = _repulsion(places, weights)
    # The grid blurs pairs within a cell; as a whole the forces agree.
    error = np.linalg.norm(found - exact, axis=1)
    assert np.median(error / np.linalg.norm(exact, axis=1)) < 0.05


def test_parts_of_a_graph_are_apart_and_their_nodes_together() -> None:
    generator = np.random.default_rng(1)
    group = np.repeat([0, 1, 2], 60)
    chance = np.where(group[:, None] == group[None], 0.15, 0.002)
    upper = np.triu(generator.random((180, 180)) < chance, 1)
    adjacency = sp.csr_array((upper | upper.T).astype(np.float32))
    places = place_nodes(adjacency)
    far = np.linalg.norm(places[:, None] - places[None], axis=2)
    same = group[:, None] == group[None]
    assert far[same].mean() < 0.6 * far[~same].mean()
    np.testing.assert_array_equal(places, place_nodes(adjacency))


def test_places_are_kept_for_the_edges_that_they_are_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = sp.csr_array(sp.diags_array([np.ones(9), np.ones(9)], offsets=[-1, 1]))
    ring = sp.csr_array(path + sp.csr_array(([1.0, 1.0], ([0, 9], [9, 0])), shape=(10, 10)))
    place = Workplace(tmp_path / "model")
    computed = [place.places(each) for each in (path, ring)]
    assert not np.array_equal(*computed)
    monkeypatch.setattr("dropnode.serve.workplace.place_nodes", None)
    np.testing.assert_array_equal(place.places(ring), computed[1])
    place.close()


@pytest.mark.parametrize("nodes", [0, 1, 2, 7])
def test_graphs_without_edges_have_finite_places(nodes: int) -> None:
    places = place_nodes(sp.csr_array((nodes, nodes), dtype=np.float32))
    assert places.shape == (nodes, 2)
    assert np.isfinite(places).all()
    assert len(np.unique(places, axis=0)) == nodes
