"""Some rows or columns of a matrix, at the cost of what is selected."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch

from dropnode.ops.sparse_matrix import Features, SparseMatrix
from dropnode.ops.stored import StoredFeatures


def feature_rows(features: Features, rows: np.ndarray) -> Features:
    """Return the features of some nodes."""
    if isinstance(features, SparseMatrix):
        return SparseMatrix.from_scipy(features.to_scipy()[rows], features.values.device)
    if isinstance(features, StoredFeatures):
        return features.rows(rows)
    return features[torch.from_numpy(rows.copy()).to(features.device)]


def row_entries(matrix: sp.csr_array, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where the entries of some rows are stored, row by row, and how many each row has.

    SciPy's own selection makes a matrix of them, which takes longer than the entries if they are
    few.
    """
    starts = matrix.indptr[rows]
    counts = matrix.indptr[rows + 1] - starts
    ends = np.cumsum(counts)
    return np.arange(counts.sum()) + np.repeat(starts - ends + counts, counts), counts


def select_columns(
    matrix: sp.csr_array, columns: np.ndarray, rows: np.ndarray | None = None
) -> sp.csr_array:
    """Return some columns, given in order, of all rows or of some, at the cost of their entries.

    SciPy's own selection costs time and memory for every column that the matrix has.
    """
    data, indices, starts = matrix.data, matrix.indices, matrix.indptr
    if rows is not None:
        entries, counts = row_entries(matrix, rows)
        data, indices = data[entries], indices[entries]
        starts = np.concatenate([[0], np.cumsum(counts)])
    places = np.searchsorted(columns, indices)
    # An entry behind the last column finds -1, which it does not equal.
    kept = np.append(columns, -1)[places] == indices
    before = np.concatenate([[0], np.cumsum(kept)])
    return sp.csr_array(
        (data[kept], places[kept], before[starts]), shape=(len(starts) - 1, len(columns))
    )
