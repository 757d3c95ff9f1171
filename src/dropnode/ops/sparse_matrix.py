"""Constant sparse matrices that multiply dense tensors, in kernels on a CPU, with gradients.

Sparse matrices have no parameters, so no gradient is ever taken with respect to one. The backward
pass of a product is a product with the transpose, which is computed once and kept.
"""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch.autograd.function import once_differentiable

from dropnode.ops.kernels.memory import aligned, padded, usable
from dropnode.ops.kernels.sparse import (
    Csr,
    compress,
    multiply,
    multiply_transposed,
    nonzero_entries,
)


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
        """Return a SciPy matrix on ``device``; on a CPU, it shares the memory.

        The entries of each row are sorted by column, in place.
        """
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
        if not self.passing and not made.symmetric:
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


def widened(x: torch.Tensor) -> np.ndarray:
    """Return a dense matrix in the layout that kernels need, copied only if necessary."""
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


def shared(array: np.ndarray) -> torch.Tensor:
    """Return an array as a tensor that shares its memory, also that of a read-only array.

    Nobody may write to the tensor. Torch has no read-only tensors, and warns of such arrays.
    """
    return torch.from_numpy(array if array.flags.writeable else np.asarray(_Unlocked(array)))


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


def _product(matrix: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    if not usable(x.device):
        return matrix @ x
    wide = widened(x)
    out = aligned(matrix.shape[0], wide.shape[1])
    multiply(arrays(matrix), wide, out)
    return torch.from_numpy(out)[:, : x.shape[1]]


def _transposed_product(matrix: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    wide = widened(x)
    out = aligned(matrix.shape[1], wide.shape[1])
    multiply_transposed(arrays(matrix), wide, out)
    return torch.from_numpy(out)[:, : x.shape[1]]


def _torch_csr(matrix: sp.csr_array, device: torch.device | str) -> torch.Tensor:
    # 32-bit indices halve the memory traffic.
    width = np.int32 if matrix.nnz < 2**31 else np.int64
    return _tensor_csr(
        shared(matrix.indptr.astype(width, copy=False)).to(device),
        shared(matrix.indices.astype(width, copy=False)).to(device),
        shared(matrix.data.astype(np.float32, copy=False)).to(device),
        matrix.shape,
    )


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
