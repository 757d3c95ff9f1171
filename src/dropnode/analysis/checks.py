"""Checks of what a caller gives to an analysis: probabilities, logits, labels and nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from dropnode.errors import ConfigError
from dropnode.graph.arrays import to_array
from dropnode.graph.labels import UNKNOWN

ROUNDING = 1e-3
"""How far from 1 the sum of probabilities may be: those of 16 bits are rounded that much."""


def check_rows(values: Any, what: str) -> np.ndarray:
    """Return finite numbers (nodes, classes) in double precision."""
    array = to_array(values, what)
    if array.ndim != 2 or not array.shape[1] or array.dtype.kind not in "fiu":
        raise ConfigError(
            f"{what} are {array.dtype} of shape {array.shape}; expected numbers, one row per node "
            "and one column per class"
        )
    rows = array.astype(np.float64)
    if not np.isfinite(rows).all():
        row = int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0])
        raise ConfigError(f"{what} of row {row} are not finite; expected numbers")
    return rows


def check_probabilities(values: Any) -> np.ndarray:
    """Return probabilities (nodes, classes) in double precision."""
    rows = check_rows(values, "probabilities")
    wrong = (rows < 0).any(axis=1) | (np.abs(rows.sum(axis=1) - 1.0) > ROUNDING)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise ConfigError(
            f"the probabilities of row {row} sum to {rows[row].sum():g}, the least is "
            f"{rows[row].min():g}; expected at least 0 each and 1 in total: take the softmax of "
            "logits"
        )
    return rows


def check_labels(labels: Any, shape: tuple[int, int]) -> np.ndarray:
    """Return known class codes, one for each row of an array of this shape, at least one."""
    codes = to_array(labels, "labels")
    rows, classes = shape
    if codes.shape != (rows,) or codes.dtype.kind not in "iu":
        raise ConfigError(
            f"labels are {codes.dtype} of shape {codes.shape}; expected {rows:,} class codes, one "
            "per row of predictions"
        )
    if not rows:
        raise ConfigError("there are no labels; expected at least one")
    wrong = (codes < 0) | (codes >= classes)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        told = "-1, unknown" if codes[row] == UNKNOWN else f"{codes[row]}"
        raise ConfigError(
            f"the label of row {row} is {told}; expected class codes from 0 to {classes - 1}: "
            "select rows whose label is known"
        )
    return codes.astype(np.int64)


def check_nodes(nodes: Any, count: int, what: str) -> np.ndarray:
    """Return distinct positions of nodes of a graph that has ``count`` of them."""
    positions = to_array(nodes, what)
    if positions.size == 0:
        return np.array([], dtype=np.int64)
    if positions.ndim != 1 or positions.dtype.kind not in "iu":
        raise ConfigError(
            f"{what} are {positions.dtype} of shape {positions.shape}; expected positions of nodes "
            "(for a mask, pass numpy.flatnonzero(mask))"
        )
    outside = positions[(positions < 0) | (positions >= count)]
    if len(outside):
        raise ConfigError(
            f"{what} hold node {outside[0]}; expected positions from 0 to {count - 1:,}"
        )
    values, counts = np.unique(positions, return_counts=True)
    if (counts > 1).any():
        raise ConfigError(f"{what} hold node {values[counts > 1][0]} twice; give each node once")
    return positions.astype(np.int64)
