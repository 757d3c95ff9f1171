"""What a caller gives, as plain arrays: tensors, masked arrays and sparse matrices are looked at.

Every value that becomes part of a graph passes :func:`plain`.
"""

from __future__ import annotations

import copy
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from dropnode.errors import GraphError
from dropnode.graph.foreign import refuse_graph
from dropnode.memory import check_memory

Matrix: TypeAlias = Any
"""A dense ``numpy.ndarray`` or a ``scipy.sparse.csr_array`` (SciPy ships no types)."""


def to_float32(values: Any, what: str) -> Matrix:
    """Return a float32 copy of dense values, or a list of sparse entries.

    Numbers too large for float32 become infinite; the caller reports them.
    """
    values = plain(values)
    try:
        array = values if sp.issparse(values) else np.asarray(values)
        if array.dtype.kind in "cmM":
            raise TypeError(f"they are {array.dtype}")
        if not sp.issparse(array):
            # An array can claim any size: a view may repeat one number.
            check_memory(4 * array.size, f"{what} of shape {array.shape}", "give fewer rows")
        with np.errstate(over="ignore"):
            if sp.issparse(array):
                # Not astype: on the way, it would merge the caller's duplicates, in place.
                return sp.coo_array(array, dtype=np.float32)
            return array.astype(np.float32, order="C")
    except (TypeError, ValueError, OverflowError) as error:
        raise GraphError(
            f"{what} cannot be read as numbers ({error}); encode text, and leave out columns that "
            "hold ids or labels"
        ) from error


def to_array(values: Any, what: str) -> np.ndarray:
    """Return values as an array; lists of different lengths make none."""
    values = plain(values)
    try:
        if hasattr(values, "__len__"):
            check_memory(8 * len(values), what, "give fewer")
        return np.asarray(values)
    except (ValueError, TypeError, OverflowError) as error:
        raise GraphError(f"{what} cannot be read as an array ({error})") from error


def plain(values: Any) -> Any:
    """Return a torch tensor as a NumPy array (SciPy, if sparse); everything else as it is.

    A masked array is an error, and so is a sparse matrix whose indices lie outside of it, or a
    graph of another library.
    """
    refuse_graph(values)
    if isinstance(values, np.ma.MaskedArray):
        raise GraphError(
            "a masked array, whose masked values would count; fill them: array.filled(value)"
        )
    if sp.issparse(values):
        return sound(values)
    if not hasattr(values, "detach"):
        return values
    tensor = values.detach().cpu()
    if str(tensor.layout) == "torch.strided":
        if tensor.is_floating_point() and tensor.element_size() < 4:
            tensor = tensor.float()  # NumPy has no bfloat16.
        return tensor.numpy()
    if tensor.dense_dim():
        raise GraphError(
            f"a sparse tensor has {tensor.dense_dim()} dense dimensions; give a plain one "
            "(tensor.to_dense())"
        )
    entries = _checked_tensor(tensor).to_sparse_coo().coalesce()
    numbers = entries.values()
    if numbers.is_floating_point() and numbers.element_size() < 4:
        numbers = numbers.float()
    return sp.coo_array(
        (numbers.numpy(), tuple(entries.indices().numpy())), shape=tuple(tensor.shape)
    )


def lighter(features: Matrix) -> Matrix:
    """Return features dense or sparse, whichever takes less memory.

    So a result does not depend on the form in which a caller happened to have the features. Those
    that are mapped from a file stay there.
    """
    if isinstance(features, np.memmap):
        return features
    sparse = sp.issparse(features)
    entries = features.nnz if sparse else int(np.count_nonzero(features))
    if lighter_sparse(entries, features.shape):
        return features if sparse else sp.csr_array(features)
    return features.toarray() if sparse else features


def lighter_sparse(entries: int, shape: tuple[int, int]) -> bool:
    """Return whether a matrix with so many nonzero entries takes less memory if it is sparse.

    A stored entry has the number of its column beside it, which takes as much memory again.
    """
    return bool(2 * entries < shape[0] * shape[1])


def held_like(features: Matrix, others: Matrix) -> Matrix:
    """Return features dense or sparse, as ``others`` are."""
    if sp.issparse(others):
        return sp.csr_array(features)
    return features.toarray() if sp.issparse(features) else features


def compressed_rows(parts: tuple[Any, ...], shape: Any) -> sp.csr_array:
    """Return the sparse matrix of (data, indices, indptr) that a file holds, checked."""
    try:
        matrix = sp.csr_array(parts, shape=tuple(shape))
    except (ValueError, TypeError, IndexError, OverflowError, AttributeError) as error:
        raise GraphError(f"a sparse matrix is not sound ({error})") from error
    return sound(matrix)


def sound(matrix: Any) -> Any:
    """Return a sparse matrix, perhaps in another format, whose indices lie inside of it.

    SciPy does not check what a caller has put into a matrix, and its compiled code would follow
    any index, into foreign memory.
    """
    try:
        if matrix.format in ("csr", "csc", "bsr"):
            # A new object, because SciPy replaces what it checks.
            matrix = copy.copy(matrix)
            pointers = matrix.indptr
            # SciPy does not look at them if the last one is 0.
            if pointers.ndim != 1 or (pointers[1:] < pointers[:-1]).any():
                raise ValueError("the index pointers are not in order")
            matrix.check_format(full_check=True)
            return matrix
        entries = matrix.tocoo(copy=False)
        for axis, size in zip(entries.coords, entries.shape, strict=True):
            if len(axis) != len(entries.data):
                raise ValueError(f"{len(axis)} indices for {len(entries.data)} entries")
            if len(axis) and (axis.min() < 0 or axis.max() >= size):
                raise ValueError(f"an index is not within 0 to {size - 1}")
        return entries
    except (ValueError, TypeError, IndexError, OverflowError, AttributeError) as error:
        raise GraphError(
            f"a sparse matrix is not sound ({error}); make it again from rows, columns and values"
        ) from error


def freeze(*members: Matrix) -> None:
    """Make the arrays of dense or sparse matrices read-only."""
    for array in array_members(*members):
        array.flags.writeable = False


def array_members(*members: Matrix) -> list[np.ndarray]:
    """Return the arrays that make up dense or sparse matrices."""
    made_of = ((m.data, m.indices, m.indptr) if sp.issparse(m) else (m,) for m in members)
    return [array for arrays in made_of for array in arrays]


def _checked_tensor(tensor: Any) -> Any:
    """Return a sparse tensor whose indices torch has checked, which it does on request only."""
    import torch

    try:
        if tensor.layout == torch.sparse_coo:
            parts = (tensor._indices(), tensor._values())
            return torch.sparse_coo_tensor(*parts, tensor.shape, check_invariants=True)
        by_row = tensor.layout in (torch.sparse_csr, torch.sparse_bsr)
        pointers = tensor.crow_indices() if by_row else tensor.ccol_indices()
        indices = tensor.col_indices() if by_row else tensor.row_indices()
        return torch.sparse_compressed_tensor(
            pointers,
            indices,
            tensor.values(),
            tensor.shape,
            layout=tensor.layout,
            check_invariants=True,
        )
    except RuntimeError as error:
        raise GraphError(f"a sparse tensor is not sound ({error}); make it again") from error
