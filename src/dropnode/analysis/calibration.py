"""Calibration: whether a confidence of 90 % means nine correct predictions in ten.

A network's probabilities may be too high or too low although its predictions are good.
:func:`fit_temperature` corrects that with one number, which changes no prediction. The errors
measure it. The expected calibration error (ECE) is easy to read, but perfect probabilities have one
too, by chance; :func:`expected_calibration_error_by_chance` tells how large. The negative
log-likelihood and the Brier score are proper scores: the true probabilities minimise them.

Give these functions held-out nodes, which neither trained the model nor chose its epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import softmax

from dropnode.analysis.checks import check_labels, check_probabilities, check_rows
from dropnode.analysis.metrics import BINS, bins_of, reliability
from dropnode.errors import ConfigError
from dropnode.ops.randomness import Stream
from dropnode.settings import count, read_value
from dropnode.settings import seed as seed_field

LEAST, MOST = 1e-3, 1e3
"""The temperatures between which the best is sought."""

BLOCK = 2**22
"""Random numbers drawn at a time (32 MB)."""


def fit_temperature(logits: Any, labels: Any) -> float:
    """Return the temperature T for which softmax(logits / T) has the least log-likelihood loss.

    Above 1 the model was too sure of itself, below 1 not sure enough. The loss is convex in 1/T, so
    there is one minimum, which bisection finds. In three cases it has none:

    - Every node is classified correctly: the loss falls as T goes to 0, and with it every doubt.
      Then T is such that the mean confidence is (n + 1) / (n + 2) for n nodes, which is Laplace's
      rule of succession; but at most 1, since nothing speaks for more doubt.
    - The logits are no better than chance: the loss falls as T grows. Then T is ``MOST``, which
      makes nearly equal probabilities.
    - The logits of a node are all equal, for every node, or there is a single class: T changes
      nothing, and is 1.

    Parameters
    ----------
    logits : array (nodes, classes)
        Of nodes that neither trained the model nor chose its epoch.
    labels : array of int
        Their class codes.

    References
    ----------
    Guo et al., *On Calibration of Modern Neural Networks*, ICML 2017.

    Examples
    --------
    >>> logits = np.array([[8.0, 0.0]] * 3 + [[0.0, 8.0]])
    >>> labels = np.array([0, 0, 0, 0])  # three of four are correct, so a confidence of 3/4 is
    >>> temperature = fit_temperature(logits, labels)
    >>> apply_temperature(logits, temperature).max(axis=1).round(4)
    array([0.75, 0.75, 0.75, 0.75])
    """
    rows = check_rows(logits, "logits")
    codes = check_labels(labels, rows.shape)
    # Softmax does not change if a constant is added to a row; near 0, fewer digits are lost.
    rows = rows - rows.max(axis=1, keepdims=True)
    given = rows[np.arange(len(codes)), codes]
    if not rows.any():
        return 1.0

    def slope(log_inverse: float) -> float:
        """The derivative of the loss by 1/T."""
        expected = (_scaled(rows, log_inverse) * rows).sum(axis=1)
        return float((expected - given).mean())

    def doubt(log_inverse: float) -> float:
        confidence = _scaled(rows, log_inverse).max(axis=1).mean()
        return float((len(codes) + 1) / (len(codes) + 2) - confidence)

    if not given.any():
        return 1.0 if doubt(0.0) < 0 else _root(doubt)
    return _root(slope)


def apply_temperature(logits: Any, temperature: float) -> np.ndarray:
    """Return softmax(logits / temperature), in double precision."""
    if not 0 < temperature < np.inf:
        raise ConfigError(f"temperature is {temperature}; expected a finite number above 0")
    return np.asarray(softmax(check_rows(logits, "logits") / temperature, axis=1))


def negative_log_likelihood(labels: Any, probabilities: Any) -> float:
    """Return the mean of -log p of the true class; infinite if one of these p is 0.

    Examples
    --------
    >>> round(negative_log_likelihood([0, 1], [[0.5, 0.5], [0.75, 0.25]]), 4)
    1.0397
    """
    rows = check_probabilities(probabilities)
    codes = check_labels(labels, rows.shape)
    with np.errstate(divide="ignore"):
        return float(-np.log(rows[np.arange(len(codes)), codes]).mean())


def brier_score(labels: Any, probabilities: Any) -> float:
    """Return the mean squared distance between the probabilities and the truth, from 0 to 2.

    The truth is 1 for the true class and 0 for the others. (For two classes, some authors take one
    of the two columns alone, which gives half of it.)

    Examples
    --------
    >>> brier_score([0, 1], [[1.0, 0.0], [0.5, 0.5]])
    0.25
    """
    rows = check_probabilities(probabilities)
    codes = check_labels(labels, rows.shape)
    truth = np.eye(rows.shape[1])[codes]
    return float(np.square(rows - truth).sum(axis=1).mean())


def expected_calibration_error(labels: Any, probabilities: Any, bins: int = BINS) -> float:
    """Return the ECE: the mean gap between confidence and accuracy, over bins of confidence.

    Nodes are binned by the probability of their predicted class, in bins of equal width.

    Examples
    --------
    >>> expected_calibration_error([0, 0, 1, 1], [[0.75, 0.25]] * 4)
    0.25
    """
    rows = check_probabilities(probabilities)
    codes = check_labels(labels, rows.shape)
    return binned_error(**reliability(codes, rows, _bins(bins)))


def binned_error(count: Any, confidence: Any, correct: Any) -> float:
    """Return the ECE of binned predictions.

    The bins are those of :func:`dropnode.analysis.metrics.reliability`: ``confidence`` and
    ``correct`` are sums over the nodes of a bin.

    Examples
    --------
    >>> round(binned_error(count=[0, 4], confidence=[0.0, 3.6], correct=[0, 3]), 3)
    0.15
    """
    gaps = np.abs(np.asarray(confidence) - np.asarray(correct))
    return float(gaps.sum() / max(np.sum(count), 1))


class ByChance(NamedTuple):
    """The ECE of perfectly calibrated predictions.

    Attributes
    ----------
    mean : float
        Its mean.
    quantile : float
        What it stays below with the probability asked for.
    """

    mean: float
    quantile: float


def expected_calibration_error_by_chance(
    probabilities: Any,
    bins: int = BINS,
    *,
    quantile: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> ByChance:
    """Return the ECE that perfectly calibrated predictions of the same confidences would show.

    In a bin of few nodes, accuracy differs from confidence by chance, so the ECE is above 0 even if
    every probability is right. Only an ECE above the quantile is evidence of bad calibration. In
    each draw, every prediction is correct with the probability of its confidence.

    Parameters
    ----------
    probabilities : array (nodes, classes)
        Of the nodes that an ECE was measured on.
    bins : int
    quantile : float
        Between 0 and 1.
    draws : int
        The number of simulations.
    seed : int
        The same seed gives the same result.

    Examples
    --------
    >>> chance = expected_calibration_error_by_chance([[0.7, 0.3]] * 100)
    >>> print(f"{chance.mean:.3f}, below {chance.quantile:.3f} in 95 of 100 cases")
    0.037, below 0.090 in 95 of 100 cases
    """
    rows = check_probabilities(probabilities)
    if not len(rows):
        raise ConfigError("there are no probabilities; expected those of one node at least")
    if not 0 < quantile < 1:
        raise ConfigError(f"quantile is {quantile}; expected a number between 0 and 1")
    draws = read_value(int, draws, "draws", count())
    generator = Stream(read_value(int, seed, "seed", seed_field())).at("calibration").generator()
    confidence = np.minimum(rows.max(axis=1), 1.0)
    # Sorted by bin, so that sums over a bin are differences of cumulated sums.
    order = np.argsort(bins_of(confidence, _bins(bins)), kind="stable")
    confidence = confidence[order]
    _, starts = np.unique(bins_of(confidence, bins), return_index=True)
    expected = np.add.reduceat(confidence, starts)
    errors = []
    for size in _blocks(draws, max(BLOCK // len(rows), 1)):
        correct = generator.random((size, len(rows))) < confidence
        sums = np.add.reduceat(correct, starts, axis=1, dtype=np.int64)
        errors.append(np.abs(sums - expected).sum(axis=1) / len(rows))
    every = np.concatenate(errors)
    return ByChance(float(every.mean()), float(np.quantile(every, quantile)))


def _scaled(rows: np.ndarray, log_inverse: float) -> np.ndarray:
    return np.asarray(softmax(rows * np.exp(log_inverse), axis=1))


def _root(function: Callable[[float], float]) -> float:
    """Return T where a monotone function of log(1/T) is 0, or the bound where it is nearer to 0."""
    low, high = -np.log(MOST), -np.log(LEAST)
    first, last = function(low), function(high)
    if first * last < 0:
        return float(np.exp(-brentq(function, low, high, xtol=1e-12)))
    return MOST if abs(first) < abs(last) else LEAST


def _blocks(total: int, most: int) -> list[int]:
    return [min(most, total - first) for first in range(0, total, most)]


def _bins(bins: int) -> int:
    return int(read_value(int, bins, "bins", count(most=10**6)))
