"""A graph as tensors, and its labels and ids as JSON values where they are no tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp

from dropnode.errors import DropnodeError, ModelError
from dropnode.graph import Graph, Split
from dropnode.graph.arrays import Matrix, compressed_rows
from dropnode.graph.mapped import MappedGraph, open_mapped
from dropnode.graph.split import PARTS
from dropnode.settings import suggestion

Arrays = dict[str, np.ndarray]


def graph_place(graph: Graph) -> dict[str, Any]:
    """Return ids that are no tensors, or, of a mapped graph, where it is and what it is."""
    if isinstance(graph, MappedGraph):
        return {"folder": str(graph.folder), "fingerprint": graph.fingerprint()}
    return {"ids": json_values(graph.ids) if _id_arrays(graph.ids) is None else None}


def graph_arrays(graph: Graph) -> Arrays:
    """Return the tensors of a graph and its split."""
    arrays: Arrays = {}
    # A mapped graph stays where it is.
    if not isinstance(graph, MappedGraph):
        arrays |= _csr("adjacency", graph.adjacency) | {"labels": graph.labels}
        arrays |= _id_arrays(graph.ids) or {}
        if sp.issparse(graph.features):
            arrays |= _csr("features", graph.features)
        else:
            arrays["features"] = graph.features
    if graph.split is not None:
        arrays |= {f"split/{part}": getattr(graph.split, part) for part in PARTS}
    return arrays


def restored_graph(
    arrays: Arrays,
    name: str,
    class_names: list[str],
    features: list[int],
    split: str | None,
    ids: dict[str, Any] | None = None,
    folder: str | None = None,
    fingerprint: str | None = None,
) -> Graph:
    """Return the graph of :func:`graph_arrays`; what is no tensor comes from ``model.json``."""
    parts = {part: arrays[f"split/{part}"] for part in PARTS if split is not None}
    matrices = [f"{name}/{part}" for name in ("adjacency", "features") for part in _CSR]
    known = ["features", "labels", *_IDS, *(f"split/{part}" for part in parts)]
    check_names(arrays, [*matrices, *known])
    own = None if split is None else Split(**parts, name=split)
    if folder is not None:
        try:
            mapped = open_mapped(folder)
        except DropnodeError as error:
            raise ModelError(
                f"the model was trained on the graph in {folder}, which cannot be opened: {error}; "
                "put that folder back"
            ) from error
        if mapped.fingerprint() != fingerprint:
            raise ModelError(f"{folder} is not the graph that the model was trained on; restore it")
        return mapped.with_split(own)
    # The builder checks everything, so that even a forged folder gives a sound graph.
    return Graph.from_scipy(
        _matrix("adjacency", arrays, [features[0], features[0]]),
        _matrix("features", arrays, features),
        arrays["labels"],
        ids=_ids(arrays) if ids is None else array_of(**ids),
        class_names=class_names,
        split=own,
        name=name,
    )


_IDS = ("ids/numbers", "ids/text", "ids/ends")


def _id_arrays(ids: np.ndarray) -> Arrays | None:
    """Return ids as arrays: none if they count up from 0; None for ids of mixed kinds."""
    if ids.dtype == np.int64:
        return {} if np.array_equal(ids, np.arange(len(ids))) else {"ids/numbers": ids}
    if not all(type(each) is str for each in ids):
        return None
    # Half of a surrogate pair can be part of an id in Python.
    texts = [each.encode("utf-8", "surrogatepass") for each in ids]
    ends = np.cumsum([*map(len, texts)], dtype=np.int64)
    return {"ids/text": np.frombuffer(b"".join(texts), dtype=np.uint8), "ids/ends": ends}


def _ids(arrays: Arrays) -> Any:
    if "ids/text" not in arrays:
        return arrays.get("ids/numbers")
    text, ends = arrays["ids/text"].tobytes(), arrays["ids/ends"].tolist()
    return [
        text[start:end].decode("utf-8", "surrogatepass")
        for start, end in zip([0, *ends], ends, strict=False)
    ]


_CSR = ("data", "indices", "indptr")


def _csr(name: str, matrix: sp.csr_array) -> Arrays:
    return {f"{name}/{part}": getattr(matrix, part) for part in _CSR}


def _matrix(name: str, arrays: Arrays, shape: list[int]) -> Matrix:
    if name in arrays:
        return arrays[name]
    parts = tuple(arrays[f"{name}/{part}"] for part in _CSR)
    return compressed_rows(parts, shape)


def json_values(values: np.ndarray) -> dict[str, Any]:
    """Return an array of labels or ids as JSON values, which keep numbers, text and booleans."""
    return {"dtype": values.dtype.str, "values": values.tolist()}


def array_of(dtype: str, values: list[Any]) -> np.ndarray:
    """Return the array of :func:`json_values`."""
    if np.dtype(dtype).hasobject:
        # A list cannot be an id or a label: in JSON, it is what a tuple becomes.
        return np.fromiter(map(_tupled, values), dtype=object, count=len(values))
    return np.array(values, dtype=dtype)


def _tupled(value: Any) -> Any:
    return tuple(map(_tupled, value)) if isinstance(value, list) else value


def check_names(given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse tensors that nothing would read."""
    known = list(known)
    for name in given:
        if name not in known:
            raise ValueError(f"unknown tensor {name!r}{suggestion(name, known)}")
