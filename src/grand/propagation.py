"""Propagation: Â, mixed-order Ā, and their adjoints. The only place that touches sparse kernels.

Nothing here has parameters, so no gradient is ever taken with respect to a sparse matrix; the
backward pass of a product is a product with the transpose, which is kept ready.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch.autograd.function import once_differentiable

from grand.inputs import Matrix


class SparseMatrix:
    """A constant sparse matrix that multiplies dense tensors, with gradients for the latter.

    Parameters
    ----------
    forward, backward : torch.Tensor
        The matrix and its transpose, both CSR. One tensor serves both for a symmetric matrix.
    order : torch.Tensor or None
        Which stored entry of ``forward`` each stored entry of ``backward`` is.
    """

    def __init__(
        self, forward: torch.Tensor, backward: torch.Tensor, order: torch.Tensor | None = None
    ) -> None:
        self.forward = forward
        self.backward = backward
        self.order = order

    @classmethod
    def from_scipy(cls, matrix: Any, device: torch.device | str = "cpu") -> SparseMatrix:
        """Hold a SciPy matrix and its transpose on ``device``."""
        matrix = sp.csr_array(matrix)
        matrix.sort_indices()
        # Numbering the entries and transposing the numbers tells where each entry goes.
        numbered = sp.csr_array(
            (np.arange(matrix.nnz), matrix.indices, matrix.indptr), shape=matrix.shape
        ).T.tocsr()
        numbered.sort_indices()
        transpose = sp.csr_array(
            (matrix.data[numbered.data], numbered.indices, numbered.indptr), shape=numbered.shape
        )
        order = torch.from_numpy(numbered.data.astype(np.int64)).to(device)
        return cls(_torch_csr(matrix, device), _torch_csr(transpose, device), order)

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
        return SparseMatrix(self.backward, self.forward)

    def reweighted(self, factors: torch.Tensor | float) -> SparseMatrix:
        """Return the matrix with every stored entry multiplied by its factor."""
        if self.order is None:
            raise ValueError("a transposed view cannot be reweighted; reweight, then transpose")
        values = self.values * factors
        return SparseMatrix(
            _with_values(self.forward, values),
            _with_values(self.backward, values[self.order]),
            self.order,
        )

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
"""Node features ready for products: ``features @ weight`` works for both kinds."""


def normalise(adjacency: Matrix, attachments: Matrix | None = None) -> sp.csr_array:
    """Return Â = D̃^-½ (A + I) D̃^-½.

    With ``attachments`` (new × old), the result covers the old nodes followed by the new ones.
    New nodes listen to old ones but are not heard: the old degrees and rows stay as they are, so
    what is computed for one new node cannot depend on which others came along.
    """
    nodes = adjacency.shape[0]
    degree = np.asarray(adjacency.sum(axis=1), dtype=np.float64).ravel() + 1.0
    looped = sp.csr_array(adjacency) + sp.eye_array(nodes, format="csr", dtype=np.float32)
    if attachments is not None:
        new = attachments.shape[0]
        own = sp.eye_array(new, format="csr", dtype=np.float32)
        looped = sp.block_array([[looped, None], [attachments, own]], format="csr")
        added = np.asarray(attachments.sum(axis=1), dtype=np.float64).ravel() + 1.0
        degree = np.concatenate([degree, added])
    scale = sp.diags_array(1.0 / np.sqrt(degree))
    return sp.csr_array(scale @ looped @ scale, dtype=np.float32)


def mixed_order(operator: SparseMatrix, x: torch.Tensor, order: int) -> torch.Tensor:
    """Return Āx = 1/(K+1) Σ_{k=0..K} Âᵏx, without ever forming Ā."""
    result: torch.Tensor = _MixedOrder.apply(operator, x, order)
    return result


def propagated_rows(
    operator: SparseMatrix, features: Features, rows: torch.Tensor, order: int
) -> torch.Tensor:
    """Return (ĀX)[rows] with work and memory in proportion to the rows, not to the features.

    Rows of Ā are columns of its adjoint: the unit vectors of a block of rows are propagated, and
    the result multiplies X once.
    """
    transposed = features.transpose if isinstance(features, SparseMatrix) else features.T
    blocks = []
    for block in rows.split(256):
        unit = torch.zeros(operator.shape[0], len(block), device=rows.device)
        unit[block, torch.arange(len(block), device=rows.device)] = 1.0
        blocks.append((transposed @ _mixed(operator.backward, unit, order)).T)
    return torch.cat(blocks).contiguous()


_BLOCK = 64
"""Columns that go through all hops together: few enough to stay in cache between hops."""


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: SparseMatrix, dense: torch.Tensor) -> torch.Tensor:
        ctx.matrix = matrix
        return matrix.forward @ dense

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[None, torch.Tensor]:
        return None, ctx.matrix.backward @ gradient


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
    if x.shape[1] > 2 * _BLOCK:
        blocks = x.split(_BLOCK, dim=1)
        return torch.cat([_mixed(matrix, block.contiguous(), order) for block in blocks], dim=1)
    power, total = x, x.clone()
    for _ in range(order):
        power = matrix @ power
        total += power
    return total.mul_(1.0 / (order + 1))


def _torch_csr(matrix: sp.csr_array, device: torch.device | str) -> torch.Tensor:
    # 32-bit indices where they suffice: half the traffic, and what the CPU kernels take as is.
    width = np.int32 if matrix.nnz < 2**31 else np.int64
    with warnings.catch_warnings():
        # Torch calls its CSR tensors beta; products are all that is used here.
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
        return torch.sparse_csr_tensor(
            torch.from_numpy(matrix.indptr.astype(width)),
            torch.from_numpy(matrix.indices.astype(width)),
            # A copy: a graph's arrays are read-only, which torch warns of.
            torch.from_numpy(matrix.data.astype(np.float32)),
            size=matrix.shape,
            check_invariants=False,
        ).to(device)


def _with_values(matrix: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return torch.sparse_csr_tensor(
        matrix.crow_indices(),
        matrix.col_indices(),
        values,
        size=matrix.shape,
        check_invariants=False,
    )
