"""The checks that turn a caller's data into the sound arrays of a Graph.

NumPy guesses types when it converts: ``["a", nan]`` becomes text, ``[2**63, 1]`` becomes float.
Therefore ids, edge ends and labels are read value by value, and only numbers are left to NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from dropnode.errors import GraphError
from dropnode.graph.arrays import Matrix, plain, to_array, to_float32
from dropnode.memory import check_memory
from dropnode.settings import shown

Links: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]
"""The positions of both ends of every edge, and its float32 weight."""

UNKNOWN = -1
"""The label code of a node whose class is not known."""

PARTS = ("train", "val", "test")
"""The parts of a split."""

# Twice the square of a node count has to fit in 64 bits: to_adjacency sorts edges by such a key.
MAX_NODES = 2**31 - 1

MANY = 100_000
"""From so many names on, Arrow looks them up."""


def encode_labels(labels: Any) -> tuple[np.ndarray, np.ndarray]:
    """Turn labels of any kind into codes and the sorted distinct classes.

    Unknown is -1, None, NaN or pandas' NA. Whole floats count as integers, because a column of
    integers with missing values arrives as floats.

    Examples
    --------
    >>> codes, classes = encode_labels(["cat", None, "dog"])
    >>> codes.tolist(), classes.tolist()
    ([0, -1, 1], ['cat', 'dog'])
    """
    _check_one_label(labels)
    values = _items(labels, "labels")
    values = [None if _missing(value) or value == UNKNOWN else value for value in values]
    distinct = set(values) - {None}
    floats = [value for value in distinct if isinstance(value, float)]
    if math.inf in distinct or -math.inf in distinct:
        raise GraphError("a label is infinite; write None where a label is unknown")
    for text in {"", "-1", "nan"} & distinct:
        raise GraphError(
            f"a label is the text {text!r}, which may mean a class or an unknown; "
            "write None for unknown, or give the class another name"
        )
    try:
        classes = sorted(distinct)
    except TypeError as error:
        kinds = ", ".join(sorted({type(value).__name__ for value in distinct}))
        raise GraphError(f"labels mix kinds that have no order ({kinds}); use one kind") from error
    if all(value.is_integer() for value in floats):
        classes = [int(value) if isinstance(value, float) else value for value in classes]
    code = {value: at for at, value in enumerate(classes)} | {None: UNKNOWN}
    codes = np.array([code[value] for value in values], dtype=np.int64)
    simple = {type(value) for value in classes} in ({str}, {float}, {bool})
    return codes, np.array(classes) if simple else _integers(classes)


def _check_one_label(labels: Any) -> None:
    """Raise :class:`GraphError` if a node may have several labels."""
    shape = tuple(getattr(labels, "shape", ()))
    if len(shape) == 2 and shape[1] > 1:
        found = f"labels have shape {shape}"
    else:
        items = labels if isinstance(labels, list | tuple) else ()
        several = (one for one in items if isinstance(one, list | set | frozenset))
        first = next(several, None)
        if first is None:
            return
        found = f"a label is {shown(first)}"
    raise GraphError(
        f"{found}; expected (number of nodes,), one class per node, as multi-label targets are "
        "not supported: for rows with a single 1, pass labels.argmax(axis=1), else train a "
        "classifier per class"
    )


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


def edge_links(edges: Any, weights: Any, ids: np.ndarray) -> Links:
    """Return the links that pairs of ids describe, with weight 1 by default."""
    names = _ends(edges)
    ends = _positions(names, ids, "edges")
    if (ends < 0).any():
        at = int(np.flatnonzero(ends < 0)[0])
        raise GraphError(
            f"edge {at // 2} joins the unknown node {who(names, at)}, but nodes are {_known(ids)}; "
            "drop the edge, add the node's features, or put the right names into ids= ('7' is not "
            "7)"
        )
    source, target = ends[0::2], ends[1::2]
    if weights is None:
        return source, target, np.ones(len(source), dtype=np.float32)
    values = to_float32(weights, "edge weights")
    if values.shape != source.shape:
        raise GraphError(
            f"weights have shape {values.shape} for {len(source):,} edges; give one weight per edge"
        )
    return source, target, values


def to_rows(nodes: Any, ids: np.ndarray) -> np.ndarray:
    """Return the positions of nodes that a caller names."""
    names = _objects(_items(nodes, "nodes"))
    if all(type(name) is int for name in names):
        names = _integers(names.tolist())
    rows = _positions(names, ids, "nodes")
    if (rows < 0).any():
        at = int(np.flatnonzero(rows < 0)[0])
        raise GraphError(
            f"there is no node {who(names, at)}: nodes are {_known(ids)}; give their ids ('7' is "
            "not 7)"
        )
    return rows


def _positions(names: np.ndarray, ids: np.ndarray, what: str) -> np.ndarray:
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
    places = (position.get(name, -1) for name in _items(names, what))
    return np.fromiter(places, dtype=np.int64, count=len(names))


def _hashed_positions(names: np.ndarray, ids: np.ndarray) -> np.ndarray | None:
    """Return what :func:`_positions` does, by Arrow; None for names of several or other kinds."""
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


def _numbered(ids: np.ndarray) -> bool:
    return ids.dtype == np.int64 and np.array_equal(ids, np.arange(len(ids)))


def _known(ids: np.ndarray) -> str:
    return f"numbered 0 to {len(ids) - 1}" if _numbered(ids) else f"named by {len(ids):,} ids"


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


def _as_list(shape: tuple[int, ...]) -> str:
    """Return the end of a message about a matrix of this shape: what a list of edges is for."""
    if len(shape) == 2 and shape[0] == 2:
        return " (two rows may be an edge_index: Graph.from_edges(edge_index.T, X, y) takes it)"
    if len(shape) == 2 and shape[1] == 2:
        return " (two columns may be a list of edges: Graph.from_edges(edges, X, y) takes it)"
    return ""


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


def to_codes(
    labels: Any, num_nodes: int, class_names: Sequence[str] | None
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return label codes and the name of each class."""
    names = None if class_names is None else _class_names(class_names)
    if labels is None:
        return np.full(num_nodes, UNKNOWN, dtype=np.int64), names or ()
    codes, classes = encode_labels(labels)
    if names is None:
        return codes, tuple(str(name) for name in classes.tolist())
    for label in classes.tolist():
        if not isinstance(label, int) or not 0 <= label < len(names):
            raise GraphError(
                f"label {label!r} is the code of none of the {len(names)} class_names; with them, "
                f"labels are 0 to {len(names) - 1}, and -1 where unknown"
            )
    known = codes != UNKNOWN
    codes[known] = classes[codes[known]]
    return codes, names


def to_positions(values: Any, part: str) -> np.ndarray:
    """Return one part of a split as int64 node positions."""
    array = to_array(values, f"the {part} part of a split")
    if array.size == 0:
        return np.array([], dtype=np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise GraphError(
            f"the {part} part of a split is {array.dtype} of shape {array.shape}; expected node "
            "positions (for a mask, pass numpy.flatnonzero(mask))"
        )
    # Compared before the cast, which would wrap what does not fit.
    wrong = array[(array < 0) | (array > MAX_NODES)]
    if len(wrong):
        raise GraphError(
            f"the {part} part of a split holds {wrong[0]}; expected node positions, from 0 on"
        )
    return array.astype(np.int64)


def who(ids: np.ndarray, position: int) -> str:
    """Return a node's id as the caller wrote it, without NumPy's type names."""
    return repr(ids[[position]].tolist()[0])


def _ids(ids: Any, num_nodes: int) -> np.ndarray:
    if ids is None:
        return np.arange(num_nodes, dtype=np.int64)
    names = _items(ids, "ids")
    if len(names) != num_nodes:
        raise GraphError(
            f"{len(names):,} ids for {num_nodes:,} rows of features; give one id per node"
        )
    if set(map(type, names)) <= {int, str} and len(set(names)) == num_nodes:
        return _integers(names)
    seen: dict[Any, int] = {}
    for position, name in enumerate(names):
        if _missing(name):
            raise GraphError(f"the id of the node at position {position} is missing; name it")
        first = seen.setdefault(name, position)
        if first != position:
            raise GraphError(
                f"id {name!r} occurs at positions {first} and {position}; ids must be unique"
            )
    return _integers(names)


def _class_names(given: Any) -> tuple[str, ...]:
    names = tuple(map(str, _items(given, "class_names")))
    for name in names:
        if names.count(name) > 1:
            raise GraphError(
                f"class name {name!r} occurs more than once; class names must be unique"
            )
    if any(map(_missing, given)) or "" in names:
        raise GraphError(f"class_names are {shown(list(given))}; every class needs a name")
    return names


def _missing(value: Any) -> bool:
    """Return whether a value is None, NaN, NaT or pandas' NA.

    The last three do not equal themselves; pandas' NA has no truth value either.
    """
    try:
        return value is None or not bool(value == value)
    except TypeError:
        return True


def _items(values: Any, what: str) -> list[Any]:
    """Return a sequence with one value per node as a list of plain Python values."""
    values = plain(values)
    if hasattr(values, "__array__"):
        values = np.asarray(values)
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim != 1:
            raise GraphError(f"{what} have shape {values.shape}; expected (number of nodes,)")
        if values.dtype.kind in "mM":
            # NumPy makes large numbers of some dates, also of the missing date.
            raise GraphError(f"{what} are {values.dtype}; write them as text: values.astype(str)")
    if isinstance(values, (str, dict, set, frozenset)):
        raise GraphError(
            f"{what} are a {type(values).__name__}; expected a sequence in the order of the "
            "features, with one value per node"
        )
    try:
        if hasattr(values, "__len__"):
            check_memory(40 * len(values), f"{len(values):,} {what}", "give one value per node")
        items = values.tolist() if isinstance(values, np.ndarray) else list(values)
        if not set(map(type, items)) <= {str, int, float, bool, type(None)}:
            items = [_scalar(item) for item in items]
        set(items)  # Values are looked up by hash.
    except (TypeError, OverflowError) as error:
        raise GraphError(
            f"{what} cannot be read ({error}); expected a sequence with one text or number per node"
        ) from error
    return items


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
    return _objects([end for row in rows for end in row])


def _scalar(value: Any) -> Any:
    value = plain(value)
    if isinstance(value, np.datetime64 | np.timedelta64):
        return None if np.isnat(value) else str(value)
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", None) == 0 else value


def _objects(items: list[Any]) -> np.ndarray:
    """Return a 1-D array of objects, even where they are tuples."""
    return np.fromiter(items, dtype=object, count=len(items))


def _integers(items: list[Any]) -> np.ndarray:
    """Return int64 if every item is such an integer, otherwise objects."""
    fit = all(type(item) is int and abs(item) < 2**63 for item in items)
    return np.array(items, dtype=np.int64) if fit else _objects(items)
