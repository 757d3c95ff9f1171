"""Graph: the type that every part of the package takes.

Every :class:`Graph` is symmetric, without self-loops or parallel edges, with finite features
and encoded labels. Its builders check the input, so no other code has to.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from dropnode.errors import GraphError, warn_caller
from dropnode.graph.arrays import Matrix, array_members, freeze
from dropnode.graph.edges import Links, edge_links, matrix_links, to_adjacency
from dropnode.graph.foreign import instead
from dropnode.graph.labels import UNKNOWN, to_codes
from dropnode.graph.nodes import to_nodes
from dropnode.graph.nx import networkx_parts
from dropnode.graph.pyg import to_data, to_pairs, to_parts, to_weights
from dropnode.graph.split import Split, check_trainable
from dropnode.settings import shown


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """An undirected graph with node features, some labels, and perhaps a split.

    Build one with :meth:`from_edges`, :meth:`from_scipy`, :meth:`from_networkx` or
    :meth:`from_pyg`: they repair what is safe to repair, with a :class:`GraphWarning`, and raise
    a :class:`GraphError` for the rest. A Graph copies its input and never changes.

    Attributes
    ----------
    adjacency : scipy.sparse.csr_array
        Symmetric, float32, no self-loops, no parallel edges.
    features : ndarray or scipy.sparse.csr_array
        Raw features, float32 or, on disk, perhaps float16; scaling belongs to the method, not to
        the data.
    labels : ndarray of int64
        Class codes, -1 where unknown.
    ids : ndarray of int64 or of objects, of a graph on disk perhaps of text
        The caller's own name for each node; positions if none were given.
    class_names : tuple of str
        The name of each class code.
    split : Split or None
        Which nodes train, validate and test.
    name : str
        The name of the graph in results.
    notes : tuple of str
        What the builder repaired.
    catalogue_name : str or None
        The dataset of the catalogue that the graph is, which decides about presets. Only
        :func:`dropnode.load_dataset` sets it: a graph of one's own may have any name.

    Examples
    --------
    >>> import numpy as np
    >>> graph = Graph.from_edges([("ann", "bob"), ("bob", "cy")], features=np.eye(3),
    ...                          labels=["tea", None, "mate"], ids=["ann", "bob", "cy"])
    >>> graph.num_edges, graph.class_names, graph.labels.tolist()
    (2, ('mate', 'tea'), [1, -1, 0])
    """

    adjacency: sp.csr_array
    features: Matrix
    labels: np.ndarray
    ids: np.ndarray
    class_names: tuple[str, ...]
    split: Split | None = None
    name: str = "graph"
    notes: tuple[str, ...] = ()
    catalogue_name: str | None = None
    _checked: tuple[np.ndarray, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        # The very arrays that a builder has checked; a graph with another split has the same.
        members: tuple[Matrix, ...] = (self.adjacency, self.features, self.labels, self.ids)
        foreign = any(sp.issparse(each) and each.format != "csr" for each in members)
        if foreign or [*map(id, array_members(*members))] != [*map(id, self._checked)]:
            raise GraphError("unchecked arrays; build a Graph by one of its from_ methods")
        names = self.class_names
        if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
            raise GraphError(f"class_names are {shown(names)}; expected a tuple of texts")
        if self.labels.max() >= len(self.class_names):
            raise GraphError(
                f"{len(self.class_names)} class_names, but a label is {self.labels.max()}; give "
                "every class a name"
            )
        if not isinstance(self.name, str):
            raise GraphError(f"name is {shown(self.name)}; expected text")
        if self.split is None:
            return
        if not isinstance(self.split, Split):
            raise GraphError(f"split is a {type(self.split).__name__}; expected a dropnode.Split")
        positions = np.concatenate([self.split.train, self.split.val, self.split.test])
        outside = positions[positions >= self.num_nodes]
        if len(outside):
            raise GraphError(
                f"split {self.split.name!r} holds node {outside[0]}, but nodes are numbered 0 to "
                f"{self.num_nodes - 1}; split this graph's own nodes"
            )

    def __setstate__(self, state: dict[str, Any]) -> None:
        # NumPy forgets that an array was read-only when it copies or pickles it.
        vars(self).update(state)
        freeze(self.adjacency, self.features, self.labels, self.ids)

    def __deepcopy__(self, memo: dict[int, Any]) -> Graph:
        # It never changes. scikit-learn copies the parameters of an estimator for every fit.
        return self

    if not TYPE_CHECKING:  # An attribute that does not exist stays an error to mypy.

        def __getattribute__(self, name: str) -> Any:
            # Methods such as setdiag replace the arrays of a sparse matrix, read-only or not. On a
            # new object that shares the arrays, they cannot change the graph.
            value = object.__getattribute__(self, name)
            return copy.copy(value) if sp.issparse(value) else value

    @classmethod
    def from_edges(
        cls,
        edges: Any,
        features: Any,
        labels: Any = None,
        *,
        weights: Any = None,
        ids: Any = None,
        class_names: Sequence[str] | None = None,
        split: Split | None = None,
        name: str = "graph",
    ) -> Graph:
        """Build a graph from pairs of node ids (positions, when ``ids`` is not given).

        Parameters
        ----------
        edges : pairs, or an array or frame of two columns
            Each edge once or in both directions; of two weights the larger is kept.
        features : array, frame, tensor or sparse matrix
            One row per node.
        labels : sequence, optional
            Numbers, text or booleans; -1, None or NaN where unknown.
        weights : sequence of numbers, optional
            One weight per edge, 1 by default.
        ids : sequence, optional
            The names that ``edges`` uses, in the order of the rows of ``features``.
        class_names : sequence of str, optional
            With them, labels are codes; without, classes are called after their labels.
        """
        nodes = to_nodes(features, ids)
        links = edge_links(edges, weights, nodes[1])
        classes = to_codes(labels, len(nodes[1]), class_names)
        return cls.from_parts(nodes, links, classes, split, name)

    @classmethod
    def from_scipy(
        cls,
        adjacency: Any,
        features: Any,
        labels: Any = None,
        *,
        ids: Any = None,
        class_names: Sequence[str] | None = None,
        split: Split | None = None,
        name: str = "graph",
    ) -> Graph:
        """Build a graph from a square adjacency matrix, sparse or dense, of edge weights.

        An entry stored twice counts as two parallel edges, of which the larger is kept. Everything
        else is as in :meth:`from_edges`.
        """
        nodes = to_nodes(features, ids)
        links = matrix_links(adjacency, nodes[1])
        classes = to_codes(labels, len(nodes[1]), class_names)
        return cls.from_parts(nodes, links, classes, split, name)

    @classmethod
    def from_networkx(
        cls,
        graph: Any,
        *,
        features: str = "x",
        labels: str = "y",
        weight: str = "weight",
        split: Split | None = None,
        name: str = "graph",
    ) -> Graph:
        """Build a graph from networkx; ``features``, ``labels``, ``weight`` name attributes.

        Nodes keep their networkx names as ids. A node without the label attribute is unlabelled,
        an edge without the weight attribute weighs 1.
        """
        edges, rows, values, weights = networkx_parts(graph, features, labels, weight)
        return cls.from_edges(
            edges, rows, values, weights=weights, ids=list(graph), split=split, name=name
        )

    @classmethod
    def from_pyg(cls, data: Any, *, name: str = "graph") -> Graph:
        """Build a graph from a PyTorch Geometric ``Data``.

        Reads ``x``, ``edge_index``, ``edge_weight``, ``y``, the train, val and test masks, and the
        ``class_names`` that :meth:`to_pyg` sets. Without ``edge_weight``, an ``edge_attr`` of one
        column is read as weights. A :class:`GraphWarning` and ``notes`` say whether it was.
        """
        for needed in ("x", "edge_index"):
            if getattr(data, needed, None) is None:
                raise GraphError(
                    f"the Data object has no {needed}; it needs x, one row per node, and "
                    f"edge_index{instead(data)}"
                )
        parts: Any = to_parts(data)
        weights, told = to_weights(data)
        graph = cls.from_edges(
            to_pairs(data.edge_index),
            data.x,
            getattr(data, "y", None),
            weights=weights,
            class_names=getattr(data, "class_names", None),
            split=None if parts is None else Split(*parts),
            name=name,
        )
        for note in told:
            warn_caller(f"{name}: {note}")
        return replace(graph, notes=told + graph.notes)

    def to_pyg(self) -> Any:
        """Return a PyTorch Geometric ``Data`` with both directions of every edge.

        Features become dense, as PyG's layers expect them. Nodes keep their order, not their ids.
        """
        return to_data(self)

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.ids)

    @property
    def num_edges(self) -> int:
        """Number of undirected edges, each counted once."""
        return int(self.adjacency.nnz // 2)

    @property
    def num_features(self) -> int:
        """Number of features per node."""
        return int(self.features.shape[1])

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    def with_split(self, split: Split | None) -> Graph:
        """Return the same graph with another split."""
        return replace(self, split=split)

    def with_adjacency(self, adjacency: Any) -> Graph:
        """Return the same nodes, labels and split with other edges, checked as any input is."""
        return Graph.from_scipy(
            adjacency,
            self.features,
            self.labels,
            ids=self.ids,
            class_names=self.class_names,
            split=self.split,
            name=self.name,
        )

    def with_labels(self, labels: Any, class_names: Sequence[str]) -> Graph:
        """Return the same nodes, edges and split with other labels."""
        codes, names = to_codes(labels, self.num_nodes, class_names)
        if len(codes) != self.num_nodes:
            raise _labels_missing(len(codes), self.num_nodes)
        members = (self.adjacency, self.features, codes, self.ids)
        freeze(codes)
        return replace(
            self,
            labels=codes,
            class_names=names,
            # Neither the labels of the catalogue any more, nor repaired now.
            catalogue_name=None,
            notes=(),
            _checked=tuple(array_members(*members)),
        )

    def check_trainable(self, split: Split | None = None) -> None:
        """Raise :class:`GraphError` unless a classifier can be trained on ``split``.

        A class of test nodes without a training node is no error, because some splits were
        published so: a :class:`GraphWarning` says that no label teaches it.
        """
        split = self.split if split is None else self.with_split(split).split
        check_trainable(split, self.labels, self.class_names, self.ids)

    def fingerprint(self) -> str:
        """Return a sha256 of edges, features, labels and classes, which identifies the data.

        Names and the split do not count. Dense and sparse features differ.
        """
        digest = hashlib.sha256(repr((self.features.shape, self.class_names)).encode())
        for array in array_members(self.adjacency, self.features, self.labels):
            # The width of an index depends on the SciPy version, not on the data.
            digest.update(array.astype("<i8" if array.dtype.kind == "i" else "<f4").tobytes())
        return digest.hexdigest()

    def __repr__(self) -> str:
        kind = "sparse" if sp.issparse(self.features) else "dense"
        known = int((self.labels != UNKNOWN).sum())
        return (
            f"Graph({self.name!r}: {self.num_nodes:,} nodes, {self.num_edges:,} edges, "
            f"{self.num_features:,} {kind} features, {self.num_classes} classes, "
            f"{known:,} labels, split {self.split!r})"
        )

    @classmethod
    def from_parts(
        cls,
        nodes: tuple[Matrix, np.ndarray],
        links: Links,
        classes: tuple[np.ndarray, tuple[str, ...]],
        split: Split | None = None,
        name: str = "graph",
    ) -> Graph:
        """Build a graph from checked parts; the other ``from_`` methods end here.

        Parameters
        ----------
        nodes : (features, ids)
            As :func:`dropnode.graph.nodes.to_nodes` returns them.
        links : (sources, targets, weights)
            As :func:`~dropnode.graph.edges.matrix_links` or
            :func:`~dropnode.graph.edges.edge_links` returns them.
        classes : (codes, names)
            As :func:`~dropnode.graph.labels.to_codes` returns them.
        """
        features, ids = nodes
        codes, names = classes
        if len(codes) != len(ids):
            raise _labels_missing(len(codes), len(ids))
        adjacency, notes = to_adjacency(links, ids)
        members = (adjacency, features, codes, ids)
        freeze(*members)
        checked = tuple(array_members(*members))
        graph = cls(*members, names, split, name, notes, _checked=checked)
        for note in notes:
            warn_caller(f"{name}: {note}")
        return graph


def _labels_missing(labels: int, nodes: int) -> GraphError:
    return GraphError(
        f"{labels:,} labels for {nodes:,} nodes; give one label per node, -1 where it is unknown"
    )
