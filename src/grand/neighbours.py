"""Nearest-neighbour graphs: a graph for data that has none."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.neighbors import NearestNeighbors

from grand.inputs import GraphError, to_nodes


def nearest_neighbour_graph(features: Any, k: int) -> sp.csr_array:
    """Join every row to its ``k`` nearest other rows (Euclidean), to all if there are fewer.

    The graph is the union of both directions: a row has at least ``k`` neighbours, and a popular
    one has more.

    Examples
    --------
    >>> nearest_neighbour_graph([[0.0], [1.0], [5.0]], k=1).toarray().astype(int)
    array([[0, 1, 0],
           [1, 0, 1],
           [0, 1, 0]])
    """
    _check(k)
    matrix, _ = to_nodes(features)
    others = matrix.shape[0] - 1
    if others == 0:
        return sp.csr_array((1, 1), dtype=np.float32)
    # Asked for no rows in particular, scikit-learn leaves each row out of its own neighbours;
    # copies of it stay in.
    directed = NearestNeighbors(n_neighbors=min(k, others)).fit(matrix).kneighbors_graph()
    return sp.csr_array(directed.maximum(directed.T), dtype=np.float32)


def attach(new: Any, training: Any, k: int) -> sp.csr_array:
    """Join each new row to its ``k`` nearest training rows (new × training).

    Examples
    --------
    >>> attach([[0.9]], [[0.0], [1.0], [5.0]], k=2).toarray().astype(int)
    array([[1, 1, 0]])
    """
    _check(k)
    (rows, _), (known, _) = to_nodes(new), to_nodes(training)
    if rows.shape[1] != known.shape[1]:
        raise GraphError(
            f"new nodes have {rows.shape[1]:,} features, training nodes {known.shape[1]:,}; "
            "give both the same columns"
        )
    index = NearestNeighbors(n_neighbors=min(k, known.shape[0])).fit(known)
    return sp.csr_array(index.kneighbors_graph(rows), dtype=np.float32)


def _check(k: int) -> None:
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        raise GraphError(
            f"k is {k!r}; a nearest-neighbour graph needs a whole number of at least 1"
        )
