"""What a view of propagated features is made from, where the first layer does not commute.

The paper drops entries of propagated features: each view is a (nodes, features) matrix, and no
product can be exchanged to make it smaller. ``small_graphs.py`` and ``large_graphs.py`` make it in
two ways. In plain torch, ``methods/grand/model.py`` propagates dense features and
``ops/randomness.Dropout`` drops them out; ``tests/methods/grand/fused/test_step.py`` compares.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

BLOCK = 64
"""Features or nodes that are worked on together: as many as a word has bits."""


class Columns(NamedTuple):
    """Sparse features by column: CSC arrays, and the number of each entry in the order of rows.

    That number is the position of an entry's bit in an entry mask.
    """

    starts: np.ndarray
    nodes: np.ndarray
    values: np.ndarray
    entries: np.ndarray


class Drop(NamedTuple):
    """What one view drops: bits of nodes, of stored entries, and of propagated features.

    Words without columns drop nothing. ``scale`` multiplies what is kept before propagation,
    ``boost`` what is kept after it.
    """

    node_words: np.ndarray  # (1, words)
    entry_words: np.ndarray  # (1, words)
    input_words: np.ndarray  # (nodes, words)
    scale: float
    boost: float


def blocks(size: int) -> int:
    """Return how many blocks hold ``size`` columns."""
    return -(-size // BLOCK)
