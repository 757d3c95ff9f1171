"""``model.json``: everything about a saved model that is no tensor, and the hashes of its files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError

import dropnode
from dropnode.errors import ModelError
from dropnode.files import read_content, record_sha256
from dropnode.settings import count, parse_json, read_record

FORMAT = 2
"""Increased with every change of the layout that an older version could not read.

Since format 2, ids that are text or whole numbers are tensors, because a million of them would make
a text of many megabytes.
"""

WEIGHTS, GRAPH, MODEL = "weights.safetensors", "graph.safetensors", "model.json"

RESTORE = "save the model again, or restore the whole folder"
DAMAGED = f"the file was damaged or changed; {RESTORE}"

T = TypeVar("T")


@dataclass(frozen=True)
class Document:
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


def read_document(path: Path) -> Document:
    """Read model.json, and check its format and its hash."""
    try:
        content = read_content(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise missing(path) from error
    values = parsed(path, lambda: parse_json(content.decode()))
    found = values.get("format") if isinstance(values, dict) else None
    if found not in range(1, FORMAT + 1):
        raise ModelError(
            f"{path} has format {found!r}, but dropnode {dropnode.__version__} reads formats 1 to "
            f"{FORMAT}; load it with the version that saved it, or train again"
        )
    document = parsed(path, lambda: read_record(Document, values, path.name))
    names = document.sha256.keys()
    if names not in ({WEIGHTS, GRAPH}, {WEIGHTS, GRAPH, MODEL}):
        raise ModelError(
            f"{path} lists hashes of {', '.join(names)}; expected {WEIGHTS}, {GRAPH} and {MODEL}; "
            f"{RESTORE}"
        )
    # Models of earlier versions have no hash of this file.
    if MODEL in names and document.sha256[MODEL] != document_sha256(values):
        raise ModelError(f"{path} does not have the hash that it lists for itself: {DAMAGED}")
    return document


def document_sha256(document: dict[str, Any]) -> str:
    """Return the hash of the content of model.json, without the hash itself."""
    hashes = {name: value for name, value in document["sha256"].items() if name != MODEL}
    return record_sha256({**document, "sha256": hashes})


def missing(path: Path) -> ModelError:
    """Return the error for a file of a model that is not there."""
    return ModelError(
        f"{path} does not exist; a saved model is a folder with {MODEL}, {WEIGHTS} and {GRAPH}"
    )


def parsed(path: Path, parse: Callable[[], T]) -> T:
    """Run a parser, and turn its errors into one that names the file."""
    try:
        return parse()
    except (KeyError, TypeError, ValueError, RuntimeError, SafetensorError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(
            f"{path} has invalid contents ({type(error).__name__}: {error}); save the model again"
        ) from error
