"""What a graph has: sizes, components, degrees, labels, homophily."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from dropnode.analysis.homophily import Homophily, homophily
from dropnode.graph import Graph
from dropnode.graph.labels import UNKNOWN


@dataclass(frozen=True, eq=False)
class Structure:
    """Sizes and shares of a graph.

    Attributes
    ----------
    nodes, edges, features : int
    nonzero : float
        The share of features that are not zero.
    components : int
        Connected components, isolated nodes among them.
    largest : float
        The share of nodes in the largest component.
    isolated : int
        Nodes without an edge.
    unreached : int
        Nodes that no path joins to a labelled node: their features alone speak for them.
    degrees : ndarray of int
        How many neighbours each node has.
    label_counts : dict
        How many labels each class has, by its name.
    homophily : Homophily
    """

    nodes: int
    edges: int
    features: int
    nonzero: float
    components: int
    largest: float
    isolated: int
    unreached: int
    degrees: np.ndarray
    label_counts: dict[str, int]
    homophily: Homophily

    @property
    def labels(self) -> int:
        """The number of labelled nodes."""
        return sum(self.label_counts.values())

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        found = self.homophily
        return {
            "nodes": self.nodes,
            "edges": self.edges,
            "features": self.features,
            "nonzero_features": self.nonzero,
            "components": self.components,
            "largest_component": self.largest,
            "isolated_nodes": self.isolated,
            "nodes_without_a_path_to_a_label": self.unreached,
            "degree": {
                "mean": float(self.degrees.mean()),
                "median": float(np.median(self.degrees)),
                "most": int(self.degrees.max()),
            },
            "labels": self.labels,
            "label_counts": self.label_counts,
            "edges_between_labels": found.edges,
            "edge_homophily": found.edge,
            "adjusted_homophily": found.adjusted,
            "label_informativeness": found.informativeness,
        }


def structure_of(graph: Graph) -> Structure:
    """Return what a graph has.

    Examples
    --------
    >>> path = Graph.from_edges([(0, 1), (1, 2)], np.eye(4), labels=["a", None, None, None])
    >>> found = structure_of(path)
    >>> found.components, found.isolated, found.unreached, found.label_counts
    (2, 1, 1, {'a': 1})
    """
    features = graph.features
    entries = features.nnz if sp.issparse(features) else np.count_nonzero(features)
    components, member = connected_components(graph.adjacency, directed=False)
    sizes = np.bincount(member, minlength=components)
    labelled = np.zeros(components, dtype=bool)
    known = graph.labels != UNKNOWN
    labelled[member[known]] = True
    degrees = np.diff(graph.adjacency.indptr)
    counts = np.bincount(graph.labels[known], minlength=graph.num_classes)
    return Structure(
        nodes=graph.num_nodes,
        edges=graph.num_edges,
        features=graph.num_features,
        nonzero=float(entries / (features.shape[0] * features.shape[1])),
        components=int(components),
        largest=float(sizes.max() / graph.num_nodes),
        isolated=int(np.count_nonzero(degrees == 0)),
        unreached=int(sizes[~labelled].sum()),
        degrees=degrees,
        label_counts=dict(zip(graph.class_names, counts.tolist(), strict=True)),
        homophily=homophily(graph),
    )
