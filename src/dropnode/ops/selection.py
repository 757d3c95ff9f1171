"""Some rows or columns of a matrix, at the cost of what is selected."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch

from dropnode.ops.propagation import Features, SparseMatrix
from dropnode.ops.stored import StoredFeatures


def feature_rows(features: Features, rows: np.ndarray) -> Features:
    """Return the features of some nodes."""
    if isinstance(features, SparseMatrix):
        return SparseMatrix.from_scipy(features.to_scipy()[rows], features.values.device)
    if isinstance(features, StoredFeatures):
        return features.rows(rows)
    return features[torch.from_numpy(rows.copy()).to(features.device)]


def select_columns(matrix: sp.csr_array, columns: np.ndarray) -> sp.csr_array:
    """Return some columns, given in order, at a cost that the stored entries alone decide.

    SciPy's own selection costs time and memory for every column that the matrix has.
    """
    places = np.searchsorted(columns, matrix.indices)
    # An entry behind the last column finds -1, which it does not equal.
    kept = np.append(columns, -1)[places] == matrix.indices
    counts = np.concatenate([[0], np.cumsum(kept)])
    return sp.csr_array(
        (matrix.data[kept], places[kept], counts[matrix.indptr]),
        shape=(matrix.shape[0], len(columns)),
    )
