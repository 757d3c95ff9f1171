"""Propagation: the operator Â, products with the mixed-order Ā, and rows of propagated features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from torch.autograd.function import once_differentiable

from dropnode.graph.arrays import Matrix
from dropnode.ops.kernels.memory import aligned, usable
from dropnode.ops.kernels.sparse import propagate
from dropnode.ops.sparse_matrix import Features, SparseMatrix, arrays, as_csr, widened
from dropnode.ops.stored import StoredFeatures

COLUMNS = 64
"""How many columns are propagated at a time where there may be many."""

FEW_COLUMNS = 16
"""The same on a graph of more than :data:`LARGE` nodes, to save memory."""

LARGE = 4_000_000
"""The number of nodes from which 64 columns take more than a gigabyte."""

ROWS = 2**18
"""How many rows of a matrix are normalised at a time."""

Propagate: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
"""A linear map of dense matrices."""


def weighted_degrees(adjacency: Matrix) -> np.ndarray:
    """Return the weighted degree of every row, its self-loop included."""
    return np.asarray(adjacency.sum(axis=1), dtype=np.float64).ravel() + 1.0


def normalise(adjacency: Matrix, degrees: np.ndarray | None = None) -> sp.csr_array:
    """Return Â = D̃^-½ (A + I) D̃^-½.

    ``degrees`` are those in A + I by default. To get the entries of Â for a part of a graph, give
    the degrees in the whole graph.
    """
    adjacency = as_csr(adjacency)
    if degrees is None:
        degrees = weighted_degrees(adjacency)
    looped = adjacency + sp.eye_array(adjacency.shape[0], format="csr", dtype=np.float32)
    scale = 1.0 / np.sqrt(degrees)
    # Products with diagonal matrices would need three copies of the matrix. In float64, a block of
    # rows at a time, to need no second one.
    for first in range(0, looped.shape[0], ROWS):
        starts = looped.indptr[first : first + ROWS + 1]
        own = slice(starts[0], starts[-1])
        values = np.repeat(scale[first : first + ROWS], np.diff(starts))
        values *= looped.data[own]
        values *= scale[looped.indices[own]]
        looped.data[own] = values
    return looped


def mixed_order(operator: SparseMatrix, x: torch.Tensor, order: int) -> torch.Tensor:
    """Return Āx = 1/(K+1) Σ_{k=0..K} Âᵏx, without computing Ā."""
    result: torch.Tensor = _MixedOrder.apply(operator, x, order)
    return result


def propagated_rows(
    operator: SparseMatrix, features: Features, rows: torch.Tensor, order: int
) -> torch.Tensor:
    """Return (ĀX)[rows], by propagating either features or rows, whichever are far fewer."""
    return some_rows(
        features,
        rows,
        lambda x: _mixed(operator.forward, x, order),
        lambda unit: _mixed(operator.backward, unit, order),
        by_features=2 * features.shape[1] < len(rows),
        width=256 if operator.shape[0] < 250_000 else together(operator.shape[0]),
    )


def power_rows(
    operator: SparseMatrix, features: Features, rows: torch.Tensor, power: int
) -> torch.Tensor:
    """Return (ÂᴷX)[rows], for a symmetric Â; like :func:`propagated_rows`."""

    def hops(x: torch.Tensor) -> torch.Tensor:
        for _ in range(power):
            x = operator @ x
        return x

    by_features = 2 * features.shape[1] < len(rows)
    return some_rows(features, rows, hops, hops, by_features=by_features)


def some_rows(
    features: Features,
    rows: torch.Tensor,
    propagate: Propagate,
    adjoint: Propagate,
    *,
    by_features: bool,
    width: int | None = None,
) -> torch.Tensor:
    """Return (BX)[rows] for a linear propagation B, without an (n, features) matrix.

    Rows of B are columns of its transpose. So either the features are propagated, or the unit
    vectors of the rows by the transpose, by which X is then multiplied.

    Parameters
    ----------
    features : Features (nodes, features)
    rows : torch.Tensor
    propagate, adjoint : callable
        Return B x and Bᵀ x, for a dense x (nodes, columns).
    by_features : bool
        Whether to propagate the features.
    width : int, optional
        How many columns are propagated at a time.
    """
    width = width or together(features.shape[0])
    if by_features:
        firsts = range(0, features.shape[1], width)
        parts = [propagate(feature_columns(features, first, width))[rows] for first in firsts]
        return torch.cat(parts, dim=1)
    transposed = features.T if isinstance(features, torch.Tensor) else features.transpose
    blocks = [transposed @ adjoint(units(block, features.shape[0])) for block in rows.split(width)]
    return torch.cat([block.T for block in blocks]).contiguous()


def units(rows: torch.Tensor, nodes: int) -> torch.Tensor:
    """Return a column per row, with a one at its node."""
    unit = torch.zeros(nodes, len(rows), device=rows.device)
    unit[rows, torch.arange(len(rows), device=rows.device)] = 1.0
    return unit


def together(nodes: int) -> int:
    """Return how many columns are propagated at a time over so many nodes."""
    return COLUMNS if nodes <= LARGE else FEW_COLUMNS


def feature_columns(features: Features, first: int, width: int = COLUMNS) -> torch.Tensor:
    """Return the block of columns of the features that starts at ``first``, dense."""
    last = min(first + width, features.shape[1])
    if isinstance(features, torch.Tensor):
        return features[:, first:last]
    if isinstance(features, StoredFeatures):
        return features.columns(first, last)
    columns = torch.arange(first, last, device=features.values.device)
    return features @ units(columns, features.shape[1])


def column_statistics(
    operator: SparseMatrix, features: Features, order: int, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mean and (biased) variance of every column of scale · ĀX, some at a time."""
    means, variances = [], []
    for first in range(0, features.shape[1], COLUMNS):
        block = feature_columns(features, first)
        variance, mean = torch.var_mean(
            _mixed(operator.forward, block, order) * scale, dim=0, correction=0
        )
        means.append(mean)
        variances.append(variance)
    return torch.cat(means), torch.cat(variances)


class _MixedOrder(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: SparseMatrix, x: torch.Tensor, order: int) -> torch.Tensor:
        ctx.matrix, ctx.order = matrix, order
        return _mixed(matrix.forward, x, order)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[None, torch.Tensor, None]:
        return None, _mixed(ctx.matrix.backward, gradient, ctx.order), None


def _mixed(matrix: torch.Tensor, x: torch.Tensor, order: int) -> torch.Tensor:
    if usable(x.device):
        wide = widened(x)
        out = aligned(*wide.shape)
        propagate(arrays(matrix), wide, order, out)
        return torch.from_numpy(out)[:, : x.shape[1]]
    total = x
    # Horner's scheme: x + Â(x + Â(x + ...)).
    for _ in range(order):
        total = x + matrix @ total
    return total / (order + 1)
