"""Measures of the quality of predictions: accuracy, F1, confusion, reliability.

:mod:`dropnode.analysis.calibration` judges probabilities rather than predicted classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

BINS = 15
"""The number of bins of equal width for confidences."""


def accuracy(labels: np.ndarray, probabilities: np.ndarray) -> float | None:
    """Return the fraction of nodes whose most probable class is correct; None without nodes.

    Examples
    --------
    >>> accuracy(np.array([0, 1]), np.array([[0.9, 0.1], [0.6, 0.4]]))
    0.5
    """
    if not len(labels):
        return None
    return float((probabilities.argmax(axis=1) == labels).mean())


def balanced_accuracy(labels: np.ndarray, probabilities: np.ndarray) -> float | None:
    """Return the accuracy within each class that has nodes, averaged; None without nodes.

    Examples
    --------
    >>> balanced_accuracy(np.array([0, 0, 0, 1]), np.tile([0.9, 0.1], (4, 1)))
    0.5
    """
    if not len(labels):
        return None
    # Imported here, because training imports this module, and scikit-learn takes a second.
    from sklearn.metrics import recall_score

    # Not balanced_accuracy_score, which warns of predicted classes that have no nodes.
    found = recall_score(
        labels, probabilities.argmax(axis=1), labels=np.unique(labels), average="macro"
    )
    return float(found)


def macro_f1(labels: np.ndarray, probabilities: np.ndarray) -> float | None:
    """Return the F1 score averaged over the classes that occur or are predicted; None without any.

    Examples
    --------
    >>> round(macro_f1(np.array([0, 0, 1]), np.array([[0.9, 0.1], [0.2, 0.8], [0.2, 0.8]])), 4)
    0.6667
    """
    if not len(labels):
        return None
    from sklearn.metrics import f1_score

    return float(f1_score(labels, probabilities.argmax(axis=1), average="macro"))


def confusion(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Count nodes by true class (rows) and predicted class (columns)."""
    classes = probabilities.shape[1]
    counts = np.bincount(labels * classes + probabilities.argmax(axis=1), minlength=classes**2)
    return counts.reshape(classes, classes)


def reliability(labels: np.ndarray, probabilities: np.ndarray, bins: int = BINS) -> dict[str, Any]:
    """Count predictions, and how many are correct, in bins of equal confidence width.

    :func:`dropnode.analysis.calibration.binned_error` makes one number of them.

    Returns
    -------
    dict
        For each bin, the ``count`` of its nodes, the sum of their ``confidence``, and how many of
        their predictions are ``correct``.
    """
    predicted, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1)
    confidence = confidence.astype(np.float64)
    places = bins_of(confidence, bins)
    return {
        "count": np.bincount(places, minlength=bins).tolist(),
        "confidence": np.bincount(places, confidence, minlength=bins).tolist(),
        "correct": np.bincount(places, predicted == labels, minlength=bins).astype(int).tolist(),
    }


def bins_of(confidence: np.ndarray, bins: int = BINS) -> np.ndarray:
    """Return the bin, of equal width from 0 to 1, of each confidence."""
    return np.minimum((confidence * bins).astype(int), bins - 1)
