"""Labels of any kind as codes, and the names of their classes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from dropnode.errors import GraphError
from dropnode.graph.values import is_missing, to_integers, to_items
from dropnode.settings import shown

UNKNOWN = -1
"""The label code of a node whose class is not known."""


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
    values = to_items(labels, "labels")
    values = [None if is_missing(value) or value == UNKNOWN else value for value in values]
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
    return codes, np.array(classes) if simple else to_integers(classes)


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


def _class_names(given: Any) -> tuple[str, ...]:
    items = to_items(given, "class_names")
    names = tuple(map(str, items))
    if any(map(is_missing, items)) or "" in names:
        raise GraphError(f"class_names are {shown(list(items))}; every class needs a name")
    if len(set(names)) < len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise GraphError(f"class name {twice!r} occurs more than once; class names must be unique")
    return names
