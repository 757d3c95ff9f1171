"""Common parts of the training step: the interface of a first layer, memory, and masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

from dropnode.ops.kernels.memory import aligned
from dropnode.ops.perturb import Augmentation
from dropnode.ops.randomness import Mask, Stream

Gradients = dict[str, torch.Tensor]
"""Gradients by the names of the head's parameters."""


class FirstLayer(Protocol):
    """Computes the output of the first linear map from the raw features, and its gradients."""

    def forward(
        self, drawn: Sequence[Augmentation], streams: Sequence[Stream]
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the output (nodes, views · hidden padded), and a row to add to it or None."""
        ...

    def backward(self, gradient: np.ndarray, offset: np.ndarray) -> Gradients:
        """Return the gradients of the parameters; ``gradient`` may be overwritten."""
        ...


class Memory:
    """Named arrays that are reused in every step."""

    def __init__(self) -> None:
        self.held: dict[str, np.ndarray] = {}

    def __call__(self, name: str, *shape: int) -> np.ndarray:
        """Return the array with this name; a new one if its shape has changed."""
        held = self.held.get(name)
        if held is None or held.shape != shape:
            held = self.held[name] = aligned(*shape)
        return held


def words_of(masks: Sequence[Mask | None]) -> np.ndarray:
    """Return the words of masks with one row each, stacked; without columns if all are None."""
    given = [mask.words for mask in masks if mask is not None]
    return np.concatenate(given) if given else np.empty((len(masks), 0), np.uint64)


def kept_nodes(words: np.ndarray, nodes: int) -> torch.Tensor:
    """Return the words of node masks as zeros and ones (views, nodes)."""
    if words.shape[1] == 0:
        return torch.ones(len(words), nodes)
    return Mask(words, nodes).tensor(torch.device("cpu")).float()


def pad(row: np.ndarray, columns: int) -> np.ndarray:
    """Return a row padded with zeros."""
    wide = np.zeros((1, columns), np.float32)
    wide[:, : row.shape[1]] = row
    return wide
