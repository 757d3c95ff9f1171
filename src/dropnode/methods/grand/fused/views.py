"""What a view of propagated features is made from, where the first layer does not commute.

The paper drops entries of propagated features, a (nodes, features) matrix a view, of which nothing
can be exchanged. There are two ways to make it, for small graphs and for large ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

BLOCK = 64
"""Features or nodes that are worked on together; as many as a word has bits."""


@dataclass(frozen=True)
class Columns:
    """Sparse features by column: CSC arrays, and the number of each entry in the order of rows.

    That number is what the bits of an entry mask count by.
    """

    starts: np.ndarray
    nodes: np.ndarray
    values: np.ndarray
    entries: np.ndarray


@dataclass(frozen=True)
class Drop:
    """What one view drops: bits of nodes, of stored entries, and of propagated features.

    Each may have no columns, and then drops nothing. ``scale`` is put on what is kept before
    propagation, ``boost`` on what is kept after it.
    """

    node_words: np.ndarray  # (1, words)
    entry_words: np.ndarray  # (1, words)
    input_words: np.ndarray  # (nodes, words)
    scale: float
    boost: float


def blocks(size: int) -> int:
    """Return how many blocks hold ``size`` columns."""
    return -(-size // BLOCK)
