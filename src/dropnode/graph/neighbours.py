"""Nearest-neighbour graphs: a graph for data that has none."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.neighbors import NearestNeighbors

from dropnode.errors import GraphError
from dropnode.graph.checks import to_nodes


def nearest_neighbour_graph(features: Any, k: int) -> sp.csr_array:
    """Join every row to its ``k`` nearest other rows (Euclidean), to all if there are fewer.

    An edge weighs exp(-d² / σᵢσⱼ), where d is its length and σ the distance from a row to its
    k-th neighbour: near means near for where one is (local scaling, Zelnik-Manor and Perona 2004),
    so that dense and thin regions are joined alike. The graph is the union of both directions.

    Examples
    --------
    >>> nearest_neighbour_graph([[0.0], [1.0], [3.0]], k=1).toarray().round(2)
    array([[0.  , 0.37, 0.  ],
           [0.37, 0.  , 0.14],
           [0.  , 0.14, 0.  ]], dtype=float32)
    """
    _check(k)
    matrix, _ = to_nodes(features)
    others = matrix.shape[0] - 1
    if others == 0:
        return sp.csr_array((1, 1), dtype=np.float32)
    # Asked for no rows in particular, scikit-learn leaves each row out of its own neighbours;
    # copies of it stay in.
    distances, nearest = NearestNeighbors(n_neighbors=min(k, others)).fit(matrix).kneighbors()
    reach = _reach(distances, distances)
    directed = _edges(distances, nearest, reach, reach)
    return sp.csr_array(directed.maximum(directed.T), dtype=np.float32)


def attach(new: Any, training: Any, k: int) -> sp.csr_array:
    """Join each new row to its ``k`` nearest training rows (new × training), weighted likewise.

    Examples
    --------
    >>> attach([[0.5]], [[0.0], [1.0], [3.0]], k=2).toarray().round(2)
    array([[0.85, 0.78, 0.  ]], dtype=float32)
    """
    _check(k)
    (rows, _), (known, _) = to_nodes(new), to_nodes(training)
    if rows.shape[1] != known.shape[1]:
        raise GraphError(
            f"new nodes have {rows.shape[1]:,} features, training nodes {known.shape[1]:,}; "
            "give both the same columns"
        )
    if known.shape[0] == 1:
        return sp.csr_array(np.ones((rows.shape[0], 1), dtype=np.float32))
    index = NearestNeighbors(n_neighbors=min(k, known.shape[0] - 1)).fit(known)
    between = index.kneighbors()[0]
    distances, nearest = index.kneighbors(rows, n_neighbors=min(k, known.shape[0]))
    return _edges(distances, nearest, _reach(distances, between), _reach(between, between))


def _reach(distances: np.ndarray, between: np.ndarray) -> np.ndarray:
    """Return σ of every row; ``between`` are the distances that tell what is usual."""
    # A row with k copies would have a reach of 0, and be cut off from all but its copies.
    usual = np.median(between[:, -1]) or 1.0
    return np.maximum(distances[:, -1], 0.1 * usual)


def _edges(
    distances: np.ndarray, nearest: np.ndarray, reach: np.ndarray, their_reach: np.ndarray
) -> sp.csr_array:
    """Return the weighted edges from every row to its nearest."""
    exponent = distances**2 / (reach[:, None] * their_reach[nearest])
    # An edge stays an edge, however long: float32 ends below exp(-87).
    weights = np.exp(-np.minimum(exponent, 80.0)).astype(np.float32)
    starts = np.arange(len(nearest) + 1) * nearest.shape[1]
    shape = (len(nearest), len(their_reach))
    return sp.csr_array((weights.ravel(), nearest.ravel(), starts), shape=shape)


def _check(k: int) -> None:
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        raise GraphError(
            f"k is {k!r}; a nearest-neighbour graph needs a whole number of at least 1"
        )
