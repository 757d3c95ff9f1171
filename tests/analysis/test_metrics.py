"""Measures of predicted classes, against counts by hand."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from dropnode.analysis.metrics import accuracy, balanced_accuracy, confusion, macro_f1


def predicted(codes: list[int], classes: int) -> np.ndarray:
    """Probabilities whose largest are at these classes."""
    return 0.1 / classes + 0.9 * np.eye(classes)[codes]


def test_scores_of_unequal_classes() -> None:
    labels = np.array([0, 0, 0, 0, 1, 1, 2])
    probabilities = predicted([0, 0, 0, 1, 1, 0, 2], 3)
    assert accuracy(labels, probabilities) == pytest.approx(5 / 7)
    assert balanced_accuracy(labels, probabilities) == pytest.approx((3 / 4 + 1 / 2 + 1) / 3)
    # F1 = 2 TP / (2 TP + FP + FN), class by class.
    assert macro_f1(labels, probabilities) == pytest.approx((6 / 8 + 2 / 4 + 1) / 3)
    np.testing.assert_array_equal(
        confusion(labels, probabilities), [[3, 1, 0], [1, 1, 0], [0, 0, 1]]
    )


def test_classes_without_nodes_do_not_count() -> None:
    """Class 2 is predicted once and class 3 never; neither has a node."""
    labels = np.array([0, 1, 1])
    probabilities = predicted([0, 1, 2], 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert balanced_accuracy(labels, probabilities) == pytest.approx((1 + 1 / 2) / 2)
        # A class that is predicted in vain has an F1 of 0, one that never occurs has none.
        assert macro_f1(labels, probabilities) == pytest.approx((1 + 2 / 3 + 0) / 3)


def test_without_nodes_there_is_no_score() -> None:
    labels, probabilities = np.array([], dtype=np.int64), np.empty((0, 3))
    assert accuracy(labels, probabilities) is None
    assert balanced_accuracy(labels, probabilities) is None
    assert macro_f1(labels, probabilities) is None
