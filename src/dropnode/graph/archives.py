"""Archives of arrays, ``npz`` files, read without trust in what they claim."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np

from dropnode.errors import DataError, DropnodeError
from dropnode.memory import check_memory, gigabytes

MOST_MEMBERS = 1_000
"""The most arrays of a file; a graph has about a dozen."""

ALWAYS_READ, MOST_EXPANSION = 10**9, 100
"""Bytes that a file may expand to however small it is, and beyond these, how many times its size.

Sparse matrices shrink to a tenth or so; a file that shrinks to a thousandth has nothing in it.
"""

Unpickle = Callable[[IO[bytes], str], Any]
"""Reads the pickle of an array of objects, given the open file and its name in errors."""


def load_arrays(
    path: Path, unpickle: Unpickle | None = None, cure: str = "save it again"
) -> dict[str, np.ndarray]:
    """Return the arrays of an ``npz`` file.

    Parameters
    ----------
    path : Path
        The file.
    unpickle : callable, optional
        What reads arrays of objects; without it, they are refused.
    cure : str
        The end of the error about a damaged file: what to do.

    Raises
    ------
    DataError
        If the file is damaged, expands beyond measure or beyond the available memory, or has an
        array of objects that is not accepted.
    """
    arrays: dict[str, np.ndarray] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            _check_size(path, archive.infolist())
            for member in archive.infolist():
                name = member.filename.removesuffix(".npy")
                if name in arrays:
                    raise ValueError(f"it holds {name} twice")
                with archive.open(member) as file:
                    arrays[name] = _read_member(
                        file, member, f"{path.name}:{member.filename}", unpickle
                    )
    except (DropnodeError, MemoryError):
        raise
    except Exception as error:
        # A damaged archive can fail in any way: in zipfile, in zlib, in NumPy's headers.
        raise DataError(f"{path} is not a readable npz file ({error}); {cure}") from error
    return arrays


def _check_size(path: Path, members: list[zipfile.ZipInfo]) -> None:
    """Refuse an archive by what it claims, before anything is allocated."""
    if len(members) > MOST_MEMBERS:
        raise DataError(f"{path} holds {len(members):,} arrays; expected at most {MOST_MEMBERS:,}")
    size = sum(member.file_size for member in members)
    limit = max(ALWAYS_READ, MOST_EXPANSION * path.stat().st_size)
    if size > limit:
        raise DataError(
            f"{path} expands to {gigabytes(size)}; expected at most {gigabytes(limit)}, "
            f"{MOST_EXPANSION} times its size: keep zeros out of it with sparse matrices"
        )
    check_memory(size, f"{path}", "use a smaller graph or a larger machine", DataError)


def _read_member(
    file: IO[bytes], member: zipfile.ZipInfo, name: str, unpickle: Unpickle | None
) -> np.ndarray:
    shape, _, dtype = _HEADERS[np.lib.format.read_magic(file)](file)
    if dtype.hasobject:
        if unpickle is None:
            raise DataError(
                f"{name} holds Python objects, which are read from published datasets only; save "
                "numbers or text, such as numpy.array(names, dtype=str)"
            )
        value = unpickle(file, name)
        if not isinstance(value, np.ndarray):
            raise DataError(f"{name} holds no array; fetch the file again")
        return value
    # Compared before anything is allocated: a forged header could ask for any amount of memory.
    claimed, present = math.prod(shape) * dtype.itemsize, member.file_size - file.tell()
    if claimed != present:
        raise ValueError(f"{name} claims {claimed:,} bytes and holds {present:,}")
    file.seek(0)
    array: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
    return array


_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
