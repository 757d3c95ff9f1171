"""Reader of the ``npz`` files of the GNN benchmark by Shchur et al.

Each holds an adjacency matrix and bags of words in compressed rows, and one label per node. As in
that benchmark and in the GRAND paper, edges lose their direction and weight, self-loops are
removed, and only the largest connected component is kept.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO

import numpy as np
import scipy.sparse as sp

from dropnode.data.catalogue import Entry
from dropnode.data.readers.unpickle import unpickle
from dropnode.errors import DataError, DropnodeError, GraphError
from dropnode.files import DAMAGED_ZIP
from dropnode.graph import Graph
from dropnode.graph.arrays import compressed_rows
from dropnode.memory import check_memory, gigabytes

MOST_MEMBERS = 1_000
"""The most arrays of a file; a graph has about a dozen."""

ALWAYS_READ, MOST_EXPANSION = 10**9, 100
"""Bytes that a file may expand to however small it is, and beyond these, how many times its size.

Sparse matrices shrink to a tenth or so; a file that shrinks to a thousandth has nothing in it.
"""


def read(entry: Entry, files: Mapping[str, Path]) -> Graph:
    """Read the one ``npz`` file of ``entry``; ``ids`` of the graph are row numbers in the file."""
    (path,) = files.values()
    arrays = load_npz(path)
    adjacency, loops = undirected(csr(arrays, "adj", path))
    labels = arrays["labels"].astype(np.int64)
    keep = largest_component(adjacency)
    notes = [f"self-loops of the published graph left out: {loops:,}"] if loops else []
    if len(keep) < len(labels):
        notes.append(f"kept the largest component: {len(keep):,} of {len(labels):,} nodes")
    if entry.smallest_class:
        sizes = np.bincount(labels[keep])
        small = np.flatnonzero((sizes > 0) & (sizes < entry.smallest_class))
        keep = keep[~np.isin(labels[keep], small)]
        keep = keep[largest_component(adjacency[keep][:, keep])]
        notes.append(
            f"left out {len(small)} classes of fewer than {entry.smallest_class} nodes and what "
            "they alone connected"
        )
    present, codes = np.unique(labels[keep], return_inverse=True)
    names = arrays.get("class_names", np.arange(labels.max() + 1))
    graph = Graph.from_scipy(
        adjacency[keep][:, keep],
        csr(arrays, "attr", path)[keep],
        codes,
        ids=keep,
        class_names=[str(names[code]) for code in present],
        name=entry.name,
    )
    return replace(graph, notes=tuple(notes))


def load_npz(path: Path, *, objects: bool = True) -> dict[str, np.ndarray]:
    """Return the arrays of an ``npz`` file.

    Parameters
    ----------
    path : Path
        The file.
    objects : bool
        Whether arrays of objects are accepted, through the restricted unpickler.

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
                        file, member, f"{path.name}:{member.filename}", objects
                    )
    except (DropnodeError, MemoryError):
        raise
    except Exception as error:
        # A damaged archive can fail in any way: in zipfile, in zlib, in NumPy's headers.
        raise DataError(f"{path} is not a readable npz file ({error}); fetch it again") from error
    return arrays


def member_names(path: Path) -> set[str]:
    """Return the names of the arrays in an ``npz`` file."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {name.removesuffix(".npy") for name in archive.namelist()}
    except DAMAGED_ZIP as error:
        raise DataError(f"{path} is not a readable npz file ({error}); fetch it again") from error


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


def _read_member(file: IO[bytes], member: zipfile.ZipInfo, name: str, objects: bool) -> np.ndarray:
    shape, _, dtype = _HEADERS[np.lib.format.read_magic(file)](file)
    if dtype.hasobject:
        if not objects:
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


def largest_component(adjacency: sp.csr_array) -> np.ndarray:
    """Return the nodes of the largest connected component in order; of equals, the first."""
    _, component = sp.csgraph.connected_components(adjacency, directed=False)
    return np.flatnonzero(component == np.bincount(component).argmax())


def csr(arrays: Mapping[str, np.ndarray], prefix: str, path: Path) -> sp.csr_array:
    """Return the matrix whose compressed rows the arrays ``{prefix}_*`` hold, checked."""
    try:
        data, indices, indptr, shape = (
            arrays[f"{prefix}_{part}"] for part in ("data", "indices", "indptr", "shape")
        )
        return compressed_rows((data, indices, indptr), shape)
    except (KeyError, GraphError) as error:
        raise DataError(f"{path} holds no sound {prefix}_* matrix ({error})") from error


def undirected(directed: sp.csr_array) -> tuple[sp.csr_array, int]:
    """Return the symmetric 0/1 matrix without diagonal, and how many self-loops it had."""
    source, target = directed.nonzero()
    loops = source == target
    source, target = source[~loops], target[~loops]
    ones = np.ones(2 * len(source), np.float32)
    both = (np.concatenate([source, target]), np.concatenate([target, source]))
    adjacency = sp.csr_array((ones, both), shape=directed.shape)
    adjacency.sum_duplicates()
    adjacency.data[:] = 1.0
    return adjacency, int(loops.sum())
