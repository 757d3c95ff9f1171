"""Constant sparse matrices: their entries, transposes and copies."""

from __future__ import annotations

import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import scipy.sparse as sp
import torch

from dropnode.ops.sparse_matrix import SparseMatrix, shared


def test_messages_flow_from_column_to_row() -> None:
    matrix = SparseMatrix.from_scipy(
        sp.csr_array([[0.0, 2.0, 0.0], [0.0, 0.0, 0.0], [3.0, 4.0, 0]])
    )
    assert matrix.edge_index().tolist() == [[1, 0, 1], [0, 2, 2]]


def test_a_matrix_with_unsorted_entries_is_read_right() -> None:
    scrambled = sp.csr_array(
        (np.array([2.0, 1.0, 3.0]), np.array([2, 0, 1]), np.array([0, 2, 3, 3])), shape=(3, 3)
    )
    matrix = SparseMatrix.from_scipy(scrambled)
    assert matrix.values.tolist() == [1.0, 2.0, 3.0]
    factors = torch.tensor([1.0, 10.0, 100.0])
    expected = [[1.0, 0.0, 20.0], [0.0, 300.0, 0.0], [0.0, 0.0, 0.0]]
    assert matrix.reweighted(factors).to_dense().tolist() == expected
    assert matrix.reweighted(factors).transpose.to_dense().T.tolist() == expected


def test_a_transpose_can_be_reweighted_too() -> None:
    dense = np.array([[1.0, 2.0, 0.0], [0.0, 3.0, 4.0]])
    matrix = SparseMatrix.from_scipy(sp.csr_array(dense)).transpose
    factors = torch.tensor([10.0, 1.0, 100.0, 1.0])  # by row of the transpose: 1, 2, 3, 4
    made = matrix.reweighted(factors)
    assert made.to_dense().tolist() == [[10.0, 0.0], [2.0, 300.0], [0.0, 4.0]]
    assert made.transpose.to_dense().tolist() == [[10.0, 2.0, 0.0], [0.0, 300.0, 4.0]]


def test_a_symmetric_matrix_is_kept_once_and_reweighted_it_no_longer_is() -> None:
    dense = np.array([[0.5, 2.0], [2.0, 0.0]])
    matrix = SparseMatrix.from_scipy(sp.csr_array(dense), symmetric=True)
    assert matrix.backward is matrix.forward
    assert matrix.reweighted(2.0).backward.to_dense().tolist() == (2 * dense).tolist()
    dropped = matrix.reweighted(torch.tensor([1.0, 0.0, 1.0]))
    assert dropped.to_dense().tolist() == [[0.5, 0.0], [2.0, 0.0]]
    assert dropped.transpose.to_dense().tolist() == [[0.5, 2.0], [0.0, 0.0]]


def test_a_read_only_array_is_shared_without_a_copy_or_a_warning() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    array.flags.writeable = False
    tensor = shared(array)
    assert tensor.data_ptr() == array.ctypes.data
    del array
    assert tensor.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


def test_threads_leave_the_filters_of_warnings_alone() -> None:
    """They belong to the process: two threads that change them restore each other's."""
    before = list(warnings.filters)
    eye = sp.csr_array(np.eye(3))

    def work(_: int) -> None:
        for _ in range(200):
            SparseMatrix.from_scipy(eye)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as executor:
            list(executor.map(work, range(4)))
    finally:
        sys.setswitchinterval(interval)
    assert list(warnings.filters) == before
