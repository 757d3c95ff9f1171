"""Edges: pairs of ids or a matrix, as links, and links as one symmetric adjacency matrix."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from dropnode.errors import GraphError
from dropnode.graph.arrays import plain, to_float32
from dropnode.graph.nodes import known_ids, positions_of, who
from dropnode.graph.values import to_objects

Links: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]
"""The positions of both ends of every edge, and its float32 weight."""


def edge_links(edges: Any, weights: Any, ids: np.ndarray) -> Links:
    """Return the links that pairs of ids describe, with weight 1 by default."""
    names = _ends(edges)
    ends = positions_of(names, ids, "edges")
    if (ends < 0).any():
        at = int(np.flatnonzero(ends < 0)[0])
        raise GraphError(
            f"edge {at // 2} joins the unknown node {who(names, at)}, but nodes are "
            f"{known_ids(ids)}; drop the edge, add the node's features, or put the right names "
            "into ids= ('7' is not 7)"
        )
    source, target = ends[0::2], ends[1::2]
    if weights is None:
        return source, target, np.ones(len(source), dtype=np.float32)
    values = to_float32(weights, "edge weights")
    if sp.issparse(values):
        raise GraphError("weights are a sparse matrix; give an array with one weight per edge")
    if values.shape != source.shape:
        raise GraphError(
            f"weights have shape {values.shape} for {len(source):,} edges; give one weight per edge"
        )
    return source, target, values


def matrix_links(adjacency: Any, ids: np.ndarray) -> Links:
    """Return the links in a square matrix, sparse or dense."""
    matrix = to_float32(adjacency, "the adjacency")
    if matrix.shape != (len(ids), len(ids)):
        raise GraphError(
            f"the adjacency has shape {matrix.shape} for {len(ids):,} rows of features; "
            f"expected a square matrix with one row and one column per node{_as_list(matrix.shape)}"
        )
    entries = sp.coo_array(matrix)
    # A stored zero is no edge, and needs no warning: setdiag(0) stores zeros.
    entries.eliminate_zeros()
    source, target = (axis.astype(np.int64) for axis in entries.coords)
    return source, target, entries.data


def to_adjacency(links: Links, ids: np.ndarray) -> tuple[sp.csr_array, tuple[str, ...]]:
    """Merge parallel edges and both directions by maximum weight, and drop self-loops.

    Also returns the repairs, one sentence each. An edge listed in both directions is no repair:
    most formats write an undirected edge that way.
    """
    source, target, weights = links
    bad = ~np.isfinite(weights) | (weights < 0)
    if bad.any():
        at = int(np.flatnonzero(bad)[0])
        raise GraphError(
            f"the edge from {who(ids, source[at])} to {who(ids, target[at])} weighs {weights[at]} "
            "in float32; expected a finite number of at least 0, as propagation averages over "
            "neighbours: drop the edge or rescale the weights"
        )
    weightless = weights == 0
    loops = ~weightless & (source == target)
    keep = ~weightless & ~loops
    source, target, weights = source[keep], target[keep], weights[keep]
    pair = np.minimum(source, target) * len(ids) + np.maximum(source, target)
    directed = 2 * pair + (source > target)
    order = np.argsort(directed)
    directed = directed[order]
    pair = directed // 2
    first = np.flatnonzero(np.diff(pair, prepend=-1))
    heaviest = np.maximum.reduceat(weights[order], first)
    low, high = (axis.astype(np.int32) for axis in np.divmod(pair[first], len(ids)))
    half = sp.csr_array((heaviest, (low, high)), shape=(len(ids), len(ids)))
    repairs = {
        "edges of weight 0 dropped": weightless.sum(),
        "self-loops removed, as propagation adds its own": loops.sum(),
        "parallel edges merged, keeping the largest weight": (np.diff(directed) == 0).sum(),
    }
    return half + half.T, tuple(f"{what}: {count:,}" for what, count in repairs.items() if count)


def attached_links(
    links: Links, known: int, new: int
) -> tuple[sp.csr_array, sp.csr_array, tuple[str, ...]]:
    """Return links of new nodes as edges to known nodes, and as edges among themselves.

    New nodes have the positions after the known ones. Also returns the repairs, as
    :func:`to_adjacency` does.
    """
    adjacency, repairs = to_adjacency(links, np.arange(known + new))
    rows = adjacency[known:]
    return sp.csr_array(rows[:, :known]), sp.csr_array(rows[:, known:]), repairs


def _ends(edges: Any) -> np.ndarray:
    """Return both ends of every pair, one pair after another."""
    edges = plain(edges)
    if hasattr(edges, "itertuples") and len(set(edges.dtypes)) > 1:
        # The columns of the frame differ in type, and a common type could round large ids.
        edges = edges.itertuples(index=False)
    if hasattr(edges, "__array__"):
        pairs = np.asarray(edges)
        if pairs.size and (pairs.ndim != 2 or pairs.shape[1] != 2):
            raise GraphError(
                f"edges have shape {pairs.shape}; expected (number of edges, 2): transpose an "
                "array of two rows, or keep only the two columns that hold node ids"
            )
        return pairs.ravel()
    try:
        rows = [tuple(edge) for edge in edges]
    except TypeError as error:
        raise GraphError(
            f"edges cannot be read as pairs of node ids ({error}); expected [(a, b), ...]"
        ) from error
    for at, row in enumerate(rows):
        if len(row) != 2:
            raise GraphError(
                f"edge {at} has {len(row)} parts; expected a pair of node ids (weights go in "
                "weights=, and separate sources and targets are joined by zip(sources, targets))"
            )
    return to_objects([end for row in rows for end in row])


def _as_list(shape: tuple[int, ...]) -> str:
    """Return the end of a message about a matrix of this shape: what a list of edges is for."""
    if len(shape) == 2 and shape[0] == 2:
        return " (two rows may be an edge_index: Graph.from_edges(edge_index.T, X, y) takes it)"
    if len(shape) == 2 and shape[1] == 2:
        return " (two columns may be a list of edges: Graph.from_edges(edges, X, y) takes it)"
    return ""
