"""Propagation: products with Â and with the mixed-order Ā, and their gradients.

Sparse matrices have no parameters, so no gradient is ever taken with respect to one. The backward
pass of a product is a product with the transpose, which is computed once and kept.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from torch.autograd.function import once_differentiable

from dropnode.graph.arrays import Matrix
from dropnode.ops.kernels.memory import aligned, padded, usable
from dropnode.ops.kernels.sparse import (
    Csr,
    compress,
    multiply,
    multiply_transposed,
    nonzero_entries,
    propagate,
)
from dropnode.ops.stored import StoredFeatures

COLUMNS = 64
"""How many columns are propagated at a time where there may be many."""

ROWS = 2**18
"""How many rows of a matrix are normalised at a time."""

FEW_COLUMNS = 16
"""The same on a graph of more than :data:`LARGE` nodes, to save memory."""

LARGE = 4_000_000
"""The number of nodes from which 64 columns take more than a gigabyte."""

Propagate: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
"""A linear map of dense matrices."""


class SparseMatrix:
    """A constant sparse matrix that multiplies dense tensors, with gradients for the latter.

    Parameters
    ----------
    forward : torch.Tensor
        The matrix as CSR.
    symmetric : bool
        Whether the matrix is its own transpose, which then need not be stored.
    passing : bool
        Whether the matrix is made for one product and its gradient. Kernels then do not transpose
        it.
    """

    def __init__(
        self, forward: torch.Tensor, symmetric: bool = False, passing: bool = False
    ) -> None:
        self.forward = forward
        self.symmetric = symmetric
        self.passing = passing

    @classmethod
    def from_scipy(
        cls, matrix: Any, device: torch.device | str = "cpu", symmetric: bool = False
    ) -> SparseMatrix:
        """Copy a SciPy matrix to ``device``."""
        matrix = as_csr(matrix)
        matrix.sort_indices()
        return cls(_torch_csr(matrix, device), symmetric)

    def to_scipy(self) -> sp.csr_array:
        """Return the matrix as a SciPy array; on a CPU, it shares the memory."""
        parts = (self.values, self.forward.col_indices(), self.forward.crow_indices())
        return sp.csr_array(tuple(part.cpu().numpy() for part in parts), shape=self.shape)

    @cached_property
    def backward(self) -> torch.Tensor:
        """The transpose as CSR, computed on first use."""
        if self.symmetric:
            return self.forward
        starts, columns, order = self.by_column
        return _tensor_csr(starts, columns, self.values[order], self.shape[::-1])

    @cached_property
    def by_column(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The starts of the columns, and the row of each entry and its position in ``values``."""
        device = self.values.device
        count = len(self.values)
        # Transposing a matrix of entry numbers shows where each entry goes.
        numbered = sp.csr_array(
            (
                np.arange(count, dtype=np.int64),
                self.forward.col_indices().cpu().numpy(),
                self.forward.crow_indices().cpu().numpy(),
            ),
            shape=self.shape,
        ).tocsc()
        width = self.forward.col_indices().dtype
        return (
            torch.from_numpy(numbered.indptr).to(device, width),
            torch.from_numpy(numbered.indices).to(device, width),
            torch.from_numpy(numbered.data).to(device),
        )

    @property
    def csr(self) -> Csr:
        """The matrix as NumPy arrays, for kernels."""
        return arrays(self.forward)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.forward.shape[0], self.forward.shape[1]

    @property
    def values(self) -> torch.Tensor:
        """The stored entries, row by row."""
        return self.forward.values()

    def __matmul__(self, dense: torch.Tensor) -> torch.Tensor:
        product: torch.Tensor = _Product.apply(self, dense)
        return product

    @property
    def transpose(self) -> SparseMatrix:
        """The transposed matrix."""
        return self if self.symmetric else SparseMatrix(self.backward)

    def kept(self, words: np.ndarray, factor: float) -> SparseMatrix:
        """Return the entries whose bit is set, multiplied by a factor, for one product in kernels.

        ``words`` has the bits of all stored entries, the lowest bit of a word first. The other
        entries are no longer stored.
        """
        starts, columns, values = map(torch.from_numpy, compress(self.csr, words, factor))
        return SparseMatrix(_tensor_csr(starts, columns, values, self.shape), passing=True)

    def reweighted(self, factors: torch.Tensor | float) -> SparseMatrix:
        """Return the matrix with every stored entry multiplied by its factor."""
        made = SparseMatrix(
            _tensor_csr(
                self.forward.crow_indices(),
                self.forward.col_indices(),
                self.values * factors,
                self.shape,
            ),
            self.symmetric and not isinstance(factors, torch.Tensor),
            self.passing,
        )
        if not self.passing:
            # The pattern is the same, so its order by columns is too.
            made.by_column = self.by_column
        return made

    def to_dense(self) -> torch.Tensor:
        """Return the matrix as a dense tensor."""
        return self.forward.to_dense()

    def edge_index(self) -> torch.Tensor:
        """Return (source, target) of every stored entry, messages flowing from column to row."""
        rows = torch.repeat_interleave(
            torch.arange(self.shape[0], device=self.values.device),
            self.forward.crow_indices().diff().long(),
        )
        return torch.stack([self.forward.col_indices().long(), rows])


Features = torch.Tensor | SparseMatrix
"""Node features ready for products: ``features @ weight`` works for both kinds.

:class:`~dropnode.ops.stored.StoredFeatures` are a third kind, for methods that ask for them.
"""


def as_csr(matrix: Any) -> sp.csr_array:
    """Return a matrix as CSR; one that is CSR already is not wrapped again, which takes time."""
    return matrix if isinstance(matrix, sp.csr_array) else sp.csr_array(matrix)


def normalise(adjacency: Matrix, degrees: np.ndarray | None = None) -> sp.csr_array:
    """Return Â = D̃^-½ (A + I) D̃^-½.

    ``degrees`` are those in A + I by default. To get the entries of Â for a part of a graph, give
    the degrees in the whole graph.
    """
    adjacency = as_csr(adjacency)
    if degrees is None:
        degrees = np.asarray(adjacency.sum(axis=1), dtype=np.float64).ravel() + 1.0
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

    def propagate(x: torch.Tensor) -> torch.Tensor:
        for _ in range(power):
            x = operator @ x
        return x

    by_features = 2 * features.shape[1] < len(rows)
    return some_rows(features, rows, propagate, propagate, by_features=by_features)


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


def compact(rows: torch.Tensor, passing: bool = False) -> Features:
    """Return propagated rows, as a sparse matrix if that makes products with them cheaper.

    ``passing`` is that of :class:`SparseMatrix`. The gradient writes where the entries are, which
    pays if they are few.
    """
    most = (0.1 if passing else 0.3) * rows.numel()
    if not usable(rows.device):
        if torch.count_nonzero(rows).item() > most:
            return rows
        return SparseMatrix.from_scipy(sp.csr_array(rows.cpu().numpy()), rows.device)
    array = rows.contiguous().numpy()
    count = int(np.count_nonzero(array))
    if count > most:
        return rows
    starts, columns, values = map(torch.from_numpy, nonzero_entries(array, count))
    return SparseMatrix(_tensor_csr(starts, columns, values, array.shape), passing=passing)


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


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: SparseMatrix, dense: torch.Tensor) -> torch.Tensor:
        ctx.matrix = matrix
        return _product(matrix.forward, dense)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[None, torch.Tensor]:
        matrix: SparseMatrix = ctx.matrix
        if matrix.passing and usable(gradient.device):
            return None, _transposed_product(matrix.forward, gradient)
        return None, _product(matrix.backward, gradient)


class _MixedOrder(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: SparseMatrix, x: torch.Tensor, order: int) -> torch.Tensor:
        ctx.matrix, ctx.order = matrix, order
        return _mixed(matrix.forward, x, order)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[None, torch.Tensor, None]:
        return None, _mixed(ctx.matrix.backward, gradient, ctx.order), None


def _product(matrix: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    if not usable(x.device):
        return matrix @ x
    wide = _wide(x)
    out = aligned(matrix.shape[0], wide.shape[1])
    multiply(arrays(matrix), wide, out)
    return torch.from_numpy(out)[:, : x.shape[1]]


def _transposed_product(matrix: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    wide = _wide(x)
    out = aligned(matrix.shape[1], wide.shape[1])
    multiply_transposed(arrays(matrix), wide, out)
    return torch.from_numpy(out)[:, : x.shape[1]]


def _mixed(matrix: torch.Tensor, x: torch.Tensor, order: int) -> torch.Tensor:
    if usable(x.device):
        wide = _wide(x)
        out = aligned(*wide.shape)
        propagate(arrays(matrix), wide, order, out)
        return torch.from_numpy(out)[:, : x.shape[1]]
    total = x
    # Horner's scheme: x + Â(x + Â(x + ...)).
    for _ in range(order):
        total = x + matrix @ total
    return total / (order + 1)


def _wide(x: torch.Tensor) -> np.ndarray:
    """Return a matrix in the layout that kernels need, copied only if necessary."""
    missing = padded(x.shape[1]) - x.shape[1]
    wide = torch.nn.functional.pad(x.detach(), (0, missing)) if missing else x.detach()
    return wide.contiguous().numpy()


def arrays(matrix: torch.Tensor) -> Csr:
    """Return a CSR tensor as NumPy arrays, without a copy."""
    return (
        matrix.crow_indices().numpy(),
        matrix.col_indices().numpy(),
        matrix.values().numpy(),
    )


def _torch_csr(matrix: sp.csr_array, device: torch.device | str) -> torch.Tensor:
    # 32-bit indices halve the memory traffic.
    width = np.int32 if matrix.nnz < 2**31 else np.int64
    return _tensor_csr(
        shared(matrix.indptr.astype(width, copy=False)).to(device),
        shared(matrix.indices.astype(width, copy=False)).to(device),
        shared(matrix.data.astype(np.float32, copy=False)).to(device),
        matrix.shape,
    )


def shared(array: np.ndarray) -> torch.Tensor:
    """Return an array as a tensor that shares its memory, also that of a read-only array.

    Nobody may write to the tensor. Torch has no read-only tensors, and warns of such arrays.
    """
    return torch.from_numpy(array if array.flags.writeable else np.asarray(_Unlocked(array)))


class _Unlocked:
    """The memory of a read-only array, as NumPy reads it from other objects, but writable."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        start, _ = array.__array_interface__["data"]
        self.__array_interface__ = array.__array_interface__ | {"data": (start, False)}


def _tensor_csr(
    starts: torch.Tensor, columns: torch.Tensor, values: torch.Tensor, shape: tuple[int, int]
) -> torch.Tensor:
    return torch.sparse_csr_tensor(starts, columns, values, size=shape, check_invariants=False)


with warnings.catch_warnings():
    # Torch warns once per process that its CSR tensors are a beta feature; only products are used
    # here. The filters of warnings belong to the process, and threads that change them would
    # restore each other's, so the warning is provoked and ignored now, while only one can import.
    warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
    _tensor_csr(torch.tensor([0, 0]), torch.tensor([]).long(), torch.tensor([]), (1, 1))
