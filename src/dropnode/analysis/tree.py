"""The strongest nodes of an explanation as a tree around the explained node, to be drawn."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from dropnode.analysis.explain import Explanation


class Tree:
    """The nodes to draw, each below the nearest drawn node on its shortest path to the middle.

    Attributes
    ----------
    nodes : list of int
        Positions in the graph; the explained node first.
    amounts : dict
        What each adds.
    hops : dict
        How far each is from the middle.
    parents : dict
        The drawn node below which each is, and whether the two are neighbours.
    """

    def __init__(self, explanation: Explanation, adjacency: sp.csr_array, most: int) -> None:
        middle = explanation.node
        self.amounts = dict(
            zip(explanation.nodes.tolist(), explanation.by_node.tolist(), strict=True)
        )
        # All nodes that count may be thousands; one more than wanted, if the middle is among them.
        strongest = [share.name for share in explanation.strongest_nodes(most + 1)]
        drawn = [node for node in strongest if node != middle][:most]
        before, self.hops = _shortest_paths(adjacency, middle, set(drawn))
        self.nodes = [middle, *drawn]
        self.parents: dict[int, tuple[int, bool]] = {}
        for node in drawn:
            parent = before[node]
            while parent not in self.hops:
                parent = before[parent]
            self.parents[node] = parent, parent == before[node]

    def places(self) -> dict[int, tuple[float, float]]:
        """Return the ring and the angle of each node: rings by hops, every branch in a sector."""
        below: dict[int, list[int]] = {}
        for node, (parent, _) in self.parents.items():
            below.setdefault(parent, []).append(node)
        leaves = [node for node in self.nodes if node not in below]
        angles: dict[int, float] = {}
        taken = 0

        def turn(node: int) -> float:
            nonlocal taken
            if node in below:
                angles[node] = float(np.mean([turn(child) for child in below[node]]))
            else:
                angles[node] = 2 * np.pi * (taken + 0.35) / len(leaves)
                taken += 1
            return angles[node]

        turn(self.nodes[0])
        rings = sorted(set(self.hops.values()))
        return {node: (rings.index(self.hops[node]), angles[node]) for node in self.nodes}


def _shortest_paths(
    adjacency: sp.csr_array, middle: int, wanted: set[int]
) -> tuple[dict[int, int], dict[int, int]]:
    """Return the node before each on a shortest path from the middle; hops of the wanted nodes."""
    before, hops = {middle: middle}, {middle: 0}
    newest, distance = [middle], 0
    while newest and not wanted <= hops.keys():
        distance += 1
        reached = []
        for node in newest:
            for other in adjacency.indices[adjacency.indptr[node] : adjacency.indptr[node + 1]]:
                if int(other) not in before:
                    before[int(other)] = node
                    reached.append(int(other))
        hops |= {node: distance for node in reached if node in wanted}
        newest = reached
    return before, hops
