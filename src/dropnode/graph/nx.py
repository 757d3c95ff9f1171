"""What a networkx graph holds, read for :meth:`Graph.from_networkx`."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from dropnode.errors import GraphError
from dropnode.graph.arrays import to_float32
from dropnode.graph.foreign import instead
from dropnode.settings import shown


def networkx_parts(
    graph: Any, features: str, labels: str, weight: str
) -> tuple[list[Any], np.ndarray, list[Any], list[Any]]:
    """Return edges, features, labels and edge weights, in the order of the graph's nodes."""
    if not callable(getattr(graph, "nodes", None)) or not hasattr(graph, "edges"):
        raise GraphError(f"{shown(graph)} is no graph; expected one of networkx{instead(graph)}")
    rows = []
    for node, data in graph.nodes(data=True):
        row = to_float32(data.get(features, []), f"the features of node {node!r}")
        row = (row.toarray() if sp.issparse(row) else row).ravel()
        rows.append(row)
        if len(row) == 0 or len(row) != len(rows[0]):
            raise GraphError(
                f"node {node!r} has {len(row) or 'no'} features in its attribute {features!r}; "
                "give every node equally many, or name another attribute with features="
            )
    return (
        list(graph.edges()),
        np.stack(rows) if rows else np.empty((0, 1)),
        [data.get(labels) for _, data in graph.nodes(data=True)],
        [data.get(weight, 1.0) for _, _, data in graph.edges(data=True)],
    )
