"""TableModel: a classifier together with the encoders of the tables that it was trained on.

The folder of a model that was fitted to tables::

    model.json, weights.safetensors, graph.safetensors   the model, see dropnode.saving
    predictions.csv        every node: its label, the predicted class, its confidence, its set
    metrics.json           how good models were that were trained without the labels they judge
    held_out.png           the same as a picture
    suspicious_labels.csv  given labels and what such models predict, the least believed first
    label_next.csv         nodes whose labels would help most

``metrics.json``, ``held_out.png`` and ``suspicious_labels.csv`` exist only if labels could be held
out.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.base import clone

from dropnode.analysis.labels import label_next, rank_suspicious
from dropnode.assessment import HeldOut, Trust, Watch, draw_held_out, hold_out, measures
from dropnode.csv_text import csv_lines
from dropnode.estimator import GrandClassifier
from dropnode.files import atomic_write, to_path, write_json
from dropnode.folders import check_place, new_folder
from dropnode.graph.labels import UNKNOWN
from dropnode.inspection import Comparison, features_alone
from dropnode.saving import load_encoders, load_trust
from dropnode.tables import Encoders, Tables
from dropnode.tables.new import read_new_nodes

PREDICTIONS, METRICS, PICTURE = "predictions.csv", "metrics.json", "held_out.png"
SUSPICIOUS, NEXT = "suspicious_labels.csv", "label_next.csv"

HEADS = ("id", "predicted", "confidence")
"""The first columns of a file of predictions; those of labelled nodes have a label after the id."""

SEPARATOR = "|"
"""What separates the classes of a set."""

MOST_NEXT = 100
"""How many nodes to label next are listed."""

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
    sets : ndarray of bool (nodes, classes) or None
        Which classes are in the set of each node, which should have the true one in 90 % of cases.
    notes : tuple of str
        What was chosen, repaired or left out of the tables.
    """

    ids: np.ndarray
    classes: tuple[str, ...]
    probabilities: np.ndarray
    labels: np.ndarray | None = None
    sets: np.ndarray | None = None
    notes: tuple[str, ...] = ()

    @property
    def predicted(self) -> np.ndarray:
        """The most probable class of each node."""
        return np.array(self.classes, dtype=object)[self.probabilities.argmax(axis=1)]

    def write(self, path: str | Path) -> None:
        """Write a CSV file: id, perhaps label, predicted class, its probability, those of all."""
        with atomic_write(path, "w") as file:
            for rows in self.rows():
                file.write(csv_lines(rows))

    def rows(self) -> Iterator[list[list[Any]]]:
        """Yield the rows of that file, some thousands at a time, the header first."""
        labelled = [] if self.labels is None else ["label"]
        # A letter in front, because a class may have the name of another column.
        with_sets = [] if self.sets is None else ["set"]
        shares_of = [f"p_{name}" for name in self.classes]
        yield [[HEADS[0], *labelled, *HEADS[1:], *with_sets, *shares_of]]
        names = np.array([*self.classes, ""], dtype=object)  # the last is for unknown, -1
        for start in range(0, len(self.ids), CHUNK):
            part = slice(start, start + CHUNK)
            shares = self.probabilities[part]
            given = [] if self.labels is None else [names[self.labels[part]].tolist()]
            sets = [] if self.sets is None else [self._texts(self.sets[part])]
            columns = [
                self.ids[part].tolist(),
                *given,
                names[shares.argmax(axis=1)].tolist(),
                [f"{value:.6f}" for value in shares.max(axis=1)],
                *sets,
                *([f"{value:.6f}" for value in column] for column in shares.T),
            ]
            yield [list(row) for row in zip(*columns, strict=True)]

    def _texts(self, sets: np.ndarray) -> list[str]:
        names = np.array(self.classes, dtype=object)
        return [SEPARATOR.join(names[row]) for row in sets]


@dataclass(frozen=True, eq=False)
class TableModel:
    """A trained classifier, and what encodes rows of tables for it.

    Attributes
    ----------
    classifier : GrandClassifier
        Fitted; ``classifier.graph_`` is the training graph.
    encoders : Encoders
        What made its features.
    trust : Trust or None
        What calibrates its probabilities, and makes sets of classes.
    held : HeldOut or None
        What models predicted that were trained without the labels that they judge. It is not saved.

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
    trust: Trust | None = None
    held: HeldOut | None = None

    @classmethod
    def fit(
        cls,
        tables: Tables,
        classifier: GrandClassifier | None = None,
        *,
        assess: bool = True,
        watch: Watch | None = None,
    ) -> TableModel:
        """Train a classifier on tables.

        Parameters
        ----------
        tables : Tables
            With labels.
        classifier : GrandClassifier, optional
            Its parameters are used, and it stays as it is. Features are scaled as suits their
            encoders, unless it has a ``feature_scaling``.
        assess : bool
            Whether to train further models, each without a fifth of the labels, to learn how far
            the predictions can be believed; see :mod:`dropnode.assessment`.
        watch : callable, optional
            Called with the number of such models that are trained, and that of all.
        """
        model = clone(GrandClassifier() if classifier is None else classifier)
        if model.feature_scaling is None:
            model.set_params(feature_scaling=tables.encoders.scaling)
        model.fit(tables.graph)
        held = hold_out(model, tables.graph, model.seed_ or 0, watch) if assess else None
        trust = None
        if held is not None:
            trust = Trust.learn(held)
            _compare_with_features_alone(model, held, tables)
        return cls(model, tables.encoders, trust, held)

    def predict(self) -> Predictions:
        """Return the predictions for all nodes of the training graph."""
        graph = self.classifier.graph_
        shares, sets = self._believed(self.classifier.method_.logits())
        return Predictions(graph.ids, graph.class_names, shares, graph.labels, sets)

    def _believed(self, logits: Any) -> tuple[np.ndarray, np.ndarray | None]:
        """Return probabilities, and sets of classes if labels have taught how to make them."""
        values = logits.cpu().numpy().astype(np.float64)
        if self.trust is None:
            return np.asarray(softmax(values, axis=1)), None
        shares = self.trust.probabilities(values)
        return shares, self.trust.sets(shares)

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
        shares, sets = self._believed(logits)
        return Predictions(new.ids, graph.class_names, shares, sets=sets, notes=new.notes)

    def metrics(self) -> dict[str, Any] | None:
        """Return measures of held-out predictions; None without any.

        See :func:`dropnode.assessment.measures`.
        """
        if self.held is None:
            return None
        return measures(self.held, self.classifier.graph_.class_names)

    def save(self, folder: str | Path) -> None:
        """Write the model, its predictions and its metrics to a new folder, all or nothing."""
        folder = to_path(folder)
        check_place(folder)
        with new_folder(folder) as place:
            trust = None if self.trust is None else self.trust.as_dict()
            self.classifier.save(place, encoders=self.encoders, trust=trust)
            predictions = self.predict()
            predictions.write(place / PREDICTIONS)
            self._write_next(place / NEXT, predictions.probabilities)
            metrics = self.metrics()
            if self.held is not None and metrics is not None:
                write_json(place / METRICS, metrics)
                self._write_suspicious(place / SUSPICIOUS, self.held)
                draw_held_out(metrics).savefig(place / PICTURE, dpi=120)

    def _write_suspicious(self, path: Path, held: HeldOut) -> None:
        graph = self.classifier.graph_
        shares = softmax(held.logits, axis=1)
        ranked = rank_suspicious(held.nodes, held.labels, shares)
        # The odds do not tell the predicted class where two are equally probable.
        predicted = np.full(graph.num_nodes, UNKNOWN)
        predicted[held.nodes] = held.logits.argmax(axis=1)
        names = np.array(graph.class_names, dtype=object)
        rows = [["id", "label", "predicted", "suggested", "log_odds"]]
        codes = (ranked.given, predicted[ranked.nodes], ranked.suggested)
        columns = (graph.ids[ranked.nodes], *(names[each] for each in codes))
        odds = [round(value, 4) for value in ranked.log_odds.tolist()]
        rows += [list(row) for row in zip(*(each.tolist() for each in columns), odds, strict=True)]
        with atomic_write(path, "w") as file:
            file.write(csv_lines(rows))

    def _write_next(self, path: Path, shares: np.ndarray) -> None:
        graph = self.classifier.graph_
        labelled = np.flatnonzero(graph.labels != UNKNOWN)
        nodes = label_next(shares, graph.adjacency, labelled, MOST_NEXT)
        names = np.array(graph.class_names, dtype=object)
        rows = [["id", "predicted", "confidence"]]
        for node in nodes:
            best = int(shares[node].argmax())
            rows.append([graph.ids[node], names[best], f"{shares[node, best]:.6f}"])
        with atomic_write(path, "w") as file:
            file.write(csv_lines(rows))

    @classmethod
    def load(cls, folder: str | Path, device: str = "cpu") -> TableModel:
        """Load what :meth:`save` saved."""
        classifier, encoders = GrandClassifier.load(folder, device), load_encoders(folder)
        record = load_trust(folder)
        return cls(classifier, encoders, None if record is None else Trust.from_dict(record))


def _compare_with_features_alone(model: GrandClassifier, held: HeldOut, tables: Tables) -> None:
    """Warn if the features alone predict held-out labels better than a model does."""
    alone = features_alone(model.seed_ or 0, feature_scaling=tables.encoders.scaling)
    other = hold_out(alone, tables.graph, model.seed_ or 0)
    if other is None:
        return
    compared = Comparison({"model": held, "alone": other})
    if compared.better("alone", "model"):
        warnings.warn(
            f"features alone predict {100 * compared.accuracy('alone'):.0f} % of held-out "
            f"labels, {model.method} {100 * compared.accuracy('model'):.0f} %: neighbours "
            "mislead here; try method='mlp'",
            stacklevel=3,
        )
