"""A graph of one's own in an ``npz`` file: written, and read as it is.

The layout is that of the GNN benchmark's files, with a few keys more:

    adj_data, adj_indices, adj_indptr, adj_shape       edges and their weights, in compressed rows
    attr_data, attr_indices, attr_indptr, attr_shape   sparse features, or attr_matrix, dense ones
    labels         codes of class_names, -1 where unknown; without class_names, any labels
    class_names    text                                            (optional)
    ids            numbers or text                                 (optional)
    train, val, test   positions of nodes, or masks                (optional)
    split_name     text                                            (optional)
    origin         text: how the graph was made                    (optional)

Ids or names that are neither whole numbers nor plain text are written as one JSON text. No file is
unpickled, and no array is larger in memory than its file says.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from dropnode.data.readers.npz import csr, member_names
from dropnode.errors import ConfigError, DataError, GraphError
from dropnode.files import atomic_write, exists, to_path
from dropnode.graph import Graph, Split
from dropnode.graph.archives import load_arrays
from dropnode.graph.mapped import is_mapped_folder, open_mapped
from dropnode.graph.split import PARTS
from dropnode.settings import shown

ENDING = ".npz"


def is_path(name: str | os.PathLike[str]) -> bool:
    """Return whether a dataset is given by the path of a file or folder rather than by a name."""
    if not isinstance(name, str) or name.endswith(ENDING) or "/" in name or os.sep in name:
        return True
    return is_mapped_folder(name)


def check_ending(path: str | os.PathLike[str]) -> Path:
    """Return a path whose name ends as that of a graph's file; raise an error for any other."""
    file = to_path(path)
    if file.suffix != ENDING:
        raise ConfigError(f"{file} does not end in {ENDING}; a graph is kept in an {ENDING} file")
    return file


def save_graph(graph: Graph, path: str | os.PathLike[str], *, origin: str = "") -> None:
    """Write a graph to an ``npz`` file, whole or not at all.

    :func:`~dropnode.data.load_dataset` of the path returns the same edges, weights, features,
    labels, class names, ids and split; the graph is then called after the file.

    Parameters
    ----------
    graph : Graph
    path : str or path
        The file to create or replace; its name ends in ``.npz``.
    origin : str
        How the graph was made; a graph read from the file has it among its ``notes``.

    Raises
    ------
    ConfigError
        If the name of the file does not end in ``.npz``.
    GraphError
        If an id is neither a number, nor text, nor a tuple of these.

    Examples
    --------
    >>> import tempfile
    >>> from dropnode.data import load_dataset
    >>> graph = load_dataset("sbm", nodes=300, classes=3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_graph(graph, f"{folder}/mine.npz")
    ...     load_dataset(f"{folder}/mine.npz").fingerprint() == graph.fingerprint()
    True
    """
    if not isinstance(graph, Graph):
        raise GraphError(f"{shown(graph)} is no graph; expected a dropnode.Graph")
    arrays: dict[str, Any] = _csr_arrays("adj", graph.adjacency)
    if sp.issparse(graph.features):
        arrays |= _csr_arrays("attr", graph.features)
    else:
        arrays["attr_matrix"] = graph.features
    arrays["labels"] = graph.labels
    arrays["class_names"] = _encode(graph.class_names, "class names")
    arrays["ids"] = _encode(graph.ids.tolist(), "ids")
    if graph.split is not None:
        arrays |= {part: getattr(graph.split, part) for part in PARTS}
        arrays["split_name"] = np.array(graph.split.name)
    if origin:
        arrays["origin"] = np.array(origin)
    with atomic_write(check_ending(path)) as file:
        np.savez_compressed(file, **arrays)


def read_graph(path: str | os.PathLike[str]) -> Graph:
    """Read a graph from an ``npz`` file, with its split if it has one, or open a folder.

    Raises
    ------
    ConfigError
        If there is no such file.
    DataError
        If the file is damaged, or lacks an array.
    GraphError
        If its arrays do not make a graph.
    """
    if is_mapped_folder(path):
        return open_mapped(path)
    file = check_ending(path)
    if not exists(file) or not file.is_file():
        raise ConfigError(
            f"{file} is not a file; expected an {ENDING} file such as dropnode.data.save_graph "
            "writes, or a name from: dropnode datasets list"
        )
    arrays = load_arrays(file, cure="make it again with dropnode.save_graph, or name another file")
    if "labels" not in arrays or arrays["labels"].ndim != 1:
        raise DataError(f"{file} holds no labels; expected one per node, -1 where unknown")
    ids, names = (_decode(arrays.get(key), key, file) for key in ("ids", "class_names"))
    try:
        graph = Graph.from_scipy(
            csr(arrays, "adj", file),
            arrays["attr_matrix"] if "attr_matrix" in arrays else csr(arrays, "attr", file),
            arrays["labels"],
            ids=ids,
            class_names=names,
            split=_split(arrays, file),
            name=file.stem,
        )
    except GraphError as error:
        raise GraphError(f"{file}: {error}") from error
    origin = (str(arrays["origin"]),) if "origin" in arrays else ()
    return replace(graph, notes=(*graph.notes, *origin))


def has_split(path: str | os.PathLike[str]) -> bool:
    """Return whether an ``npz`` file holds a split, without reading its arrays.

    The folder of a graph has none.
    """
    return not is_mapped_folder(path) and not member_names(check_ending(path)).isdisjoint(PARTS)


def _split(arrays: Mapping[str, np.ndarray], file: Path) -> Split | None:
    given = [part for part in PARTS if part in arrays]
    if not given:
        return None
    if len(given) < len(PARTS):
        missing = ", ".join(part for part in PARTS if part not in given)
        raise DataError(f"{file} has {', '.join(given)} but no {missing}; add it, if need be empty")
    nodes = len(arrays["labels"])
    parts = {}
    for part in PARTS:
        values = arrays[part]
        if values.dtype.kind == "b" and values.shape != (nodes,):
            raise DataError(
                f"{file} has a mask {part} of shape {values.shape} for {nodes:,} nodes; expected "
                "one value per node"
            )
        parts[part] = np.flatnonzero(values) if values.dtype.kind == "b" else values
    return Split(**parts, name=str(arrays.get("split_name", "custom")))


def _csr_arrays(prefix: str, matrix: sp.csr_array) -> dict[str, np.ndarray]:
    arrays = {f"{prefix}_{part}": getattr(matrix, part) for part in ("data", "indices", "indptr")}
    return arrays | {f"{prefix}_shape": np.array(matrix.shape, dtype=np.int64)}


def _encode(values: Iterable[Any], what: str) -> np.ndarray:
    """Return values as an array of whole numbers or of text, or else as one JSON text."""
    items = list(values)
    if all(type(item) in (int, str) for item in items):
        array = np.array(items, dtype=np.int64 if _small(items) else None)
        # Arrays of text lose what NumPy pads with, and make text of numbers beside text.
        if array.dtype.kind in "iU" and array.tolist() == items:
            return array
    try:
        text = json.dumps(items)
        same = _tupled(json.loads(text)) == tuple(items)
    except TypeError:
        same = False
    if not same:
        raise GraphError(f"{what} cannot be written; use numbers, text, or tuples of these")
    return np.array(text)


def _decode(array: np.ndarray | None, what: str, file: Path) -> list[Any] | None:
    """Return the values that :func:`_encode` was given; None if the file has no such array."""
    if array is None:
        return None
    try:
        values = array.tolist() if array.ndim else json.loads(str(array))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file} has unreadable {what} ({error})") from error
    if not isinstance(values, list):
        raise DataError(f"{file} has {what} = {values!r}; expected one value each")
    return list(map(_tupled, values))


def _small(items: list[Any]) -> bool:
    return all(type(item) is int and abs(item) < 2**63 for item in items)


def _tupled(value: Any) -> Any:
    return tuple(map(_tupled, value)) if isinstance(value, list) else value
