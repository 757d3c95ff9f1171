"""What the halves of a training step share: the contract of a first layer, memory, and masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

from dropnode.ops.kernels.memory import aligned
from dropnode.ops.perturb import Augmentation
from dropnode.ops.randomness import Mask, Stream

Gradients = dict[str, torch.Tensor]
"""Gradients by the name of the head's parameter."""


class FirstLayer(Protocol):
    """From the raw features to the products of the first linear map, and back to its gradient."""

    def forward(
        self, drawn: Sequence[Augmentation], streams: Sequence[Stream]
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return (nodes, views · hidden padded), and a row to add to it, if any."""
        ...

    def backward(self, gradient: np.ndarray, offset: np.ndarray) -> Gradients:
        """Return the gradients of the parameters; ``gradient`` may be written over."""
        ...


class Memory:
    """Arrays by name that are handed out again and again."""

    def __init__(self) -> None:
        self.held: dict[str, np.ndarray] = {}

    def __call__(self, name: str, *shape: int) -> np.ndarray:
        """Return the array of a name, new if there is none of this shape."""
        held = self.held.get(name)
        if held is None or held.shape != shape:
            held = self.held[name] = aligned(*shape)
        return held


def words_of(masks: Sequence[Mask | None]) -> np.ndarray:
    """Return the words of one-row masks below each other; no columns if nothing is dropped."""
    given = [mask.words for mask in masks if mask is not None]
    return np.concatenate(given) if given else np.empty((len(masks), 0), np.uint64)


def kept_nodes(words: np.ndarray, nodes: int) -> torch.Tensor:
    """Return zeros and ones, (views, nodes), for words of node masks."""
    if words.shape[1] == 0:
        return torch.ones(len(words), nodes)
    return Mask(words, nodes).tensor(torch.device("cpu")).float()


def pad(row: np.ndarray, columns: int) -> np.ndarray:
    """Return a row with zeros behind it."""
    wide = np.zeros((1, columns), np.float32)
    wide[:, : row.shape[1]] = row
    return wide
