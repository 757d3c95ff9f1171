"""MappedGraph: a graph on disk, in a folder of arrays that are mapped into memory, not read.

::

    manifest.json    sizes, types and hashes of the arrays, class names, notes; sealed
    checked.json     sizes and times of the files when their hashes were last found right; sealed
    starts.bin       where the edges of each node start      } the adjacency matrix, compressed
    neighbours.bin   the other ends of all edges             } rows, each edge in both directions
    weights.bin      their weights                           }
    features.bin     float32 or float16
    labels.bin       class codes, -1 where unknown
    ids.bin          whole numbers, or text of a fixed width

Opening such a folder takes the same time for any size. It trusts the arrays because the manifest
has their hashes, and it compares those whenever a file is not the one that was last checked.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import scipy.sparse as sp

from dropnode.errors import ConfigError, DataError
from dropnode.files import file_sha256, seal, to_path, write_json
from dropnode.graph.arrays import array_members
from dropnode.graph.graph import Graph
from dropnode.settings import read_record, read_sealed

MANIFEST, CHECKED = "manifest.json", "checked.json"

FORMAT = 1
"""Increased with every change of the layout that an older version could not read."""

BLOCK = 2**24
"""The bytes of an array that are written, or looked at, at a time."""

ARRAYS = ("starts", "neighbours", "weights", "features", "labels", "ids")
"""The arrays of a folder."""


@dataclass(frozen=True, eq=False, repr=False)
class MappedGraph(Graph):
    """A graph whose arrays are files; see :func:`open_mapped`.

    Attributes
    ----------
    folder : Path
        Where the files are.
    hashes : mapping
        The sha256 of every array.
    """

    folder: Path = field(default=Path(), kw_only=True)
    hashes: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process maps the same files.
        kept = ("class_names", "split", "name", "notes", "catalogue_name")
        labels = None if is_mapped(self.labels) else self.labels
        values = {name: getattr(self, name) for name in kept}
        return _opened_again, (self.folder, dict(self.hashes), labels, values)

    def fingerprint(self) -> str:
        """Return a sha256 of what the manifest has hashes of, and of labels and classes.

        The same data in memory has another one: that would take reading all of it.
        """
        fixed = [self.hashes[name] for name in ARRAYS if name not in ("labels", "ids")]
        digest = hashlib.sha256(repr((fixed, self.class_names)).encode())
        digest.update(self.labels.astype("<i8", copy=False).data)
        return digest.hexdigest()


@dataclass(frozen=True)
class Stored:
    """What the manifest says about one array."""

    type: str
    shape: list[int]
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The keys of ``manifest.json``."""

    format: int
    name: str
    arrays: dict[str, dict[str, Any]]
    # A graph may have none.
    class_names: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def array(self, name: str) -> Stored:
        """Return what it says about an array."""
        return read_record(Stored, self.arrays[name], name)


class ArrayWriter:
    """A file that an array is appended to piece by piece, and hashed on the way.

    Parameters
    ----------
    folder : Path
    name : str
        The name of the array.
    dtype : str
        Its type.
    """

    def __init__(self, folder: Path, name: str, dtype: str) -> None:
        self.name, self.dtype = name, np.dtype(dtype)
        self.file = open(folder / f"{name}.bin", "xb")  # noqa: SIM115 (closed by finish)
        self.digest, self.length = hashlib.sha256(), 0

    def append(self, values: np.ndarray) -> None:
        """Write further rows."""
        data = np.ascontiguousarray(values, dtype=self.dtype)
        self.digest.update(data.data)
        self.file.write(data.data)
        self.length += len(data)

    def finish(self, *row: int) -> dict[str, Any]:
        """Close the file, and return its entry in the manifest; ``row`` is the shape of a row."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        shape = [self.length, *row]
        return {"type": self.dtype.str, "shape": shape, "sha256": self.digest.hexdigest()}


def write_manifest(
    folder: Path,
    name: str,
    class_names: Iterable[str],
    notes: Iterable[str],
    arrays: dict[str, dict[str, Any]],
) -> None:
    """Write the manifest of arrays that have been written, which completes a folder."""
    manifest = Manifest(FORMAT, name, arrays, list(class_names), list(notes))
    write_json(folder / MANIFEST, seal(vars(manifest)))
    write_json(folder / CHECKED, seal({"files": _stamps(folder)}))


def is_mapped_folder(path: Any) -> bool:
    """Return whether a path is the folder of a graph."""
    with suppress(OSError, ValueError, TypeError):
        return os.path.isfile(os.path.join(path, MANIFEST))
    return False


def open_mapped(path: str | os.PathLike[str]) -> MappedGraph:
    """Open the folder of a graph, such as ``dropnode convert`` makes.

    Raises
    ------
    ConfigError
        If there is no such folder.
    DataError
        If a file is missing, or is not the one that the manifest describes.
    """
    folder = to_path(path)
    if not is_mapped_folder(folder):
        raise ConfigError(f"{folder} is no folder of a graph; make one with: dropnode convert")
    manifest = _manifest(folder)
    _check_files(folder, manifest)
    arrays = {name: _mapped(folder, name, manifest.array(name)) for name in ARRAYS}
    nodes = len(arrays["labels"])
    parts = arrays["weights"], arrays["neighbours"], arrays["starts"]
    adjacency = sp.csr_array(parts, shape=(nodes, nodes))
    # SciPy keeps plain arrays of the same memory, which could not be released.
    adjacency.data, adjacency.indices, adjacency.indptr = parts
    # As convert has written it; SciPy would look at every entry to find out.
    adjacency.has_sorted_indices = adjacency.has_canonical_format = True
    members = adjacency, arrays["features"], arrays["labels"], arrays["ids"]
    return MappedGraph(
        *members,
        tuple(manifest.class_names),
        name=manifest.name,
        notes=tuple(manifest.notes),
        _checked=tuple(array_members(*members)),
        folder=folder.resolve(),
        hashes={name: manifest.array(name).sha256 for name in ARRAYS},
    )


def _opened_again(
    folder: Path, hashes: dict[str, str], labels: np.ndarray | None, values: dict[str, Any]
) -> Graph:
    """Return a graph that was pickled."""
    graph = open_mapped(folder)
    if graph.hashes != hashes:
        raise DataError(f"{folder} was changed while it was in use; run the same command again")
    if labels is not None:
        graph = cast(MappedGraph, graph.with_labels(labels, values["class_names"]))
    return replace(graph, **values)


def is_mapped(array: Any) -> bool:
    """Return whether an array is a file that is mapped into memory.

    NumPy also calls arrays ``memmap`` that were computed from one.
    """
    return isinstance(array, np.memmap) and getattr(array, "_mmap", None) is not None


def row_blocks(array: np.ndarray) -> Iterable[slice]:
    """Yield slices of rows that a pass over a mapped array looks at, and let go of them after.

    Without that, all of the file would count as memory of this process.
    """
    rows = max(1, BLOCK // max(1, array.nbytes // max(1, len(array))))
    for first in range(0, len(array), rows):
        yield slice(first, first + rows)
        release(array)


def release(*arrays: np.ndarray) -> None:
    """Let go of the memory of mapped arrays; what is read again comes from their files."""
    for array in arrays:
        if is_mapped(array) and hasattr(mmap, "MADV_DONTNEED"):
            array._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]


def _manifest(folder: Path) -> Manifest:
    path = folder / MANIFEST
    try:
        manifest = read_record(Manifest, read_sealed(path, _CURE), MANIFEST)
        if manifest.format != FORMAT or manifest.arrays.keys() != set(ARRAYS):
            raise ConfigError(f"format {manifest.format} with {', '.join(manifest.arrays)}")
        sizes = {name: manifest.array(name).shape for name in ARRAYS}
        nodes, entries = sizes["labels"][0], sizes["neighbours"][0]
        expected = {"starts": [nodes + 1], "weights": [entries], "ids": [nodes]}
        if any(sizes[name] != shape for name, shape in expected.items()) or (
            len(sizes["features"]) != 2 or sizes["features"][0] != nodes or not nodes
        ):
            raise ConfigError("the sizes of its arrays do not fit together")
    except ConfigError as error:
        if str(path) in str(error):
            raise DataError(str(error)) from error
        raise DataError(f"{path} is not one of this version ({error}); {_CURE}") from error
    return manifest


_CURE = "convert the graph again"


def _check_files(folder: Path, manifest: Manifest) -> None:
    """Compare the hashes of all files, unless they are the files that were compared before."""
    stamps = _stamps(folder)
    for name in ARRAYS:
        stored = manifest.array(name)
        expected = math.prod(stored.shape) * np.dtype(stored.type).itemsize
        size = stamps.get(name, [None])[0]
        if size != expected:
            found = "is missing" if size is None else f"has {size:,} bytes"
            told = f"{folder / name}.bin {found}; expected {expected:,} bytes"
            raise DataError(f"{told}: {_CURE}")
    with suppress(ConfigError, OSError):
        if read_sealed(folder / CHECKED, _CURE) == {"files": stamps}:
            return
    for name in ARRAYS:
        path = folder / f"{name}.bin"
        if file_sha256(path) != manifest.array(name).sha256:
            raise DataError(
                f"{path} does not have the hash that {MANIFEST} lists for it: it was damaged or "
                f"changed; {_CURE}"
            )
    # A folder that cannot be written to is checked every time.
    with suppress(OSError):
        write_json(folder / CHECKED, seal({"files": stamps}))


def _stamps(folder: Path) -> dict[str, list[int]]:
    """Return the size and the time of the last change of every file."""
    stamps = {}
    for name in ARRAYS:
        with suppress(FileNotFoundError):
            found = os.stat(folder / f"{name}.bin")
            stamps[name] = [found.st_size, found.st_mtime_ns]
    return stamps


def _mapped(folder: Path, name: str, stored: Stored) -> np.ndarray:
    dtype, shape = np.dtype(stored.type), tuple(stored.shape)
    if dtype.hasobject or dtype.kind not in "ifU":
        raise DataError(f"{folder / MANIFEST}: {name} has the type {stored.type!r}; {_CURE}")
    if 0 in shape:
        # An empty file cannot be mapped.
        empty = np.empty(shape, dtype)
        empty.flags.writeable = False
        return empty
    return np.memmap(folder / f"{name}.bin", dtype=dtype, mode="r", shape=shape)
