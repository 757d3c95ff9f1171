"""Inputs of a view of propagated features, for first layers that do not commute with propagation.

The paper drops entries of propagated features: each view is a (nodes, features) matrix, and cannot
be replaced by a smaller product. ``small_graphs.py`` and ``large_graphs.py`` compute it in two
ways. In plain torch, ``methods/grand/model.py`` propagates dense features and
``ops/randomness.Dropout`` drops them out; ``tests/methods/grand/fused/test_step.py`` compares them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

BLOCK = 64
"""How many features or nodes are processed together: the number of bits of a word."""


class Columns(NamedTuple):
    """Sparse features by column: CSC arrays, and the position of each entry in row order.

    An entry mask has the bits of the entries in row order.
    """

    starts: np.ndarray
    nodes: np.ndarray
    values: np.ndarray
    entries: np.ndarray


class Drop(NamedTuple):
    """The masks of one view: of nodes, of stored entries, and of propagated features.

    Words without columns drop nothing. ``scale`` is the factor on values kept before propagation,
    ``boost`` on those kept after it.
    """

    node_words: np.ndarray  # (1, words)
    entry_words: np.ndarray  # (1, words)
    input_words: np.ndarray  # (nodes, words)
    scale: float
    boost: float


def blocks(size: int) -> int:
    """Return how many blocks hold ``size`` columns."""
    return -(-size // BLOCK)
