"""Nearest-neighbour graphs, against sorting all distances."""

from __future__ import annotations

import math
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import ThreadpoolController, threadpool_limits

from dropnode.errors import GraphError
from dropnode.graph import Graph
from dropnode.graph.neighbours import NeighbourIndex, nearest_neighbour_graph
from dropnode.graph.nodes import to_nodes

LINE = np.array([[0.0], [1.0], [3.0], [7.0]])


def points(seed: int, rows: int, columns: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)


def links(new: Any, training: Any, k: Any) -> sp.csr_array:
    """The links of new rows to training rows, of any kind."""
    return NeighbourIndex(to_nodes(training)[0], k).links(to_nodes(new)[0])


def reach_of(distances: np.ndarray, usual: float) -> float:
    return max(distances.max(), 0.1 * (usual or 1.0))


def naive_edges(new: np.ndarray, training: np.ndarray, k: int, same: bool) -> np.ndarray:
    """Weighted edges from each new row to its k nearest, by sorting all distances."""

    def nearest(rows: np.ndarray, same: bool) -> tuple[np.ndarray, list[np.ndarray]]:
        lengths = np.linalg.norm(rows[:, None].astype(float) - training, axis=2)
        if same:
            np.fill_diagonal(lengths, np.inf)
        return lengths, [np.argsort(row)[: min(k, len(training) - same)] for row in lengths]

    between, theirs = nearest(training, same=True)
    usual = float(np.median([between[i, chosen].max() for i, chosen in enumerate(theirs)]))
    reach = [reach_of(between[i, chosen], usual) for i, chosen in enumerate(theirs)]
    lengths, chosen = nearest(new, same)
    joined = np.zeros((len(new), len(training)))
    for row, columns in enumerate(chosen):
        own = reach_of(lengths[row, columns], usual)
        for column in columns:
            joined[row, column] = math.exp(-(lengths[row, column] ** 2) / (own * reach[column]))
    return joined


@given(st.integers(0, 10**6), st.integers(2, 12), st.integers(1, 14), st.booleans())
def test_every_row_is_joined_to_its_nearest(seed: int, rows: int, k: int, sparse: bool) -> None:
    features = points(seed, rows)
    graph = nearest_neighbour_graph(sp.csr_array(features) if sparse else features, k)
    directed = naive_edges(features, features, k, same=True)
    np.testing.assert_allclose(graph.toarray(), np.maximum(directed, directed.T), rtol=1e-3)
    assert isinstance(graph, sp.csr_array)
    assert graph.dtype == np.float32


def test_rows_are_indexed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted: list[tuple[int, ...]] = []
    fit = NearestNeighbors.fit

    def counted(self: NearestNeighbors, X: Any, y: None = None) -> NearestNeighbors:
        fitted.append(X.shape)
        return fit(self, X, y)

    monkeypatch.setattr(NearestNeighbors, "fit", counted)
    index = NeighbourIndex(points(0, 20), 3)
    assert not fitted, "indexed when first asked"
    index.graph()
    for seed in range(3):
        index.links(points(seed, 4))
    assert fitted == [(20, 3)]


@pytest.mark.parametrize("columns", [2, 40])
@pytest.mark.parametrize("sparse", [False, True])
def test_links_of_a_row_do_not_depend_on_the_others(columns: int, sparse: bool) -> None:
    """In few columns scikit-learn searches a tree, in many it compares all rows."""
    new, training = points(1, 30, columns), points(2, 200, columns)
    form = sp.csr_array if sparse else np.asarray
    index = NeighbourIndex(form(training), 5)
    together = index.links(form(new))
    for row in (0, 7, 29):
        alone = index.links(form(new[[row]]))
        np.testing.assert_array_equal(alone.toarray(), together[[row]].toarray())


def test_scikit_learn_is_imported_when_it_is_used() -> None:
    program = "import sys, dropnode.graph.neighbours; assert 'sklearn' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


@given(st.integers(0, 10**6), st.integers(2, 8), st.integers(1, 10), st.booleans())
def test_every_new_row_is_attached_to_its_nearest(
    seed: int, rows: int, k: int, sparse: bool
) -> None:
    new, training = points(seed, 4), points(seed + 1, rows)
    form = sp.csr_array if sparse else np.asarray
    joined = links(form(new), form(training), k)
    np.testing.assert_allclose(joined.toarray(), naive_edges(new, training, k, False), rtol=1e-3)
    assert isinstance(joined, sp.csr_array)
    assert joined.dtype == np.float32


def test_nearer_weighs_more_and_scale_does_not_matter() -> None:
    features = points(5, 40)
    graph = nearest_neighbour_graph(features, k=5).toarray()
    lengths = np.linalg.norm(features[:, None] - features, axis=2)
    row = np.flatnonzero(graph[0])
    assert graph[0, row[np.argmin(lengths[0, row])]] > graph[0, row[np.argmax(lengths[0, row])]]
    np.testing.assert_allclose(
        nearest_neighbour_graph(1000 * features, k=5).toarray(), graph, rtol=1e-3
    )


def test_rows_with_many_copies_stay_joined_to_others() -> None:
    features = [[0.0]] * 4 + [[1.0], [2.0], [3.0], [4.0]]
    graph = nearest_neighbour_graph(features, k=3)
    assert np.isfinite(graph.data).all()
    assert graph.toarray()[4, :4].max() > 0
    assert np.isfinite(links([[0.0]], [[0.0]] * 3, k=2).data).all()


def test_no_row_reaches_less_than_a_tenth_of_the_usual() -> None:
    """Two rows almost alike would otherwise be cut off from the others, and from each other."""
    features = [[0.0], [0.001], [10.0], [20.0], [30.0]]
    usual = 9.999  # The median of 0.001, 0.001, 9.999, 10 and 10.
    graph = nearest_neighbour_graph(features, k=1).toarray()
    assert graph[0, 1] == pytest.approx(math.exp(-((0.001 / (0.1 * usual)) ** 2)), rel=1e-5)
    assert graph[1, 2] == pytest.approx(math.exp(-(9.999**2) / (0.1 * usual * 9.999)), rel=1e-5)
    assert graph[3, 2] == pytest.approx(math.exp(-(10.0**2) / (10.0 * usual)), rel=1e-5)
    new = links([[0.0004], [1.0]], features, k=1).toarray()
    assert new[0, 0] == pytest.approx(math.exp(-((0.0004 / (0.1 * usual)) ** 2)), rel=1e-5)
    assert new[1, 1] == pytest.approx(math.exp(-(0.999**2) / (0.1 * usual) ** 2), rel=1e-5)


def test_among_copies_alone_the_usual_reach_is_one() -> None:
    new = links([[0.05], [3.0]], [[0.0]] * 4, k=2)
    own = [0.1, 3.0]
    for row, length in enumerate((0.05, 3.0)):
        expected = math.exp(-(length**2) / (own[row] * 0.1))
        assert new[[row]].data.tolist() == pytest.approx([expected] * 2, rel=1e-5)


def test_a_copy_of_a_row_is_its_neighbour_and_the_row_itself_is_not() -> None:
    graph = nearest_neighbour_graph([[1.0], [1.0], [9.0], [9.0]], k=1)
    joined = graph.toarray() > 0
    assert joined.astype(int).tolist() == [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]


def test_one_row_has_no_neighbours() -> None:
    graph = nearest_neighbour_graph([[1.0, 2.0]], k=5)
    assert graph.shape == (1, 1)
    assert graph.nnz == 0


@pytest.mark.parametrize(
    "features", [LINE.tolist(), torch.tensor(LINE), pd.DataFrame(LINE), sp.coo_matrix(LINE)]
)
def test_features_of_every_kind_are_read(features: Any) -> None:
    graph = nearest_neighbour_graph(features, k=1)
    joined = graph.toarray() > 0
    assert joined.astype(int).tolist() == [[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0]]
    attached = links([[6.0]], features, k=np.int64(1)).toarray() > 0
    assert attached.tolist() == [[False, False, False, True]]


def test_the_graph_needs_no_repair() -> None:
    features = points(0, 30)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph = Graph.from_scipy(nearest_neighbour_graph(features, k=4), features)
    assert np.diff(graph.adjacency.indptr).min() >= 4


@pytest.mark.parametrize("k", [0, -1, 2.5, "3", True, None])
def test_k_has_to_be_a_number_of_neighbours(k: Any) -> None:
    for call in (lambda: nearest_neighbour_graph(LINE, k), lambda: links(LINE, LINE, k)):
        with pytest.raises(GraphError, match=f"k is {k!r}.*at least 1"):
            call()


def test_unusable_features_are_named() -> None:
    bad = LINE.copy()
    bad[2] = math.nan
    with pytest.raises(GraphError, match="feature 0 of node 2 is NaN"):
        nearest_neighbour_graph(bad, k=1)
    with pytest.raises(GraphError, match="new nodes have 2 features, but training nodes have 1"):
        links(np.ones((3, 2)), LINE, k=1)
    with pytest.raises(GraphError, match="empty"):
        nearest_neighbour_graph(np.empty((0, 2)), k=1)


@pytest.mark.parametrize("copies", [0, 30, 200])
def test_links_need_no_query_of_all_rows_unless_rows_have_copies(copies: int) -> None:
    training = points(2, 300)
    training[:copies] = training[0]
    new = np.concatenate([points(1, 20), training[:2]])
    index = NeighbourIndex(training, 4)
    found = index.links(new).toarray()
    assert ("_between" in vars(index)) == (copies > 0)
    expected = naive_edges(new, training, 4, same=False)
    # Which of the copies are joined is arbitrary; all of them weigh the same.
    np.testing.assert_allclose(np.sort(found), np.sort(expected), rtol=1e-3)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("rows", [300, 1500, 2500])
def test_neighbours_are_the_same_for_any_number_of_threads(form: Any, rows: int) -> None:
    """Many rows are equally far, as in tables of counts, so that which are the nearest is open."""
    table = np.random.default_rng(rows).integers(0, 3, (rows, 20)).astype(np.float32)
    new = form(table[:7] + 1.0)
    found = []
    for threads in (1, 2, 5):
        with threadpool_limits(threads, user_api="openmp"):
            index = NeighbourIndex(form(table), 6)
            found.append((index.graph(), index.links(new)))
    for graph, attached in found[1:]:
        assert (graph != found[0][0]).nnz == 0
        assert (attached != found[0][1]).nnz == 0


def test_a_limit_on_threads_is_taken_back() -> None:
    with threadpool_limits(5, user_api="openmp"):
        nearest_neighbour_graph(points(0, 50), 3)
        now = ThreadpoolController().select(user_api="openmp").info()
        assert {pool["num_threads"] for pool in now} == {5}
