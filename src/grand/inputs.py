"""Raw input into sound arrays: every check that stands between a caller's data and a Graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

Matrix: TypeAlias = Any
"""A dense ``numpy.ndarray`` or a ``scipy.sparse.csr_array`` (SciPy ships no types)."""

UNKNOWN = -1
"""The label code of a node whose class is not known."""


class GraphError(ValueError):
    """Input that cannot become a graph; the message names the culprit and the cure."""


def encode_labels(labels: Any) -> tuple[np.ndarray, np.ndarray]:
    """Turn labels of any kind into codes and the sorted distinct classes.

    Unknown is -1 in a numeric array, and None or NaN anywhere.

    Examples
    --------
    >>> codes, classes = encode_labels(["cat", None, "dog"])
    >>> codes.tolist(), classes.tolist()
    ([0, -1, 1], ['cat', 'dog'])
    """
    values = np.asarray(labels)
    if values.ndim != 1:
        raise GraphError(f"labels have shape {values.shape}; expected one label a node, 1-D")
    if values.dtype.kind in "US" and not isinstance(labels, np.ndarray):
        # np.asarray has turned a list such as ["a", None] or ["a", nan] into text.
        values = np.array(list(labels), dtype=object)
    if values.dtype == object:
        # NaN is the one value that differs from itself.
        unknown = np.array([v is None or v != v for v in values], dtype=bool)
        numeric = [isinstance(v, (int, float, np.number)) for v in values[~unknown]]
        if all(numeric):
            unknown[~unknown] = [v == UNKNOWN for v in values[~unknown]]
    elif values.dtype.kind == "f":
        if np.isinf(values).any():
            raise GraphError(f"label of node {np.flatnonzero(np.isinf(values))[0]} is infinite")
        unknown = np.isnan(values) | (values == UNKNOWN)
    elif values.dtype.kind in "iu":
        unknown = values == UNKNOWN
    else:
        unknown = np.zeros(len(values), dtype=bool)
    known = values[~unknown]
    try:
        classes, inverse = np.unique(natural(known), return_inverse=True)
    except TypeError as error:
        kinds = sorted({type(v).__name__ for v in known})
        raise GraphError(
            f"labels mix kinds that cannot be ordered ({', '.join(kinds)}); use one kind"
        ) from error
    codes = np.full(len(values), UNKNOWN, dtype=np.int64)
    codes[~unknown] = inverse
    return codes, classes


def to_features(features: Any) -> Matrix:
    """Return two-dimensional, finite float32 features, sparse if they came sparse."""
    if features is None:
        raise GraphError(
            "features are missing; for a graph without any, pass scipy.sparse.eye_array(n)"
        )
    if sp.issparse(features):
        matrix = sp.csr_array(features, dtype=np.float32, copy=True)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        values = matrix.data
    else:
        try:
            with np.errstate(over="ignore"):
                matrix = np.array(features, dtype=np.float32, order="C", copy=True)
        except (TypeError, ValueError) as error:
            raise GraphError(
                f"features cannot be read as numbers ({error}); encode text columns first"
            ) from error
        values = matrix
    if matrix.ndim != 2 or matrix.shape[1] == 0:
        raise GraphError(
            f"features have shape {matrix.shape}; expected two dimensions, one row a node and "
            "at least one column"
        )
    if matrix.shape[0] == 0:
        raise GraphError(
            "the graph is empty: there are no nodes; give at least one row of features"
        )
    if not np.isfinite(values).all():
        if sp.issparse(matrix):
            at = np.flatnonzero(~np.isfinite(matrix.data))[0]
            row, column = np.searchsorted(matrix.indptr, at, side="right") - 1, matrix.indices[at]
        else:
            row, column = np.argwhere(~np.isfinite(matrix))[0]
        raise GraphError(
            f"feature {column} of node {row} is NaN, infinite or too large for float32; "
            "fill or remove such values (for instance with sklearn.impute.SimpleImputer)"
        )
    return matrix


def to_ids(ids: Any, num_nodes: int) -> np.ndarray:
    """Return one distinct id a node; positions when none were given."""
    if ids is None:
        return np.arange(num_nodes, dtype=np.int64)
    array = ids.copy() if isinstance(ids, np.ndarray) else natural(_objects(ids))
    if array.ndim != 1 or len(array) != num_nodes:
        raise GraphError(
            f"{len(array):,} ids for {num_nodes:,} rows of features; give one id a node"
        )
    seen: dict[Any, int] = {}
    for position, name in enumerate(array.tolist()):
        if name is None or name != name:
            raise GraphError(f"the id of the node at position {position} is missing; name it")
        if name in seen:
            raise GraphError(
                f"id {name!r} stands at positions {seen[name]} and {position}; ids must be unique"
            )
        seen[name] = position
    return array


def to_endpoints(edges: Any, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of both ends of every edge."""
    by_position = ids.dtype == np.int64 and np.array_equal(ids, np.arange(len(ids)))
    pairs = np.asarray(edges) if isinstance(edges, np.ndarray) else natural(_pairs(edges))
    if pairs.size == 0:
        return np.array([], np.int64), np.array([], np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise GraphError(
            f"edges have shape {pairs.shape}; expected (number of edges, 2); "
            "transpose an array that has two rows"
        )
    if by_position:
        if pairs.dtype.kind not in "iu":
            whole = pairs.dtype.kind == "f" and np.array_equal(pairs, np.trunc(pairs))
            if not whole or np.abs(pairs).max() > 2**53:
                raise GraphError(
                    f"edge ends are of type {pairs.dtype}; expected whole node positions, "
                    "or pass ids= to name nodes otherwise"
                )
        # Compared before any cast: a cast to int64 could wrap a huge number into a valid one.
        outside = (pairs < 0) | (pairs >= len(ids))
        if outside.any():
            row = np.flatnonzero(outside.any(axis=1))[0]
            raise GraphError(
                f"edge {row} joins {pairs[row][0]} and {pairs[row][1]}, but nodes are numbered "
                f"0 to {len(ids) - 1}; drop the edge or add the node's features"
            )
        pairs = pairs.astype(np.int64)
        return pairs[:, 0], pairs[:, 1]
    position = {name: i for i, name in enumerate(ids.tolist())}
    ends = np.array([position.get(name, -1) for name in pairs.ravel().tolist()], dtype=np.int64)
    if (ends < 0).any():
        at = int(np.flatnonzero(ends < 0)[0])
        raise GraphError(
            f"edge {at // 2} names node {pairs.ravel()[at]!r}, which is not among the "
            f"{len(ids):,} ids; drop the edge or add the node (ids are compared with their type: "
            "'7' is not 7)"
        )
    return ends[0::2], ends[1::2]


def to_weights(weights: Any) -> np.ndarray:
    """Return finite, non-negative float32 edge weights."""
    try:
        with np.errstate(over="ignore"):
            values = np.asarray(weights).astype(np.float32)
    except (TypeError, ValueError) as error:
        raise GraphError(f"edge weights cannot be read as numbers ({error})") from error
    bad = ~np.isfinite(values) | (values < 0)
    if bad.any():
        at = int(np.flatnonzero(bad)[0])
        raise GraphError(
            f"the weight of edge {at} is {np.asarray(weights)[at]}; expected a finite "
            "number of at least 0; "
            "propagation averages over neighbours, so shift or drop such edges"
        )
    return values


def to_adjacency(
    source: np.ndarray, target: np.ndarray, weights: np.ndarray, num_nodes: int
) -> tuple[sp.csr_array, tuple[str, ...]]:
    """Merge parallel edges and both directions by maximum weight, and drop self-loops."""
    notes = []
    loops = source == target
    if loops.any():
        notes.append(f"removed {int(loops.sum()):,} self-loops (propagation adds its own)")
    keep = ~loops & (weights > 0)
    source, target, weights = source[keep], target[keep], weights[keep]
    _, multiplicity = np.unique(source * num_nodes + target, return_counts=True)
    if (multiplicity > 1).any():
        extra = int((multiplicity - 1).sum())
        notes.append(f"merged {extra:,} parallel edges, keeping the largest weight")
    pair = np.minimum(source, target) * num_nodes + np.maximum(source, target)
    order = np.argsort(pair, kind="stable")
    distinct, first = np.unique(pair[order], return_index=True)
    heaviest = np.maximum.reduceat(weights[order], first) if len(first) else weights
    low, high = np.divmod(distinct, num_nodes)
    adjacency = sp.csr_array(
        (
            np.concatenate([heaviest, heaviest]),
            (np.concatenate([low, high]), np.concatenate([high, low])),
        ),
        shape=(num_nodes, num_nodes),
    )
    adjacency.sort_indices()
    return adjacency, tuple(notes)


def to_codes(
    labels: Any, num_nodes: int, class_names: Sequence[str] | None
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return label codes and the name of each class."""
    if labels is None:
        return np.full(num_nodes, UNKNOWN, dtype=np.int64), tuple(class_names or ())
    if len(labels) != num_nodes:
        raise GraphError(
            f"{len(labels):,} labels for {num_nodes:,} nodes; give one a node, -1 where unknown"
        )
    codes, classes = encode_labels(labels)
    if class_names is None:
        return codes, tuple(str(name) for name in classes.tolist())
    if len(classes) and (classes.dtype.kind not in "iu" or classes[-1] >= len(class_names)):
        raise GraphError(
            f"with class_names, labels must be codes 0 to {len(class_names) - 1}; "
            f"found {classes[-1]!r}"
        )
    if len(classes) and classes[0] < 0:
        raise GraphError(f"label {classes[0]} is negative; only -1, for unknown, may be")
    codes[codes != UNKNOWN] = classes[codes[codes != UNKNOWN]]
    return codes, tuple(class_names)


def to_positions(values: Any, part: str) -> np.ndarray:
    """Return one part of a split as int64 node positions."""
    array = np.asarray(values)
    if array.size == 0:
        return np.array([], dtype=np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise GraphError(
            f"the {part} part of a split is {array.dtype} of shape {array.shape}; expected node "
            "positions (for a mask, pass numpy.flatnonzero(mask))"
        )
    return array.astype(np.int64)


def _objects(values: Any) -> np.ndarray:
    """Return a 1-D object array, even where the values are tuples."""
    values = list(values)
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _pairs(edges: Any) -> np.ndarray:
    rows = [tuple(edge) for edge in edges]
    wrong = next((i for i, row in enumerate(rows) if len(row) != 2), None)
    if wrong is not None:
        raise GraphError(f"edge {wrong} is {rows[wrong]!r}; expected a pair of node ids")
    array = np.empty((len(rows), 2), dtype=object)
    for i, row in enumerate(rows):
        array[i, 0], array[i, 1] = row
    return array


def natural(values: np.ndarray) -> np.ndarray:
    """Give an object array its natural type where all values share one; otherwise leave it."""
    if values.dtype != object:
        return values
    kinds = {type(v) for v in values.ravel()}
    if kinds <= {int, np.int64, np.int32} or kinds <= {str, np.str_} or kinds <= {bool, np.bool_}:
        try:
            return np.array(values.tolist())
        except OverflowError:
            return values
    if kinds <= {int, float, np.int64, np.int32, np.float64, np.float32}:
        return values.astype(np.float64)
    return values
