"""Means, intervals and tests against plain formulas, scipy, counting by hand, and simulation."""

from __future__ import annotations

import itertools
import json
import math
import statistics
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from dropnode.experiments.statistics import (
    compare,
    compare_gaps,
    holm,
    summarise,
    summarise_trials,
)

chances = st.one_of(st.none(), st.floats(0, 1), st.sampled_from([0.0, 0.01, 0.05, 1.0]))
counts = st.integers(830, 860)
"""Correct predictions on a thousand test nodes."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Nothing that is computed here may warn: a person would see it, and not know what to do."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def percentages(correct: Sequence[int]) -> list[float]:
    """Return accuracies as they come from a store: fractions, then times a hundred."""
    return [100 * (count / 1000) for count in correct]


def by_seed(values: Sequence[float], first: int = 0) -> dict[tuple[str, int], float]:
    return {("public", seed): value for seed, value in enumerate(values, first)}


def by_split(table: Sequence[Sequence[float]]) -> dict[tuple[str, int], float]:
    """Return the values of a table whose rows are splits and whose columns are seeds."""
    return {
        (f"split {row}", seed): value
        for row, values in enumerate(table)
        for seed, value in enumerate(values)
    }


def elsewhere(values: dict[tuple[str, int], float]) -> dict[tuple[str, int], float]:
    """Return the same values on splits of other names."""
    return {(f"other {split}", seed): value for (split, seed), value in values.items()}


def naive_holm(values: Sequence[float | None]) -> list[float | None]:
    """Return each hypothesis' largest p, times the number of those not smaller, up to its own."""
    known = [value for value in values if value is not None]
    return [
        None
        if value is None
        else max(
            min(1.0, other * sum(p >= other for p in known)) for other in known if other <= value
        )
        for value in values
    ]


@given(st.lists(chances, max_size=12))
def test_holm_is_holms(values: list[float | None]) -> None:
    assert holm(values) == pytest.approx(naive_holm(values))


@given(st.lists(chances, max_size=12))
def test_holm_keeps_the_order_and_never_helps(values: list[float | None]) -> None:
    corrected = holm(values)
    assert [one is None for one in corrected] == [one is None for one in values]
    pairs = [
        (raw, p)
        for raw, p in zip(values, corrected, strict=True)
        if raw is not None and p is not None
    ]
    assert all(raw <= p <= 1 for raw, p in pairs)
    for (raw, p), (other_raw, other_p) in itertools.permutations(pairs, 2):
        assert raw > other_raw or p <= other_p


@given(st.lists(chances, max_size=8).flatmap(lambda v: st.tuples(st.just(v), st.permutations(v))))
def test_holm_does_not_care_for_the_order_of_the_questions(
    both: tuple[list[float | None], list[float | None]],
) -> None:
    values, mixed = both
    answers = dict(zip(values, holm(values), strict=True))
    assert holm(mixed) == [answers[value] for value in mixed]


def test_holm_of_an_example_by_hand() -> None:
    """Four known values: times 4, 3, 2 and 1, and none below the one before it."""
    values = [0.04, 0.01, None, 0.03, 0.005]
    assert holm(values) == pytest.approx([0.06, 0.03, None, 0.06, 0.02])
    assert holm([0.4, 0.9]) == pytest.approx([0.8, 0.9])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([None, 0.2]) == [None, 0.2]
    assert holm([]) == []


def test_welch_of_an_example_by_hand() -> None:
    """Variances 2.5 and 10 of five each: a standard error of √2.5, with 6.25/1.0625 degrees."""
    compared = compare(by_seed([1, 2, 3, 4, 5]), by_seed([2, 4, 6, 8, 10]))
    assert compared.difference == -3
    degrees, error = 6.25 / 1.0625, math.sqrt(2.5)
    half = scipy.stats.t.ppf(0.975, degrees) * error
    assert compared.low == pytest.approx(-3 - half)
    assert compared.high == pytest.approx(-3 + half)
    assert compared.p == pytest.approx(2 * scipy.stats.t.sf(3 / error, degrees))
    assert compared.p == pytest.approx(0.1075, abs=5e-5)
    assert (compared.n_first, compared.n_second) == (5, 5)
    assert compared.wilcoxon_p is None, "five pairs cannot be enough"


def test_wilcoxon_of_examples_by_hand() -> None:
    """Of 64 choices of signs 14 have a sum of ranks of at most 6, and one of 0."""
    zeros = by_seed([0.0] * 6)
    assert compare(by_seed([1, 2, 3, 4, 5, -6]), zeros).wilcoxon_p == pytest.approx(28 / 64)
    assert compare(by_seed([1, 2, 3, 4, 5, 6]), zeros).wilcoxon_p == pytest.approx(2 / 64)


@given(
    st.lists(counts, min_size=2, max_size=20).filter(lambda v: len(set(v)) > 1),
    st.lists(counts, min_size=2, max_size=20).filter(lambda v: len(set(v)) > 1),
)
@settings(max_examples=40)
def test_welch_is_scipys(first: list[int], second: list[int]) -> None:
    a, b = percentages(first), percentages(second)
    compared = compare(by_seed(a), by_seed(b, 1000))
    assert compared.difference == pytest.approx(statistics.fmean(a) - statistics.fmean(b))
    plain = scipy.stats.ttest_ind(a, b, equal_var=False)
    assert compared.p == pytest.approx(plain.pvalue)
    interval = plain.confidence_interval()
    assert [compared.low, compared.high] == pytest.approx([interval.low, interval.high])
    # The interval leaves out zero where the test finds a difference, and only there.
    assert (compared.p < 0.05) == (compared.low > 0 or compared.high < 0)
    assert compared.wilcoxon_p is None, "no seed in common"
    turned = compare(by_seed(b, 1000), by_seed(a))
    assert turned.p == pytest.approx(compared.p)
    assert turned.low == pytest.approx(-compared.high)


def naive_wilcoxon(differences: Sequence[int]) -> float:
    """Count the choices of signs whose sum of ranks is as far out, out of all of them."""
    known = [one for one in differences if one]
    ranks = scipy.stats.rankdata(np.abs(known))
    signs = np.array(list(itertools.product([0, 1], repeat=len(known))))
    sums, seen = signs @ ranks, ranks[np.array(known) > 0].sum()
    return min(1.0, 2 * min((sums <= seen).mean(), (sums >= seen).mean()))


@given(st.lists(st.tuples(counts, counts), min_size=6, max_size=10))
def test_pairs_that_differ_by_as_many_nodes_tie(pairs: list[tuple[int, int]]) -> None:
    """Ranks are those of whole numbers of nodes, whatever floating point makes of a percentage."""
    first, second = zip(*pairs, strict=True)
    compared = compare(by_seed(percentages(first)), by_seed(percentages(second)))
    exact = [one - other for one, other in pairs]
    if any(exact):
        assert compared.wilcoxon_p == pytest.approx(naive_wilcoxon(exact))
    else:
        assert compared.wilcoxon_p is None


def test_six_pairs_never_say_more_than_six_pairs_can() -> None:
    """All of them better by as much: one choice of signs in 64 is as good, and one as bad."""
    better = by_seed(percentages([851, 842, 860, 833, 855, 849]))
    worse = by_seed(percentages([850, 841, 859, 832, 854, 848]))
    assert compare(better, worse).wilcoxon_p == pytest.approx(2 / 64)


def test_pairs_are_found_by_their_key() -> None:
    """Seeds in another order, and seeds that only one side has, change nothing."""
    first = {("public", seed): 80.0 + seed for seed in range(8)}
    second = {("public", seed): 79.0 + 0.5 * seed for seed in range(11, 1, -1)}
    common = [("public", seed) for seed in range(2, 8)]
    expected = scipy.stats.wilcoxon([first[seed] - second[seed] for seed in common]).pvalue
    compared = compare(first, second)
    assert compared.wilcoxon_p == pytest.approx(expected)
    assert (compared.n_first, compared.n_second) == (8, 10)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    """Few seeds of a method that spreads widely, many of one that does not: 95 in 100 all the same.

    An interval from pooled variances would cover about two in three here.
    """
    generator = np.random.default_rng(2020)
    rounds, truth = 1000, 1.5
    covered = 0
    for _ in range(rounds):
        first = generator.normal(80 + truth, 3.0, size=6).tolist()
        second = generator.normal(80, 0.5, size=24).tolist()
        compared = compare(by_seed(first), by_seed(second, 1000))
        covered += compared.low <= truth <= compared.high
    # Three standard deviations of a count of 950 in 1000 are 21.
    assert abs(covered - 950) <= 21


def test_a_gap_beside_one_without_spread_is_a_difference() -> None:
    """Where two groups are constants, what is left is Welch's test of the other two."""
    first, second = by_seed([86.0, 84.5, 85.5, 85.0]), by_seed([81.0, 80.0, 83.0])
    still = by_seed([70.0] * 5), by_seed([67.5] * 6)
    alone, beside = compare(first, second), compare_gaps((first, second), still)
    assert alone.difference is not None
    assert beside.difference == pytest.approx(alone.difference - 2.5)
    shifted = compare({key: value - 2.5 for key, value in first.items()}, second)
    assert [beside.low, beside.high] == pytest.approx([shifted.low, shifted.high])
    assert beside.p == pytest.approx(shifted.p)
    assert (beside.n_first, beside.n_second) == (4, 3)
    assert compare_gaps((first, second), ({}, second)).p is None


def test_the_interval_of_gaps_covers_the_truth_as_often_as_it_says() -> None:
    generator = np.random.default_rng(2020)
    spreads, sizes, means = (3.0, 0.5, 1.0, 2.0), (6, 24, 10, 8), (84.0, 80.0, 83.0, 81.0)
    covered = 0
    for _ in range(1000):
        sides = [
            by_seed(generator.normal(*about, size=size).tolist())
            for *about, size in zip(means, spreads, sizes, strict=True)
        ]
        gaps = compare_gaps((sides[0], sides[1]), (sides[2], sides[3]))
        covered += gaps.low <= 2.0 <= gaps.high
    assert abs(covered - 950) <= 21


def test_splits_form_pairs() -> None:
    """Three splits, two seeds each: their means differ by 1, 2 and 3, whatever a split is worth."""
    first = by_split([[71.0, 73.0], [82.0, 84.0], [93.0, 95.0]])
    second = by_split([[70.0, 72.0], [82.0, 80.0], [90.0, 92.0]])
    compared = compare(first, second)
    plain = scipy.stats.ttest_1samp([1.0, 2.0, 3.0], 0)
    interval = plain.confidence_interval()
    assert compared.difference == pytest.approx(2)
    assert compared.p == pytest.approx(plain.pvalue)
    assert [compared.low, compared.high] == pytest.approx([interval.low, interval.high])
    assert (compared.n_first, compared.n_second, compared.splits) == (6, 6, 3)
    assert compared.wilcoxon_p is None, "three pairs cannot be enough"


def test_the_splits_that_both_sides_have_form_pairs() -> None:
    """After Ctrl-C, one side may lack a split; the others are compared in pairs all the same."""
    first = by_split([[71.0, 73.0], [82.0, 84.0], [93.0, 95.0]])
    second = by_split([[70.0, 72.0], [82.0, 80.0]])
    compared = compare(first, second)
    assert compared.difference == pytest.approx(1.5)
    assert compared.p == pytest.approx(scipy.stats.ttest_1samp([1.0, 2.0], 0).pvalue)
    assert (compared.n_first, compared.n_second, compared.splits) == (4, 4, 2)


def test_splits_that_form_no_pairs_are_values_of_welchs_test() -> None:
    """Of two label rates, say: seeds of one split are not independent there either."""
    first = by_split([[71.0, 73.0], [82.0, 84.0], [93.0, 95.0]])
    second = elsewhere(by_split([[70.0, 72.0], [82.0, 80.0]]))
    compared = compare(first, second)
    plain = scipy.stats.ttest_ind([72.0, 83.0, 94.0], [71.0, 81.0], equal_var=False)
    assert compared.difference == pytest.approx(83 - 76)
    assert compared.p == pytest.approx(plain.pvalue)
    assert (compared.splits, compared.unpaired_splits) == (None, 5)
    assert (compared.n_first, compared.n_second) == (6, 4)


def test_several_splits_against_one_published_split() -> None:
    """Of the one split, trials are all that there is."""
    first, second = by_split([[71.0, 73.0], [82.0, 84.0]]), by_seed([70.0, 72.0, 80.0])
    compared = compare(first, second)
    plain = scipy.stats.ttest_ind([72.0, 83.0], [*second.values()], equal_var=False)
    assert compared.p == pytest.approx(plain.pvalue)
    one_in_common = {("split 0", seed): value for (_, seed), value in second.items()}
    assert compare(first, one_in_common).p == pytest.approx(plain.pvalue)
    assert compare(first, one_in_common).wilcoxon_p is None
    # Also where so many seeds of the split are common that its own pairs could be tested.
    seeds = 70.0 + np.arange(8.0)
    many = {("split 0", seed): value for seed, value in enumerate(seeds)}
    assert compare(by_split([seeds + 2.0, seeds + 9.0]), many).wilcoxon_p is None
    assert compare(by_split([seeds + 2.0]), many).wilcoxon_p is not None


def test_gaps_over_splits_are_compared_by_splits() -> None:
    here = by_split([[71.0, 73.0], [82.0, 84.0], [93.0, 95.0]]), by_split([[70.0], [79.0], [94.0]])
    there = by_split([[61.0], [62.0], [63.0]]), by_split([[60.0], [62.5], [62.0]])
    shared = compare_gaps(here, there)
    assert shared.difference == pytest.approx(2 - 0.5)
    gaps = [2.0 - 1.0, 4.0 + 0.5, 0.0 - 1.0]
    assert shared.p == pytest.approx(scipy.stats.ttest_1samp(gaps, 0).pvalue)
    assert (shared.n_first, shared.n_second, shared.splits) == (3, 3, 3)
    apart = compare_gaps(here, (elsewhere(there[0]), elsewhere(there[1])))
    plain = scipy.stats.ttest_ind([2.0, 4.0, 0.0], [1.0, -0.5, 1.0], equal_var=False)
    assert apart.difference == pytest.approx(1.5)
    assert apart.p == pytest.approx(plain.pvalue)
    unpaired = compare_gaps(here, (elsewhere(there[0]), there[1]))
    assert (unpaired.splits, unpaired.unpaired_splits) == (3, 6)


def test_without_a_difference_few_tests_find_one() -> None:
    """Splits spread by 1 point, their ten seeds by 0.1; at the 5 % level one test in 20 errs.

    Tests of all trials would find a difference more than half of the time.
    """
    generator = np.random.default_rng(2020)
    rounds = 500
    found = {"pairs lack one": 0, "no pairs": 0, "gaps": 0}

    def side(splits: int = 10) -> dict[tuple[str, int], float]:
        split = generator.normal(80, 1.0, size=(splits, 1))
        return by_split((split + generator.normal(0, 0.1, size=(splits, 10))).tolist())

    for _ in range(rounds):
        found["pairs lack one"] += compare(side(), side(9)).p < 0.05
        found["no pairs"] += compare(side(), elsewhere(side())).p < 0.05
        gaps = compare_gaps((side(), elsewhere(side())), (side(), elsewhere(side())))
        found["gaps"] += gaps.p < 0.05
    # Three standard deviations of a count of 25 in 500 are 15.
    assert all(count <= 40 for count in found.values()), found


def test_the_interval_over_splits_covers_the_truth_as_often_as_it_says() -> None:
    """Splits spread by 3 points and seeds by 0.5, and the methods do not gain alike on all splits.

    Welch's interval of the trials would cover nearly always, and be several times as wide; that of
    a single group's trials would cover its mean in two of three.
    """
    generator = np.random.default_rng(2020)
    rounds, truth = 1000, 1.5
    differences = means = 0
    for _ in range(rounds):
        split = generator.normal(80, 3.0, size=(10, 1))
        gain = generator.normal(truth, 1.0, size=(10, 1))
        first = by_split((split + gain + generator.normal(0, 0.5, size=(10, 4))).tolist())
        second = by_split((split + generator.normal(0, 0.5, size=(10, 4))).tolist())
        compared, summary = compare(first, second), summarise_trials(second)
        differences += compared.low <= truth <= compared.high
        means += abs(summary.mean - 80) <= summary.ci95
    assert abs(differences - 950) <= 21
    assert abs(means - 950) <= 21


DEGENERATE: dict[str, tuple[dict[tuple[str, int], float], dict[tuple[str, int], float]]] = {
    "nothing": ({}, {}),
    "nothing on one side": (by_seed([85.4, 85.1]), {}),
    "one value each": (by_seed([85.4]), by_seed([85.1])),
    "one value against many": (by_seed([85.4]), by_seed([84.0, 85.0, 86.0])),
    "zeros": (by_seed([0.0] * 8), by_seed([0.0] * 8)),
    "the same value": (by_seed([81.3] * 10), by_seed([81.3] * 10)),
    "the same value, more often": (by_seed([85.1] * 10), by_seed([85.1] * 100)),
    "one value each, many times": (by_seed([81.3] * 10), by_seed([84.3] * 7)),
    "splits that differ alike": (by_split([[81.0], [83.0]]), by_split([[80.0], [82.0]])),
}


@pytest.mark.parametrize(("first", "second"), DEGENERATE.values(), ids=DEGENERATE.keys())
def test_where_nothing_can_be_said_nothing_is(
    first: dict[tuple[str, int], float], second: dict[tuple[str, int], float]
) -> None:
    """Methods without randomness have equal values: rounding of a mean is no difference."""
    compared = compare(first, second)
    json.dumps(asdict(compared), allow_nan=False)
    assert [compared.low, compared.high, compared.p] == [None] * 3
    assert (compared.n_first, compared.n_second) == (len(first), len(second))
    if first and second:
        means = [statistics.fmean(side.values()) for side in (first, second)]
        assert compared.difference == pytest.approx(means[0] - means[1])
    else:
        assert compared.difference is None
    if set(first.values()) == set(second.values()):
        assert compared.wilcoxon_p is None


def test_a_method_without_randomness_against_one_with() -> None:
    """Its variance is zero, and then so is its share of the error."""
    fixed, spread = [85.1] * 10, [84.0, 85.0, 86.5]
    compared = compare(by_seed(fixed), by_seed(spread, 1000))
    json.dumps(asdict(compared), allow_nan=False)
    half = scipy.stats.t.ppf(0.975, 2) * statistics.stdev(spread) / math.sqrt(3)
    middle = 85.1 - statistics.fmean(spread)
    assert [compared.low, compared.high] == pytest.approx([middle - half, middle + half])


def test_pairs_without_any_difference_have_no_rank() -> None:
    values = [84.0, 85.0, 86.5, 85.1, 85.2, 85.3]
    compared = compare(by_seed(values), by_seed(values))
    assert compared.wilcoxon_p is None
    assert compared.p == pytest.approx(1)
    assert compare(by_seed(values), by_seed([*values[:-1], 84.3])).wilcoxon_p == 1.0


@pytest.mark.parametrize("values", [[], [85.1], [85.1] * 100, [0.0, 0.0]])
def test_a_summary_is_always_json(values: list[float]) -> None:
    summary = summarise(values)
    json.dumps(asdict(summary), allow_nan=False)
    assert summary.n == len(values)
    assert summary.std is None if len(values) < 2 else summary.std == pytest.approx(0)
