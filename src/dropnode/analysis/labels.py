"""Labels: which of the given ones are probably wrong, and which nodes to label next.

Both take the probabilities of any model. Neither needs a label that the caller does not have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import entr

from dropnode.analysis.checks import check_nodes, check_probabilities
from dropnode.analysis.layers import polynomial
from dropnode.errors import ConfigError
from dropnode.graph.arrays import plain, to_array
from dropnode.graph.labels import UNKNOWN
from dropnode.ops.propagation import normalise
from dropnode.ops.randomness import Stream
from dropnode.settings import count, read_value, repeats
from dropnode.settings import seed as seed_field

Fit = Callable[[np.ndarray], Any]
"""Trains a new model on the labels where a mask is true, and returns everyone's probabilities."""


@dataclass(frozen=True, eq=False)
class SuspiciousLabels:
    """Given labels, the most suspicious first.

    Attributes
    ----------
    nodes : ndarray of int
        Positions of the labelled nodes.
    given : ndarray of int
        The class code that each has.
    suggested : ndarray of int
        The most probable other class of each.
    log_odds : ndarray
        log(p of the given class / p of the suggested one). Below 0, the model disagrees.
    """

    nodes: np.ndarray
    given: np.ndarray
    suggested: np.ndarray
    log_odds: np.ndarray


def suspicious_labels(labels: Any, fit: Fit, *, folds: int = 5, seed: int = 0) -> SuspiciousLabels:
    """Rank the given labels by how little a model believes them that was trained without them.

    A model learns the errors in its training labels, so it cannot judge them. The labels are
    therefore divided into folds; each fold is judged by a model that is trained on the others. The
    ranking is the same whatever the temperature of the probabilities.

    Parameters
    ----------
    labels : array of int
        The class codes of all nodes, -1 where unknown.
    fit : callable
        Takes a mask of all nodes, trains a new model on the labels where it is true and on no other
        label, validation included, and returns the probabilities (nodes, classes) of all nodes.
    folds : int
        How many models are trained. More of them have more labels each.
    seed : int
        The same seed divides the labels alike.

    Returns
    -------
    SuspiciousLabels
        A class with a single label is left out: without that label, no model knows the class.

    Examples
    --------
    >>> from dropnode import GrandClassifier, load_dataset
    >>> graph = load_dataset("sbm", nodes=300, classes=3)
    >>> labels = np.where(np.arange(300) % 5 == 0, graph.labels, -1)  # sixty labels
    >>> labels[10] = (labels[10] + 1) % 3  # one of them is wrong
    >>> def fit(mask):
    ...     model = GrandClassifier(max_epochs=40, validation_fraction=None, random_state=0)
    ...     known = np.where(mask, labels, -1)
    ...     return model.fit(graph.features, known, graph=graph.adjacency).predict_proba()
    >>> suspicious_labels(labels, fit).nodes[0].item()
    10
    """
    codes = to_array(labels, "labels")
    if codes.ndim != 1 or codes.dtype.kind not in "iu" or (codes < UNKNOWN).any():
        raise ConfigError(
            f"labels are {codes.dtype} of shape {codes.shape}; expected a class code from 0 on for "
            "every node, -1 where it is unknown"
        )
    judged, fold = label_folds(codes, folds, seed)
    rows = np.empty((0, 0))
    for number in np.unique(fold):
        mask = codes != UNKNOWN
        held = judged[fold == number]
        mask[held] = False
        found = _probabilities(fit(mask), codes)
        if not len(rows):
            rows = np.empty((len(judged), found.shape[1]))
        rows[fold == number] = found[held]
    return rank_suspicious(judged, codes[judged], rows)


def label_folds(codes: np.ndarray, folds: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Divide labels into folds.

    Returns
    -------
    (ndarray of int, ndarray of int)
        Positions of the nodes whose class has two labels or more, and the fold of each. No fold
        has all labels of a class.
    """
    folds = read_value(int, folds, "folds", repeats(least=2))
    stream = Stream(read_value(int, seed, "seed", seed_field())).at("folds")
    generator = stream.generator()
    known = np.flatnonzero(np.bincount(codes[codes != UNKNOWN]) > 1)
    if len(known) < 2:
        raise ConfigError(
            f"{len(known)} classes have two labels or more; expected at least two, so that a model "
            "can be trained without the labels that it judges: label more nodes"
        )
    # Neighbours in this order are in different folds, so that no fold has all labels of a class.
    judged = np.concatenate([generator.permutation(np.flatnonzero(codes == c)) for c in known])
    return judged, np.arange(len(judged)) % folds


def label_next(
    probabilities: Any,
    adjacency: Any,
    labelled: Any,
    most: int,
    *,
    order: int = 4,
    apart: int = 2,
) -> np.ndarray:
    """Rank unlabelled nodes by how much a label of theirs would help.

    A label helps most in the middle of a region that the model is uncertain about. The entropy of
    the predictions is therefore propagated as features are, so that a node counts by the
    uncertainty around it, and more if it has many neighbours. Nodes are taken in that order, but
    nodes near to one that was taken are skipped, since they would tell the same. When no others
    are left, the skipped ones get a second turn.

    The ranking is as good as the model: one that has hardly learnt anything is uncertain about
    everything alike.

    Parameters
    ----------
    probabilities : array (nodes, classes)
        Of all nodes, from a model trained on the labels so far.
    adjacency : sparse matrix (nodes, nodes)
        Weights of the edges, such as ``graph.adjacency``.
    labelled : array of int
        Positions of the nodes that have a label.
    most : int
        How many nodes to return; fewer, if fewer are unlabelled.
    order : int
        How many hops uncertainty is propagated.
    apart : int
        Nodes within so many hops of one that was taken are skipped; 0 skips none.

    Returns
    -------
    ndarray of int
        Positions, the first to be labelled first.

    Examples
    --------
    >>> path = sp.diags_array([np.ones(8), np.ones(8)], offsets=[-1, 1])
    >>> sure, unsure = [0.99, 0.01], [0.5, 0.5]
    >>> rows = [sure, unsure, unsure, unsure, sure, sure, sure, unsure, sure]
    >>> label_next(rows, path, labelled=[0], most=2)  # the middle of either region
    array([2, 7])
    """
    rows = check_probabilities(probabilities)
    known = check_nodes(labelled, len(rows), "the labelled nodes")
    most = read_value(int, most, "most", count())
    order = read_value(int, order, "order", repeats(least=0))
    apart = read_value(int, apart, "apart", repeats(least=0))
    edges = sp.csr_array(plain(adjacency), dtype=np.float32)
    if edges.shape != (len(rows), len(rows)):
        raise ConfigError(
            f"adjacency has shape {edges.shape} for {len(rows):,} rows of probabilities; expected "
            "one row and one column per node"
        )
    operator = normalise(edges).astype(np.float64)
    gain = polynomial(operator, (1.0 / (order + 1),) * (order + 1), entr(rows).sum(axis=1))
    free = np.ones(len(rows), dtype=bool)
    free[known] = False
    waiting = np.argsort(-gain, kind="stable")
    waiting = waiting[free[waiting]]
    taken: list[int] = []
    while len(taken) < most and len(waiting):
        skipped, near = [], np.zeros(len(rows), dtype=bool)
        for node in waiting:
            if near[node] or len(taken) == most:
                skipped.append(node)
                continue
            taken.append(int(node))
            near[_within(edges, node, apart)] = True
        waiting = np.array(skipped, dtype=np.int64)
    return np.array(taken, dtype=np.int64)


def _probabilities(found: Any, codes: np.ndarray) -> np.ndarray:
    rows = check_probabilities(found)
    classes = int(codes.max()) + 1
    if len(rows) != len(codes) or rows.shape[1] < classes:
        raise ConfigError(
            f"fit returned probabilities of shape {rows.shape}; expected one row for each of "
            f"{len(codes):,} nodes and a column for each of {classes} classes"
        )
    return rows


def rank_suspicious(nodes: np.ndarray, given: np.ndarray, rows: np.ndarray) -> SuspiciousLabels:
    """Rank given labels by the probabilities ``rows`` of models that were trained without them."""
    every = np.arange(len(nodes))
    # A probability of 0 has no logarithm; the smallest number comes close.
    logs = np.log(np.maximum(rows, np.finfo(np.float64).tiny))
    own = logs[every, given]
    logs[every, given] = -np.inf
    suggested = logs.argmax(axis=1)
    odds = own - logs[every, suggested]
    order = np.lexsort((nodes, odds))
    return SuspiciousLabels(nodes[order], given[order], suggested[order], odds[order])


def _within(edges: sp.csr_array, node: int, hops: int) -> np.ndarray:
    """Return the nodes within some hops of a node."""
    reached = np.array([node])
    for _ in range(hops):
        reached = np.union1d(reached, edges[reached].indices)
    return reached
