"""Which labels train, validate and are scored, and what they weigh."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.utils import compute_class_weight

from dropnode.data.splits import check_fraction, every_label_split, stratified_holdout
from dropnode.errors import ConfigError, GraphError
from dropnode.estimator.inputs import same_nodes
from dropnode.graph import Graph, Split
from dropnode.graph.labels import UNKNOWN
from dropnode.settings import shown
from dropnode.training import Outcome


def own_split(graph: Graph, fraction: float | None, seed: int, epochs: int) -> Split:
    """Return a split of the labels of a graph without one.

    ``fraction`` of the labels of each class validate, if every class has two at least. Otherwise
    a warning says that training takes so many ``epochs``.
    """
    if fraction is None:
        return every_label_split(graph.labels)
    check_fraction(fraction)
    counts = np.bincount(graph.labels[graph.labels != UNKNOWN], minlength=graph.num_classes)
    if (counts == 1).any():
        # With labels of a single class, fit raises an error about that instead.
        if np.count_nonzero(counts) > 1:
            lone = graph.class_names[int(np.argmax(counts == 1))]
            warnings.warn(
                f"class {lone!r} has only one label, so none can be held out for validation: "
                f"training uses all labels, for {epochs} epochs; label another node of the "
                "class, or set validation_fraction=None",
                stacklevel=3,
            )
        return every_label_split(graph.labels)
    kept, held = stratified_holdout(graph.labels, fraction, seed)
    empty = np.array([], dtype=np.int64)
    return Split(kept, held, empty, f"{fraction:g} of the labels validate")


def class_weights(
    asked: Any, classes: np.ndarray, codes: np.ndarray, weights: np.ndarray | None
) -> np.ndarray | None:
    """Return the weight of each class: 1 where a dict has none, or balanced by scikit-learn.

    Parameters
    ----------
    asked : dict, "balanced" or None
    classes : ndarray
    codes : ndarray of int
        The classes of the training nodes.
    weights : ndarray or None
        The weights of these nodes; a weight of 2 counts as two nodes.
    """
    if asked is None:
        return None
    if asked != "balanced":
        # Not by scikit-learn, which would look for the number 7 where a class is called '7'.
        names = classes.tolist()
        for name in asked:
            if name not in names:
                raise ConfigError(
                    f"class_weight has a weight for {name!r}, which is no class; expected some of "
                    f"{shown(names)}"
                )
        return np.array([asked.get(name, 1.0) for name in names])
    # A class of which no training node counts has a weight that nothing is multiplied by.
    if weights is not None:
        codes, weights = codes[weights > 0], weights[weights > 0]
    present, found = np.unique(codes), np.ones(len(classes))
    found[present] = compute_class_weight(
        asked, classes=classes[present], y=classes[codes], sample_weight=weights
    )
    return found


def validation_record(outcome: Outcome, split: Split) -> dict[str, float]:
    """Return what validation nodes measured in the epoch that was kept."""
    if not len(split.val):
        return {}
    kept = outcome.best
    return {
        "nodes": len(split.val),
        "epoch": outcome.best_epoch,
        "accuracy": kept["val_accuracy"],
        "loss": kept["val_loss"],
    }


def scored_nodes(graph: Graph, trained: Graph) -> np.ndarray:
    """Return the nodes of a graph to score on, given the graph that was trained on."""
    if graph.split is not None and len(graph.split.test):
        nodes = graph.split.test
    else:
        nodes = np.arange(graph.num_nodes)
        used = trained.split
        if used is not None and same_nodes(graph, trained):
            nodes = np.setdiff1d(nodes, np.concatenate([used.train, used.val]))
    nodes = nodes[graph.labels[nodes] != UNKNOWN]
    if len(nodes) == 0:
        raise GraphError(
            f"{graph.name!r} has no labelled nodes to score on, except those used for "
            "training; label more nodes, or give the graph a split with labelled test nodes"
        )
    return nodes
