"""Measures of held-out predictions."""

from __future__ import annotations

from typing import Any

import numpy as np

from dropnode.analysis.calibration import (
    apply_temperature,
    brier_score,
    expected_calibration_error,
    expected_calibration_error_by_chance,
)
from dropnode.analysis.metrics import accuracy, balanced_accuracy, confusion, macro_f1, reliability
from dropnode.assessment.held_out import HeldOut
from dropnode.assessment.trust import ALPHA, Trust


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
