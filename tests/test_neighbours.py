"""Nearest-neighbour graphs, against sorting all distances."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

from grand.graph import Graph, GraphError
from grand.neighbours import attach, nearest_neighbour_graph

LINE = np.array([[0.0], [1.0], [3.0], [7.0]])


def points(seed: int, rows: int, columns: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)


def naive_nearest(new: np.ndarray, training: np.ndarray, k: int) -> np.ndarray:
    joined = np.zeros((len(new), len(training)))
    for row, distances in enumerate(np.linalg.norm(new[:, None] - training, axis=2)):
        joined[row, np.argsort(distances)[:k]] = 1
    return joined


@given(st.integers(0, 10**6), st.integers(2, 12), st.integers(1, 14), st.booleans())
def test_every_row_is_joined_to_its_nearest(seed: int, rows: int, k: int, sparse: bool) -> None:
    features = points(seed, rows)
    graph = nearest_neighbour_graph(sp.csr_array(features) if sparse else features, k)
    # Each row is nearest to itself, and that neighbour does not count.
    directed = naive_nearest(features, features, min(k + 1, rows)) - np.eye(rows)
    np.testing.assert_array_equal(graph.toarray(), np.maximum(directed, directed.T))
    assert isinstance(graph, sp.csr_array)
    assert graph.dtype == np.float32


@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(1, 10), st.booleans())
def test_every_new_row_is_attached_to_its_nearest(
    seed: int, rows: int, k: int, sparse: bool
) -> None:
    new, training = points(seed, 4), points(seed + 1, rows)
    form = sp.csr_array if sparse else np.asarray
    joined = attach(form(new), form(training), k)
    np.testing.assert_array_equal(joined.toarray(), naive_nearest(new, training, k))
    assert isinstance(joined, sp.csr_array)
    assert joined.dtype == np.float32


def test_a_copy_of_a_row_is_its_neighbour_and_the_row_itself_is_not() -> None:
    graph = nearest_neighbour_graph([[1.0], [1.0], [9.0], [9.0]], k=1)
    assert graph.toarray().tolist() == [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]


def test_one_row_has_no_neighbours() -> None:
    graph = nearest_neighbour_graph([[1.0, 2.0]], k=5)
    assert graph.shape == (1, 1)
    assert graph.nnz == 0


@pytest.mark.parametrize(
    "features", [LINE.tolist(), torch.tensor(LINE), pd.DataFrame(LINE), sp.coo_matrix(LINE)]
)
def test_features_of_every_kind_are_read(features: Any) -> None:
    graph = nearest_neighbour_graph(features, k=1)
    assert graph.toarray().tolist() == [[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0]]
    assert attach([[6.0]], features, k=np.int64(1)).toarray().tolist() == [[0, 0, 0, 1]]


def test_the_graph_needs_no_repair() -> None:
    features = points(0, 30)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph = Graph.from_scipy(nearest_neighbour_graph(features, k=4), features)
    assert np.diff(graph.adjacency.indptr).min() >= 4


@pytest.mark.parametrize("k", [0, -1, 2.5, "3", True, None])
def test_k_has_to_be_a_number_of_neighbours(k: Any) -> None:
    for call in (lambda: nearest_neighbour_graph(LINE, k), lambda: attach(LINE, LINE, k)):
        with pytest.raises(GraphError, match=f"k is {k!r}.*at least 1"):
            call()


def test_unusable_features_are_named() -> None:
    bad = LINE.copy()
    bad[2] = math.nan
    with pytest.raises(GraphError, match="feature 0 of node 2 is NaN"):
        nearest_neighbour_graph(bad, k=1)
    for new, training in ((bad, LINE), (LINE, bad)):
        with pytest.raises(GraphError, match="feature 0 of node 2 is NaN"):
            attach(new, training, k=1)
    with pytest.raises(GraphError, match="new nodes have 2 features, training nodes 1"):
        attach(np.ones((3, 2)), LINE, k=1)
    with pytest.raises(GraphError, match="empty"):
        nearest_neighbour_graph(np.empty((0, 2)), k=1)
