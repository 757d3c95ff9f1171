"""The workplace: a folder beside a model with all that people and retraining add to it.

::

    model/                the model; it changes only when a person keeps a candidate
    model.explorer/
        labels.jsonl      labels that people gave, see journal.py
        layout.npy        places of the nodes, computed once
        candidate/        a newly trained model that waits for a decision
        previous/         the model that the last kept candidate replaced

A model is exchanged by two renames. A process that is killed between them leaves no model in its
place, but the old one in ``previous``, from where the next start puts it back.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from dropnode.errors import ConfigError
from dropnode.files import atomic_write, remove_leftovers
from dropnode.locks import FolderLock
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
        try:
            self._lock = FolderLock(self.folder)
        except ConfigError as error:
            raise ConfigError(
                f"another process serves {model}; stop it first, or serve a copy of the folder"
            ) from error
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
        """Return the places of all nodes; they are computed once and kept."""
        path = self.folder / "layout.npy"
        with suppress(OSError, ValueError, EOFError):
            kept = np.load(path, allow_pickle=False)
            if kept.shape == (adjacency.shape[0], 2) and np.isfinite(kept).all():
                return np.asarray(kept, dtype=np.float32)
        places = place_nodes(adjacency)
        # A picture that cannot be kept is computed again.
        with suppress(OSError), atomic_write(path) as file:
            np.save(file, places)
        return places


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
