"""One copy of the data for all processes: arrays in files that every worker maps.

Pickle protocol 5 separates the bytes of arrays from the rest. They are written to files once. Every
process that unpickles them maps the files read-only, so that all processes share the same memory.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Parcel:
    """A pickled object without its arrays, and the files of the arrays."""

    skeleton: bytes
    files: tuple[Path, ...]


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
    buffers: list[pickle.PickleBuffer] = []
    skeleton = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    files = tuple(folder / f"{number}.npy" for number in range(len(buffers)))
    for path, buffer in zip(files, buffers, strict=True):
        np.save(path, np.frombuffer(buffer.raw(), dtype=np.uint8))
    return Parcel(skeleton, files)


def unpack(parcel: Parcel) -> Any:
    """Return the object; its arrays are read-only views of the files."""
    maps = [np.load(path, mmap_mode="r") for path in parcel.files]
    return pickle.loads(parcel.skeleton, buffers=maps)
