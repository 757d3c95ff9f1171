"""Reader of the ``npz`` files of the GNN benchmark by Shchur et al.

Each holds an adjacency matrix and bags of words in compressed rows, and one label per node. As in
that benchmark and in the GRAND paper, edges lose their direction and weight, self-loops are
removed, and only the largest connected component is kept.
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
from dropnode.errors import DataError, GraphError
from dropnode.files import DAMAGED_ZIP
from dropnode.graph import Graph
from dropnode.graph.archives import load_arrays
from dropnode.graph.arrays import compressed_rows


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
    return load_arrays(path, unpickle if objects else None, "fetch it again")


def member_names(path: Path) -> set[str]:
    """Return the names of the arrays in an ``npz`` file."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {name.removesuffix(".npy") for name in archive.namelist()}
    except DAMAGED_ZIP as error:
        raise DataError(f"{path} is not a readable npz file ({error}); fetch it again") from error


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
