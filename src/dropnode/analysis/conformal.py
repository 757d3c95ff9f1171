"""Conformal prediction: sets of classes that hold the true one with a chosen probability.

A score says how badly a class fits a node. Calibration nodes, whose labels are known, show how
large the score of the true class tends to be. The set of a node has every class whose score is not
larger. Whatever the model is worth, the set of a new node has the true class with a probability of
at least 1 - α; a bad model has larger sets.

This holds under conditions that these functions cannot check:

- Calibration nodes and the nodes that are asked about are **exchangeable**: which of them are for
  calibration was decided by chance alone. A random choice among the nodes outside training makes
  them so. The validation nodes of a public split are no such choice.
- Calibration labels were **used for nothing else**: they neither trained the model, nor chose its
  epoch or its settings, nor fitted a temperature.
- The probability is an average over the nodes and over the choice of calibration nodes. It is no
  promise about one node or one class. :func:`coverage_band` tells how far the coverage of a single
  experiment may be from it.

Scores may use all features and edges, and the predictions of all nodes, as those of
:func:`diffused_scores` do: they treat calibration nodes like the others.

References
----------
Romano, Sesia and Candès, *Classification with Valid and Adaptive Coverage*, NeurIPS 2020 (APS).
Zargarbashi, Antonelli and Bojchevski, *Conformal Prediction Sets for Graph Neural Networks*, ICML
2023 (DAPS).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.sparse as sp

from dropnode.analysis.checks import check_labels, check_nodes, check_probabilities, check_rows
from dropnode.errors import ConfigError
from dropnode.graph.arrays import plain
from dropnode.ops.randomness import Stream
from dropnode.settings import count, read_value, share
from dropnode.settings import seed as seed_field


def prediction_sets(scores: Any, labels: Any, calibration: Any, alpha: float) -> np.ndarray:
    """Return which classes are in the set of each node.

    A set can be empty if the model is better than needed: where it is right about more than
    1 - α of the nodes, the sets of the strangest nodes are left empty. With too few calibration
    nodes for α, every set has all classes.

    Parameters
    ----------
    scores : array (nodes, classes)
        Of all nodes, as one of the functions below returns them.
    labels : array of int
        The class codes of all nodes; only those of calibration nodes are read.
    calibration : array of int
        Positions of the calibration nodes; see the conditions above.
    alpha : float
        The probability that a set may lack the true class, such as 0.1.

    Returns
    -------
    ndarray of bool (nodes, classes)

    Examples
    --------
    >>> probabilities = np.array([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7], [0.55, 0.45], [0.95, 0.05]])
    >>> sets = prediction_sets(plain_scores(probabilities), [0, 0, 1, -1, -1], [0, 1, 2], 0.25)
    >>> sets[3:].tolist()  # not sure enough about either class, and sure enough about one
    [[False, False], [True, False]]
    """
    rows = check_rows(scores, "scores")
    nodes = check_nodes(calibration, len(rows), "the calibration nodes")
    every = np.asarray(labels)
    if every.shape != (len(rows),):
        raise ConfigError(
            f"labels have shape {every.shape} for {len(rows):,} rows of scores; give one label per "
            "row, -1 where it is unknown"
        )
    codes = check_labels(every[nodes], (len(nodes), rows.shape[1])) if len(nodes) else every[:0]
    return np.asarray(rows <= conformal_quantile(rows[nodes, codes.astype(int)], alpha))


def conformal_quantile(scores: Any, alpha: float) -> float:
    """Return the ⌈(n + 1)(1 - α)⌉-th smallest of n scores; infinity if n is too small for that.

    Examples
    --------
    >>> conformal_quantile([0.3, 0.1, 0.2], alpha=0.5), conformal_quantile([0.3, 0.1], alpha=0.1)
    (0.2, inf)
    """
    values = np.sort(np.asarray(scores, dtype=np.float64))
    rank = _rank(len(values), alpha)
    return float(values[rank - 1]) if rank <= len(values) else math.inf


def plain_scores(probabilities: Any) -> np.ndarray:
    """Return one minus the probability of each class: the smallest sets on average."""
    return 1.0 - check_probabilities(probabilities)


def adaptive_scores(probabilities: Any, seed: int | None = None) -> np.ndarray:
    """Return the scores of APS: the probability of all classes that are at least as probable.

    Sets grow with the difficulty of a node, so that coverage differs less between easy and
    difficult nodes. They are larger than those of :func:`plain_scores`.

    Parameters
    ----------
    probabilities : array (nodes, classes)
    seed : int, optional
        With a seed, only a random part of the class's own probability counts, the same part for
        all classes of a node. Then coverage is 1 - α as exactly as can be. Without, nothing is
        random, and sets are larger than necessary.

    Examples
    --------
    >>> adaptive_scores([[0.2, 0.7, 0.1]]).round(6)
    array([[0.9, 0.7, 1. ]])
    """
    rows = check_probabilities(probabilities)
    order = np.argsort(-rows, axis=1, kind="stable")
    ranked = np.take_along_axis(rows, order, axis=1)
    part = np.ones((len(rows), 1))
    if seed is not None:
        stream = Stream(read_value(int, seed, "seed", seed_field())).at("adaptive scores")
        part = stream.generator().random((len(rows), 1))
    summed = np.cumsum(ranked, axis=1) - (1.0 - part) * ranked
    scores = np.empty_like(rows)
    np.put_along_axis(scores, order, summed, axis=1)
    return scores


def diffused_scores(scores: Any, adjacency: Any, neighbours: float = 0.5) -> np.ndarray:
    """Return scores mixed with the average score of each node's neighbours, as DAPS does.

    Where neighbours tend to share a class, sets get smaller. A node without neighbours keeps its
    own scores.

    Parameters
    ----------
    scores : array (nodes, classes)
        Such as those of :func:`adaptive_scores`.
    adjacency : sparse matrix (nodes, nodes)
        Weights of the edges, such as ``graph.adjacency``.
    neighbours : float
        The share of the neighbours, from 0 to 1 [λ]. If you choose it by looking at set sizes, do
        so on nodes that are not used for calibration.

    Examples
    --------
    >>> path = sp.csr_array([[0, 1, 0], [1, 0, 0], [0, 0, 0]])
    >>> diffused_scores([[0.0], [0.8], [0.6]], path).ravel().round(6)
    array([0.4, 0.4, 0.6])
    """
    rows = check_rows(scores, "scores")
    neighbours = read_value(float, neighbours, "neighbours", share())
    edges = sp.csr_array(plain(adjacency), dtype=np.float64)
    if edges.shape != (len(rows), len(rows)):
        raise ConfigError(
            f"adjacency has shape {edges.shape} for {len(rows):,} rows of scores; expected one row "
            "and one column per node"
        )
    degrees = edges.sum(axis=1)
    joined = degrees > 0
    mixed = rows.copy()
    average = (edges @ rows)[joined] / degrees[joined, None]
    mixed[joined] = (1.0 - neighbours) * rows[joined] + neighbours * average
    return mixed


def coverage_band(
    calibration: int, test: int, alpha: float, level: float = 0.99
) -> tuple[float, float]:
    """Return bounds of the share of test nodes whose set has the true class.

    The number of such nodes has a beta-binomial distribution, if no two scores are equal. The
    bounds hold it with a probability of at least ``level``. A coverage outside of them speaks
    against the conditions above. (With equal scores, as deterministic ones of saturated
    probabilities are, coverage may be higher, and only the lower bound counts.)

    Parameters
    ----------
    calibration, test : int
        Numbers of nodes.
    alpha : float
    level : float
        Between 0 and 1.

    Examples
    --------
    >>> coverage_band(calibration=100, test=1000, alpha=0.1)
    (0.806, 0.965)
    """
    # Imported here: it takes a second, and only this needs it.
    from scipy.stats import betabinom

    calibration = read_value(int, calibration, "calibration", count(least=0))
    test = read_value(int, test, "test", count())
    if not 0 < level < 1:
        raise ConfigError(f"level is {level}; expected a number between 0 and 1")
    rank = _rank(calibration, alpha)
    if rank > calibration:
        return 1.0, 1.0
    covered = betabinom(test, rank, calibration + 1 - rank)
    low, high = covered.ppf((1 - level) / 2), covered.isf((1 - level) / 2)
    return float(low / test), float(high / test)


def _rank(scores: int, alpha: float) -> int:
    """Return ⌈(n + 1)(1 - α)⌉, computed with the decimal number that was written."""
    if not 0 < alpha < 1:
        raise ConfigError(f"alpha is {alpha}; expected a number between 0 and 1, such as 0.1")
    # In floating point, 10 · (1 - 0.7) is a little more than 3, and would be rounded up to 4.
    return math.ceil((scores + 1) * (1 - Fraction(repr(float(alpha)))))
