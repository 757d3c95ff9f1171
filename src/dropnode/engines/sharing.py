"""One copy of the data for all processes: arrays in files that every worker maps.

Pickle protocol 5 separates the bytes of arrays from the rest. They are written to files once. Every
process that unpickles them maps the files read-only, so that all processes share the same memory,
and checks first that they are what was written.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dropnode.errors import WorkError
from dropnode.files import file_sha256


@dataclass(frozen=True)
class Parcel:
    """A pickled object without its arrays, the files of the arrays, and their sha256."""

    skeleton: bytes
    files: tuple[Path, ...]
    hashes: tuple[str, ...]


def pack(value: Any, folder: Path) -> Parcel:
    """Write the arrays of ``value`` into ``folder``, and return a parcel for :func:`unpack`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     unpacked = unpack(pack({"weights": np.arange(3)}, Path(folder)))
    >>> unpacked["weights"].tolist(), unpacked["weights"].flags.writeable
    ([0, 1, 2], False)
    """
    skeleton, arrays = separate(value)
    files = tuple(folder / f"{number}.npy" for number in range(len(arrays)))
    for path, array in zip(files, arrays, strict=True):
        with open(path, "wb") as file:
            np.lib.format.write_array_header_1_0(
                file, np.lib.format.header_data_from_array_1_0(array)
            )
            # Not numpy.save, which does not say that the disk is full.
            file.write(array.data)
    return Parcel(skeleton, files, tuple(map(file_sha256, files)))


def separate(value: Any) -> tuple[bytes, list[np.ndarray]]:
    """Return a pickle of ``value`` without its arrays, and the bytes of the arrays."""
    buffers: list[pickle.PickleBuffer] = []
    skeleton = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return skeleton, [np.frombuffer(buffer.raw(), dtype=np.uint8) for buffer in buffers]


def unpack(parcel: Parcel) -> Any:
    """Return the object; its arrays are read-only views of the files."""
    for path, sha256 in zip(parcel.files, parcel.hashes, strict=True):
        if file_sha256(path) != sha256:
            raise WorkError(f"{path} was changed while it was in use; run the same command again")
    maps = [np.load(path, mmap_mode="r") for path in parcel.files]
    return pickle.loads(parcel.skeleton, buffers=maps)
