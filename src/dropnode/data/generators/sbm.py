"""A homophilous stochastic block model of any size, in time and memory proportional to its edges.

The numbers of edges within and between classes are fixed rather than drawn, so average degree and
homophily are exact. Each kind is a uniform sample without replacement from all pairs of that kind:
pairs are numbered, numbers are drawn, and only the drawn numbers are turned into pairs.
"""

from __future__ import annotations

import numpy as np

from dropnode.errors import ConfigError
from dropnode.graph import Graph
from dropnode.memory import check_memory

CENTRE_SPREAD = 1.5
"""Typical distance of a class centre from the origin, in units of the noise of one feature.

Far enough that features help, near enough that neighbours are needed.
"""


def make(
    *,
    nodes: int = 1000,
    classes: int = 5,
    average_degree: float = 10.0,
    homophily: float = 0.8,
    features: int = 32,
    seed: int = 0,
) -> Graph:
    """Generate a graph of equally large classes with Gaussian features around class centres.

    Parameters
    ----------
    nodes, classes, features : int
        Their numbers.
    average_degree : float
        Twice the number of edges, divided by the number of nodes.
    homophily : float
        Share of edges that join nodes of the same class.
    seed : int
        The same seed gives the same graph.

    Raises
    ------
    ConfigError
        If the sizes are invalid, or ask for more edges than there are pairs.

    Examples
    --------
    >>> graph = make(nodes=100, classes=4, average_degree=6, homophily=0.75)
    >>> graph.num_edges
    300
    """
    if classes < 2 or nodes < classes or features < 1:
        raise ConfigError(
            f"{nodes} nodes, {classes} classes, {features} features; expected at least 2 classes, "
            "a node per class, and 1 feature"
        )
    if not 0 <= homophily <= 1 or average_degree < 0:
        raise ConfigError(
            f"homophily {homophily} and average degree {average_degree}; expected a homophily "
            "between 0 and 1 and a degree of at least 0"
        )
    num_edges = round(nodes * average_degree / 2)
    check_memory(
        4 * nodes * features + 100 * num_edges,
        f"a graph of {nodes:,} nodes with {features:,} features and {num_edges:,} edges",
        "choose smaller numbers",
    )
    rng = np.random.default_rng(seed)
    bounds = np.arange(classes + 1) * nodes // classes
    num_within = round(num_edges * homophily)
    blocks = np.concatenate(
        [_within(bounds, num_within, rng), _between(bounds, num_edges - num_within, rng)]
    )
    # Nodes are numbered at random, so that the order of nodes says nothing about their classes.
    number = rng.permutation(nodes)
    labels = np.empty(nodes, dtype=np.int64)
    labels[number] = np.repeat(np.arange(classes), np.diff(bounds))
    centres = rng.standard_normal((classes, features)) * (CENTRE_SPREAD / np.sqrt(features))
    matrix = rng.standard_normal((nodes, features), dtype=np.float32)
    matrix += centres.astype(np.float32)[labels]
    return Graph.from_edges(number[blocks], matrix, labels, name="sbm")


def _within(bounds: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw pairs of nodes of one class; class ``c`` has the nodes ``bounds[c]:bounds[c + 1]``."""
    sizes = np.diff(bounds)
    ends = np.cumsum(sizes * (sizes - 1) // 2)
    drawn = _distinct(int(ends[-1]), count, rng, "within classes")
    block = np.searchsorted(ends, drawn, side="right")
    offset = drawn - np.concatenate([[0], ends])[block]
    # Pair number t(t-1)/2 + s stands for s < t; the square root may be off by one.
    high = ((1 + np.sqrt(1 + 8 * offset)) / 2).astype(np.int64)
    high -= high * (high - 1) // 2 > offset
    high += high * (high + 1) // 2 <= offset
    low = offset - high * (high - 1) // 2
    return bounds[block][:, None] + np.stack([low, high], axis=1)


def _between(bounds: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw pairs of nodes of two classes: a node, and one that comes after all of its class."""
    after = bounds[-1] - bounds[1:]
    ends = np.cumsum(np.diff(bounds) * after)
    drawn = _distinct(int(ends[-1]), count, rng, "between classes")
    block = np.searchsorted(ends, drawn, side="right")
    first, second = np.divmod(drawn - np.concatenate([[0], ends])[block], after[block])
    return np.stack([bounds[block] + first, bounds[block + 1] + second], axis=1)


def _distinct(population: int, count: int, rng: np.random.Generator, kind: str) -> np.ndarray:
    """Draw ``count`` distinct numbers below ``population`` in time proportional to ``count``."""
    if count > population:
        raise ConfigError(
            f"{count:,} edges {kind} were asked for, but there are only {population:,} such pairs; "
            "lower average_degree, or change homophily, nodes or classes"
        )
    if 2 * count > population:
        return rng.permutation(population)[:count]
    drawn = np.empty(0, dtype=np.int64)
    while len(drawn) < count:
        more = rng.integers(population, size=count - len(drawn))
        drawn = np.sort(np.concatenate([drawn, more]))
        # Not numpy.unique, which takes ten times as long for millions of numbers.
        drawn = drawn[np.diff(drawn, prepend=-1) > 0]
    return drawn
