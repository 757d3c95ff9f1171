"""Symmetric N × N matrices as products of thin ones: derivatives by every pair of nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch

from dropnode.ops.sparse_matrix import SparseMatrix

Tensor = torch.Tensor


@dataclass(frozen=True)
class Factors:
    """Thin matrices that stand for a symmetric N × N matrix, M + Mᵀ with M = L Rᵀ + S Tᵀ.

    Attributes
    ----------
    left, right : tensor (N, r)
        L and R.
    sparse : csr_array (N, s)
        S.
    beside : tensor (N, s)
        T.
    """

    left: Tensor
    right: Tensor
    sparse: sp.csr_array
    beside: Tensor

    def block(self, first: int, last: int) -> np.ndarray:
        """Return the rows from ``first`` to before ``last``, and of these the columns from
        ``first`` on; the others are in earlier rows, too.
        """
        rows = slice(first, last)
        left = torch.cat([self.left[rows], self.right[rows]], dim=1)
        right = torch.cat([self.right[first:], self.left[first:]], dim=1)
        block: np.ndarray = (left @ right.T).numpy()
        beside = self.beside.numpy()
        block += self.sparse[rows] @ beside[first:].T
        block += (self.sparse[first:] @ beside[rows].T).T
        return block


def by_edges(factors: Factors, operator: SparseMatrix, degrees: Tensor) -> Factors:
    """Return the derivative by the adjacency matrix, given the one by Â.

    An edge changes Â in its own entry, and in all others of its two nodes through their degrees.

    Parameters
    ----------
    factors : Factors
    operator : SparseMatrix
        Â = D̃^-½ (A + I) D̃^-½.
    degrees : tensor (N,)
        The diagonal of D̃: degrees that count the self-loop.
    """
    left, right, sparse, beside = factors.left, factors.right, factors.sparse, factors.beside
    through_entries = (left * (operator @ right) + right * (operator @ left)).sum(dim=1)
    through_sparse = sparse.multiply((operator @ beside).numpy()).sum(axis=1)
    through_sparse += (operator.to_scipy() @ sparse).multiply(beside.numpy()).sum(axis=1)
    through_degree = -0.5 * (through_entries + torch.from_numpy(through_sparse)) / degrees
    scale = degrees.rsqrt()[:, None]
    # The part of the degrees is the same in a whole row: one more column stands for it.
    return Factors(
        torch.cat([scale * left, through_degree[:, None]], dim=1),
        torch.cat([scale * right, torch.ones_like(scale)], dim=1),
        sp.csr_array(sparse.multiply(scale.numpy())),
        scale * beside,
    )
