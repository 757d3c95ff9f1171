"""Perturbations: how an augmentation of the graph is drawn.

DropNode hides whole nodes, dropout hides single feature entries, DropEdge hides entries of Â.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from grand.propagation import Features, SparseMatrix
from grand.randomness import Stream, keep_mask


@dataclass(frozen=True)
class Augmentation:
    """One view of the graph: masks to put on the features, and the operator to propagate with.

    Attributes
    ----------
    operator : SparseMatrix
        What propagates: Â, or Â with entries dropped.
    row_mask : torch.Tensor or None
        Which nodes keep their features (n,).
    element_mask : torch.Tensor or None
        Which stored entries of the features are kept (one for each stored entry).
    scale : float
        A factor on all features.
    """

    operator: SparseMatrix
    row_mask: torch.Tensor | None = None
    element_mask: torch.Tensor | None = None
    scale: float = 1.0

    def mask_rows(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the row mask and the scale, the part that may stand before or after X·W."""
        if self.row_mask is None:
            return x if self.scale == 1.0 else x * self.scale
        return x * (self.row_mask * self.scale)[:, None]

    def mask_elements(self, features: Features) -> Features:
        """Apply the element mask, the part that has to stand before X·W."""
        if self.element_mask is None:
            return features
        if isinstance(features, SparseMatrix):
            return features.reweighted(self.element_mask)
        return features * self.element_mask.view(features.shape)


class Perturbation(Protocol):
    """Draws augmentations in training, and tells what stands in for them at inference."""

    def draw(self, stream: Stream, operator: SparseMatrix, features: Features) -> Augmentation:
        """Draw one augmentation."""
        ...

    def inference(self, operator: SparseMatrix) -> Augmentation:
        """Return the augmentation without randomness."""
        ...


@dataclass(frozen=True)
class _Masking:
    """What the three perturbations share: a rate δ, and where the scale is made up for.

    ``scaling`` is ``"training"`` (kept values are divided by 1-δ, as the paper writes) or
    ``"inference"`` (kept values stay, and inference multiplies by 1-δ, as the released code does).
    """

    rate: float
    scaling: str

    @property
    def training_scale(self) -> float:
        """The factor on what is kept in training."""
        return 1.0 / (1.0 - self.rate) if self.scaling == "training" else 1.0

    @property
    def inference_scale(self) -> float:
        """The factor at inference."""
        return 1.0 - self.rate if self.scaling == "inference" else 1.0

    def inference(self, operator: SparseMatrix) -> Augmentation:
        """Return the unperturbed features, scaled to what training saw on average."""
        return Augmentation(operator, scale=self.inference_scale)

    def _mask(self, stream: Stream, size: int, like: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(keep_mask(stream, (size,), self.rate)).to(like.device)


class DropNode(_Masking):
    """Drop whole nodes' features; one mask a node, shared by all hops."""

    def draw(self, stream: Stream, operator: SparseMatrix, features: Features) -> Augmentation:
        """Draw one augmentation."""
        mask = self._mask(stream, operator.shape[0], operator.values)
        return Augmentation(operator, row_mask=mask, scale=self.training_scale)


class DropFeature(_Masking):
    """Dropout: drop single entries of X. Entries that are not stored are zero either way."""

    def draw(self, stream: Stream, operator: SparseMatrix, features: Features) -> Augmentation:
        """Draw one augmentation."""
        stored = features.values if isinstance(features, SparseMatrix) else features
        mask = self._mask(stream, stored.numel(), stored)
        return Augmentation(operator, element_mask=mask, scale=self.training_scale)


class DropEdge(_Masking):
    """Drop entries of Â, each on its own, so that the operator is no longer symmetric.

    The scale belongs to the entries: it compounds over the hops exactly as the dropping does.
    """

    def draw(self, stream: Stream, operator: SparseMatrix, features: Features) -> Augmentation:
        """Draw one augmentation."""
        mask = self._mask(stream, operator.values.numel(), operator.values)
        return Augmentation(operator.reweighted(mask * self.training_scale))

    def inference(self, operator: SparseMatrix) -> Augmentation:
        """Return Â, scaled to what training saw on average."""
        scale = self.inference_scale
        return Augmentation(operator if scale == 1.0 else operator.reweighted(scale))


PERTURBATIONS: dict[str, Callable[[float, str], Perturbation]] = {
    "dropnode": DropNode,
    "dropout": DropFeature,
    "dropedge": DropEdge,
}
"""Every perturbation by the name a configuration gives it."""
