"""The random attack: fake edges between nodes that are not connected."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from dropnode.errors import ConfigError
from dropnode.graph import Graph
from dropnode.ops.randomness import Stream


def add_random_edges(graph: Graph, rate: float, seed: int = 0) -> Graph:
    """Return a graph with fake edges of weight 1 added.

    Parameters
    ----------
    graph : Graph
    rate : float
        Number of fake edges as a fraction of the graph's edges.
    seed : int
        The same seed draws the same edges.

    Examples
    --------
    >>> from dropnode import load_dataset
    >>> graph = load_dataset("sbm", nodes=300, classes=3)
    >>> graph.num_edges, add_random_edges(graph, rate=0.1).num_edges
    (1500, 1650)
    """
    wanted, nodes = round(rate * graph.num_edges), graph.num_nodes
    free = nodes * (nodes - 1) // 2 - graph.num_edges
    if wanted > free // 2:
        raise ConfigError(
            f"a rate of {rate:g} needs {wanted:,} fake edges, but only {free:,} pairs of nodes "
            f"are not connected; choose a rate for at most {free // 2:,} fake edges"
        )
    generator = Stream(seed).at("random edges").generator()
    upper = sp.triu(graph.adjacency, format="coo")
    taken = upper.coords[0].astype(np.int64) * nodes + upper.coords[1]
    fake = np.array([], dtype=np.int64)
    # Draw more pairs than needed, until enough of them are new.
    while len(fake) < wanted:
        pairs = generator.integers(nodes, size=(2, 2 * (wanted - len(fake)) + 16))
        low, high = pairs.min(axis=0), pairs.max(axis=0)
        drawn = (low * nodes + high)[low < high]
        fake = np.concatenate([fake, drawn[~np.isin(drawn, taken)]])
        _, first = np.unique(fake, return_index=True)
        fake = fake[np.sort(first)]
    low, high = np.divmod(fake[:wanted], nodes)
    half = sp.csr_array((np.ones(wanted, np.float32), (low, high)), shape=(nodes, nodes))
    return graph.with_adjacency(graph.adjacency + half + half.T)
