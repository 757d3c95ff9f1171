"""Over-smoothing: MADGap, how much farther apart remote nodes are than neighbouring ones.

Chen et al., *Measuring and Relieving the Over-smoothing Problem for Graph Neural Networks from the
Topological View*, AAAI 2020. The distance of two nodes is one minus the cosine of their
representations. A node's average is taken over its distances that are not zero, within a relation
(neighbouring or remote); MAD is the mean of those averages over the nodes that have one; MADGap is
the MAD of remote nodes minus the MAD of neighbouring ones. The paper is about representations of
the last layer, which are the logits (:func:`last_layer`); the functions take any array.

Three cases that the formula leaves open are settled as in the authors' code, or by definition:

- The distance is zero exactly where two rows are parallel, decided by comparing the rows divided
  by their largest magnitude, bit by bit. Comparing a rounded cosine with one would leave it to
  chance whether equal rows count. Rows that differ in the last bit do count, as a distance of
  nearly zero.
- A row of zeros has no direction. Its cosine with every other row is taken as 0, as scikit-learn
  does, on which the authors' code rests: its distance is 1, to another row of zeros too.
- Where all distances of a relation are zero, its MAD is 0. Where a relation holds no pair at all
  (a single class, a graph without edges or without remote nodes), or where a representation is not
  finite, there is no MADGap, and the result is None.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from dropnode.errors import ConfigError
from dropnode.graph.arrays import Matrix, to_array
from dropnode.graph.labels import UNKNOWN
from dropnode.settings import count, read_value
from dropnode.training import Method

SOURCES = 128
"""Nodes whose distances to all others are held at a time; a multiple of 64."""


def last_layer(method: Method) -> np.ndarray:
    """Return the representations of the last layer of a trained method: the logits of all nodes."""
    logits: np.ndarray = method.logits().detach().double().cpu().numpy()
    return logits


def madgap_by_labels(representations: np.ndarray, labels: np.ndarray) -> float | None:
    """Return MADGap where neighbours are nodes of the same label, remote ones of another label.

    An early version of the GRAND paper defines it so. Takes time O(N·C·d) and memory O(N·(C+d)).

    Parameters
    ----------
    representations : ndarray (nodes, columns)
    labels : ndarray of int
        Nodes whose label is unknown (-1) are left out.

    Examples
    --------
    >>> rows = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [-1.0, 1.0]])
    >>> round(madgap_by_labels(rows, np.array([0, 0, 1, 1])), 4)
    0.7071
    """
    values, labels = _checked(representations), to_array(labels, "labels")
    if labels.shape != (len(values),) or labels.dtype.kind not in "iu" or (labels < UNKNOWN).any():
        raise ConfigError(
            f"labels are {labels.dtype} of shape {labels.shape}; expected {len(values):,} class "
            "codes, one per node, -1 where unknown"
        )
    known = labels != UNKNOWN
    rows = _rows(values[known])
    if rows is None:
        return None
    names, codes, sizes = np.unique(labels[known], return_inverse=True, return_counts=True)
    # Sums over the members of a class, from its mean m and its scatter about m:
    # Σ_j |u_i - u_j|² = n |u_i - m|² + Σ_j |u_j - m|². All terms are positive, so that nearly equal
    # rows, which over-smoothing produces, lose no digits.
    distances = np.empty((len(codes), len(names)))
    for code in range(len(names)):
        members = (codes == code) & ~rows.zero
        centre = rows.unit[members].mean(axis=0) if members.any() else 0.0
        squares = np.square(rows.unit - centre).sum(axis=1)
        sums = (members.sum() * squares + squares[members].sum()) / 2
        distances[:, code] = sums + (rows.zero & (codes == code)).sum()
    distances[rows.zero] = sizes
    at_own = np.arange(len(codes)), codes
    near = distances[at_own] - rows.zero  # A row of zeros is at distance zero from itself.
    distances[at_own] = 0.0
    _, pair, alike = np.unique(
        np.stack([rows.direction, codes]), axis=1, return_inverse=True, return_counts=True
    )
    parallel_near = alike[pair.ravel()]
    parallel = np.bincount(rows.direction)[rows.direction]
    counts_near = sizes[codes] - parallel_near
    counts_remote = len(codes) - sizes[codes] - (parallel - parallel_near)
    return _gap(
        _mean_average(near, counts_near, pairs=bool((sizes > 1).any())),
        _mean_average(distances.sum(axis=1), counts_remote, pairs=len(names) > 1),
    )


def madgap_by_hops(
    representations: np.ndarray, adjacency: Matrix, near: int = 3, remote: int = 8
) -> float | None:
    """Return MADGap where neighbours are at most ``near`` hops apart, remote nodes ``remote`` up.

    This is the definition of Chen et al., with their numbers as defaults. Nodes that no path joins
    are remote: the distance in a graph is infinite there, hence at least ``remote``. Takes time
    O(N²·d), and memory O(N·d) plus the distances of ``SOURCES`` nodes at a time.

    Parameters
    ----------
    representations : ndarray (nodes, columns)
    adjacency : sparse matrix
        Symmetric; every entry that is not zero is an edge, whatever its weight.
    near, remote : int
        Numbers of hops, ``1 <= near < remote``.

    Examples
    --------
    >>> path = sp.diags_array([np.ones(8), np.ones(8)], offsets=[-1, 1])
    >>> angles = np.linspace(0, np.pi / 2, 9)
    >>> rows = np.column_stack([np.cos(angles), np.sin(angles)])
    >>> round(madgap_by_hops(rows, path), 4)
    0.9194
    """
    read_value(int, near, "near", count())
    read_value(int, remote, "remote", count())
    if not near < remote:
        raise ConfigError(f"near={near} and remote={remote}; expected near < remote")
    values = _checked(representations)
    adjacency = sp.csr_array(adjacency)
    if adjacency.shape != (len(values), len(values)):
        raise ConfigError(
            f"adjacency of shape {adjacency.shape} and {len(values):,} rows of representations; "
            "expected one row and one column per node"
        )
    if ((adjacency != 0) != (adjacency.T != 0)).nnz:
        raise ConfigError("adjacency is not symmetric; expected each edge in both directions")
    rows = _rows(values)
    if rows is None:
        return None
    nodes = len(rows.unit)
    # With loops, no node is without neighbours, which reduceat could not express.
    looped = sp.csr_array((adjacency != 0) + sp.eye_array(nodes, dtype=bool))
    # Only differences of unit rows matter. Centred rows lose fewer digits where all are alike.
    centred = rows.unit - rows.unit[~rows.zero].mean(axis=0) if not rows.zero.all() else rows.unit
    squares = np.square(centred).sum(axis=1)
    sums, counts = np.zeros((2, nodes)), np.zeros((2, nodes), dtype=np.int64)
    pairs = np.zeros(2, dtype=np.int64)
    for first in range(0, nodes, SOURCES):
        block = slice(first, min(first + SOURCES, nodes))
        distances = centred @ (-centred[block].T)
        distances += squares[:, None] / 2
        distances += squares[block] / 2
        distances[rows.zero] = 1.0
        distances[:, rows.zero[block]] = 1.0
        differ = rows.direction[:, None] != rows.direction[block]
        np.maximum(distances, 0.0, out=distances)
        distances *= differ
        close, reached = _within(looped, block, near, remote - 1)
        for relation, mask in enumerate((close, ~reached)):
            pairs[relation] += mask.sum()
            sums[relation, block] = np.einsum("ij,ij->j", distances, mask)
            counts[relation, block] = (mask & differ).sum(axis=0)
    pairs[0] -= nodes  # Every node is within reach of itself.
    neighbouring, far = (
        _mean_average(sums[relation], counts[relation], pairs=bool(pairs[relation]))
        for relation in (0, 1)
    )
    return _gap(neighbouring, far)


@dataclass(frozen=True)
class _Rows:
    """Representations, ready for distances.

    Attributes
    ----------
    unit : ndarray of float64
        Rows of length 1; rows of zeros stay zero.
    zero : ndarray of bool
        Which rows are zero.
    direction : ndarray of int
        Equal for two rows exactly if they are parallel; every row of zeros has one of its own.
    """

    unit: np.ndarray
    zero: np.ndarray
    direction: np.ndarray


def _checked(representations: np.ndarray) -> np.ndarray:
    """Return representations in double precision."""
    array = to_array(representations, "representations")
    if array.ndim != 2 or array.dtype.kind not in "fiub":
        raise ConfigError(
            f"representations are {array.dtype} of shape {array.shape}; expected numbers, one row "
            "per node"
        )
    return array.astype(np.float64)


def _rows(values: np.ndarray) -> _Rows | None:
    if not len(values) or not np.isfinite(values).all():
        return None
    largest = np.abs(values).max(axis=1, initial=0.0)
    zero = largest == 0
    # A correctly rounded quotient is the same for exactly parallel rows. Adding zero removes the
    # sign of zeros, which counts when bytes are compared.
    values = np.ascontiguousarray(values / np.where(zero, 1.0, largest)[:, None]) + 0.0
    if values.shape[1]:
        bytes_of_rows = values.view(np.dtype((np.void, values.dtype.itemsize * values.shape[1])))
        direction = np.unique(bytes_of_rows.ravel(), return_inverse=True)[1].ravel()
    else:
        direction = np.zeros(len(values), dtype=np.int64)
    direction = np.where(zero, len(values) + np.arange(len(values)), direction)
    lengths = np.sqrt(np.square(values).sum(axis=1, keepdims=True))
    return _Rows(values / np.where(zero[:, None], 1.0, lengths), zero, direction)


def _within(
    looped: sp.csr_array, sources: slice, fewer: int, more: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return which nodes (rows) are within two numbers of hops of the sources (columns).

    One bit per source: a hop is the bitwise or of the words of all neighbours.
    """
    count = sources.stop - sources.start
    numbers = np.arange(count)
    words = np.zeros((looped.shape[0], -(-count // 64)), dtype=np.uint64)
    words[sources.start + numbers, numbers // 64] = np.uint64(1) << (numbers % 64).astype(np.uint64)
    close = words
    for hop in range(1, more + 1):
        words = np.bitwise_or.reduceat(words[looped.indices], looped.indptr[:-1], axis=0)
        if hop == fewer:
            close = words
    return _booleans(close, count), _booleans(words, count)


def _booleans(words: np.ndarray, count: int) -> np.ndarray:
    octets = words.astype("<u8", copy=False).view(np.uint8)
    return np.unpackbits(octets, axis=1, count=count, bitorder="little").view(np.bool_)


def _mean_average(sums: np.ndarray, counts: np.ndarray, pairs: bool) -> float | None:
    """Return MAD from each node's sum and number of distances that are not zero."""
    if not pairs:
        return None
    some = counts > 0
    return float((sums[some] / counts[some]).mean()) if some.any() else 0.0


def _gap(neighbouring: float | None, remote: float | None) -> float | None:
    return None if neighbouring is None or remote is None else remote - neighbouring
