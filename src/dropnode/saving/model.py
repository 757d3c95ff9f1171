"""Write a trained model to its folder in one step, and read it again."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import numpy as safetensors

from dropnode.environment import versions
from dropnode.errors import ModelError
from dropnode.files import json_bytes, write_bytes
from dropnode.graph import Graph
from dropnode.methods.base import NodeClassifier
from dropnode.methods.ensemble import Ensemble
from dropnode.methods.table import method_type
from dropnode.ops.scaling import KINDS, FeatureScaling
from dropnode.saving.document import (
    DAMAGED,
    FORMAT,
    GRAPH,
    MODEL,
    WEIGHTS,
    document_sha256,
    missing,
    parsed,
    read_document,
)
from dropnode.saving.graph_arrays import (
    Arrays,
    array_of,
    check_names,
    graph_arrays,
    graph_place,
    json_values,
    restored_graph,
)
from dropnode.settings import suggestion

if TYPE_CHECKING:
    from dropnode.tables import Encoders


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
        GRAPH: safetensors.save(_contiguous(graph_arrays(graph))),
    }
    document: dict[str, Any] = {
        "format": FORMAT,
        "versions": versions(),
        "method": members[0].name,
        "config": method.config.as_dict(),
        **({"members": len(members)} if len(members) > 1 else {}),
        "scaling": method.scaling.kind,
        "classes": json_values(np.array(graph.class_names) if classes is None else classes),
        "graph": {
            "name": graph.name,
            "class_names": graph.class_names,
            "features": graph.features.shape,
            "split": None if graph.split is None else graph.split.name,
            **graph_place(graph),
        },
        "catalogue_name": graph.catalogue_name,
        "provenance": provenance or {},
        "extra": extra or {},
        "encoders": None if encoders is None else encoders.record(),
        "trust": None if trust is None else dict(trust),
        "sha256": {name: _sha256(data) for name, data in files.items()},
    }
    try:
        document["sha256"][MODEL] = document_sha256(document)
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
    document = read_document(folder / MODEL)
    weights, arrays = (_tensors(folder / name, document.sha256[name]) for name in (WEIGHTS, GRAPH))

    def described() -> tuple[NodeClassifier, np.ndarray]:
        kind = method_type(document.method)
        config = kind.config_type.from_dict(document.config)
        made = [kind(config, device=device) for _ in range(document.members)]
        method = made[0] if len(made) == 1 else Ensemble(made)
        return method, array_of(**document.classes)

    method, classes = parsed(folder / MODEL, described)
    graph = parsed(folder / GRAPH, lambda: restored_graph(arrays, **document.graph))
    graph = replace(graph, catalogue_name=document.catalogue_name)
    if classes.shape != (graph.num_classes,):
        raise ModelError(
            f"{folder / MODEL} lists {len(classes)} classes for {graph.num_classes} class names; "
            "save the model again"
        )
    scaling = document.scaling or method.config.feature_scaling
    parsed(folder / WEIGHTS, lambda: _restore(method, graph, weights, scaling))
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
    record = read_document(path).encoders
    if record is None:
        raise ModelError(
            f"{path} has no encoders of tables; fit the model with dropnode fit, or give "
            "features to GrandClassifier.predict"
        )
    return parsed(path, lambda: Encoders.from_record(record))


def feature_names(folder: str | Path) -> list[str] | None:
    """Return the names of the features of a saved model; None if it has none."""
    document = read_document(Path(folder) / MODEL)
    if document.encoders is not None:
        return load_encoders(folder).names
    return document.extra.get("feature_names") or None


def saved_versions(folder: str | Path) -> dict[str, str]:
    """Return the versions of the software that saved a model."""
    return read_document(Path(folder) / MODEL).versions


def load_trust(folder: str | Path) -> dict[str, Any] | None:
    """Load how far to believe a model, as :func:`save_model` was given it."""
    return read_document(Path(folder) / MODEL).trust


def _tensors(path: Path, sha256: str) -> Arrays:
    found = False
    # The first again, because a save may have moved the file in the meantime.
    for place in (path, _staged(path, sha256), path):
        with suppress(FileNotFoundError):
            data = place.read_bytes()
            found = True
            if _sha256(data) == sha256:
                return parsed(path, lambda data=data: safetensors.load(data))  # type: ignore[misc]
    if not found:
        raise missing(path)
    raise ModelError(f"{path} does not have the hash that {MODEL} lists for it: {DAMAGED}")


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
    check_names(arrays, {*head, "scaling/mean", "scaling/deviation"})
    state = {name.removeprefix("head/"): torch.tensor(values) for name, values in head.items()}
    method.restore(graph, scaling, state)
    check_names(state, method.state())


def _contiguous(arrays: Arrays) -> Arrays:
    # safetensors writes the buffer as it is in memory, ignoring strides.
    return {name: np.asarray(values, order="C") for name, values in arrays.items()}


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
