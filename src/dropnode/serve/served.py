"""Served: a model in memory, with everything that requests ask about its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from dropnode.analysis.explain import explain
from dropnode.analysis.labels import label_next
from dropnode.analysis.tree import Tree
from dropnode.csv_text import csv_rows
from dropnode.errors import ConfigError, ModelError
from dropnode.graph.labels import UNKNOWN
from dropnode.saving import MODEL, feature_names, saved_versions
from dropnode.settings import parse_json
from dropnode.table_model import METRICS, MOST_NEXT, SUSPICIOUS, Predictions, TableModel

BINS = 20
"""Bars of the histogram of confidences."""

NEIGHBOURS, COLUMNS = 50, 12
"""The most neighbours and feature columns that are listed for a node."""

DRAWN = 12
"""Nodes in the picture of an explanation."""


@dataclass(frozen=True, eq=False)
class Served:
    """A model, its predictions, and what held-out models said about its labels.

    Attributes
    ----------
    model : TableModel
    predictions : Predictions
        Of all nodes of the training graph.
    ids : tuple of str
        The id of every node, as text.
    position : dict
        The position of every id.
    predicted : ndarray of int
        The code of the most probable class of every node.
    confidence : ndarray
        Its probability.
    judged : ndarray of int
        The class that a model predicted which was trained without the label of the node, -1 where
        there is none.
    log_odds : ndarray
        How far that model believed the label, see :mod:`dropnode.analysis.labels`; NaN without.
    metrics : dict or None
        Measures of held-out predictions.
    names : list of str
        The names of the features.
    versions : dict
        Of the software that trained the model.
    saved : str
        When it was saved.
    """

    model: TableModel
    predictions: Predictions
    ids: tuple[str, ...]
    position: dict[str, int]
    predicted: np.ndarray
    confidence: np.ndarray
    judged: np.ndarray
    log_odds: np.ndarray
    metrics: dict[str, Any] | None
    names: list[str]
    versions: dict[str, str]
    saved: str

    @classmethod
    def read(cls, folder: Path) -> Served:
        """Read a folder that ``dropnode fit`` made."""
        model = TableModel.load(folder)
        predictions = model.predict()
        # Half of a surrogate pair, which only a forged folder has, is no text of JSON.
        ids = tuple(
            str(each).encode("utf-8", "replace").decode() for each in predictions.ids.tolist()
        )
        position = {name: at for at, name in enumerate(ids)}
        judged, odds = _judged(folder / SUSPICIOUS, position, predictions.classes)
        saved = datetime.fromtimestamp((folder / MODEL).stat().st_mtime, UTC)
        return cls(
            model,
            predictions,
            ids,
            position,
            predictions.probabilities.argmax(axis=1),
            predictions.probabilities.max(axis=1),
            judged,
            odds,
            _metrics(folder / METRICS),
            feature_names(folder) or [],
            saved_versions(folder),
            saved.isoformat(timespec="seconds"),
        )

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes."""
        return self.predictions.classes

    @property
    def labels(self) -> np.ndarray:
        """The labels that the model was trained on, -1 where there is none."""
        return self.model.classifier.graph_.labels

    def of_same_data(self, other: Served) -> bool:
        """Return whether another model has the same nodes, edges, features and classes.

        Labels may differ.
        """
        if (self.ids, self.classes) != (other.ids, other.classes):
            return False
        ours, theirs = (each.model.classifier.graph_ for each in (self, other))
        alike = theirs.with_labels(ours.labels, ours.class_names)
        return alike.fingerprint() == ours.fingerprint()

    def find(self, name: str) -> int | None:
        """Return the position of a node; None if the model does not know it.

        A browser does not send ``.`` and ``..`` as parts of a path. They are written with a slash
        in front, which is left out here.
        """
        return self.position.get(name, self.position.get(name.removeprefix("/")))

    def code(self, name: str) -> int:
        """Return the code of a class."""
        if name not in self.classes:
            raise ConfigError(f"unknown class {name!r}; expected one of {', '.join(self.classes)}")
        return self.classes.index(name)

    def name(self, code: int) -> str | None:
        """Return the name of a class, None for -1."""
        return None if code == UNKNOWN else self.classes[code]

    def summary(self) -> dict[str, Any]:
        """Return what the model is, where it comes from, and how far to believe it."""
        classifier, graph = self.model.classifier, self.model.classifier.graph_
        # Rounding may take a probability a little above one. The bounds are those that the page
        # asks for, to the last bit.
        shares, bounds = np.clip(self.confidence, 0.0, 1.0), np.arange(BINS + 1) / BINS
        counts, _ = np.histogram(shares, bounds)
        known = self.labels[self.labels != UNKNOWN]
        return {
            "name": graph.name,
            "method": classifier.method,
            "preset": classifier.preset_,
            "seed": classifier.seed_,
            "saved": self.saved,
            "versions": self.versions,
            "nodes": graph.num_nodes,
            "edges": graph.num_edges,
            "features": graph.num_features,
            "labels": len(known),
            "classes": [
                {
                    "name": name,
                    "labels": int(np.count_nonzero(known == code)),
                    "predicted": int(np.count_nonzero(self.predicted == code)),
                }
                for code, name in enumerate(self.classes)
            ],
            "confidence": counts.tolist(),
            "metrics": self.metrics,
            "id_column": self.model.encoders.id or None,
            "columns": [each.column for each in self.model.encoders.columns],
            "vector_size": self.model.encoders.vector_size,
            "takes_edges": not self.model.encoders.neighbours,
        }

    def row(self, at: int) -> dict[str, Any]:
        """Return what a list says about a node."""
        odds = float(self.log_odds[at])
        return {
            "id": self.ids[at],
            "predicted": self.classes[self.predicted[at]],
            "confidence": round(float(self.confidence[at]), 6),
            "label": self.name(self.labels[at]),
            "held_out": self.name(self.judged[at]),
            "log_odds": None if np.isnan(odds) else odds,
        }

    def node(self, at: int) -> dict[str, Any]:
        """Return the probabilities, the set and the neighbours of a node."""
        graph, sets = self.model.classifier.graph_, self.predictions.sets
        inside = None if sets is None else [self.classes[k] for k in np.flatnonzero(sets[at])]
        adjacency = graph.adjacency
        reach = slice(*adjacency.indptr[at : at + 2])
        others, weights = adjacency.indices[reach], adjacency.data[reach]
        strongest = np.argsort(-weights, kind="stable")[:NEIGHBOURS]
        return self.row(at) | {
            "probabilities": dict(
                zip(self.classes, self.predictions.probabilities[at].round(6).tolist(), strict=True)
            ),
            "set": inside,
            "degree": len(others),
            "neighbours": [
                self.row(int(others[k])) | {"weight": float(weights[k])} for k in strongest
            ],
            "features": self.features(at),
        }

    def features(self, at: int) -> list[dict[str, Any]]:
        """Return the largest features of a node, by name."""
        row = self.model.classifier.graph_.features[[at]]
        values = row.toarray()[0] if sp.issparse(row) else row[0]
        largest = np.argsort(-np.abs(values), kind="stable")[:COLUMNS]
        return [
            {"name": self.column(int(k)), "value": float(values[k])} for k in largest if values[k]
        ]

    def column(self, number: int) -> str:
        """Return the name of a feature column."""
        return self.names[number] if self.names else f"column {number}"

    def explained(self, at: int) -> dict[str, Any]:
        """Return which nodes and columns led to the prediction of a node.

        A method that is not piecewise linear has no such explanation; then ``problem`` says so.
        """
        graph = self.model.classifier.graph_
        try:
            found = explain(self.model.classifier.method_, at)
        except ConfigError as error:
            return {"problem": str(error)}
        tree = Tree(found, graph.adjacency, DRAWN)
        places = tree.places()
        columns = found.strongest_columns(COLUMNS)
        by_node = [tree.amounts.get(node, 0.0) for node in tree.nodes]
        return {
            "class": self.classes[found.label],
            "score": found.score,
            "bias": found.bias,
            "nodes": [
                self.row(node)
                | {
                    "amount": amount,
                    "hops": tree.hops[node],
                    "ring": places[node][0],
                    "angle": places[node][1],
                    "parent": self.ids[tree.parents[node][0]] if node in tree.parents else None,
                    "adjacent": tree.parents[node][1] if node in tree.parents else True,
                }
                for node, amount in zip(tree.nodes, by_node, strict=True)
            ],
            "other_nodes": float(found.by_node.sum() - sum(by_node)),
            "columns": [
                {"name": self.column(each.name), "amount": each.amount} for each in columns
            ],
            "other_columns": float(found.by_column.sum() - sum(each.amount for each in columns)),
        }

    def suspicious(self) -> np.ndarray:
        """Return the nodes whose label held-out models contradict, the least believed first."""
        nodes = np.flatnonzero((self.judged != UNKNOWN) & (self.judged != self.labels))
        return nodes[np.argsort(self.log_odds[nodes], kind="stable")]

    def next_nodes(self, labelled: Sequence[int], most: int = MOST_NEXT) -> np.ndarray:
        """Return the nodes whose labels would help most, without those that are labelled now."""
        known = np.union1d(np.flatnonzero(self.labels != UNKNOWN), np.array(labelled, dtype=int))
        adjacency = self.model.classifier.graph_.adjacency
        return label_next(self.predictions.probabilities, adjacency, known, most)


def _metrics(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        found = parse_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} cannot be read ({error}); fit the model again") from error
    return found if isinstance(found, dict) else None


def _judged(
    path: Path, position: dict[str, int], classes: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the held-out prediction of every node and its log odds, from the file of labels."""
    judged = np.full(len(position), UNKNOWN)
    odds = np.full(len(position), np.nan)
    if not path.exists():
        return judged, odds
    try:
        # Not as text, where a carriage return in a name would become another line end.
        for _, row in csv_rows(path.read_bytes().decode()):
            at, odds[at] = position[row["id"]], float(row["log_odds"])
            # Files of before have no predicted class. Below 0, it was not the label.
            believed = "suggested" if odds[at] < 0 else "label"
            judged[at] = classes.index(row["predicted" if "predicted" in row else believed])
    except (KeyError, ValueError, TypeError) as error:
        raise ModelError(
            f"{path} does not belong to the model beside it ({type(error).__name__}: {error}); fit "
            "the model again, or remove the file"
        ) from error
    return judged, odds
