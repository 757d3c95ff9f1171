"""Reader of the ``npz`` files of the GNN benchmark by Shchur et al.

Each holds an adjacency matrix and bags of words in compressed rows, and a label a node. As in that
benchmark and in the GRAND paper, edges lose direction and weight, self-loops go, and the largest
connected component remains.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from dropnode.data.catalogue import Entry
from dropnode.data.readers.unpickle import unpickle
from dropnode.errors import DataError
from dropnode.graph import Graph


def read(entry: Entry, files: Mapping[str, Path]) -> Graph:
    """Read the one ``npz`` file of ``entry``; ``ids`` of the graph are row numbers in the file."""
    (path,) = files.values()
    arrays = load_npz(path)
    adjacency, loops = undirected(_sparse(arrays, "adj", path))
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
        _sparse(arrays, "attr", path)[keep],
        codes,
        ids=keep,
        class_names=[str(names[code]) for code in present],
        name=entry.name,
    )
    return replace(graph, notes=tuple(notes))


def load_npz(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of an ``npz`` file; object arrays pass through the restricted unpickler.

    Raises
    ------
    DataError
        If the file is damaged, or an object array asks for anything but plain data.
    """
    arrays = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                with archive.open(member) as file:
                    version = np.lib.format.read_magic(file)
                    header = _HEADERS[version]
                    _, _, dtype = header(file)
                    if dtype.hasobject:
                        value = unpickle(file, f"{path.name}:{member}")
                    else:
                        file.seek(0)
                        value = np.lib.format.read_array(file, allow_pickle=False)
                if not isinstance(value, np.ndarray):
                    raise DataError(f"{path.name}:{member} holds no array; fetch the file again")
                arrays[member.removesuffix(".npy")] = value
    except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} is not a readable npz file ({error}); fetch it again") from error
    return arrays


_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def largest_component(adjacency: sp.csr_array) -> np.ndarray:
    """Return the nodes of the largest connected component, in order; the first of equals."""
    _, component = sp.csgraph.connected_components(adjacency, directed=False)
    return np.flatnonzero(component == np.bincount(component).argmax())


def _sparse(arrays: Mapping[str, np.ndarray], prefix: str, path: Path) -> sp.csr_array:
    try:
        data, indices, indptr, shape = (
            arrays[f"{prefix}_{part}"] for part in ("data", "indices", "indptr", "shape")
        )
        matrix = sp.csr_array((data, indices, indptr), shape=tuple(shape))
        matrix.check_format(full_check=True)
    except (KeyError, ValueError) as error:
        raise DataError(f"{path} holds no sound {prefix}_* matrix ({error})") from error
    return matrix


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
