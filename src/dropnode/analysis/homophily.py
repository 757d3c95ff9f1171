"""Homophily: whether neighbours share a class, measured on edges between labelled nodes.

The share of edges that join equal classes, *edge homophily*, depends on how large the classes are:
with one class of 90 %, it is high by chance. *Adjusted homophily* subtracts what chance would give,
and is 0 for random edges and 1 if no edge joins two classes. *Label informativeness* is the share
of the uncertainty about a node's class that the class of a neighbour removes: it is also high where
neighbours differ in a regular way. Both are those of Platonov et al., *Characterizing Graph
Datasets for Node Classification: Homophily-Heterophily Dichotomy and Beyond*, NeurIPS 2023.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.special import entr

from dropnode.graph import Graph
from dropnode.graph.labels import UNKNOWN


@dataclass(frozen=True, eq=False)
class Homophily:
    """How the classes of neighbours depend on each other.

    Attributes
    ----------
    edges : int
        The number of edges between labelled nodes, on which all is measured.
    pairs : ndarray (classes, classes)
        How many of their ends join each pair of classes; an edge has two.
    edge, adjusted, informativeness : float or None
        None where they are not defined: without such edges, or with all ends in one class.
    """

    edges: int
    pairs: np.ndarray
    edge: float | None
    adjusted: float | None
    informativeness: float | None


def homophily(graph: Graph) -> Homophily:
    """Measure the homophily of the labelled part of a graph.

    Examples
    --------
    >>> square = Graph.from_edges([(0, 1), (1, 2), (2, 3), (3, 0)], np.eye(4), labels=list("aabb"))
    >>> found = homophily(square)
    >>> found.edges, found.edge, found.adjusted, found.informativeness
    (4, 0.5, 0.0, 0.0)
    """
    entries = sp.coo_array(graph.adjacency)
    ends = graph.labels[entries.coords[0]], graph.labels[entries.coords[1]]
    known = (ends[0] != UNKNOWN) & (ends[1] != UNKNOWN)
    classes = graph.num_classes
    codes = ends[0][known] * classes + ends[1][known]
    pairs = np.bincount(codes, minlength=classes**2).reshape(classes, classes)
    total = int(pairs.sum())
    if not total:
        return Homophily(0, pairs, None, None, None)
    joint = pairs / total
    own = joint.sum(axis=1)
    edge, chance = float(np.trace(joint)), float(np.square(own).sum())
    adjusted = informativeness = None
    if np.count_nonzero(own) > 1:
        adjusted = (edge - chance) / (1.0 - chance)
        informativeness = float(2.0 - entr(joint).sum() / entr(own).sum())
    return Homophily(total // 2, pairs, edge, adjusted, informativeness)
