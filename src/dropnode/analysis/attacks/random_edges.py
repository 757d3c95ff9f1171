"""The random attack: fake edges between nodes that are not connected."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from dropnode.errors import ConfigError
from dropnode.graph import Graph
from dropnode.ops.randomness import Stream
from dropnode.settings import MOST_REPEATS, choice, positive, read_value
from dropnode.settings import seed as seed_field

DEFINITIONS = ("clean", "cumulative")
"""What a rate can mean; see :func:`number_of_edges`."""


def add_random_edges(graph: Graph, rate: float, seed: int = 0, definition: str = "clean") -> Graph:
    """Return a graph with fake edges of weight 1 added.

    Parameters
    ----------
    graph : Graph
    rate : float
        Number of fake edges as a fraction of the graph's edges.
    seed : int
        The same seed draws the same edges.
    definition : {"clean", "cumulative"}
        What the rate means; see :func:`number_of_edges`.

    Examples
    --------
    >>> from dropnode import load_dataset
    >>> graph = load_dataset("sbm", nodes=300, classes=3)
    >>> graph.num_edges, add_random_edges(graph, rate=0.1).num_edges
    (1500, 1650)
    """
    read_value(int, seed, "seed", seed_field())
    wanted, nodes = checked_number(graph, rate, definition), graph.num_nodes
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


def checked_number(graph: Graph, rate: float, definition: str) -> int:
    """Return the number of fake edges of a rate; none, or too many for a graph, are an error."""
    wanted, nodes = number_of_edges(graph.num_edges, rate, definition), graph.num_nodes
    if wanted < 1:
        raise ConfigError(
            f"a rate of {rate:g} of {graph.num_edges:,} edges is less than one; raise the rate"
        )
    free = nodes * (nodes - 1) // 2 - graph.num_edges
    if wanted > free // 2:
        raise ConfigError(
            f"a rate of {rate:g} needs {wanted:,} fake edges, but only {free:,} pairs of nodes "
            f"are not connected; choose a rate for at most {free // 2:,} fake edges"
        )
    return wanted


def number_of_edges(clean: int, rate: float, definition: str = "clean") -> int:
    """Return how many fake edges a rate stands for.

    Parameters
    ----------
    clean : int
        Number of edges of the clean graph.
    rate : float
    definition : {"clean", "cumulative"}
        With ``"clean"``, the rate is the fraction of the clean graph's edges that is added. The
        first script that GRAND's authors published works differently: for k = 1, 2, … it adds k %
        of the clean graph's edges to the graph of the step before, and calls the result the attack
        at k %. That is ``"cumulative"``: "10 %" adds 1 % + 2 % + … + 10 % = 55 %, each rounded
        down. Which of the two the paper's figure shows is not known.

    Examples
    --------
    >>> number_of_edges(13264, 0.1)
    1326
    >>> 13264 + number_of_edges(13264, 0.1, "cumulative")  # as a user of that script counted
    20554
    """
    read_value(float, rate, "rate", positive(most=MOST_REPEATS))
    read_value(str, definition, "definition", choice(*DEFINITIONS))
    if definition == "clean":
        return round(rate * clean)
    percent = round(100 * rate)
    if percent < 1 or abs(100 * rate - percent) > 1e-9:
        raise ConfigError(
            f"a rate of {rate:g} with the cumulative definition; expected whole per cent, such as "
            "0.1"
        )
    return sum(clean * step // 100 for step in range(1, percent + 1))
