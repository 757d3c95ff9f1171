"""PushedRows: precomputed rows of Π, and random views of the features that they average."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F

from dropnode.ops.kernels.memory import enabled, padded
from dropnode.ops.kernels.sparse import Csr, multiply_sparse
from dropnode.ops.randomness import Mask, Part, Stream
from dropnode.ops.selection import feature_rows
from dropnode.ops.sparse_matrix import Features, SparseMatrix, shared


class PushedRows:
    """Some rows of Π with few entries each, and the features of the nodes that they reach.

    Parameters
    ----------
    rows : csr_array (rows, nodes)
        Scores of nodes.
    features : Features (nodes, features)
        Only those of nodes with a score are kept.
    exact : torch.Tensor (rows, features), optional
        Whole rows of ΠX. What they have beyond the scores, the tail, is then part of every view.
        Without it, a view is an average over the nodes with a score alone: on graphs where every
        node's own share of an average is small, that is far noisier than what predictions see.
    """

    def __init__(
        self, rows: sp.csr_array, features: Features, exact: torch.Tensor | None = None
    ) -> None:
        reached, places = np.unique(rows.indices, return_inverse=True)
        self.starts, self.places, self.scores = rows.indptr, places, rows.data
        self.width = features.shape[1]
        held = feature_rows(features, reached)
        # Kernels read whole vectors, so that every product would copy the features otherwise.
        self.features = (
            held.to_scipy()
            if isinstance(held, SparseMatrix)
            else F.pad(held, (0, padded(self.width) - self.width))
        )
        values = features.values if isinstance(features, SparseMatrix) else features
        self.device = values.device
        self.tail, self.tail_mass = None, np.zeros(rows.shape[0])
        if exact is not None:
            self.tail = exact - self._product(rows.data, places, rows.indptr)
            self.tail_mass = np.maximum(1.0 - rows.sum(axis=1, dtype=np.float64), 0.0)

    def view(
        self, chosen: np.ndarray, drop_rate: float, stream: Stream, part: Part | None = None
    ) -> torch.Tensor:
        """Return a random average of features for each of the chosen rows, or for a part of them.

        Every entry of a row is dropped with the given probability, and the others, with the tail,
        are divided by their sum. A row that loses everything is zero.
        """
        counts = np.diff(self.starts)[chosen]
        ends = np.cumsum(counts)
        kept = Mask.draw(stream, 1, int(counts.sum()), drop_rate).array()[0]
        if part is not None:
            own = np.zeros(len(chosen), dtype=bool)
            own[part.rows] = True
            kept = kept[np.repeat(own, counts)]
            chosen, counts = chosen[part.rows], counts[part.rows]
            ends = np.cumsum(counts)
        row = np.repeat(np.arange(len(chosen)), counts)
        entries = np.arange(len(row)) + np.repeat(self.starts[chosen] - ends + counts, counts)
        entries, row = entries[kept], row[kept]
        starts = np.searchsorted(row, np.arange(len(chosen) + 1))
        scores = self.scores[entries]
        mass = np.bincount(row, scores, len(chosen)) + self.tail_mass[chosen]
        # A row of zeros has no mass to be divided by.
        mass[mass <= 0.0] = 1.0
        view = self._product(scores, self.places[entries], starts)
        if self.tail is not None:
            view = view + self.tail[torch.from_numpy(chosen).to(self.device)]
        return view / torch.from_numpy(mass.astype(np.float32)[:, None]).to(self.device)

    def __getstate__(self) -> dict[str, Any]:
        # Other processes share the memory of arrays, which torch's way of pickling would copy.
        return {
            name: value.cpu().numpy() if isinstance(value, torch.Tensor) else value
            for name, value in vars(self).items()
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.to(torch.device("cpu"))

    def to(self, device: torch.device) -> None:
        """Move the features to a device."""
        self.device = device
        for name in ("features", "tail"):
            value = getattr(self, name)
            if isinstance(value, np.ndarray | torch.Tensor):
                tensor = shared(value) if isinstance(value, np.ndarray) else value
                setattr(self, name, tensor.to(device))

    def _product(self, scores: np.ndarray, places: np.ndarray, starts: np.ndarray) -> torch.Tensor:
        """Return sums of the features of nodes that are held, weighted by scores."""
        shape = len(starts) - 1, self.features.shape[0]
        matrix = sp.csr_array((scores, places, starts), shape=shape)
        if isinstance(self.features, torch.Tensor):
            operator = SparseMatrix.from_scipy(matrix, self.device)
            return (operator @ self.features)[:, : self.width]
        if enabled():
            product = np.empty((shape[0], self.width), dtype=np.float32)
            multiply_sparse(_csr(matrix), _csr(self.features), product)
        else:
            product = (matrix @ self.features).toarray()
        return torch.from_numpy(product).to(self.device)


def _csr(matrix: sp.csr_array) -> Csr:
    return matrix.indptr, matrix.indices, matrix.data
