"""The workplace: a folder beside a model with all that people and retraining add to it.

::

    model/                the model; it changes only when a person keeps a candidate
    model.explorer/
        labels.jsonl      labels that people gave, see journal.py
        layout.npy        places of the nodes and a hash of the edges that they are for
        training.log      what the last training wrote to stderr
        candidate/        a newly trained model that waits for a decision
        previous/         the model that the last kept candidate replaced

A model is exchanged by two renames. A process that is killed between them leaves no model in its
place, but the old one in ``previous``, from where the next start puts it back.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
from contextlib import suppress
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from dropnode.errors import ConfigError, WorkError
from dropnode.files import atomic_write, remove_leftovers
from dropnode.locks import FolderLock, is_damaged
from dropnode.saving import MODEL
from dropnode.serve.journal import Journal
from dropnode.serve.layout import place_nodes


class Workplace:
    """The folder of the Explorer beside a model, for one process at a time.

    Parameters
    ----------
    model : Path
        The folder of the model.

    Attributes
    ----------
    model, candidate, previous : Path
    said : Path
        What the last training wrote to stderr.
    journal : Journal

    Raises
    ------
    ConfigError
        If another process serves the same model.
    OSError
        If the folder can not be written.
    """

    def __init__(self, model: Path) -> None:
        self.model = model
        self.folder = place_beside(model)
        self.candidate, self.previous = self.folder / "candidate", self.folder / "previous"
        self.said = self.folder / "training.log"
        try:
            self._lock = FolderLock(self.folder)
        except ConfigError as error:
            raise ConfigError(
                f"another process serves {model}; stop it first, or serve a copy of the folder"
            ) from error
        except WorkError as error:
            if isinstance(error.__cause__, sqlite3.Error) and is_damaged(error.__cause__):
                raise
            # To SQLite, a folder that cannot be written is a file that cannot be opened.
            raise PermissionError(f"{self.folder} cannot be written") from error
        remove_leftovers(self.folder)
        self.journal = Journal(self.folder / "labels.jsonl")

    def close(self) -> None:
        """Let another process serve the model."""
        self._lock.__exit__()

    def keep(self) -> None:
        """Put the candidate in the place of the model, which becomes the previous one."""
        shutil.rmtree(self.previous, ignore_errors=True)
        os.rename(self.model, self.previous)
        try:
            os.rename(self.candidate, self.model)
        except BaseException:
            os.rename(self.previous, self.model)
            raise

    def discard(self) -> None:
        """Remove the candidate."""
        # Renamed first: a folder that is half removed must not look like a candidate.
        doomed = self.folder / f".dropnode-{os.getpid()}-00000000.tmp"
        with suppress(FileNotFoundError):
            os.rename(self.candidate, doomed)
        shutil.rmtree(doomed, ignore_errors=True)

    def places(self, adjacency: sp.csr_array) -> np.ndarray:
        """Return the places of all nodes; they are computed once per graph and kept."""
        path, wanted = self.folder / "layout.npy", _edges_sha256(adjacency)
        with suppress(OSError, ValueError, EOFError), open(path, "rb") as file:
            kept, of = (np.load(file, allow_pickle=False) for _ in range(2))
            right = kept.shape == (adjacency.shape[0], 2) and np.isfinite(kept).all()
            if right and bytes(of) == wanted:
                return np.asarray(kept, dtype=np.float32)
        places = place_nodes(adjacency)
        # A picture that cannot be kept is computed again.
        with suppress(OSError), atomic_write(path) as file:
            np.save(file, places)
            np.save(file, np.frombuffer(wanted, dtype=np.uint8))
        return places


def _edges_sha256(adjacency: sp.csr_array) -> bytes:
    digest = hashlib.sha256()
    for part in (adjacency.indptr, adjacency.indices):
        # The width of an index depends on the SciPy version, not on the graph.
        digest.update(part.astype("<i8").tobytes())
    return digest.digest()


def place_beside(model: Path) -> Path:
    """Return the folder of the Explorer beside a model."""
    return model.with_name(f"{model.name}.explorer")


def restore(model: Path) -> bool:
    """Put back a model whose exchange was interrupted; return whether that was so."""
    previous = place_beside(model) / "previous"
    if os.path.lexists(model) or not (previous / MODEL).exists():
        return False
    os.rename(previous, model)
    return True
