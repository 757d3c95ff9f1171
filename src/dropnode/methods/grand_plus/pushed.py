"""PushedRows: precomputed rows of Π, and random views of the features that they average."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F

from dropnode.ops.kernels.memory import padded
from dropnode.ops.propagation import Features, SparseMatrix
from dropnode.ops.randomness import Mask, Stream
from dropnode.ops.selection import feature_rows


class PushedRows:
    """Some rows of Π with few entries each, and the features of the nodes that they reach.

    Parameters
    ----------
    rows : csr_array (rows, nodes)
        Scores of nodes.
    features : Features (nodes, features)
        Only those of nodes with a score are kept.
    """

    def __init__(self, rows: sp.csr_array, features: Features) -> None:
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
        self.device = features.values.device if isinstance(held, SparseMatrix) else held.device

    def view(self, chosen: np.ndarray, drop_rate: float, stream: Stream) -> torch.Tensor:
        """Return a random average of features for each of the chosen rows.

        Every entry of a row is dropped with the given probability, and the others are divided by
        their sum. A row that loses all entries is zero.
        """
        counts = np.diff(self.starts)[chosen]
        ends = np.cumsum(counts)
        row = np.repeat(np.arange(len(chosen)), counts)
        entries = np.arange(len(row)) + np.repeat(self.starts[chosen] - ends + counts, counts)
        kept = Mask.draw(stream, 1, len(entries), drop_rate).array()[0]
        entries, row = entries[kept], row[kept]
        scores = self.scores[entries].astype(np.float64)
        scores /= np.bincount(row, scores, len(chosen))[row]
        starts = np.searchsorted(row, np.arange(len(chosen) + 1))
        view = sp.csr_array(
            (scores.astype(np.float32), self.places[entries], starts),
            shape=(len(chosen), self.features.shape[0]),
        )
        if isinstance(self.features, torch.Tensor):
            operator = SparseMatrix.from_scipy(view, self.device)
            return (operator @ self.features)[:, : self.width]
        return torch.from_numpy((view @ self.features).toarray()).to(self.device)
