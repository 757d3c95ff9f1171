"""A restricted unpickler, for published pickles that cannot be trusted.

The Planetoid files are Python 2 pickles, and some ``npz`` files hold pickled object arrays. A
pickle is a program: it names callables and calls them. This unpickler knows the few names that
those files need and refuses every other one before it is looked up, so no foreign code runs.
"""

from __future__ import annotations

import collections
import pickle
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp

from dropnode.errors import DataError
from dropnode.graph.arrays import compressed_rows, sound
from dropnode.settings import shown


def _latin1(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise DataError(f"a pickle encodes bytes as {encoding!r}; expected 'latin1'")
    return text.encode("latin1")


_ARRAY = "numpy.ndarray"
"""Stands for the class, which a pickle only names; calling it would allocate any size."""


def _reconstruct(kind: Any, shape: Any, code: Any) -> np.ndarray:
    """Return the empty array that the pickle of an array starts from; its data follow."""
    if kind != _ARRAY or shape != (0,):
        raise DataError(f"a pickle makes an array of shape {shown(shape)}; expected (0,)")
    return np.empty(0, dtype=np.uint8)


class _Csr(sp.csr_matrix):
    def __init__(self, *_: Any) -> None:
        raise DataError("a pickle makes a matrix of its own; expected the arrays of one")


class _Coo(sp.coo_matrix):
    def __init__(self, *_: Any) -> None:
        raise DataError("a pickle makes a matrix of its own; expected the arrays of one")


ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "dtype"): np.dtype,
    ("numpy", "ndarray"): _ARRAY,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("scipy.sparse.csr", "csr_matrix"): _Csr,
    ("scipy.sparse._csr", "csr_matrix"): _Csr,
    ("scipy.sparse.coo", "coo_matrix"): _Coo,
    ("scipy.sparse._coo", "coo_matrix"): _Coo,
    ("collections", "defaultdict"): collections.defaultdict,
    ("__builtin__", "list"): list,
    ("builtins", "list"): list,
    # Python 3 writes bytes this way in protocols that have text only.
    ("_codecs", "encode"): _latin1,
}
"""The objects that a pickle may use, by module and name, under today's and former paths."""


def load_pickle(path: Path) -> Any:
    """Return the object pickled in the file ``path``.

    Raises
    ------
    DataError
        If the pickle names anything outside :data:`ALLOWED`, or is damaged.
    """
    with open(path, "rb") as file:
        return unpickle(file, path.name)


def unpickle(file: IO[bytes], name: str) -> Any:
    """Return the object pickled in an open file, which errors call ``name``."""
    try:
        return _Unpickler(file, name).load()
    except DataError:
        raise
    except Exception as error:
        # A damaged pickle can fail in any way; all of them mean the same to a user.
        raise DataError(
            f"{name} is not a readable pickle ({type(error).__name__}: {error}); fetch it again"
        ) from error


def to_csr(value: Any, name: str) -> sp.csr_array:
    """Return an unpickled sparse matrix as a ``csr_array`` whose indices have been checked.

    Unpickling restores the arrays of a matrix as they are written, and compiled code would follow
    an index that points outside of them.
    """
    try:
        if not isinstance(value, sp.coo_matrix):
            return compressed_rows((value.data, value.indices, value.indptr), value.shape)
        entries = sp.coo_array((value.data, (value.row, value.col)), shape=value.shape)
        # Every row costs memory and time, and a file can claim any number of them.
        if entries.shape[0] > max(10**6, 100 * entries.nnz):
            raise ValueError(f"{entries.shape[0]:,} rows for {entries.nnz:,} entries")
        return sound(entries).tocsr()
    except (AttributeError, IndexError, OverflowError, TypeError, ValueError) as error:
        raise DataError(f"{name} holds no sound sparse matrix ({error}); fetch it again") from error


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: IO[bytes], name: str) -> None:
        # Python 2 wrote its byte strings without an encoding; latin1 keeps every byte.
        super().__init__(file, encoding="latin1")
        self._name = name

    def find_class(self, module: str, name: str) -> Any:
        try:
            return ALLOWED[module, name]
        except KeyError:
            raise DataError(
                f"{self._name} asks for {module}.{name}, which no dataset needs: the file is not "
                "what it claims to be. Nothing in it was run; delete it"
            ) from None
