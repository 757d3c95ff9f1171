"""Features of nodes that have none: their degree, and where they are in the graph.

A place is a row of singular vectors of the normalised adjacency, scaled to length one. Nodes that
random walks reach alike are near each other there. An entry of such a vector is, up to a factor,
the weighted sum of the entries of a node's neighbours. So the place of a new node is the direction
of the weighted sum of its neighbours' places, and needs nothing but its edges.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from dropnode.memory import check_memory
from dropnode.settings import count, positive

DIMENSIONS = 64
"""The most dimensions of a place."""

OVERSAMPLES, ITERATIONS = 10, 8
"""Of the randomised singular value decomposition."""


@dataclass(frozen=True)
class Structure:
    """The structural features of a graph, as fitted to it.

    Attributes
    ----------
    dimensions : int
        Of the place of a node.
    mean, deviation : float
        Of the logarithms of the degrees.
    """

    dimensions: int = count(0)
    mean: float = 0.0
    deviation: float = positive(default=1.0)

    @property
    def width(self) -> int:
        """Number of features."""
        return self.dimensions + 1

    @property
    def names(self) -> list[str]:
        """The name of each feature, for explanations."""
        return [*(f"place {at + 1}" for at in range(self.dimensions)), "degree"]

    def told(self) -> str:
        """Return what the features are, in a few words."""
        return f"degree, and a place in {self.dimensions} dimensions"

    @classmethod
    def fit(cls, adjacency: sp.csr_array, seed: int) -> tuple[Structure, np.ndarray]:
        """Return the structure of a graph, and the features of its nodes."""
        degrees = _log_degrees(adjacency)
        dimensions = max(min(DIMENSIONS, adjacency.shape[0] - 1), 0)
        # Of equal numbers, the mean is rounded, so that their deviation need not be 0.
        deviation = 1.0 if degrees.min() == degrees.max() else float(degrees.std())
        structure = cls(dimensions, float(degrees.mean()), deviation)
        places = _places(adjacency, dimensions, seed)
        return structure, structure._features(places, degrees)

    def transform(
        self, links: sp.csr_array, among: sp.csr_array, features: np.ndarray
    ) -> np.ndarray:
        """Return the features of new nodes.

        Parameters
        ----------
        links : csr_array (new, nodes)
            Weights of the edges between new nodes and nodes of the graph.
        among : csr_array (new, new)
            Weights of the edges between new nodes, which count as part of their degree.
        features : ndarray (nodes, width)
            The features of the graph's nodes.
        """
        degrees = np.log1p(np.diff(links.indptr) + np.diff(among.indptr))
        return self._features(links @ features[:, : self.dimensions], degrees)

    def _features(self, places: np.ndarray, degrees: np.ndarray) -> np.ndarray:
        lengths = np.linalg.norm(places, axis=1, keepdims=True)
        scaled = np.divide(places, lengths, out=np.zeros_like(places), where=lengths > 1e-12)
        # A degree tells little about a class: a tenth of the weight of a place.
        standardised = 0.1 * (degrees - self.mean) / self.deviation
        return np.column_stack([scaled, standardised]).astype(np.float32)


def _log_degrees(adjacency: sp.csr_array) -> np.ndarray:
    return np.log1p(np.diff(adjacency.indptr))


def _places(adjacency: sp.csr_array, dimensions: int, seed: int) -> np.ndarray:
    """Return singular vectors of the normalised adjacency, one row per node."""
    from sklearn.utils.extmath import randomized_svd

    nodes = adjacency.shape[0]
    check_memory(
        16 * nodes * (dimensions + OVERSAMPLES),
        f"the places of {nodes:,} nodes",
        "give the nodes features of their own",
    )
    looped = sp.csr_array(adjacency + sp.eye_array(nodes, format="csr", dtype=np.float32))
    scale = sp.diags_array(1.0 / np.sqrt(np.asarray(looped.sum(axis=1)).ravel()))
    normalised = sp.csr_array(scale @ looped @ scale, dtype=np.float32)
    if not dimensions:
        return np.zeros((nodes, 0), dtype=np.float32)
    vectors, _, _ = randomized_svd(
        normalised, dimensions, n_oversamples=OVERSAMPLES, n_iter=ITERATIONS, random_state=seed
    )
    return np.asarray(vectors, dtype=np.float32)
