"""What many trials say: means and their intervals, and whether two methods differ."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats
from scipy.special import stdtr, stdtrit

FEWEST_PAIRS = 6
"""Below this many pairs a signed-rank test cannot reach 5 %."""


def summarise(values: Sequence[float]) -> dict[str, float | int | None]:
    """Return mean, standard deviation (n - 1), and half the 95 % t-interval of the mean.

    None where there are too few values to tell.

    Examples
    --------
    >>> summary = summarise([0.5, 0.7])
    >>> [round(summary[key], 3) for key in ("mean", "std", "ci95", "n")]
    [0.6, 0.141, 1.271, 2]
    """
    n = len(values)
    deviation = float(np.std(values, ddof=1)) if n > 1 else None
    return {
        "mean": float(np.mean(values)) if n else None,
        "std": deviation,
        "ci95": None if deviation is None else float(stdtrit(n - 1, 0.975)) * deviation / n**0.5,
        "n": n,
    }


def compare(first: Mapping[Hashable, float], second: Mapping[Hashable, float]) -> dict[str, Any]:
    """Return by how much the first is better, with its 95 % interval, and two tests.

    Welch's test compares the means. Wilcoxon's signed-rank test compares what both have the same
    key of, such as the same seed on the same split. Both are two-sided; None where there are too
    few values, or no differences at all.

    Examples
    --------
    >>> compared = compare({0: 3.0, 1: 4.0, 2: 5.0}, {0: 1.0, 1: 2.5, 2: 3.0})
    >>> round(compared["difference"], 2), round(compared["welch_p"], 3), compared["wilcoxon_p"]
    (1.83, 0.093, None)
    """
    a, b = np.array(list(first.values())), np.array(list(second.values()))
    result: dict[str, Any] = {
        "difference": float(a.mean() - b.mean()) if len(a) and len(b) else None,
        "low": None,
        "high": None,
        "welch_p": None,
        "wilcoxon_p": None,
        "n_first": len(a),
        "n_second": len(b),
    }
    if min(len(a), len(b)) > 1 and np.ptp(a) + np.ptp(b) > 0:
        # By hand, because scipy warns of a side that is constant, such as a closed-form method.
        difference = result["difference"]
        shares = [_variance(side) / len(side) for side in (a, b)]
        error = sum(shares) ** 0.5
        degrees = error**4 / (shares[0] ** 2 / (len(a) - 1) + shares[1] ** 2 / (len(b) - 1))
        half = float(stdtrit(degrees, 0.975)) * error
        result |= {
            "low": difference - half,
            "high": difference + half,
            "welch_p": 2 * float(stdtr(degrees, -abs(difference) / error)),
        }
    # Percentages that differ by as many nodes tie, whatever their last bits are.
    differences = np.array([round(first[key] - second[key], 9) for key in first if key in second])
    if len(differences) >= FEWEST_PAIRS and np.any(differences != 0):
        result["wilcoxon_p"] = _signed_rank(differences[differences != 0])
    return result


def _variance(values: np.ndarray) -> float:
    """Return the variance (n - 1): exactly 0 of equal values, whose mean may be rounded."""
    return float(np.var(values, ddof=1)) if np.ptp(values) > 0 else 0.0


def _signed_rank(differences: np.ndarray) -> float:
    """Return the exact p of Wilcoxon's test, ties or not; scipy would permute, for seconds."""
    # Twice the ranks, which are halves where an even number tie.
    ranks = np.rint(2 * stats.rankdata(np.abs(differences))).astype(int)
    chances = np.zeros(ranks.sum() + 1)
    chances[0] = 1.0
    for rank in ranks:
        chances[rank:] += chances[:-rank].copy()
        chances /= 2
    positive = ranks[differences > 0].sum()
    least = min(positive, ranks.sum() - positive)
    return min(1.0, 2 * float(chances[: least + 1].sum()))


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Return p-values corrected for how many there are, by Holm's method; None stays None.

    Examples
    --------
    >>> holm([0.01, None, 0.04, 0.03])
    [0.03, None, 0.06, 0.06]
    """
    known = sorted((value, place) for place, value in enumerate(values) if value is not None)
    corrected: list[float | None] = [None] * len(values)
    largest = 0.0
    for rank, (value, place) in enumerate(known):
        largest = max(largest, min(1.0, value * (len(known) - rank)))
        corrected[place] = largest
    return corrected
