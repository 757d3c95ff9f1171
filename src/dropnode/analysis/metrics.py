"""Measures of the quality of predictions: accuracy, confusion, reliability."""

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


def confusion(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Count nodes by true class (rows) and predicted class (columns)."""
    classes = probabilities.shape[1]
    counts = np.bincount(labels * classes + probabilities.argmax(axis=1), minlength=classes**2)
    return counts.reshape(classes, classes)


def reliability(labels: np.ndarray, probabilities: np.ndarray) -> dict[str, Any]:
    """Count predictions, and how many are correct, in bins of equal confidence width.

    Returns
    -------
    dict
        For each bin, the ``count`` of its nodes, the sum of their ``confidence``, and how many of
        their predictions are ``correct``.
    """
    predicted, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1)
    confidence = confidence.astype(np.float64)
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    return {
        "count": np.bincount(bins, minlength=BINS).tolist(),
        "confidence": np.bincount(bins, confidence, minlength=BINS).tolist(),
        "correct": np.bincount(bins, predicted == labels, minlength=BINS).astype(int).tolist(),
    }
