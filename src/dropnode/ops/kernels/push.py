"""Generalised push: rows of a polynomial of the random walk, without the nodes that matter little.

The walk starts at one node. At every hop, the probability of being at a node is its residue. A
share of it is reserved, and the residue moves on along the edges and the self-loop, unless it is
too small for the number of places it would be moved to. Of the nodes that have a reserve, the
largest few are kept.

All memory that the size of the graph determines belongs to a :class:`Workspace`, which is zero
between two rows: a row costs the nodes it touches.
"""

from __future__ import annotations

import threading

import numpy as np

from dropnode.ops.kernels.jit import inlined, kernel
from dropnode.ops.kernels.sparse import Csr
from dropnode.ops.kernels.threads import PIECES, in_parallel, ranges

ROWS = 64
"""How many rows a thread takes at a time: they can differ a thousandfold in cost."""


class Workspace:
    """The memory of one thread: residues before and after a hop, reserves, and who has them."""

    def __init__(self, nodes: int, top: int) -> None:
        # Zeros that nobody has written take no memory.
        self.residues = np.zeros((2, nodes))
        self.reserve = np.zeros(nodes)
        self.lists = np.zeros((3, nodes), dtype=np.int64)
        self.best = np.zeros(top, dtype=np.int64)
        self.scores = np.zeros(top, dtype=np.float32)


def push(
    adjacency: Csr,
    degrees: np.ndarray,
    sources: np.ndarray,
    shares: np.ndarray,
    threshold: float,
    top: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the nodes and the scores of the largest entries of some rows, and how many there are.

    Both are (sources, top); entries behind the number of a row are arbitrary. A row does not
    depend on other rows, nor on the number of threads.
    """
    nodes = np.empty((len(sources), top), dtype=np.int64)
    scores = np.empty((len(sources), top), dtype=np.float32)
    counts = np.empty(len(sources), dtype=np.int64)
    thread = threading.local()

    def take(piece: tuple[int, int]) -> None:
        if not hasattr(thread, "space"):
            thread.space = Workspace(len(degrees), top)
        space: Workspace = thread.space
        _push(
            *adjacency,
            degrees,
            sources,
            shares,
            threshold,
            *piece,
            space.residues,
            space.reserve,
            space.lists,
            space.best,
            space.scores,
            nodes,
            scores,
            counts,
        )

    in_parallel(take, ranges(len(sources), max(PIECES, len(sources) // ROWS)))
    return nodes, scores, counts


@inlined
def _add(amounts, listed, count, node, amount):  # type: ignore[no-untyped-def]
    """Add an amount to a node's, list the node if it had none, and return how many are listed."""
    # An amount that is lost to underflow would list its node again and again.
    if amount > 0.0:
        if amounts[node] == 0.0:
            listed[count] = node
            count += 1
        amounts[node] += amount
    return count


@inlined
def _worse(scores, nodes, one, other):  # type: ignore[no-untyped-def]
    """Return whether a candidate comes after another: by its score, then by its number."""
    if scores[one] != scores[other]:
        return scores[one] < scores[other]
    return nodes[one] > nodes[other]


@inlined
def _swap(scores, nodes, one, other):  # type: ignore[no-untyped-def]
    scores[one], scores[other] = scores[other], scores[one]
    nodes[one], nodes[other] = nodes[other], nodes[one]


@inlined
def _largest(reserve, listed, count, scores, nodes):  # type: ignore[no-untyped-def]
    """Put the candidates of the highest scores into a heap, worst first, and return its size.

    Scores are compared as the float32 that they become, so that sums of equal terms in another
    order are equal.
    """
    size = 0
    for place in range(count):
        node = listed[place]
        score = np.float32(reserve[node])
        if size < len(nodes):
            scores[size], nodes[size] = score, node
            child = size
            size += 1
            while child > 0 and _worse(scores, nodes, child, (child - 1) >> 1):
                _swap(scores, nodes, child, (child - 1) >> 1)
                child = (child - 1) >> 1
        elif score > scores[0] or (score == scores[0] and node < nodes[0]):
            scores[0], nodes[0] = score, node
            parent = 0
            while 2 * parent + 1 < size:
                child = 2 * parent + 1
                if child + 1 < size and _worse(scores, nodes, child + 1, child):
                    child += 1
                if not _worse(scores, nodes, child, parent):
                    break
                _swap(scores, nodes, child, parent)
                parent = child
    return size


@kernel
def _push(  # type: ignore[no-untyped-def]
    starts,
    columns,
    values,
    degrees,
    sources,
    shares,
    threshold,
    first,
    last,
    residues,
    reserve,
    lists,
    best,
    best_scores,
    out_nodes,
    out_scores,
    out_counts,
):
    """Write the rows of the sources from ``first`` to ``last``."""
    order = len(shares) - 1
    reserved = lists[2]
    for row in range(first, last):
        now = 0
        count = _add(residues[now], lists[now], 0, sources[row], 1.0)
        held = 0
        for hop in range(order + 1):
            residue, listed = residues[now], lists[now]
            following, next_listed = residues[1 - now], lists[1 - now]
            moved = 0
            for place in range(count):
                node = listed[place]
                amount = residue[node]
                residue[node] = 0.0
                held = _add(reserve, reserved, held, node, shares[hop] * amount)
                begin, end = starts[node], starts[node + 1]
                if hop == order or amount < threshold * (end - begin + 1):
                    continue
                part = amount / degrees[node]
                moved = _add(following, next_listed, moved, node, part)
                for entry in range(begin, end):
                    moved = _add(
                        following, next_listed, moved, columns[entry], part * values[entry]
                    )
            count = moved
            now = 1 - now
        size = _largest(reserve, reserved, held, best_scores, best)
        for place in range(size):
            out_nodes[row, place] = best[place]
            out_scores[row, place] = best_scores[place]
        out_counts[row] = size
        for place in range(held):
            reserve[reserved[place]] = 0.0
