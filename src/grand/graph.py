"""Graph: the one type every part of the package takes, and the one place where input is checked.

A :class:`Graph` that exists is sound: symmetric, without self-loops or parallel edges, with finite
float32 features and encoded labels. Nothing downstream checks again.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from grand.inputs import (
    UNKNOWN,
    GraphError,
    Matrix,
    natural,
    to_adjacency,
    to_codes,
    to_endpoints,
    to_features,
    to_ids,
    to_positions,
    to_weights,
)


class GraphWarning(UserWarning):
    """Something in the input was repaired; the graph's ``notes`` keep the same sentence."""


@dataclass(frozen=True, eq=False)
class Split:
    """Positions of the training, validation and test nodes.

    Parameters
    ----------
    train, val, test : integer arrays
        Disjoint node positions. Only ``train`` has to be non-empty.
    name : str
        What the split is called wherever a result is reported, such as ``"public"``.
    """

    train: np.ndarray
    val: np.ndarray
    test: np.ndarray
    name: str = "custom"

    def __post_init__(self) -> None:
        parts = {part: to_positions(getattr(self, part), part) for part in ("train", "val", "test")}
        together = np.concatenate(list(parts.values()))
        values, counts = np.unique(together, return_counts=True)
        if (counts > 1).any():
            culprit = values[counts > 1][0]
            raise GraphError(
                f"node {culprit} stands more than once in split {self.name!r}; "
                "give every node to at most one of train, val and test"
            )
        for part, positions in parts.items():
            positions.flags.writeable = False
            object.__setattr__(self, part, positions)

    def __repr__(self) -> str:
        sizes = "/".join(f"{len(part):,}" for part in (self.train, self.val, self.test))
        return f"Split({self.name!r}, {sizes})"


@dataclass(frozen=True, eq=False)
class Graph:
    """An undirected graph with node features, some labels, and perhaps a split.

    Build one with :meth:`from_edges`, :meth:`from_scipy`, :meth:`from_networkx` or
    :meth:`from_pyg`; they repair what is safe to repair (and say so) and refuse the rest.

    Attributes
    ----------
    adjacency : scipy.sparse.csr_array
        Symmetric, float32, no self-loops, no parallel edges.
    features : ndarray or scipy.sparse.csr_array
        Raw float32 features; scaling belongs to the method, not to the data.
    labels : ndarray of int64
        Class codes, -1 where unknown.
    ids : ndarray
        The caller's own name for each node.
    class_names : tuple of str
        The name of each class code.
    split : Split or None
        Which nodes train, validate and test.
    name : str
        What the graph is called in results; presets are looked up by it.
    notes : tuple of str
        What was repaired on the way in.

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
    notes: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        # The builders have checked everything; this only makes the promise of immutability hold.
        for array in _arrays(self.adjacency) + _arrays(self.features) + [self.labels, self.ids]:
            array.flags.writeable = False
        if self.split is not None:
            _check_split(self.split, self.num_nodes)

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
        """Build a graph from pairs of node ids (positions, when ``ids`` is not given)."""
        features = to_features(features)
        num_nodes = features.shape[0]
        ids = to_ids(ids, num_nodes)
        source, target = to_endpoints(edges, ids)
        values = np.ones(len(source), np.float32) if weights is None else to_weights(weights)
        if len(values) != len(source):
            raise GraphError(
                f"{len(values):,} weights for {len(source):,} edges; give one weight an edge"
            )
        return cls._build(source, target, values, features, labels, ids, class_names, split, name)

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
        """Build a graph from a square adjacency matrix, sparse or dense."""
        if not sp.issparse(adjacency):
            adjacency = np.asarray(adjacency)
        if adjacency.ndim != 2 or adjacency.shape[0] != adjacency.shape[1]:
            raise GraphError(
                f"the adjacency has shape {adjacency.shape}; expected a square matrix, "
                "one row and one column a node"
            )
        entries = sp.coo_array(adjacency)
        features = to_features(features)
        if entries.shape[0] != features.shape[0]:
            raise GraphError(
                f"the adjacency has {entries.shape[0]:,} nodes but there are "
                f"{features.shape[0]:,} rows of features; both need one row a node"
            )
        ids = to_ids(ids, features.shape[0])
        source, target = (axis.astype(np.int64) for axis in entries.coords)
        return cls._build(
            source,
            target,
            to_weights(entries.data),
            features,
            labels,
            ids,
            class_names,
            split,
            name,
        )

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
        nodes = list(graph.nodes(data=True))
        missing = next((node for node, data in nodes if features not in data), None)
        if missing is not None:
            raise GraphError(
                f"node {missing!r} has no attribute {features!r}; give every node a feature "
                "vector there, or name the right attribute with features="
            )
        rows = [np.asarray(data[features], dtype=np.float64).ravel() for _, data in nodes]
        widths = {len(row) for row in rows}
        if len(widths) > 1:
            raise GraphError(
                f"feature vectors have different lengths ({sorted(widths)[:4]}); "
                "every node needs the same number of features"
            )
        known = [data.get(labels) for _, data in nodes]
        position = {node: i for i, (node, _) in enumerate(nodes)}
        edges = [(position[u], position[v]) for u, v in graph.edges()]
        ids = np.empty(len(nodes), dtype=object)
        ids[:] = [node for node, _ in nodes]
        built = cls.from_edges(
            np.array(edges, dtype=np.int64).reshape(-1, 2),
            np.array(rows, dtype=np.float64).reshape(len(nodes), -1),
            None if all(label is None for label in known) else known,
            weights=[data.get(weight, 1.0) for _, _, data in graph.edges(data=True)],
            split=split,
            name=name,
        )
        return replace(built, ids=to_ids(natural(ids), len(nodes)))

    @classmethod
    def from_pyg(cls, data: Any, *, name: str = "graph") -> Graph:
        """Build a graph from a PyTorch Geometric ``Data``: x, edge_index, edge_weight, y, masks."""
        if data.x is None or data.edge_index is None:
            raise GraphError(
                "the Data object lacks x or edge_index; set both (x holds one row a node)"
            )
        x = data.x
        if x.is_sparse or x.layout != x.to_dense().layout:
            coo = x.to_sparse_coo().coalesce()
            features = sp.coo_array(
                (coo.values().numpy(), tuple(coo.indices().numpy())), shape=tuple(coo.shape)
            )
        else:
            features = x.detach().cpu().numpy()
        weight = getattr(data, "edge_weight", None)
        split = None
        if getattr(data, "train_mask", None) is not None:
            train, val, test = (
                np.flatnonzero(np.asarray(mask)) if mask is not None else np.array([], np.int64)
                for mask in (data.train_mask, data.get("val_mask"), data.get("test_mask"))
            )
            split = Split(train, val, test)
        return cls.from_edges(
            data.edge_index.cpu().numpy().T,
            features,
            None if data.y is None else data.y.cpu().numpy(),
            weights=None if weight is None else weight.cpu().numpy(),
            split=split,
            name=name,
        )

    def to_pyg(self) -> Any:
        """Return a PyTorch Geometric ``Data`` with both directions of every edge."""
        import torch
        from torch_geometric.data import Data

        entries = self.adjacency.tocoo()
        dense = self.features.toarray() if sp.issparse(self.features) else self.features.copy()
        data = Data(
            x=torch.from_numpy(dense),
            edge_index=torch.from_numpy(np.stack(entries.coords).astype(np.int64)),
            edge_weight=torch.from_numpy(entries.data.copy()),
            y=torch.from_numpy(self.labels.copy()),
        )
        if self.split is not None:
            for part in ("train", "val", "test"):
                mask = torch.zeros(self.num_nodes, dtype=torch.bool)
                mask[torch.from_numpy(getattr(self.split, part).copy())] = True
                data[f"{part}_mask"] = mask
        return data

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return int(self.adjacency.shape[0])

    @property
    def num_edges(self) -> int:
        """Number of undirected edges, each counted once."""
        return int(self.adjacency.nnz // 2)

    @property
    def num_features(self) -> int:
        """Number of features of a node."""
        return int(self.features.shape[1])

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    def with_split(self, split: Split | None) -> Graph:
        """Return the same graph with another split."""
        return replace(self, split=split)

    def check_trainable(self, split: Split | None = None) -> None:
        """Raise :class:`GraphError` unless a classifier can be trained on ``split``."""
        split = split or self.split
        known = np.flatnonzero(self.labels != UNKNOWN)
        if len(known) == 0:
            raise GraphError("no node has a label; give at least two classes a label each")
        if len(np.unique(self.labels[known])) < 2:
            raise GraphError(
                f"all {len(known):,} labelled nodes are of one class, "
                f"{self.class_names[self.labels[known[0]]]!r}; "
                "a classifier needs labels of at least two classes"
            )
        if split is None:
            raise GraphError("the graph has no split; add one with graph.with_split(Split(...))")
        _check_split(split, self.num_nodes)
        for part in ("train", "val"):
            positions = getattr(split, part)
            bare = positions[self.labels[positions] == UNKNOWN]
            if len(bare):
                raise GraphError(
                    f"node {self.ids[bare[0]]!r} is in the {part} part of split {split.name!r} but "
                    f"has no label ({len(bare):,} such nodes); label it or take it out"
                )
        present = np.unique(self.labels[split.train])
        absent = np.setdiff1d(np.arange(self.num_classes), present)
        if len(absent):
            names = ", ".join(repr(self.class_names[code]) for code in absent[:5])
            raise GraphError(
                f"class {names} has no training node in split {split.name!r}; add a labelled "
                "node of each class to the training part, or drop the class"
            )

    def fingerprint(self) -> str:
        """Return a sha256 of nodes, edges, features and labels: which data a result is about."""
        digest = hashlib.sha256(repr((self.features.shape, self.class_names)).encode())
        for array in _arrays(self.adjacency) + _arrays(self.features) + [self.labels]:
            # Index width depends on the SciPy version, not on the data.
            plain = array.astype(np.int64) if array.dtype.kind in "iu" else array
            digest.update(np.ascontiguousarray(plain).tobytes())
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
    def _build(
        cls,
        source: np.ndarray,
        target: np.ndarray,
        weights: np.ndarray,
        features: Matrix,
        labels: Any,
        ids: np.ndarray,
        class_names: Sequence[str] | None,
        split: Split | None,
        name: str,
    ) -> Graph:
        num_nodes = features.shape[0]
        codes, names = to_codes(labels, num_nodes, class_names)
        adjacency, notes = to_adjacency(source, target, weights, num_nodes)
        graph = cls(adjacency, features, codes, ids, names, split, name, notes)
        for note in notes:
            warnings.warn(f"{name}: {note}", GraphWarning, stacklevel=3)
        return graph


def _check_split(split: Split, num_nodes: int) -> None:
    if len(split.train) == 0:
        raise GraphError(f"split {split.name!r} has no training node; give it at least one")
    for part in ("train", "val", "test"):
        positions = getattr(split, part)
        if len(positions) and (positions.min() < 0 or positions.max() >= num_nodes):
            culprit = positions[(positions < 0) | (positions >= num_nodes)][0]
            raise GraphError(
                f"split {split.name!r} puts node {culprit} in {part}, but nodes are numbered 0 to "
                f"{num_nodes - 1}"
            )


def _arrays(matrix: Matrix) -> list[np.ndarray]:
    if sp.issparse(matrix):
        return [matrix.data, matrix.indices, matrix.indptr]
    return [matrix]
