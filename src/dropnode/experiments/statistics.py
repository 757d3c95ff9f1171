"""Statistics over trials: means with confidence intervals, and tests of differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import stats
from scipy.special import stdtr, stdtrit

Scores = Mapping[tuple[str, int], float]
"""The values of some trials by their split and seed."""

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
        The 95 % interval of the difference.
    p, wilcoxon_p : float or None
        Two-sided p-values: of the t-test that the interval belongs to, and of Wilcoxon's.
    n_first, n_second : int
        Number of values in either group.
    splits : int or None
        Number of splits whose means were compared in pairs; None without such pairs.
    unpaired_splits : int or None
        Number of splits whose means Welch's test compared; None if it compared trials alone.
    """

    difference: float | None
    low: float | None
    high: float | None
    p: float | None
    wilcoxon_p: float | None
    n_first: int
    n_second: int
    splits: int | None = None
    unpaired_splits: int | None = None


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


def summarise_trials(scores: Scores) -> Summary:
    """Return mean, standard deviation and confidence interval of the values of some trials.

    Trials of one split share what that split makes easy or hard. With several splits, the interval
    is therefore that of the splits' means; single trials would make it too narrow.

    Examples
    --------
    >>> summary = summarise_trials({("a", 0): 1.0, ("a", 1): 2.0, ("b", 0): 5.0, ("b", 1): 4.0})
    >>> summary.mean, round(summary.std, 2), round(summary.ci95, 1), summary.n
    (3.0, 1.83, 19.1, 4)
    """
    summary = summarise(list(scores.values()))
    means = list(_split_means(scores).values())
    return replace(summary, ci95=summarise(means).ci95) if len(means) > 1 else summary


def compare(first: Scores, second: Scores) -> Difference:
    """Compare the means of two groups of trials.

    Trials on one split are compared by Welch's test. If the groups have several splits in common,
    the means of each of these form pairs, and a t-test of their differences compares the groups.
    What makes a split hard is then no part of the error, and the seeds of a split do not count as
    independent values. For that reason, Welch's test of groups that cannot be paired takes the
    means of splits, too, from a group that has several. Wilcoxon's test compares pairs: of equal
    seeds, or of splits. All tests are two-sided. They are undefined for too few values, and for
    values that do not differ at all.

    Examples
    --------
    >>> first = {("public", 0): 3.0, ("public", 1): 4.0, ("public", 2): 5.0}
    >>> second = {("public", 0): 1.0, ("public", 1): 2.5, ("public", 2): 3.0}
    >>> compared = compare(first, second)
    >>> round(compared.difference, 2), round(compared.p, 3), compared.wilcoxon_p
    (1.83, 0.093, None)
    """
    contrast = _contrast(first, second)
    return _tested(contrast, _signed_rank(contrast.pairs))


def compare_gaps(
    here: tuple[Scores, Scores],
    there: tuple[Scores, Scores],
) -> Difference:
    """Compare the difference of two groups in one place with that in another.

    Several splits that all four groups have form pairs, as in :func:`compare`. Otherwise each place
    is treated as there, and Welch's test compares the two. The numbers of values are the smaller
    ones of both places.

    Examples
    --------
    >>> wide = {("public", 0): 9.0, ("public", 1): 8.0}, {("public", 0): 2.0, ("public", 1): 3.0}
    >>> narrow = {("public", 0): 7.0, ("public", 1): 8.0}, {("public", 0): 6.0, ("public", 1): 7.0}
    >>> gaps = compare_gaps(wide, narrow)
    >>> gaps.difference, round(gaps.p, 4)
    (5.0, 0.0075)
    """
    shared = _on_common_splits(*here, *there)
    a, b = _contrast(*(shared[:2] or here)), _contrast(*(shared[2:] or there))
    counts = min(a.counts[0], b.counts[0]), min(a.counts[1], b.counts[1])
    if shared:
        gaps = a.pairs - b.pairs
        return _tested(_Contrast(float(gaps.mean()), [gaps], gaps, counts, splits=len(gaps)))
    gap = None
    if a.difference is not None and b.difference is not None:
        gap = a.difference - b.difference
    return _tested(
        _Contrast(
            gap,
            [*a.groups, *b.groups],
            np.array([]),
            counts,
            _sum(a.splits, b.splits),
            _sum(a.unpaired_splits, b.unpaired_splits),
        )
    )


@dataclass(frozen=True)
class _Contrast:
    """A difference, and the independent groups of values whose means add up to it."""

    difference: float | None
    groups: Sequence[np.ndarray]
    pairs: np.ndarray
    counts: tuple[int, int]
    splits: int | None = None
    unpaired_splits: int | None = None


def _contrast(first: Scores, second: Scores) -> _Contrast:
    if shared := _on_common_splits(first, second):
        pairs = _differences(*map(_split_means, shared))
        counts = len(shared[0]), len(shared[1])
        return _Contrast(float(pairs.mean()), [pairs], pairs, counts, splits=len(pairs))
    means = [_split_means(side) for side in (first, second)]
    several = sum(len(of_side) for of_side in means if len(of_side) > 1)
    sides = zip((first, second), means, strict=True)
    a, b = (
        np.array(list((of_side if len(of_side) > 1 else side).values())) for side, of_side in sides
    )
    between = float(a.mean() - b.mean()) if len(a) and len(b) else None
    # Seeds of the one split that groups share say nothing about their other splits.
    pairs = np.array([]) if several else _differences(first, second)
    counts = len(first), len(second)
    return _Contrast(between, (a, b), pairs, counts, unpaired_splits=several or None)


def _tested(contrast: _Contrast, wilcoxon_p: float | None = None) -> Difference:
    return Difference(
        contrast.difference,
        *_t_test(contrast.difference, contrast.groups),
        wilcoxon_p,
        *contrast.counts,
        contrast.splits,
        contrast.unpaired_splits,
    )


def _on_common_splits(*sides: Scores) -> list[Scores]:
    """Return the trials on the splits that all groups have; nothing unless these are several."""
    own = [{split: None for split, _ in side} for side in sides]
    common = [split for split in own[0] if all(split in each for each in own)]
    if len(common) < 2:
        return []
    return [
        {key: side[key] for split in common for key in side if key[0] == split} for side in sides
    ]


def _sum(first: int | None, second: int | None) -> int | None:
    return (first or 0) + (second or 0) or None


def _split_means(scores: Scores) -> dict[str, float]:
    """Return the mean over seeds of every split."""
    splits: dict[str, list[float]] = {}
    for (split, _), value in scores.items():
        splits.setdefault(split, []).append(value)
    return {split: float(np.mean(values)) for split, values in splits.items()}


def _differences(first: Mapping[Any, float], second: Mapping[Any, float]) -> np.ndarray:
    """Return the differences of values with the same key."""
    # Rounded, so that pairs that differ by the same number of nodes tie exactly.
    return np.array([round(first[key] - second[key], 9) for key in first if key in second])


def _t_test(
    difference: float | None, groups: Sequence[np.ndarray]
) -> tuple[float | None, float | None, float | None]:
    """Return the 95 % interval and the p-value of a sum or difference of the groups' means.

    This is Welch's test of two groups, and Student's of a single one.
    """
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


def _signed_rank(pairs: np.ndarray) -> float | None:
    """Return the exact p of Wilcoxon's test, with or without ties; None for too few pairs.

    With ties scipy would draw permutations, which takes seconds.
    """
    differences = pairs[pairs != 0]
    if len(pairs) < FEWEST_PAIRS or not len(differences):
        return None
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
