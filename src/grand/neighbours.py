"""Nearest-neighbour graphs: a graph for data that has none."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from sklearn.neighbors import NearestNeighbors

from grand.inputs import Matrix


def nearest_neighbour_graph(features: Matrix, k: int) -> sp.csr_array:
    """Join every row to its ``k`` nearest other rows (Euclidean); the union is symmetric.

    Examples
    --------
    >>> nearest_neighbour_graph(np.array([[0.0], [1.0], [5.0]]), k=1).toarray().astype(int)
    array([[0, 1, 0],
           [1, 0, 1],
           [0, 1, 0]])
    """
    # With no rows asked for, a row is not its own neighbour, duplicates of it may be.
    directed = _index(features, k).kneighbors_graph(mode="connectivity")
    return sp.csr_array(directed.maximum(directed.T), dtype=np.float32)


def attach(new: Matrix, training: Matrix, k: int) -> sp.csr_array:
    """Join each new row to its ``k`` nearest training rows (new × training)."""
    return sp.csr_array(
        _index(training, k).kneighbors_graph(new, mode="connectivity"), dtype=np.float32
    )


def _index(features: Matrix, k: int) -> NearestNeighbors:
    if k < 1:
        raise ValueError(f"k = {k}; a nearest-neighbour graph needs k of at least 1")
    return NearestNeighbors(n_neighbors=min(k, max(1, features.shape[0] - 1))).fit(features)
