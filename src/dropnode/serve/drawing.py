"""What the page draws: the whole graph, or the neighbourhood of a node, as arrays of JSON."""

from __future__ import annotations

from typing import Any

import numpy as np

from dropnode.serve.layout import place_nodes
from dropnode.serve.served import Served

MOST_NODES = 20_000
"""Graphs of so many nodes are drawn whole."""

MOST_EDGES = 100_000
"""Edges that are drawn; of more, those of the largest weights."""

AROUND = 400
"""Nodes in the picture of a neighbourhood."""


def draw_whole(served: Served, places: np.ndarray) -> dict[str, Any]:
    """Return the whole graph, whose nodes have these places."""
    return _drawn(served, np.arange(len(served.ids)), places) | {"whole": True}


def draw_around(served: Served, middle: int) -> dict[str, Any]:
    """Return the nodes around one, nearest first until there are enough."""
    adjacency = served.model.classifier.graph_.adjacency
    known, newest = {middle}, [middle]
    found = [middle]
    while newest and len(found) < AROUND:
        reached: list[int] = []
        for node in newest:
            for other in adjacency.indices[adjacency.indptr[node] : adjacency.indptr[node + 1]]:
                if int(other) not in known and len(found) < AROUND:
                    known.add(int(other))
                    found.append(int(other))
                    reached.append(int(other))
        newest = reached
    nodes = np.array(found, dtype=np.int64)
    places = place_nodes(adjacency[nodes][:, nodes])
    return _drawn(served, nodes, places) | {"whole": False, "middle": served.ids[middle]}


def _drawn(served: Served, nodes: np.ndarray, places: np.ndarray) -> dict[str, Any]:
    """Return nodes with their places and the edges between them.

    ``label``, ``predicted`` and ``held_out`` are numbers of classes, -1 for none; ``degree`` counts
    all neighbours of a node, drawn or not; ``edges`` has the two ends of an edge one after the
    other, as places in the list of nodes.
    """
    adjacency = served.model.classifier.graph_.adjacency
    part = adjacency[nodes][:, nodes].tocoo()
    source, target = part.coords
    once = np.flatnonzero(source < target)
    left_out = max(len(once) - MOST_EDGES, 0)
    if left_out:
        once = once[np.argsort(-part.data[once], kind="stable")[:MOST_EDGES]]
    ends = np.stack([source[once], target[once]], axis=1)
    return {
        "classes": list(served.classes),
        "ids": [served.ids[at] for at in nodes.tolist()],
        "x": places[:, 0].round(4).tolist(),
        "y": places[:, 1].round(4).tolist(),
        "predicted": served.predicted[nodes].tolist(),
        "confidence": served.confidence[nodes].round(4).tolist(),
        "label": served.labels[nodes].tolist(),
        "held_out": served.judged[nodes].tolist(),
        "degree": np.diff(adjacency.indptr)[nodes].tolist(),
        "edges": ends.ravel().tolist(),
        "edges_left_out": left_out,
    }
