"""Nodes: finite features, a unique id per row, and positions of nodes that a caller names."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from dropnode.errors import GraphError
from dropnode.graph.arrays import Matrix, to_float32
from dropnode.graph.values import is_missing, to_integers, to_items, to_objects
from dropnode.memory import check_memory

# Twice the square of a node count has to fit in 64 bits: to_adjacency sorts edges by such a key.
MAX_NODES = 2**31 - 1

MANY = 100_000
"""From so many names on, Arrow looks them up."""


def to_nodes(features: Any, ids: Any = None) -> tuple[Matrix, np.ndarray]:
    """Return finite float32 features, sparse if they were given so, and a unique id per row."""
    matrix = to_float32(features, "features")
    shape = matrix.shape
    if len(shape) != 2 or shape[1] == 0:
        raise GraphError(
            f"features have shape {shape}; expected two dimensions, one row per node and at least "
            "one column (for a graph without any, pass scipy.sparse.eye_array(n))"
        )
    if not 0 < shape[0] <= MAX_NODES:
        problem = "the graph is empty: there are no nodes" if not shape[0] else "too many nodes"
        raise GraphError(f"{problem}; features need 1 to {MAX_NODES:,} rows, got {shape[0]:,}")
    # Ids, labels, and the start of every row of features and of edges.
    check_memory(32 * shape[0], f"a graph of {shape[0]:,} nodes", "use a smaller graph")
    names = _ids(ids, shape[0])
    if sp.issparse(matrix):
        matrix = canonical(matrix)
    values = matrix.data if sp.issparse(matrix) else matrix.ravel()
    if not np.isfinite(values).all():
        at = int(np.flatnonzero(~np.isfinite(values))[0])
        if sp.issparse(matrix):
            row, column = (axis[at] for axis in matrix.tocoo().coords)
        else:
            row, column = divmod(at, shape[1])
        what = "NaN" if np.isnan(values[at]) else "infinite, or too large for float32"
        raise GraphError(
            f"feature {column} of node {who(names, row)} is {what}; fill or remove such values "
            "(for instance with sklearn.impute.SimpleImputer)"
        )
    return matrix, names


def canonical(matrix: Any) -> sp.csr_array:
    """Return a sparse matrix as CSR in which every entry is stored once and none is zero."""
    matrix = sp.csr_array(matrix)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix


def to_rows(nodes: Any, ids: np.ndarray) -> np.ndarray:
    """Return the positions of nodes that a caller names."""
    names = to_objects(to_items(nodes, "nodes"))
    if any(isinstance(name, bool) for name in names):
        # In Python, True is 1 and False is 0: a mask would name the same two nodes again and again.
        raise GraphError(
            "nodes are true or false, a mask; expected ids of nodes: pass ids[mask], for positions "
            "np.flatnonzero(mask)"
        )
    if all(type(name) is int for name in names):
        names = to_integers(names.tolist())
    rows = positions_of(names, ids, "nodes")
    if (rows < 0).any():
        at = int(np.flatnonzero(rows < 0)[0])
        raise GraphError(
            f"there is no node {who(names, at)}: nodes are {known_ids(ids)}; give their ids ('7' "
            "is not 7)"
        )
    return rows


def positions_of(names: np.ndarray, ids: np.ndarray, what: str) -> np.ndarray:
    """Return the position of each name among the ids, -1 if it is none of them."""
    if _numbered(ids) and names.dtype.kind in "iuf":
        # Compared before the cast: casting could wrap a huge number into a valid position.
        known = (names < len(ids)) & (np.trunc(names) == names)
        found = np.full(len(names), -1, dtype=np.int64)
        found[known] = names[known]
        return found
    hashed = _hashed_positions(names, ids) if len(names) >= MANY else None
    if hashed is not None:
        return hashed
    position = {name: at for at, name in enumerate(ids.tolist())}
    places = (position.get(name, -1) for name in to_items(names, what))
    return np.fromiter(places, dtype=np.int64, count=len(names))


def who(ids: np.ndarray, position: int) -> str:
    """Return a node's id as the caller wrote it, without NumPy's type names."""
    return repr(ids[[position]].tolist()[0])


def known_ids(ids: np.ndarray) -> str:
    """Return what a message says about the ids that there are."""
    return f"numbered 0 to {len(ids) - 1}" if _numbered(ids) else f"named by {len(ids):,} ids"


def _ids(ids: Any, num_nodes: int) -> np.ndarray:
    if ids is None:
        return np.arange(num_nodes, dtype=np.int64)
    names = to_items(ids, "ids")
    if len(names) != num_nodes:
        raise GraphError(
            f"{len(names):,} ids for {num_nodes:,} rows of features; give one id per node"
        )
    if set(map(type, names)) <= {int, str} and len(set(names)) == num_nodes:
        return to_integers(names)
    seen: dict[Any, int] = {}
    for position, name in enumerate(names):
        if is_missing(name):
            raise GraphError(f"the id of the node at position {position} is missing; name it")
        first = seen.setdefault(name, position)
        if first != position:
            raise GraphError(
                f"id {name!r} occurs at positions {first} and {position}; ids must be unique"
            )
    return to_integers(names)


def _numbered(ids: np.ndarray) -> bool:
    return ids.dtype == np.int64 and np.array_equal(ids, np.arange(len(ids)))


def _hashed_positions(names: np.ndarray, ids: np.ndarray) -> np.ndarray | None:
    """Return what :func:`positions_of` does, by Arrow; None for names of several or other kinds."""
    # Imported here: for few names, the import takes longer than Python takes to look them up.
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = _common_kind(names)
    if kind is None or kind is not _common_kind(ids):
        return None
    try:
        arrow = pa.int64() if kind is int else pa.large_string()
        found = pc.index_in(pa.array(names, arrow), value_set=pa.array(ids, arrow))
    except (pa.ArrowException, UnicodeEncodeError, OverflowError):
        # An integer of more than 64 bits, or text that no file could hold.
        return None
    return np.asarray(found.fill_null(-1).to_numpy(zero_copy_only=False), dtype=np.int64)


def _common_kind(values: np.ndarray) -> type | None:
    """Return int or str if all values are of that type, otherwise None."""
    if values.dtype.kind in "iu":
        return int
    kinds = {str} if values.dtype.kind == "U" else set(map(type, values.tolist()))
    return next((kind for kind in (int, str) if kinds == {kind}), None)
