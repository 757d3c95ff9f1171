"""StoredFeatures: features that stay in a file, and are scaled where they are read."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch

from dropnode.graph.mapped import row_blocks
from dropnode.ops.scaling import FeatureScaling


class StoredFeatures:
    """Dense features in a mapped file that multiply like a tensor, a block of rows at a time.

    Parameters
    ----------
    values : ndarray (nodes, features)
        Mapped, float32 or float16.
    scaling : FeatureScaling
        Applied to what is read. It scales every row on its own.
    """

    device = torch.device("cpu")

    def __init__(self, values: np.ndarray, scaling: FeatureScaling) -> None:
        self.values, self.scaling = values, scaling

    @property
    def shape(self) -> tuple[int, int]:
        """Nodes and features."""
        return self.values.shape[0], self.values.shape[1]

    def rows(self, rows: np.ndarray | slice) -> torch.Tensor:
        """Return the scaled features of some nodes."""
        raw = np.array(self.values[rows], dtype=np.float32)
        return torch.from_numpy(np.asarray(self.scaling.apply(raw), dtype=np.float32))

    def __matmul__(self, weight: torch.Tensor) -> torch.Tensor:
        product = torch.empty(self.shape[0], weight.shape[1])
        for block in row_blocks(self.values):
            torch.mm(self.rows(block), weight.detach(), out=product[block])
        return product

    def columns(self, first: int, last: int) -> torch.Tensor:
        """Return some columns of the features of all nodes."""
        chosen = torch.empty(self.shape[0], last - first)
        for block in row_blocks(self.values):
            chosen[block] = self.rows(block)[:, first:last]
        return chosen

    @cached_property
    def transpose(self) -> _Transposed:
        """The transposed matrix."""
        return _Transposed(self)


class _Transposed:
    def __init__(self, features: StoredFeatures) -> None:
        self.features = features

    def __matmul__(self, dense: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(self.features.shape[1], dense.shape[1])
        for block in row_blocks(self.features.values):
            total += self.features.rows(block).T @ dense[block]
        return total
