"""Explorer: the state of the service; what is served, labels, candidates, and their exchange."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dropnode.errors import ConfigError, ModelError
from dropnode.serve.attributes import Attributes
from dropnode.serve.comparison import compare
from dropnode.serve.forms import Edge, NewNodes
from dropnode.serve.journal import Entry
from dropnode.serve.layout import place_nodes
from dropnode.serve.retraining import Retraining
from dropnode.serve.served import Served
from dropnode.serve.workload import Workload
from dropnode.serve.workplace import Workplace, restore

KEPT = 512
"""Explanations that are kept in memory."""


class NotNowError(Exception):
    """A request that does not fit the present state, such as a decision without a candidate."""


class Explorer:
    """A served model with its workplace.

    Parameters
    ----------
    folder : Path
        Of a model that ``dropnode fit`` made.
    nodes : Path, optional
        The table that it was fitted to, whose cells are shown.

    Attributes
    ----------
    served : Served
        What requests read. It is replaced as a whole, so take it once per request.
    workplace : Workplace or None
        None if nothing can be written beside the model: then labels are refused.
    workload : Workload
        The long work that runs.
    """

    def __init__(self, folder: Path, nodes: Path | None = None) -> None:
        folder = folder.resolve()
        restore(folder)
        self.served = Served.read(folder)
        self.attributes = Attributes.read(nodes, self.served)
        self.workplace: Workplace | None = None
        self.retraining: Retraining | None = None
        try:
            self.workplace = Workplace(folder)
            self.retraining = Retraining(self.workplace)
        except OSError:
            # A model on a medium that cannot be written can still be looked at.
            self.workplace = None
        self._lock = threading.RLock()
        self._candidate: Served | None = None
        self._places: np.ndarray | None = None
        self.workload = Workload()
        self.explained = lru_cache(KEPT)(lambda served, at: served.explained(at))

    def close(self) -> None:
        """End what runs in the background."""
        if self.retraining is not None:
            self.retraining.stop()
        if self.workplace is not None:
            self.workplace.close()

    def places(self) -> np.ndarray:
        """Return where the nodes are in the picture of the whole graph."""
        with self._lock:
            if self._places is None:
                adjacency = self.served.model.classifier.graph_.adjacency
                place = place_nodes if self.workplace is None else self.workplace.places
                self._places = place(adjacency)
            return self._places

    def given(self, served: Served) -> dict[str, str | None]:
        """Return the labels that people gave and that differ from those of a model."""
        return {name: entry.label for name, entry in self.waiting(served).items()}

    def waiting(self, served: Served) -> dict[str, Entry]:
        """Return the last entry of every node whose label differs from that of a model."""
        if self.workplace is None:
            return {}
        return {
            name: entry
            for name, entry in self.workplace.journal.latest().items()
            if name in served.position
            and (entry.label is None or entry.label in served.classes)
            and served.name(served.labels[served.position[name]]) != entry.label
        }

    def add_labels(self, labels: Sequence[tuple[str, str | None]]) -> list[Entry]:
        """Store labels of known nodes and classes in the journal."""
        return self._writable().journal.add(labels)

    def start(self) -> None:
        """Train a candidate with the labels that people gave."""
        self._writable()
        assert self.retraining is not None
        with self._lock:
            self._candidate = None
            if not self.retraining.start(self.given(self.served)):
                raise NotNowError("a training runs already; wait for it to end")

    def status(self) -> dict[str, Any]:
        """Return how far retraining is, and a comparison if there is a candidate."""
        if self.retraining is None:
            return {"state": "idle", "done": 0, "of": 0, "problem": None, "comparison": None}
        progress = self.retraining.progress
        compared = None
        if progress.state == "ready":
            with self._lock:
                candidate = self._waiting_candidate()
                compared = None if candidate is None else compare(self.served, candidate)
                progress = self.retraining.progress
        return {**vars(progress), "comparison": compared}

    def decide(self, keep: bool) -> None:
        """Exchange the model for the candidate, or remove the candidate."""
        place = self._writable()
        assert self.retraining is not None
        with self._lock:
            candidate = self._waiting_candidate()
            if candidate is None:
                raise NotNowError("no candidate waits for a decision; retrain first")
            if keep:
                place.keep()
                self.served = candidate
                self.explained.cache_clear()
            else:
                place.discard()
            self._candidate = None
            self.retraining.decided()

    def predict(self, new: NewNodes) -> dict[str, Any]:
        """Return the classes of nodes that the model has not seen."""
        served = self.served
        vectors = None
        if new.vectors is not None:
            lengths = {len(each) for each in new.vectors}
            if len(new.vectors) != len(new.nodes) or len(lengths) != 1:
                raise ConfigError("vectors: expected one per node, all of one length")
            # What is too large for float32 is told by the one who reads it.
            vectors = np.array(new.vectors, dtype=np.float64)
        found = served.model.predict_new(
            _table(new.nodes), _edges(new.edges) if new.edges else None, features=vectors
        )
        return {
            "predictions": [
                {
                    "id": str(name),
                    "predicted": found.classes[int(shares.argmax())],
                    "confidence": round(float(shares.max()), 6),
                    "probabilities": dict(
                        zip(found.classes, shares.round(6).tolist(), strict=True)
                    ),
                    "set": None
                    if found.sets is None
                    else [found.classes[k] for k in np.flatnonzero(found.sets[at])],
                }
                for at, (name, shares) in enumerate(
                    zip(found.ids.tolist(), found.probabilities, strict=True)
                )
            ],
            "notes": list(found.notes),
        }

    def _writable(self) -> Workplace:
        if self.workplace is None:
            raise NotNowError("nothing can be stored beside the model; serve a copy of its folder")
        return self.workplace

    def _waiting_candidate(self) -> Served | None:
        """Return the candidate, which is read once; None if there is none.

        One that is damaged, or that was trained for another model in this place, is removed.
        """
        assert self.retraining is not None
        if self.retraining.progress.state != "ready" or self.workplace is None:
            return None
        if self._candidate is None:
            candidate = None
            with suppress(ModelError, OSError):
                candidate = Served.read(self.workplace.candidate)
            if candidate is None or not self.served.of_same_data(candidate):
                self.workplace.discard()
                self.retraining.decided()
                return None
            self._candidate = candidate
        return self._candidate


def _table(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Return rows of cells as a table; a column of mixed kinds is an error."""
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {}
    for name in names:
        cells = [row.get(name) for row in rows]
        try:
            columns[name] = pa.array(cells)
        except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
            raise ConfigError(
                f"nodes: column {name!r} has cells of different kinds, or that cannot be stored "
                f"({type(error).__name__}); give text, numbers or lists"
            ) from error
    if not columns:
        raise ConfigError("nodes: a node has no cells; give its id and its columns")
    try:
        return pa.table(columns)
    except UnicodeEncodeError as error:
        raise ConfigError("nodes: the name of a column is not Unicode") from error


def _edges(edges: Sequence[Edge]) -> pa.Table:
    try:
        columns = {
            "source": pa.array([str(each.source) for each in edges], pa.string()),
            "target": pa.array([str(each.target) for each in edges], pa.string()),
        }
    except UnicodeEncodeError as error:
        raise ConfigError("edges: the id of a node is not Unicode") from error
    if any(each.weight is not None for each in edges):
        weights = [1.0 if each.weight is None else each.weight for each in edges]
        columns["weight"] = pa.array(weights, pa.float64())
    return pa.table(columns)
