"""A small graph without weights, for attacks."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from dropnode.data import per_class_split
from dropnode.graph import Graph


def small_graph(nodes: int = 45, seed: int = 0, *, dense: bool = False) -> Graph:
    """Three groups with words of their own; four labelled nodes each."""
    generator = np.random.default_rng(seed)
    labels = np.arange(nodes) % 3
    same = labels[:, None] == labels[None, :]
    joined = generator.random((nodes, nodes)) < np.where(same, 0.2, 0.03)
    words = (
        generator.random((nodes, 12)) < 0.1 + 0.3 * (np.arange(12) % 3 == labels[:, None])
    ) * 1.0
    return Graph.from_scipy(
        sp.csr_array(np.triu(joined, k=1) | np.triu(joined, k=1).T, dtype=np.float32),
        words if dense else sp.csr_array(words),
        labels,
        split=per_class_split(labels, 4, 3, seed=seed),
    )
