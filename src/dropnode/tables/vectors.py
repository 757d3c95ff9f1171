"""Vectors of nodes, such as embeddings, from a file of NumPy's: one row per row of the table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from dropnode.errors import DataError, GraphError
from dropnode.files import explained, to_path
from dropnode.graph.archives import load_arrays
from dropnode.graph.arrays import Matrix, compressed_rows, to_float32
from dropnode.graph.nodes import canonical
from dropnode.settings import shown
from dropnode.tables.problems import Problems

_CSR = {"data", "indices", "indptr", "shape"}
"""The arrays of a sparse matrix that ``scipy.sparse.save_npz`` writes, besides its format."""


def read_vectors(source: Any, rows: int, problems: Problems) -> Matrix | None:
    """Return vectors as float32, dense or sparse; None if they cannot be used.

    Parameters
    ----------
    source : path or array
        An ``.npy`` file with a matrix, or an ``.npz`` file with one matrix, also a sparse one of
        ``scipy.sparse.save_npz``.
    rows : int
        How many rows there should be.
    problems : Problems
        Gets what is wrong with the vectors.
    """
    name = vectors_name(source)
    try:
        given = _load(to_path(source)) if isinstance(source, str | Path) else source
        matrix = to_float32(given, name)
    except OSError as error:
        problems.add(name, f"cannot be read ({explained(error)})")
        return None
    except (DataError, GraphError, ValueError, EOFError) as error:
        problems.add(name, f"holds no matrix of numbers ({error}); save one with numpy.save")
        return None
    if matrix.ndim != 2 or matrix.shape[0] != rows or not matrix.shape[1]:
        shape = " × ".join(f"{size:,}" for size in matrix.shape) or "a single number"
        problems.add(name, f"is {shape}; expected one row for each of the {rows:,} rows of nodes")
        return None
    if sp.issparse(matrix):
        matrix = canonical(matrix)
    values = matrix.tocoo() if sp.issparse(matrix) else matrix
    wrong = ~np.isfinite(values.data if sp.issparse(matrix) else values)
    bad_rows = values.coords[0][wrong] if sp.issparse(matrix) else np.flatnonzero(wrong.any(axis=1))
    problems.add_rows(
        name,
        "",
        np.unique(bad_rows) + 1,
        lambda at: "a number is missing, infinite or too large for float32; replace it",
    )
    return None if len(bad_rows) else matrix


def vectors_name(source: Any) -> str:
    """Return what vectors are called in messages."""
    return str(source) if isinstance(source, str | Path) else "features"


def _load(path: Path) -> Any:
    if path.suffix.lower() == ".npz":
        return _matrix(load_arrays(path))
    if path.suffix.lower() != ".npy":
        raise ValueError("expected a name that ends in .npy or .npz")
    # Mapped, so that a forged header cannot ask for memory that the file does not have.
    return np.load(path, mmap_mode="r", allow_pickle=False)


def _matrix(arrays: Mapping[str, np.ndarray]) -> Any:
    if arrays.keys() >= _CSR:
        kind = arrays.get("format", np.array("csr")).item()
        if kind not in (b"csr", "csr"):
            raise ValueError(f"a sparse matrix in the format {shown(kind)}; save it as csr")
        parts = tuple(arrays[part] for part in ("data", "indices", "indptr"))
        return compressed_rows(parts, arrays["shape"])
    if len(arrays) != 1:
        raise ValueError(f"{len(arrays)} arrays where one is expected")
    return next(iter(arrays.values()))
