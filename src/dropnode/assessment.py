"""What labels tell about a model: each is judged by models that were trained without it.

A model fits its own training labels, so these cannot say how good it is. The labels are therefore
divided into folds, and the labels of each fold are predicted by a model that is trained, validated
and stopped on the others. These held-out predictions show how often the model is right, how far its
confidence can be believed, and how many classes a node must be given so that the true one is among
them. The final model is trained on all labels: with few of them, none can be spared.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from dropnode.analysis.calibration import (
    apply_temperature,
    brier_score,
    expected_calibration_error,
    expected_calibration_error_by_chance,
    fit_temperature,
)
from dropnode.analysis.conformal import conformal_quantile, plain_scores
from dropnode.analysis.labels import label_folds
from dropnode.analysis.metrics import accuracy, balanced_accuracy, confusion, macro_f1, reliability
from dropnode.estimator import GrandClassifier
from dropnode.graph import Graph
from dropnode.graph.checks import UNKNOWN
from dropnode.settings import Config, count, positive, rate, weight

FOLDS = 5
"""How many parts the labels are divided into."""

ENOUGH = 1000
"""With more labels than this, one fold is large enough to judge by, and only one is trained."""

ALPHA = 0.1
"""How often the set of a node may lack its true class."""


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


def hold_out(classifier: GrandClassifier, graph: Graph, seed: int = 0) -> HeldOut | None:
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
    for number in np.unique(fold):
        nodes = judged[fold == number]
        labels = graph.labels.copy()
        labels[nodes] = UNKNOWN
        with warnings.catch_warnings():
            # What there is to say about the labels is said once, by the final training.
            warnings.simplefilter("ignore", UserWarning)
            model = clone(classifier).fit(graph.with_labels(labels, graph.class_names))
        logits[fold == number] = model.method_.logits(rows=nodes).cpu().numpy()
    return HeldOut(judged, graph.labels[judged], logits, fold)


@dataclass(frozen=True)
class Trust(Config):
    """How far to believe a model, learnt from held-out labels.

    Attributes
    ----------
    temperature : divides logits, so that confidence is as high as accuracy
    quantile : a class is in the set of a node if its probability is at least one minus this
    coverage : how often a set should have the true class
    labels : how many labels it was learnt from
    """

    temperature: float = positive()
    quantile: float = weight()
    coverage: float = rate()
    labels: int = count()

    @classmethod
    def learn(cls, held: HeldOut) -> Trust:
        """Learn from held-out labels."""
        temperature = fit_temperature(held.logits, held.labels)
        shares = apply_temperature(held.logits, temperature)
        scores = plain_scores(shares)[np.arange(len(shares)), held.labels]
        # Above 1, where there are too few labels for the coverage, a set has all classes.
        quantile = min(conformal_quantile(scores, ALPHA), 1.0)
        return cls(temperature, quantile, 1 - ALPHA, len(held.nodes))

    def probabilities(self, logits: Any) -> np.ndarray:
        """Return calibrated probabilities."""
        return apply_temperature(logits, self.temperature)

    def sets(self, probabilities: np.ndarray) -> np.ndarray:
        """Return which classes are in the set of each node; the most probable one always is."""
        chosen = np.asarray(plain_scores(probabilities) <= self.quantile)
        chosen[np.arange(len(chosen)), probabilities.argmax(axis=1)] = True
        return chosen


def measures(held: HeldOut, class_names: tuple[str, ...]) -> dict[str, Any]:
    """Return measures of held-out predictions.

    Those of calibration and of sets judge each fold with what the other folds have taught, so that
    no label judges itself. With a single fold there are none.
    """
    raw = apply_temperature(held.logits, 1.0)
    low, high = share_interval(int(held.correct.sum()), len(held.nodes))
    found: dict[str, Any] = {
        "labels": len(held.nodes),
        "trainings": len(np.unique(held.fold)),
        "accuracy": accuracy(held.labels, raw),
        "accuracy_interval": [low, high],
        "balanced_accuracy": balanced_accuracy(held.labels, raw),
        "macro_f1": macro_f1(held.labels, raw),
        "confusion": confusion(held.labels, raw).tolist(),
        "classes": list(class_names),
        "before_calibration": _calibration(held.labels, raw),
    }
    shares, sets = _cross_fitted(held)
    if shares is not None and sets is not None:
        inside = sets[np.arange(len(sets)), held.labels]
        found["after_calibration"] = _calibration(held.labels, shares)
        found["reliability"] = reliability(held.labels, shares)
        found["sets"] = {
            "wanted": 1 - ALPHA,
            "coverage": float(inside.mean()),
            "mean_size": float(sets.sum(axis=1).mean()),
        }
    return found


def share_interval(hits: int, of: int) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson's).

    Examples
    --------
    >>> [round(bound, 3) for bound in share_interval(36, 40)]
    [0.769, 0.96]
    """
    # Imported here: it takes a second.
    from scipy.stats import binomtest

    interval = binomtest(hits, of).proportion_ci(0.95, method="wilson")
    return float(interval.low), float(interval.high)


def _calibration(labels: np.ndarray, shares: np.ndarray) -> dict[str, float]:
    chance = expected_calibration_error_by_chance(shares)
    return {
        "ece": expected_calibration_error(labels, shares),
        "ece_by_chance": chance.mean,
        "brier": brier_score(labels, shares),
    }


def _cross_fitted(held: HeldOut) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return probabilities and sets of each fold by what the other folds have taught."""
    folds = np.unique(held.fold)
    if len(folds) < 2:
        return None, None
    shares = np.empty_like(held.logits)
    sets = np.empty(held.logits.shape, dtype=bool)
    for number in folds:
        own, rest = held.fold == number, held.fold != number
        others = HeldOut(held.nodes[rest], held.labels[rest], held.logits[rest], held.fold[rest])
        learnt = Trust.learn(others)
        shares[own] = learnt.probabilities(held.logits[own])
        sets[own] = learnt.sets(shares[own])
    return shares, sets
