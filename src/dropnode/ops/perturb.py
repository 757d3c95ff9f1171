"""Perturbations: the random augmentations of a graph.

DropNode drops all features of a node, dropout drops single feature entries, and DropEdge drops
entries of Â.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from dropnode.ops.kernels.memory import usable
from dropnode.ops.randomness import Mask, Stream
from dropnode.ops.sparse_matrix import Features, SparseMatrix


@dataclass(frozen=True)
class Augmentation:
    """One view of the graph: masks on the features, and the operator that propagates them.

    Attributes
    ----------
    operator : SparseMatrix
        Â, or Â with entries dropped.
    node_mask : Mask or None
        Which nodes keep their features (1, n).
    entry_mask : Mask or None
        Which stored entries of the features are kept: (1, entries) of sparse features, (n, d) of
        dense ones.
    scale : float
        A factor on all features.
    """

    operator: SparseMatrix
    node_mask: Mask | None = None
    entry_mask: Mask | None = None
    scale: float = 1.0

    def mask_nodes(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the node mask and the scale, which may be done before or after X·W."""
        if self.node_mask is None:
            return x if self.scale == 1.0 else x * self.scale
        return x * (self.node_mask.tensor(x.device).T * self.scale)

    def mask_entries(self, features: Features) -> Features:
        """Apply the entry mask, which has to be done before X·W."""
        return features if self.entry_mask is None else masked(features, self.entry_mask)


def masked(features: Features, mask: Mask, scale: float = 1.0) -> Features:
    """Return features with entries dropped, in plain torch."""
    if isinstance(features, SparseMatrix):
        return features.reweighted(mask.tensor(features.values.device)[0] * scale)
    return features * (mask.tensor(features.device) * scale)


def dropped(matrix: SparseMatrix, mask: Mask, scale: float) -> SparseMatrix:
    """Return a matrix with stored entries dropped, for one product.

    The result is that of :func:`masked`, bit for bit, but it may have no places for dropped entries
    any more, which takes less time.
    """
    if usable(matrix.values.device):
        return matrix.kept(mask.words[0], scale)
    return matrix.reweighted(mask.tensor(matrix.values.device)[0] * scale)


def entry_mask(stream: Stream, features: Features, rate: float) -> Mask:
    """Draw a mask of the stored entries of the features; the other entries are zero anyway."""
    if isinstance(features, SparseMatrix):
        return Mask.draw(stream, 1, features.values.numel(), rate)
    nodes, columns = features.shape
    return Mask.draw(stream, nodes, columns, rate)


class Perturbation(Protocol):
    """Draws augmentations for training, and gives the one to use at inference."""

    def draw(self, stream: Stream, operator: SparseMatrix, features: Features) -> Augmentation:
        """Draw one augmentation."""
        ...

    def inference(self, operator: SparseMatrix) -> Augmentation:
        """Return the augmentation without randomness."""
        ...


@dataclass(frozen=True)
class _Masking:
    """The common part of the three perturbations: a rate δ, and where to correct the scale.

    ``scaling`` is ``"training"`` (kept values are divided by 1-δ, as in the paper) or
    ``"inference"`` (kept values stay, and inference multiplies by 1-δ, as in the released code).
    """

    rate: float
    scaling: str

    @property
    def training_scale(self) -> float:
        """The factor on kept values in training."""
        return 1.0 / (1.0 - self.rate) if self.scaling == "training" else 1.0

    @property
    def inference_scale(self) -> float:
        """The factor at inference."""
        return 1.0 - self.rate if self.scaling == "inference" else 1.0

    def inference(self, operator: SparseMatrix) -> Augmentation:
        """Return the unperturbed features, scaled to their average in training."""
        return Augmentation(operator, scale=self.inference_scale)


class DropNode(_Masking):
    """Drop all features of random nodes; the mask is the same for all hops."""

    def draw(self, stream: Stream, operator: SparseMatrix, features: Features) -> Augmentation:
        """Draw one augmentation."""
        mask = Mask.draw(stream, 1, operator.shape[0], self.rate)
        return Augmentation(operator, node_mask=mask, scale=self.training_scale)


class DropFeature(_Masking):
    """Dropout: drop single entries of X."""

    def draw(self, stream: Stream, operator: SparseMatrix, features: Features) -> Augmentation:
        """Draw one augmentation."""
        mask = entry_mask(stream, features, self.rate)
        return Augmentation(operator, entry_mask=mask, scale=self.training_scale)


class DropEdge(_Masking):
    """Drop entries of Â independently, so that the operator is no longer symmetric.

    The scale is applied to the entries, so that it compounds over the hops as the dropping does.
    """

    def draw(self, stream: Stream, operator: SparseMatrix, features: Features) -> Augmentation:
        """Draw one augmentation."""
        mask = Mask.draw(stream, 1, operator.values.numel(), self.rate)
        kept = mask.tensor(operator.values.device)[0]
        return Augmentation(operator.reweighted(kept * self.training_scale))

    def inference(self, operator: SparseMatrix) -> Augmentation:
        """Return Â, scaled to its average in training."""
        scale = self.inference_scale
        return Augmentation(operator if scale == 1.0 else operator.reweighted(scale))


PERTURBATIONS: dict[str, Callable[[float, str], Perturbation]] = {
    "dropnode": DropNode,
    "dropout": DropFeature,
    "dropedge": DropEdge,
}
"""Every perturbation by its name in a configuration."""
