"""Rows of a polynomial of the random walk: approximate ones by generalised push, and exact ones.

The random walk on a graph has the transition matrix P = D̃⁻¹(A + I), whose rows sum to one. Its
polynomial Π = Σₙ wₙPⁿ averages over where a walk is after up to N steps. A row of it is one node's
neighbourhood, weighted. Push finds the large entries of a row in time that does not depend on the
size of the graph (Feng et al., *GRAND+: Scalable Graph Random Neural Networks*, WWW 2022).

P and Â = D̃^-½(A + I)D̃^-½ are similar matrices: Π x = D̃^-½ (Σₙ wₙÂⁿ) D̃^½ x. Exact products
therefore need no other operator than Â.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from dropnode.engines.base import Failure, Run
from dropnode.errors import WorkError
from dropnode.graph.arrays import Matrix
from dropnode.ops.kernels import push as kernels
from dropnode.ops.kernels.memory import enabled
from dropnode.ops.propagation import feature_columns, some_rows, together, units
from dropnode.ops.sparse_matrix import Features, SparseMatrix

WALKS = ("ppr", "average", "single")
"""The kinds of weights of the powers of P."""

BLOCK = 256
"""How many rows plain SciPy pushes at a time."""

PIECES, MOST_ROWS = 64, 4096
"""How many blocks an engine is given at least, if they have a row each, and the most rows of one.

Rows differ a thousandfold in cost, so many small blocks keep all workers busy until the end. A
block costs a worker a new workspace, and is computed again if the worker dies."""


def walk_shares(kind: str, order: int, teleport: float = 0.0) -> np.ndarray:
    """Return the weights w₀ to w_N of the powers of P, which sum to one.

    Parameters
    ----------
    kind : str
        ``"ppr"`` weighs the n-th power by α(1-α)ⁿ, as personalised PageRank does; ``"average"``
        weighs all alike; ``"single"`` has the last one alone.
    order : int
        The highest power, N.
    teleport : float
        The probability α of ``"ppr"`` that a walk ends at a step.

    Examples
    --------
    >>> walk_shares("ppr", 2, 0.5).round(3).tolist()
    [0.571, 0.286, 0.143]
    """
    if kind == "ppr":
        shares = (1.0 - teleport) ** np.arange(order + 1.0)
    elif kind == "average":
        shares = np.ones(order + 1)
    else:
        shares = np.zeros(order + 1)
        shares[-1] = 1.0
    return np.asarray(shares / shares.sum())


def pushed_rows(
    adjacency: Matrix,
    degrees: np.ndarray,
    sources: np.ndarray,
    shares: np.ndarray,
    threshold: float,
    top: int,
    *,
    run: Run | None = None,
) -> sp.csr_array:
    """Return the large entries of some rows of Π.

    A residue of a node that has c neighbours is dropped if it is below ``threshold`` · (c + 1).
    So a hop of a row costs at most 1 / ``threshold`` entries. Entries are never too large, and too
    small by at most ``threshold`` Σₙ Σ_{m>n} w_m (c + 1)ᵀPᵐ⁻ⁿ. Without edge weights, this is at
    most ``threshold`` · N · (c + 1) of the entry's own c.

    Parameters
    ----------
    adjacency : csr_array (nodes, nodes)
        Edge weights, symmetric.
    degrees : ndarray (nodes,)
        The weighted degree of every node, its self-loop included.
    sources : ndarray
        The nodes whose rows are wanted.
    shares : ndarray (order + 1,)
        The weights of the powers of P.
    threshold : float
        Zero drops nothing.
    top : int
        How many entries of a row are kept: the largest, and of equal ones those of the nodes with
        the lowest numbers.
    run : Run, optional
        An engine whose workers push blocks of rows. By default, the threads of this process do. A
        row does not depend on other rows, so the result is bit-identical.

    Returns
    -------
    csr_array of float32 (sources, nodes)
        What a row of it lacks of a sum of one was dropped.
    """
    nodes = adjacency.shape[0]
    top = min(top, nodes)
    if run is not None and len(sources):
        return _pushed_elsewhere(run, adjacency, degrees, sources, shares, threshold, top)
    if not enabled():
        blocks = [sources[first : first + BLOCK] for first in range(0, len(sources), BLOCK)]
        walk, least = _walk(adjacency, degrees), threshold * (np.diff(adjacency.indptr) + 1)
        pushed = [_largest(_pushed(walk, least, block, shares), top) for block in blocks]
        return sp.vstack([sp.csr_array((0, nodes), dtype=np.float32), *pushed], format="csr")
    csr = adjacency.indptr, adjacency.indices, adjacency.data
    kept, scores, counts = kernels.push(
        csr, degrees, np.asarray(sources, np.int64), shares, threshold, top
    )
    valid = np.arange(top) < counts[:, None]
    starts = np.concatenate([[0], np.cumsum(counts)])
    rows = sp.csr_array((scores[valid], kept[valid], starts), shape=(len(sources), nodes))
    rows.sort_indices()
    return rows


def _pushed_elsewhere(
    run: Run, adjacency: Matrix, degrees: np.ndarray, sources: np.ndarray, *rest: Any
) -> sp.csr_array:
    """Return the rows of all sources, pushed by the workers of an engine."""
    # Plain arrays, since the memory of those that map a file cannot be shared with workers.
    csr = [np.asarray(part) for part in (adjacency.data, adjacency.indices, adjacency.indptr)]
    size = min(MOST_ROWS, -(-len(sources) // PIECES))
    blocks = {first: sources[first : first + size] for first in range(0, len(sources), size)}
    rows: dict[int, sp.csr_array] = {}
    for (first, _), block in run(_push_block, blocks.items(), shared=(csr, degrees, rest)):
        if isinstance(block, Failure):
            raise WorkError(f"rows could not be pushed: {block.error}")
        rows[first] = block
    return sp.vstack([rows[first] for first in blocks], format="csr")


def _push_block(
    shared: tuple[list[np.ndarray], np.ndarray, tuple[Any, ...]], block: tuple[int, np.ndarray]
) -> sp.csr_array:
    """Return the rows of some sources; engines call this function in their workers."""
    csr, degrees, rest = shared
    adjacency = sp.csr_array((len(degrees), len(degrees)), dtype=csr[0].dtype)
    # SciPy's constructor would copy wide indices that fit into narrow ones.
    adjacency.data, adjacency.indices, adjacency.indptr = csr
    return pushed_rows(adjacency, degrees, block[1], *rest)


def walked(
    operator: SparseMatrix, degrees: np.ndarray, x: torch.Tensor, shares: np.ndarray
) -> torch.Tensor:
    """Return Πx exactly, given Â and the degrees that it was made with."""
    root = root_of_degrees(degrees, x)
    return polynomial(operator, x * root, shares).div_(root)


def walked_rows(
    operator: SparseMatrix,
    degrees: np.ndarray,
    features: Features,
    rows: torch.Tensor,
    shares: np.ndarray,
) -> torch.Tensor:
    """Return (ΠX)[rows] exactly, and propagate either features or rows, whatever are fewer.

    The transpose of Π is D̃^½ (Σₙ wₙÂⁿ) D̃^-½.
    """
    root = root_of_degrees(degrees, rows)
    return some_rows(
        features,
        rows,
        lambda x: walked(operator, degrees, x, shares),
        lambda unit: polynomial(operator, unit / root, shares) * root,
        by_features=features.shape[1] < len(rows),
    )


def walk_power_rows(
    operator: SparseMatrix, degrees: np.ndarray, features: Features, rows: torch.Tensor, order: int
) -> torch.Tensor:
    """Return (PⁿX)[rows] for every n up to an order, as (order + 1, rows, features).

    Like :func:`walked_rows`, it propagates either features or rows.
    """
    powers = torch.empty(order + 1, len(rows), features.shape[1], device=rows.device)
    transposed = features.T if isinstance(features, torch.Tensor) else features.transpose
    by_features = features.shape[1] < len(rows)
    nodes = operator.shape[0]
    width = together(nodes)
    for first in range(0, features.shape[1] if by_features else len(rows), width):
        own = slice(first, first + width)
        x = feature_columns(features, first, width) if by_features else units(rows[own], nodes)
        root = root_of_degrees(degrees, x)
        power = x * root if by_features else x / root
        for number in range(order + 1):
            power = operator @ power if number else power
            if by_features:
                powers[number, :, own] = power[rows] / root[rows]
            else:
                powers[number, own] = (transposed @ (power * root)).T
    return powers


def polynomial(operator: SparseMatrix, x: torch.Tensor, shares: np.ndarray) -> torch.Tensor:
    """Return Σₙ wₙÂⁿx by Horner's scheme."""
    total = x * float(shares[-1])
    for share in shares[-2::-1]:
        total = operator @ total
        if share:
            total = total.add_(x, alpha=float(share))
    return total


def root_of_degrees(degrees: np.ndarray, x: torch.Tensor) -> torch.Tensor:
    """Return D̃^½ as a column."""
    return torch.from_numpy(np.sqrt(degrees).astype(np.float32)[:, None]).to(x.device)


def _walk(adjacency: Matrix, degrees: np.ndarray) -> sp.csr_array:
    """Return P in float64."""
    looped = sp.csr_array(adjacency.astype(np.float64) + sp.eye_array(adjacency.shape[0]))
    looped.data /= np.repeat(degrees, np.diff(looped.indptr))
    return looped


def _pushed(
    walk: sp.csr_array, least: np.ndarray, sources: np.ndarray, shares: np.ndarray
) -> sp.csr_array:
    """Return whole rows by products of sparse matrices; residues below ``least`` do not move."""
    count = len(sources)
    residue = sp.csr_array(
        (np.ones(count), (np.arange(count), sources)), shape=(count, walk.shape[0])
    )
    reserve = residue * shares[0]
    for share in shares[1:]:
        residue.data[residue.data < least[residue.indices]] = 0.0
        residue.eliminate_zeros()
        residue = sp.csr_array(residue @ walk)
        reserve = reserve + residue * share
    reserve.eliminate_zeros()
    return reserve


def _largest(rows: sp.csr_array, top: int) -> sp.csr_array:
    """Return the largest entries of every row."""
    scores = rows.data.astype(np.float32)
    row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    order = np.lexsort((rows.indices, -scores, row))
    kept = order[np.arange(len(order)) - rows.indptr[row] < top]
    largest = sp.csr_array((scores[kept], (row[kept], rows.indices[kept])), shape=rows.shape)
    largest.sort_indices()
    return largest
