"""Predictions for labels by models that were trained without them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from sklearn.base import clone

from dropnode.analysis.labels import label_folds
from dropnode.estimator import GrandClassifier
from dropnode.graph import Graph
from dropnode.graph.labels import UNKNOWN

FOLDS = 5
"""How many parts the labels are divided into."""

ENOUGH = 500
"""With more labels than this, one fold is large enough to judge by, and only one is trained."""

Watch = Callable[[int, int], None]
"""Told how much is done, and of how much."""


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Labels, and what models trained without them predict.

    Attributes
    ----------
    nodes : ndarray of int
        Positions of the judged nodes.
    labels : ndarray of int
        Their class codes.
    logits : ndarray (nodes, classes)
    fold : ndarray of int
        The fold of each node; those of one fold were judged by the same model.
    """

    nodes: np.ndarray
    labels: np.ndarray
    logits: np.ndarray
    fold: np.ndarray

    @property
    def correct(self) -> np.ndarray:
        """Whether the most probable class of each node is its label."""
        return np.asarray(self.logits.argmax(axis=1) == self.labels)


def hold_out(
    classifier: GrandClassifier, graph: Graph, seed: int = 0, watch: Watch | None = None
) -> HeldOut | None:
    """Judge the labels of a graph by models that are trained without them.

    Parameters
    ----------
    classifier : GrandClassifier
        Its parameters are used, and it stays as it is. Where it validates, it does so within the
        labels that it is trained on.
    graph : Graph
        Without a split.
    seed : int
        The same seed divides the labels alike, for any classifier.
    watch : callable, optional
        Called with the number of models that are trained, and that of all.

    Returns
    -------
    HeldOut or None
        None if fewer than two classes have two labels. A class with a single label is left out:
        without that label, no model knows the class.
    """
    counts = np.bincount(graph.labels[graph.labels != UNKNOWN])
    if np.count_nonzero(counts > 1) < 2:
        return None
    judged, fold = label_folds(graph.labels, FOLDS, seed)
    if len(judged) > ENOUGH:
        judged, fold = judged[fold == 0], fold[fold == 0]
    logits = np.empty((len(judged), graph.num_classes))
    rounds = np.unique(fold)
    for done, number in enumerate(rounds):
        if watch is not None:
            watch(done, len(rounds))
        nodes = judged[fold == number]
        labels = graph.labels.copy()
        labels[nodes] = UNKNOWN
        model = clone(classifier).set_params(verbose=False)
        if (np.bincount(labels[labels != UNKNOWN]) == 1).any():
            # Nothing can validate then, which the final training says, if it is so there too.
            model.set_params(validation_fraction=None)
        model.fit(graph.with_labels(labels, graph.class_names))
        logits[fold == number] = model.method_.logits(rows=nodes).cpu().numpy()
    return HeldOut(judged, graph.labels[judged], logits, fold)
