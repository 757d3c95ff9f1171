"""TableModel: a classifier together with the encoders of the tables that it was trained on.

The folder of a model that was fitted to tables::

    model.json, weights.safetensors, graph.safetensors   the model, see saving.py
    predictions.csv    every node: its label, the predicted class, its confidence
    metrics.json       the accuracy on labels that were held out, if any were
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.base import clone

from dropnode.csv_text import csv_lines
from dropnode.errors import ConfigError
from dropnode.estimator import GrandClassifier
from dropnode.files import atomic_write, check_makeable, is_vacant, new_folder, to_path, write_json
from dropnode.graph.checks import UNKNOWN
from dropnode.saving import load_encoders
from dropnode.tables import Encoders, Tables
from dropnode.tables.new import read_new_nodes

PREDICTIONS, METRICS = "predictions.csv", "metrics.json"

HEADS = ("id", "predicted", "confidence")
"""The first columns of a file of predictions; those of labelled nodes have a label after the id."""

CHUNK = 20_000
"""How many rows of a file are written at a time."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """The probability of each class for some nodes.

    Attributes
    ----------
    ids : ndarray
        The nodes.
    classes : tuple of str
        The names of the classes.
    probabilities : ndarray (nodes, classes)
    labels : ndarray of int or None
        The class that was given for each node, -1 where it is unknown.
    notes : tuple of str
        What was chosen, repaired or left out of the tables.
    """

    ids: np.ndarray
    classes: tuple[str, ...]
    probabilities: np.ndarray
    labels: np.ndarray | None = None
    notes: tuple[str, ...] = ()

    @property
    def predicted(self) -> np.ndarray:
        """The most probable class of each node."""
        return np.array(self.classes, dtype=object)[self.probabilities.argmax(axis=1)]

    def write(self, path: str | Path) -> None:
        """Write a CSV file: id, perhaps label, predicted class, its probability, those of all."""
        with atomic_write(path, "w") as file:
            for rows in self._chunks():
                file.write(csv_lines(rows))

    def _chunks(self) -> Iterator[list[list[Any]]]:
        labelled = [] if self.labels is None else ["label"]
        # A letter in front, because a class may have the name of another column.
        yield [[HEADS[0], *labelled, *HEADS[1:], *(f"p_{name}" for name in self.classes)]]
        names = np.array([*self.classes, ""], dtype=object)  # the last is for unknown, -1
        for start in range(0, len(self.ids), CHUNK):
            part = slice(start, start + CHUNK)
            shares = self.probabilities[part]
            given = [] if self.labels is None else [names[self.labels[part]].tolist()]
            columns = [
                self.ids[part].tolist(),
                *given,
                names[shares.argmax(axis=1)].tolist(),
                [f"{value:.6f}" for value in shares.max(axis=1)],
                *([f"{value:.6f}" for value in column] for column in shares.T),
            ]
            yield [list(row) for row in zip(*columns, strict=True)]


@dataclass(frozen=True, eq=False)
class TableModel:
    """A trained classifier, and what encodes rows of tables for it.

    Attributes
    ----------
    classifier : GrandClassifier
        Fitted; ``classifier.graph_`` is the training graph.
    encoders : Encoders
        What made its features.

    Examples
    --------
    >>> import numpy as np, pyarrow as pa
    >>> from dropnode.tables import read_tables
    >>> age, named = [20, 21, 22, 60, 61, 62], ["tea", "tea", None, "mate", None, "mate"]
    >>> people = pa.table({"id": list("abcdef"), "age": age, "drinks": named})
    >>> knows = pa.table({"source": list("abde"), "target": list("bcef")})
    >>> tables = read_tables(people, knows, label="drinks")
    >>> model = TableModel.fit(tables, GrandClassifier(random_state=0, max_epochs=50))
    >>> model.predict().predicted.tolist()
    ['tea', 'tea', 'tea', 'mate', 'mate', 'mate']
    >>> guests = pa.table({"id": ["g", "h"], "age": [59, 23]})
    >>> meets = pa.table({"source": ["g", "h"], "target": ["d", "a"]})
    >>> model.predict_new(guests, meets).predicted.tolist()
    ['mate', 'tea']
    """

    classifier: GrandClassifier
    encoders: Encoders

    @classmethod
    def fit(cls, tables: Tables, classifier: GrandClassifier | None = None) -> TableModel:
        """Train a classifier on tables.

        Parameters
        ----------
        tables : Tables
            With labels.
        classifier : GrandClassifier, optional
            Its parameters are used, and it stays as it is. Features are scaled as suits their
            encoders, unless it has a ``feature_scaling``.
        """
        model = clone(GrandClassifier() if classifier is None else classifier)
        if model.feature_scaling is None:
            model.set_params(feature_scaling=tables.encoders.scaling)
        return cls(model.fit(tables.graph), tables.encoders)

    def predict(self) -> Predictions:
        """Return the predictions for all nodes of the training graph."""
        graph, shares = self.classifier.graph_, self.classifier.predict_proba()
        return Predictions(graph.ids, graph.class_names, shares, graph.labels)

    def predict_new(self, nodes: Any, edges: Any = None, **options: Any) -> Predictions:
        """Return the predictions for nodes that arrive later, without training again.

        New nodes receive messages over their edges to nodes of the training graph and over those
        to each other. They send none to the training graph, which stays as it was. So a
        prediction depends on the new nodes that edges join a node to, directly or through other
        new ones, and on no other new node.

        Parameters
        ----------
        nodes, edges : path or data frame
            As in :func:`~dropnode.read_tables`; edges may name nodes of the training graph.
        **options
            ``id``, ``features``, ``source``, ``target`` and ``weight``, as in
            :func:`~dropnode.read_tables`.
        """
        graph, method = self.classifier.graph_, self.classifier.method_
        new = read_new_nodes(graph, self.encoders, nodes, edges, **options)
        logits = method.new_logits(new.features, new.links, new.among if new.among.nnz else None)
        shares = softmax(logits.cpu().numpy().astype(np.float64), axis=1)
        return Predictions(new.ids, graph.class_names, shares, notes=new.notes)

    def metrics(self) -> dict[str, Any] | None:
        """Return the measures on labels that were held out; None if none were.

        They have chosen the number of epochs, so that their accuracy is a little too high.
        """
        if not self.classifier.validated_:
            return None
        graph, held_out = self.classifier.graph_, self.classifier.validation_
        return {
            "held_out": held_out,
            "labels": int(np.count_nonzero(graph.labels != UNKNOWN)),
            "nodes": graph.num_nodes,
            "classes": list(graph.class_names),
        }

    def save(self, folder: str | Path) -> None:
        """Write the model, its predictions and its metrics to a new folder, all or nothing."""
        folder = to_path(folder)
        check_place(folder)
        with new_folder(folder) as place:
            self.classifier.save(place, encoders=self.encoders)
            self.predict().write(place / PREDICTIONS)
            metrics = self.metrics()
            if metrics is not None:
                write_json(place / METRICS, metrics)

    @classmethod
    def load(cls, folder: str | Path, device: str = "cpu") -> TableModel:
        """Load what :meth:`save` saved."""
        return cls(GrandClassifier.load(folder, device), load_encoders(folder))


def check_place(folder: str | Path) -> None:
    """Raise an error unless a folder can be made, or is empty, before any work is done."""
    if not is_vacant(Path(folder)):
        raise ConfigError(f"{folder} exists and is not empty; remove it, or choose another folder")
    check_makeable(Path(folder))
