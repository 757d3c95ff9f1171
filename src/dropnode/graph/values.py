"""What a caller gives for every node, as a list of plain Python values.

NumPy guesses types when it converts: ``["a", nan]`` becomes text, ``[2**63, 1]`` becomes float.
Therefore ids, ends of edges and labels are read value by value, and only numbers are left to NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dropnode.errors import GraphError
from dropnode.graph.arrays import plain
from dropnode.memory import check_memory


def to_items(values: Any, what: str) -> list[Any]:
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


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, NaT or pandas' NA.

    The last three do not equal themselves; pandas' NA has no truth value either.
    """
    try:
        return value is None or not bool(value == value)
    except TypeError:
        return True


def _scalar(value: Any) -> Any:
    value = plain(value)
    if isinstance(value, np.datetime64 | np.timedelta64):
        return None if np.isnat(value) else str(value)
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", None) == 0 else value


def to_objects(items: list[Any]) -> np.ndarray:
    """Return a 1-D array of objects, even where they are tuples."""
    return np.fromiter(items, dtype=object, count=len(items))


def to_integers(items: list[Any]) -> np.ndarray:
    """Return int64 if every item is such an integer, otherwise objects."""
    fit = all(type(item) is int and abs(item) < 2**63 for item in items)
    return np.array(items, dtype=np.int64) if fit else to_objects(items)
