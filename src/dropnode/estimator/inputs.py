"""What a scikit-learn call gives, as a graph: features and a matrix, or nodes by their ids.

scikit-learn cuts X and y into folds by rows. A matrix of edges cannot be cut so: rows of X are
therefore nodes of a whole graph where one was given to the constructor.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import column_or_1d

from dropnode.errors import ConfigError, GraphError, warn_caller
from dropnode.graph import Graph
from dropnode.graph.arrays import Matrix, to_float32
from dropnode.graph.edges import attached_links, matrix_links
from dropnode.graph.foreign import refuse_graph
from dropnode.graph.labels import UNKNOWN, encode_labels, to_codes
from dropnode.graph.nodes import to_rows, who

BY_NODE = (
    "GrandClassifier(graph=Graph.from_scipy(adjacency, X)), of which fit, predict and "
    "cross-validation take nodes as rows: fit(numpy.arange(len(X)), y)"
)
"""The cure for a graph that has to be cut into folds."""

Classes = tuple[np.ndarray, tuple[str, ...]]
"""Label codes, and the name of each class."""


def check_graph(graph: Any) -> None:
    """Raise an error unless the constructor's ``graph`` is None or a Graph."""
    if graph is None or isinstance(graph, Graph):
        return
    refuse_graph(graph, "the dropnode.Graph of the constructor")
    raise ConfigError(
        f"graph= of the constructor is a {type(graph).__name__}; expected a dropnode.Graph, which "
        "has the features of all nodes, such as Graph.from_scipy(adjacency, X)"
    )


def read_labels(y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the label codes and the classes of a target."""
    if y is None:
        raise GraphError(
            "GrandClassifier requires y to be passed, but the target y is None; give one label per "
            "row of X, -1 if unknown, or a Graph with labels"
        )
    if getattr(y, "shape", ())[1:] == (1,):
        y = column_or_1d(y, warn=True)
    codes, classes = encode_labels(y)
    labels = classes.tolist()
    continuous = [one for one in labels if isinstance(one, float) and not one.is_integer()]
    if continuous:
        raise GraphError(
            f"Unknown label type: continuous, such as {continuous[0]}; a classifier needs classes: "
            "whole numbers, text or booleans"
        )
    return codes, classes


def names_of(classes: np.ndarray) -> tuple[str, ...]:
    """Return the name of each class."""
    return tuple(str(label) for label in classes.tolist())


def table_graph(features: Matrix, adjacency: Any, classes: Classes | None) -> Graph:
    """Return the graph of checked features, a matrix of edges and, if known, encoded labels."""
    rows = features.shape[0]
    if isinstance(adjacency, Graph):
        raise GraphError(
            "graph= is a Graph, which has features and labels of its own; call fit(graph) alone, "
            f"or give graph=graph.adjacency, or use {BY_NODE}"
        )
    shape: Any = getattr(adjacency, "shape", ())
    if len(shape) == 2 and shape[0] == rows < shape[1]:
        raise GraphError(
            f"graph= has shape {tuple(shape)} for {rows:,} rows of features: rows cut out of a "
            "larger matrix, as cross-validation and grid search do; give the whole graph to the "
            f"constructor instead, as in {BY_NODE}"
        )
    ids = np.arange(rows, dtype=np.int64)
    links = matrix_links(adjacency, ids)
    return Graph.from_parts((features, ids), links, classes or to_codes(None, rows, None))


def new_edges(edges: Any, new: int, graph: Graph) -> tuple[sp.csr_array, sp.csr_array]:
    """Return the edges of new nodes to the nodes of a graph, and those among themselves."""
    matrix, known = to_float32(edges, "edges"), graph.num_nodes
    if matrix.shape not in ((new, known), (new, known + new)):
        raise GraphError(
            f"edges= has shape {tuple(matrix.shape)} for {new:,} rows of X; expected edge weights "
            f"between the rows and the {known:,} nodes of the training graph, {(new, known)}, or "
            f"also those between rows, in further columns, {(new, known + new)}"
        )
    entries = sp.coo_array(matrix)
    entries.eliminate_zeros()
    row, column = (axis.astype(np.int64) for axis in entries.coords)
    *parts, repairs = attached_links((known + row, column, entries.data), known, new)
    for repair in repairs:
        warn_caller(f"edges=: {repair}")
    links, among = parts
    return links, among


def node_rows(graph: Graph, nodes: Any) -> np.ndarray:
    """Return the positions of nodes that a caller gives by their ids."""
    refuse_graph(nodes, "the ids of some nodes")
    shape = tuple(getattr(nodes, "shape", ()))
    if len(shape) == 2 and shape[1] > 1:
        raise GraphError(
            f"X has shape {shape}, but the graph was given to the constructor, so that X holds "
            f"the ids of some of its {graph.num_nodes:,} nodes, in one column; features of nodes "
            "belong into that Graph"
        )
    return to_rows(nodes, graph.ids)


def labelled_nodes(graph: Graph, nodes: Any, y: Any) -> tuple[Graph, np.ndarray, np.ndarray]:
    """Return a graph with the labels of some nodes and no others, the classes, and these nodes.

    The graph's own labels and its split are left out, so that labels of a fold that is held out
    cannot be learnt from.
    """
    rows = node_rows(graph, nodes)
    codes, classes = read_labels(y)
    if len(codes) != len(rows):
        raise GraphError(f"{len(codes):,} labels in y for {len(rows):,} nodes in X; give one each")
    order = np.argsort(rows, kind="stable")
    twice = order[1:][np.diff(rows[order]) == 0]
    if len(twice):
        raise GraphError(
            f"node {who(graph.ids, rows[twice[0]])} occurs more than once in X; give every node "
            "once (sample_weight= counts a label several times)"
        )
    labels = np.full(graph.num_nodes, UNKNOWN, dtype=np.int64)
    labels[rows] = codes
    bare = graph.with_split(None).with_labels(labels, names_of(classes))
    return replace(bare, catalogue_name=graph.catalogue_name), classes, rows


def node_weights(sample_weight: Any, rows: np.ndarray, num_nodes: int) -> np.ndarray | None:
    """Return the weight of each node of a graph, 0 outside of ``rows``."""
    if sample_weight is None:
        return None
    values = to_float32(sample_weight, "sample_weight")
    if sp.issparse(values) or values.shape != rows.shape:
        raise GraphError(
            f"sample_weight has shape {values.shape} for {len(rows):,} rows of X; give one number "
            "per row (those of rows without a label do not count)"
        )
    weights = np.zeros(num_nodes, dtype=np.float32)
    weights[rows] = values
    return weights


def same_nodes(one: Graph, other: Graph) -> bool:
    """Return whether two graphs have the same features and edges."""
    pairs = ((one.features, other.features), (one.adjacency, other.adjacency))
    return all(
        a.shape == b.shape and sp.issparse(a) == sp.issparse(b) and not (a != b).sum()
        for a, b in pairs
    )
