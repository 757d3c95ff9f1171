"""Saved models: a folder of plain tensors, and one JSON file with the hashes of all three files.

A prediction for a node needs its graph, so the training graph is part of a model. Nothing is
pickled: loading a model reads numbers and text, and never executes anything in the folder.

A model in the folder is replaced in one step, and other files there are left alone. First the new
tensors are written beside the old ones, under names with their hash. Then ``model.json`` is
replaced, and from then on the folder is the new model: loading finds tensors under either name.
Last, they take the place of the old ones.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import scipy.sparse as sp
import torch
from safetensors import SafetensorError
from safetensors import numpy as safetensors

import dropnode
from dropnode.environment import versions
from dropnode.errors import ModelError
from dropnode.files import json_bytes, read_content, record_sha256, write_bytes
from dropnode.graph import Graph, Split
from dropnode.graph.arrays import Matrix, compressed_rows
from dropnode.graph.mapped import MappedGraph, open_mapped
from dropnode.graph.split import PARTS
from dropnode.methods.base import NodeClassifier
from dropnode.methods.ensemble import Ensemble
from dropnode.methods.table import method_type
from dropnode.ops.scaling import KINDS, FeatureScaling
from dropnode.settings import count, parse_json, read_record, suggestion

if TYPE_CHECKING:
    from dropnode.tables import Encoders

FORMAT = 2
"""Increased with every change of the layout that an older version could not read.

Since format 2, ids that are text or whole numbers are tensors, because a million of them would make
a text of many megabytes.
"""

WEIGHTS, GRAPH, MODEL = "weights.safetensors", "graph.safetensors", "model.json"

Arrays = dict[str, np.ndarray]
T = TypeVar("T")


@dataclass(frozen=True)
class SavedModel:
    """A model read from a folder.

    Attributes
    ----------
    method : NodeClassifier
        Ready to predict.
    graph : Graph
        The training graph and its split.
    classes : ndarray
        The label of each class code, of the type it was trained with.
    provenance : dict
        Where the model comes from, as given to :func:`save_model`.
    extra : dict
        Further values given to :func:`save_model`.
    """

    method: NodeClassifier
    graph: Graph
    classes: np.ndarray
    provenance: dict[str, Any]
    extra: dict[str, Any]


def save_model(
    folder: str | Path,
    method: NodeClassifier,
    graph: Graph,
    *,
    classes: np.ndarray | None = None,
    provenance: dict[str, Any] | None = None,
    extra: dict[str, Any] | None = None,
    encoders: Encoders | None = None,
    trust: Mapping[str, Any] | None = None,
) -> None:
    """Save a trained method with its training graph, replacing an older model in the folder.

    Parameters
    ----------
    folder : str or Path
        Made if it does not exist.
    method : NodeClassifier
    graph : Graph
        The graph it was trained on.
    classes : ndarray, optional
        The label of each class code; by default, the graph's class names.
    provenance, extra : dict of JSON values, optional
        Stored unchanged, and returned by :func:`load_model`.
    encoders : Encoders, optional
        What made features of tables, for :func:`~dropnode.saving.load_encoders`.
    trust : mapping of JSON values, optional
        How far to believe the model, for :func:`~dropnode.saving.load_trust`.
    """
    folder = Path(folder)
    members = method.members if isinstance(method, Ensemble) else (method,)
    files = {
        WEIGHTS: safetensors.save(_contiguous(_weights(method))),
        GRAPH: safetensors.save(_contiguous(_arrays_to_save(graph))),
    }
    document: dict[str, Any] = {
        "format": FORMAT,
        "versions": versions(),
        "method": members[0].name,
        "config": method.config.as_dict(),
        **({"members": len(members)} if len(members) > 1 else {}),
        "scaling": method.scaling.kind,
        "classes": _described(np.array(graph.class_names) if classes is None else classes),
        "graph": {
            "name": graph.name,
            "class_names": graph.class_names,
            "features": graph.features.shape,
            "split": None if graph.split is None else graph.split.name,
            **_place(graph),
        },
        "catalogue_name": graph.catalogue_name,
        "provenance": provenance or {},
        "extra": extra or {},
        "encoders": None if encoders is None else encoders.record(),
        "trust": None if trust is None else dict(trust),
        "sha256": {name: _sha256(data) for name, data in files.items()},
    }
    try:
        document["sha256"][MODEL] = _document_sha256(document)
        text = json_bytes(document, indent=1)
    except (TypeError, ValueError) as error:
        raise ModelError(
            f"{folder / MODEL} cannot be written ({error}); node ids, classes, provenance and "
            "extra may hold text, finite numbers and booleans"
        ) from error
    staged = {folder / name: _staged(folder / name, _sha256(files[name])) for name in files}
    try:
        for path, beside in staged.items():
            write_bytes(beside, files[path.name])
        write_bytes(folder / MODEL, text)
    except BaseException:
        for beside in staged.values():
            beside.unlink(missing_ok=True)
        raise
    for path, beside in staged.items():
        os.replace(beside, path)
        # Those of a save that was killed.
        for leftover in folder.glob(f".{path.name}.*.new"):
            leftover.unlink(missing_ok=True)


def _staged(path: Path, sha256: str) -> Path:
    """Return where new tensors are until they take the place of old ones."""
    return path.with_name(f".{path.name}.{sha256}.new")


def load_model(folder: str | Path, device: str = "cpu") -> SavedModel:
    """Load what :func:`save_model` saved, with the method's tensors on ``device``.

    Raises
    ------
    ModelError
        If a file is missing, is damaged, comes from another save, or has a format that this
        version cannot read.
    """
    folder = Path(folder)
    document = _document(folder / MODEL)
    weights, arrays = (_tensors(folder / name, document.sha256[name]) for name in (WEIGHTS, GRAPH))

    def described() -> tuple[NodeClassifier, np.ndarray]:
        kind = method_type(document.method)
        config = kind.config_type.from_dict(document.config)
        made = [kind(config, device=device) for _ in range(document.members)]
        method = made[0] if len(made) == 1 else Ensemble(made)
        return method, _array(**document.classes)

    method, classes = _read(folder / MODEL, described)
    graph = _read(folder / GRAPH, lambda: _graph(arrays, **document.graph))
    graph = replace(graph, catalogue_name=document.catalogue_name)
    if classes.shape != (graph.num_classes,):
        raise ModelError(
            f"{folder / MODEL} lists {len(classes)} classes for {graph.num_classes} class names; "
            "save the model again"
        )
    scaling = document.scaling or method.config.feature_scaling
    _read(folder / WEIGHTS, lambda: _restore(method, graph, weights, scaling))
    return SavedModel(method, graph, classes, document.provenance, document.extra)


def load_encoders(folder: str | Path) -> Encoders:
    """Load the encoders that were saved with a model.

    Raises
    ------
    ModelError
        If there are none, or ``model.json`` cannot be used.
    """
    from dropnode.tables import Encoders

    path = Path(folder) / MODEL
    record = _document(path).encoders
    if record is None:
        raise ModelError(
            f"{path} has no encoders of tables; fit the model with dropnode fit, or give "
            "features to GrandClassifier.predict"
        )
    return _read(path, lambda: Encoders.from_record(record))


def feature_names(folder: str | Path) -> list[str] | None:
    """Return the names of the features of a saved model; None if it has none."""
    document = _document(Path(folder) / MODEL)
    if document.encoders is not None:
        return load_encoders(folder).names
    return document.extra.get("feature_names") or None


def saved_versions(folder: str | Path) -> dict[str, str]:
    """Return the versions of the software that saved a model."""
    return _document(Path(folder) / MODEL).versions


def load_trust(folder: str | Path) -> dict[str, Any] | None:
    """Load how far to believe a model, as :func:`save_model` was given it."""
    return _document(Path(folder) / MODEL).trust


@dataclass(frozen=True)
class _Document:
    """The keys of model.json."""

    format: int
    versions: dict[str, str]
    config: dict[str, Any]
    classes: dict[str, Any]
    graph: dict[str, Any]
    provenance: dict[str, Any]
    extra: dict[str, Any]
    sha256: dict[str, str]
    catalogue_name: str | None = None
    # Models saved before there were other methods have no method name.
    method: str = "grand"
    encoders: dict[str, Any] | None = None
    # Models saved before there was "auto" have the scaling of their configuration.
    scaling: str | None = None
    trust: dict[str, Any] | None = None
    # Those of an ensemble.
    members: int = count(default=1)


def _document(path: Path) -> _Document:
    """Read model.json, and check its format and its hash."""
    try:
        content = read_content(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _missing(path) from error
    values = _read(path, lambda: parse_json(content.decode()))
    found = values.get("format") if isinstance(values, dict) else None
    if found not in range(1, FORMAT + 1):
        raise ModelError(
            f"{path} has format {found!r}, but dropnode {dropnode.__version__} reads formats 1 to "
            f"{FORMAT}; load it with the version that saved it, or train again"
        )
    document = _read(path, lambda: read_record(_Document, values, path.name))
    names = document.sha256.keys()
    if names not in ({WEIGHTS, GRAPH}, {WEIGHTS, GRAPH, MODEL}):
        raise ModelError(
            f"{path} lists hashes of {', '.join(names)}; expected {WEIGHTS}, {GRAPH} and {MODEL}; "
            f"{_RESTORE}"
        )
    # Models of earlier versions have no hash of this file.
    if MODEL in names and document.sha256[MODEL] != _document_sha256(values):
        raise ModelError(f"{path} does not have the hash that it lists for itself: {_DAMAGED}")
    return document


_RESTORE = "save the model again, or restore the whole folder"
_DAMAGED = f"the file was damaged or changed; {_RESTORE}"


def _document_sha256(document: dict[str, Any]) -> str:
    """Return the hash of the content of model.json, without the hash itself."""
    hashes = {name: value for name, value in document["sha256"].items() if name != MODEL}
    return record_sha256({**document, "sha256": hashes})


def _tensors(path: Path, sha256: str) -> Arrays:
    found = False
    # The first again, because a save may have moved the file in the meantime.
    for place in (path, _staged(path, sha256), path):
        with suppress(FileNotFoundError):
            data = place.read_bytes()
            found = True
            if _sha256(data) == sha256:
                return _read(path, lambda data=data: safetensors.load(data))  # type: ignore[misc]
    if not found:
        raise _missing(path)
    raise ModelError(f"{path} does not have the hash that {MODEL} lists for it: {_DAMAGED}")


def _missing(path: Path) -> ModelError:
    return ModelError(
        f"{path} does not exist; a saved model is a folder with {MODEL}, {WEIGHTS} and {GRAPH}"
    )


def _read(path: Path, parse: Callable[[], T]) -> T:
    """Run a parser, and turn its errors into one that names the file."""
    try:
        return parse()
    except (KeyError, TypeError, ValueError, RuntimeError, SafetensorError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(
            f"{path} has invalid contents ({type(error).__name__}: {error}); save the model again"
        ) from error


def _weights(method: NodeClassifier) -> Arrays:
    arrays = {f"head/{name}": value.cpu().numpy() for name, value in method.state().items()}
    learnt = {"mean": method.scaling.mean, "deviation": method.scaling.deviation}
    return arrays | {f"scaling/{k}": value for k, value in learnt.items() if value is not None}


def _restore(method: NodeClassifier, graph: Graph, arrays: Arrays, kind: str) -> None:
    learnt = {name: arrays.get(f"scaling/{name}") for name in ("mean", "deviation")}
    for name, values in learnt.items():
        if values is not None and values.shape != (graph.num_features,):
            raise ValueError(f"{name} has shape {values.shape} for {graph.num_features} features")
    if kind not in KINDS:
        raise ValueError(f"unknown scaling {kind!r}{suggestion(kind, KINDS)}")
    scaling = FeatureScaling(kind, **learnt)
    head = {name: values for name, values in arrays.items() if name.startswith("head/")}
    _check_names(arrays, {*head, "scaling/mean", "scaling/deviation"})
    state = {name.removeprefix("head/"): torch.tensor(values) for name, values in head.items()}
    method.restore(graph, scaling, state)
    _check_names(state, method.state())


def _check_names(given: Iterable[str], known: Iterable[str]) -> None:
    known = list(known)
    for name in given:
        if name not in known:
            raise ValueError(f"unknown tensor {name!r}{suggestion(name, known)}")


def _place(graph: Graph) -> dict[str, Any]:
    """Return ids that are no tensors, or, of a mapped graph, where it is and what it is."""
    if isinstance(graph, MappedGraph):
        return {"folder": str(graph.folder), "fingerprint": graph.fingerprint()}
    return {"ids": _described(graph.ids) if _id_arrays(graph.ids) is None else None}


def _arrays_to_save(graph: Graph) -> Arrays:
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


def _graph(
    arrays: Arrays,
    name: str,
    class_names: list[str],
    features: list[int],
    split: str | None,
    ids: dict[str, Any] | None = None,
    folder: str | None = None,
    fingerprint: str | None = None,
) -> Graph:
    parts = {part: arrays[f"split/{part}"] for part in PARTS if split is not None}
    matrices = [f"{name}/{part}" for name in ("adjacency", "features") for part in _CSR]
    known = ["features", "labels", *_IDS, *(f"split/{part}" for part in parts)]
    _check_names(arrays, [*matrices, *known])
    own = None if split is None else Split(**parts, name=split)
    if folder is not None:
        mapped = open_mapped(folder)
        if mapped.fingerprint() != fingerprint:
            raise ModelError(f"{folder} is not the graph that the model was trained on; restore it")
        return mapped.with_split(own)
    # The builder checks everything, so that even a forged folder gives a sound graph.
    return Graph.from_scipy(
        _matrix("adjacency", arrays, [features[0], features[0]]),
        _matrix("features", arrays, features),
        arrays["labels"],
        ids=_ids(arrays) if ids is None else _array(**ids),
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


def _described(values: np.ndarray) -> dict[str, Any]:
    """Return an array of labels or ids as JSON values, which keep numbers, text and booleans."""
    return {"dtype": values.dtype.str, "values": values.tolist()}


def _array(dtype: str, values: list[Any]) -> np.ndarray:
    if np.dtype(dtype).hasobject:
        # A list cannot be an id or a label: in JSON, it is what a tuple becomes.
        return np.fromiter(map(_tupled, values), dtype=object, count=len(values))
    return np.array(values, dtype=dtype)


def _tupled(value: Any) -> Any:
    return tuple(map(_tupled, value)) if isinstance(value, list) else value


def _contiguous(arrays: Arrays) -> Arrays:
    # safetensors writes the buffer as it is in memory, ignoring strides.
    return {name: np.asarray(values, order="C") for name, values in arrays.items()}


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
