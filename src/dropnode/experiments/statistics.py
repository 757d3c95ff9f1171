"""Statistics over trials: means with confidence intervals, and tests of differences."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats
from scipy.special import stdtr, stdtrit

FEWEST_PAIRS = 6
"""The smallest number of pairs for which a signed-rank test can reach the 5 % level."""


@dataclass(frozen=True)
class Summary:
    """The mean of some values and its uncertainty; None if there are too few values.

    Attributes
    ----------
    mean : float or None
    std : float or None
        Standard deviation, with n - 1.
    ci95 : float or None
        Half the width of the 95 % t-interval of the mean.
    n : int
        Number of values.
    """

    mean: float | None
    std: float | None
    ci95: float | None
    n: int


@dataclass(frozen=True)
class Difference:
    """The difference between the means of two groups; None if it is undefined.

    Attributes
    ----------
    difference : float or None
    low, high : float or None
        The 95 % Welch interval of the difference.
    welch_p, wilcoxon_p : float or None
        Two-sided p-values.
    n_first, n_second : int
        Number of values in either group.
    """

    difference: float | None
    low: float | None
    high: float | None
    welch_p: float | None
    wilcoxon_p: float | None
    n_first: int
    n_second: int


def summarise(values: Sequence[float]) -> Summary:
    """Return mean, standard deviation and confidence interval of some values.

    Examples
    --------
    >>> summary = summarise([0.5, 0.7])
    >>> round(summary.mean, 3), round(summary.std, 3), round(summary.ci95, 3), summary.n
    (0.6, 0.141, 1.271, 2)
    """
    n = len(values)
    if n < 2:
        return Summary(float(values[0]) if n else None, None, None, n)
    deviation = float(np.std(values, ddof=1))
    half = float(stdtrit(n - 1, 0.975)) * deviation / n**0.5
    return Summary(float(np.mean(values)), deviation, half, n)


def compare(first: Mapping[Hashable, float], second: Mapping[Hashable, float]) -> Difference:
    """Compare the means of two groups by Welch's test, and their pairs by Wilcoxon's.

    Values with the same key, such as the same seed on the same split, form a pair. Both tests are
    two-sided. They are undefined for too few values, and for values that do not differ at all.

    Examples
    --------
    >>> compared = compare({0: 3.0, 1: 4.0, 2: 5.0}, {0: 1.0, 1: 2.5, 2: 3.0})
    >>> round(compared.difference, 2), round(compared.welch_p, 3), compared.wilcoxon_p
    (1.83, 0.093, None)
    """
    a, b = np.array(list(first.values())), np.array(list(second.values()))
    difference = float(a.mean() - b.mean()) if len(a) and len(b) else None
    wilcoxon_p = None
    low, high, welch_p = _welch(difference, (a, b))
    # Rounded, so that pairs that differ by the same number of nodes tie exactly.
    pairs = np.array([round(first[key] - second[key], 9) for key in first if key in second])
    if len(pairs) >= FEWEST_PAIRS and np.any(pairs != 0):
        wilcoxon_p = _signed_rank(pairs[pairs != 0])
    return Difference(difference, low, high, welch_p, wilcoxon_p, len(a), len(b))


def compare_gaps(
    here: tuple[Mapping[Hashable, float], Mapping[Hashable, float]],
    there: tuple[Mapping[Hashable, float], Mapping[Hashable, float]],
) -> Difference:
    """Compare the difference of two groups in one place with that in another, by Welch's test.

    The numbers of values are the smaller ones of both places.

    Examples
    --------
    >>> wide, narrow = ({0: 9.0, 1: 8.0}, {0: 2.0, 1: 3.0}), ({0: 7.0, 1: 8.0}, {0: 6.0, 1: 7.0})
    >>> gaps = compare_gaps(wide, narrow)
    >>> gaps.difference, round(gaps.welch_p, 4)
    (5.0, 0.0075)
    """
    groups = [np.array(list(side.values())) for side in (*here, *there)]
    difference = None
    if all(len(group) for group in groups):
        means = [float(group.mean()) for group in groups]
        difference = (means[0] - means[1]) - (means[2] - means[3])
    counts = [len(group) for group in groups]
    return Difference(
        difference,
        *_welch(difference, groups),
        None,
        min(counts[0], counts[2]),
        min(counts[1], counts[3]),
    )


def _welch(
    difference: float | None, groups: Sequence[np.ndarray]
) -> tuple[float | None, float | None, float | None]:
    """Return the 95 % interval and the p-value of a sum or difference of the groups' means."""
    # scipy would warn of constant groups, such as those of a method without randomness.
    if difference is None or min(map(len, groups)) < 2 or not any(map(np.ptp, groups)):
        return None, None, None
    shares = [_variance(group) / len(group) for group in groups]
    error = sum(shares) ** 0.5
    parts = zip(shares, groups, strict=True)
    degrees = error**4 / sum(share**2 / (len(group) - 1) for share, group in parts)
    half = float(stdtrit(degrees, 0.975)) * error
    p = 2 * float(stdtr(degrees, -abs(difference) / error))
    return difference - half, difference + half, p


def _variance(values: np.ndarray) -> float:
    """Return the variance (n - 1); exactly 0 for equal values, whose mean may be rounded."""
    return float(np.var(values, ddof=1)) if np.ptp(values) > 0 else 0.0


def _signed_rank(differences: np.ndarray) -> float:
    """Return the exact p of Wilcoxon's test, with or without ties.

    With ties scipy would draw permutations, which takes seconds.
    """
    # Doubled, because an even number of ties have half-integer ranks.
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
    """Return p-values corrected for multiple tests by Holm's method; None stays None.

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
