"""Nearest-neighbour graphs: a graph for data that has none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from dropnode.errors import GraphError
from dropnode.graph.arrays import Matrix, held_like, lighter
from dropnode.graph.nodes import to_nodes

ROWS_PER_THREAD = 1024
"""From how many rows for each thread scikit-learn divides the rows that are asked about among its
threads. With fewer, it divides those that are searched."""

SAMPLE = 1000
"""How many rows are looked at to estimate how far apart rows usually are."""


def nearest_neighbour_graph(features: Any, k: int) -> sp.csr_array:
    """Join every row to its ``k`` nearest other rows (Euclidean), or to all if there are fewer.

    An edge has the weight exp(-d² / σᵢσⱼ), where d is its length and σ the distance from a row to
    its k-th neighbour. With this local scaling (Zelnik-Manor and Perona 2004), dense and sparse
    regions are joined alike. An edge exists if either row is among the nearest of the other.

    Examples
    --------
    >>> nearest_neighbour_graph([[0.0], [1.0], [3.0]], k=1).toarray().round(2)
    array([[0.  , 0.37, 0.  ],
           [0.37, 0.  , 0.14],
           [0.  , 0.14, 0.  ]], dtype=float32)
    """
    return NeighbourIndex(to_nodes(features)[0], k).graph()


class NeighbourIndex:
    """The rows of a table, indexed once, to find the nearest of them.

    Parameters
    ----------
    features : ndarray or csr_array of float32
        Finite, as :func:`dropnode.graph.nodes.to_nodes` returns them.
    k : int
        How many rows a row is joined to.

    Examples
    --------
    >>> index = NeighbourIndex(np.array([[0.0], [1.0], [3.0]]), k=2)
    >>> index.links(np.array([[0.5]])).toarray().round(2)
    array([[0.85, 0.78, 0.  ]], dtype=float32)
    """

    def __init__(self, features: Matrix, k: int) -> None:
        if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
            raise GraphError(
                f"k is {k!r}; a nearest-neighbour graph needs a whole number of at least 1"
            )
        self.features, self.k = lighter(features), int(k)

    def graph(self) -> sp.csr_array:
        """Return the nearest-neighbour graph of the rows, see :func:`nearest_neighbour_graph`."""
        if self._rows == 1:
            return sp.csr_array((1, 1), dtype=np.float32)
        distances, nearest = self._between
        reach = self._reach_of(distances[:, -1])
        directed = _edges(distances, nearest, reach, reach)
        return sp.csr_array(directed.maximum(directed.T), dtype=np.float32)

    def links(self, new: Matrix) -> sp.csr_array:
        """Join each new row to its ``k`` nearest indexed rows (new × indexed), weighted alike."""
        if new.shape[1] != self.features.shape[1]:
            raise GraphError(
                f"new nodes have {new.shape[1]:,} features, but training nodes have "
                f"{self.features.shape[1]:,}; give both the same columns"
            )
        if self._rows == 1:
            return sp.csr_array(np.ones((new.shape[0], 1), dtype=np.float32))
        distances, nearest = self._query(held_like(new, self.features), min(self.k, self._rows))
        rows, places = np.unique(nearest, return_inverse=True)
        own, theirs = distances[:, -1], self._distance_to_last(rows)
        # The median over all rows costs a query of all. It is not needed if no σ is raised.
        if min(own.min(initial=np.inf), theirs.min(initial=np.inf)) <= 0.1 * self._most_usual:
            own, theirs = self._reach_of(own), self._reach_of(theirs)
        links = _edges(distances, places.reshape(nearest.shape), own, theirs)
        return sp.csr_array((links.data, nearest.ravel(), links.indptr), (len(own), self._rows))

    def _distance_to_last(self, rows: np.ndarray) -> np.ndarray:
        """Return the distances from some indexed rows to the last of their nearest others."""
        # Of a row's nearest, one is the row itself.
        count = min(self.k, self._rows - 1) + 1
        distances, _ = self._query(self.features[rows], count)
        return np.asarray(distances[:, -1])

    @cached_property
    def _most_usual(self) -> float:
        """A number that the median distance to the last of the nearest does not exceed.

        A distance that a tenth of random rows exceed is above the median of all. Where a tenth are
        copies of others, the median may be zero, and no number is large enough.
        """
        drawn = np.random.default_rng(0).permutation(self._rows)[:SAMPLE]
        low, high = np.quantile(self._distance_to_last(np.sort(drawn)), [0.1, 0.9])
        return float(high) if low > 0 else np.inf

    @property
    def _rows(self) -> int:
        return int(self.features.shape[0])

    @cached_property
    def _index(self) -> Any:
        # Imported here: only tables without a graph need it.
        from sklearn.neighbors import NearestNeighbors

        return NearestNeighbors(n_neighbors=min(self.k, self._rows - 1)).fit(self.features)

    @cached_property
    def _between(self) -> tuple[np.ndarray, np.ndarray]:
        """Distances from every indexed row to its nearest others, and which these are."""
        # Without an argument, scikit-learn leaves each row out of its own neighbours, but not
        # copies of the row.
        return self._query(None, None)

    def _query(self, rows: Matrix | None, count: int | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the distances from rows to their nearest indexed ones, and which these are.

        Of rows that are equally far, and of which not all are among the nearest, scikit-learn takes
        the first, but with many threads for few rows it takes what a thread happens to find.
        """
        # Before the limit, which is for the libraries that are loaded.
        index, asked = self._index, self._rows if rows is None else rows.shape[0]
        with _at_most(max(1, (asked - 1) // ROWS_PER_THREAD)):
            distances, nearest = index.kneighbors(rows, n_neighbors=count)
        return distances, nearest

    def _reach_of(self, distances: np.ndarray) -> np.ndarray:
        """Return σ of rows with these distances to the last of their nearest."""
        # A row with k copies would have a σ of 0, and be cut off from all but its copies.
        usual = np.median(self._between[0][:, -1]) or 1.0
        return np.maximum(distances, 0.1 * usual)


@contextmanager
def _at_most(threads: int) -> Iterator[None]:
    """Limit OpenMP on this thread for the duration of a ``with`` block."""
    pools = _pools().select(user_api="openmp")
    if all(pool["num_threads"] <= threads for pool in pools.info()):
        yield
        return
    with pools.limit(limits=threads):
        yield


@cache
def _pools() -> Any:
    # To look for them takes longer than a query for one row.
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _edges(
    distances: np.ndarray, nearest: np.ndarray, reach: np.ndarray, their_reach: np.ndarray
) -> sp.csr_array:
    """Return the weighted edges from every row to its nearest."""
    exponent = distances**2 / (reach[:, None] * their_reach[nearest])
    # A long edge stays an edge: float32 has no numbers below exp(-87).
    weights = np.exp(-np.minimum(exponent, 80.0)).astype(np.float32)
    starts = np.arange(len(nearest) + 1) * nearest.shape[1]
    shape = (len(nearest), len(their_reach))
    return sp.csr_array((weights.ravel(), nearest.ravel(), starts), shape=shape)
