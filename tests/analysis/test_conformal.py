"""Conformal sets: exact coverage of exchangeable nodes, and the figures of another library."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats
from scipy.special import softmax

from dropnode.analysis.conformal import (
    adaptive_scores,
    conformal_quantile,
    coverage_band,
    diffused_scores,
    plain_scores,
    prediction_sets,
)
from dropnode.errors import ConfigError

NODES, CLASSES = 200, 4


class Case:
    """Predictions of a mediocre model on a ring with chords, and random calibration nodes."""

    def __init__(self) -> None:
        generator = np.random.default_rng(2024)
        self.labels = generator.integers(0, CLASSES, NODES)
        noise = generator.normal(size=(NODES, CLASSES))
        self.probabilities = softmax(2.0 * np.eye(CLASSES)[self.labels] + 1.5 * noise, axis=1)
        weights = 0.5 + generator.random(NODES)
        adjacency = sp.lil_array((NODES, NODES))
        for ends in (
            [(i, (i + 1) % NODES) for i in range(NODES)],
            [(i, (7 * i + 3) % NODES) for i in range(NODES)],
        ):
            for (i, j), weight in zip(ends, weights, strict=True):
                if i != j:
                    adjacency[i, j] = adjacency[j, i] = weight
        self.adjacency = adjacency.tocsr()
        self.calibration = generator.permutation(NODES)[:60]
        self.test = np.setdiff1d(np.arange(NODES), self.calibration)


CASE = Case()

SCORES: dict[str, Callable[[], np.ndarray]] = {
    "plain": lambda: plain_scores(CASE.probabilities),
    "adaptive": lambda: adaptive_scores(CASE.probabilities),
    "adaptive, random": lambda: adaptive_scores(CASE.probabilities, seed=5),
    "diffused": lambda: diffused_scores(adaptive_scores(CASE.probabilities), CASE.adjacency),
    "plain, diffused": lambda: diffused_scores(
        plain_scores(CASE.probabilities), CASE.adjacency, 0.3
    ),
}


@pytest.mark.parametrize(
    ("scores", "alpha", "threshold", "classes", "covered"),
    [
        ("plain", 0.05, 0.9567038016180796, 393, 133),
        ("plain", 0.1, 0.8942875317083406, 286, 125),
        ("plain", 0.3, 0.6649185302921952, 167, 96),
        ("adaptive", 0.05, 0.9941167376141226, 379, 132),
        ("adaptive", 0.1, 0.980191798919704, 317, 119),
        ("adaptive", 0.3, 0.9197041466769021, 208, 86),
        ("diffused", 0.05, 0.9692592096182142, 475, 130),
        ("diffused", 0.1, 0.9474969507727982, 407, 123),
        ("diffused", 0.3, 0.9069786715902672, 251, 90),
        ("plain, diffused", 0.1, 0.8859786442417954, 374, 128),
    ],
)
def test_figures_of_torchcp(
    scores: str, alpha: float, threshold: float, classes: int, covered: int
) -> None:
    """LAC, APS without randomness, and DAPS of torchcp 1.2.1, on the same predictions.

    It adds 1e-10 to degrees. The numbers are those of its sets of the test nodes.
    """
    found = SCORES[scores]()
    own = found[CASE.calibration, CASE.labels[CASE.calibration]]
    assert conformal_quantile(own, alpha) == pytest.approx(threshold, rel=1e-9)
    sets = prediction_sets(found, CASE.labels, CASE.calibration, alpha)[CASE.test]
    assert sets.sum() == classes
    assert sets[np.arange(len(sets)), CASE.labels[CASE.test]].sum() == covered


# The last of the deterministic adaptive scores of a node is always 1, so that some are equal.
@pytest.mark.parametrize("name", [name for name in SCORES if name != "adaptive"])
def test_coverage_over_random_calibration_nodes_is_beta_binomial(name: str) -> None:
    """The conditions hold by construction: which nodes calibrate is drawn anew every time."""
    scores, alpha, repeats = SCORES[name](), 0.2, 400
    own = scores[np.arange(NODES), CASE.labels]
    assert len(np.unique(own)) == NODES
    generator = np.random.default_rng(11)
    covered = np.empty(repeats, dtype=int)
    for repeat in range(repeats):
        drawn = generator.permutation(NODES)
        calibration, test = drawn[:24], drawn[24:64]
        sets = prediction_sets(scores, CASE.labels, calibration, alpha)
        covered[repeat] = sets[test, CASE.labels[test]].sum()
    expected = stats.betabinom(40, 20, 5)  # ⌈25 · 0.8⌉ = 20
    assert abs(covered.mean() - expected.mean()) < 4 * expected.std() / math.sqrt(repeats)
    low, high = coverage_band(24, 40, alpha)
    outside = int(((covered < 40 * low) | (covered > 40 * high)).sum())
    assert outside <= stats.binom(repeats, 0.01).isf(1e-6)
    # The whole distribution, with rare numbers taken together.
    numbers = np.arange(41)
    bins = np.digitize(numbers, expected.ppf([0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9]))
    chances = np.bincount(bins, expected.pmf(numbers))
    counts = np.bincount(bins[covered], minlength=len(chances))
    assert stats.chisquare(counts, repeats * chances).pvalue > 1e-5


def test_equal_scores_only_add_to_the_coverage() -> None:
    scores = plain_scores(CASE.probabilities).round(1)
    generator, covered = np.random.default_rng(2), []
    for _ in range(300):
        drawn = generator.permutation(NODES)
        sets = prediction_sets(scores, CASE.labels, drawn[:24], 0.2)
        covered.append(sets[drawn[24:64], CASE.labels[drawn[24:64]]].mean())
    assert np.mean(covered) > 0.8 + 4 * np.std(covered) / math.sqrt(300)


def test_coverage_of_new_data_is_in_the_band() -> None:
    """New predictions and labels in every repetition, of a model that is badly calibrated."""
    generator = np.random.default_rng(3)
    low, high = coverage_band(30, 50, 0.1)
    outside, repeats = 0, 300
    for repeat in range(repeats):
        labels = generator.integers(0, 3, 80)
        logits = np.eye(3)[labels] + generator.normal(size=(80, 3))
        scores = adaptive_scores(softmax(6.0 * logits, axis=1), seed=repeat)
        sets = prediction_sets(scores, labels, np.arange(30), 0.1)
        outside += not low <= sets[np.arange(30, 80), labels[30:]].mean() <= high
    assert outside <= stats.binom(repeats, 0.01).isf(1e-6)


def test_the_band_has_the_level_and_no_more_than_needed() -> None:
    for calibration, test, alpha, level in [(24, 40, 0.2, 0.99), (500, 1000, 0.1, 0.9)]:
        rank = math.ceil((calibration + 1) * (1 - Fraction(str(alpha))))
        covered = stats.betabinom(test, rank, calibration + 1 - rank)
        low, high = (
            round(test * bound) for bound in coverage_band(calibration, test, alpha, level)
        )
        inside = covered.cdf(high) - covered.cdf(low - 1)
        assert inside >= level
        assert covered.cdf(low) > (1 - level) / 2
        assert covered.sf(high - 1) > (1 - level) / 2
    assert coverage_band(5, 10, 0.1) == (1.0, 1.0)


def test_more_nodes_narrow_the_band() -> None:
    narrow, wide = coverage_band(2000, 2000, 0.1), coverage_band(50, 2000, 0.1)
    assert wide[0] < narrow[0] < 0.9 < narrow[1] < wide[1]


def test_the_rank_is_exact_in_decimals() -> None:
    """(n + 1)(1 - α) is a whole number in decimals, and a little more in binary."""
    scores = np.arange(1.0, 10.0)
    assert math.ceil(10 * (1 - 0.7)) == 4
    assert conformal_quantile(scores, 0.7) == 3.0
    assert conformal_quantile(scores, 0.1) == 9.0
    assert conformal_quantile(scores, 0.0999) == math.inf
    assert conformal_quantile([], 0.5) == math.inf
    assert conformal_quantile([0.25], np.float64(0.5)) == 0.25


def test_with_too_few_calibration_nodes_every_set_has_all_classes() -> None:
    scores = plain_scores(CASE.probabilities)
    assert prediction_sets(scores, CASE.labels, CASE.calibration[:8], 0.1).all()
    assert prediction_sets(scores, CASE.labels, [], 0.5).all()
    assert not prediction_sets(scores, CASE.labels, CASE.calibration[:9], 0.1).all()


def test_only_labels_of_calibration_nodes_are_read() -> None:
    hidden = np.full(NODES, -1)
    hidden[CASE.calibration] = CASE.labels[CASE.calibration]
    scores = plain_scores(CASE.probabilities)
    np.testing.assert_array_equal(
        prediction_sets(scores, hidden, CASE.calibration, 0.1),
        prediction_sets(scores, CASE.labels, CASE.calibration, 0.1),
    )


def test_random_scores_lie_between_the_sums_without_and_with_the_class() -> None:
    scores = adaptive_scores(CASE.probabilities, seed=1)
    whole = adaptive_scores(CASE.probabilities)
    part = (scores - (whole - CASE.probabilities)) / CASE.probabilities
    # One draw per node, the same for all its classes.
    np.testing.assert_allclose(part, np.tile(part[:, :1], CLASSES), atol=1e-9)
    assert stats.kstest(part[:, 0], "uniform").pvalue > 1e-3
    np.testing.assert_array_equal(scores, adaptive_scores(CASE.probabilities, seed=1))
    assert (scores != adaptive_scores(CASE.probabilities, seed=2)).all()


def test_equal_probabilities_are_ranked_by_class() -> None:
    np.testing.assert_allclose(adaptive_scores([[0.4, 0.2, 0.4]]), [[0.4, 1.0, 0.8]])


def test_diffusion_against_a_loop_and_without_neighbours() -> None:
    scores = adaptive_scores(CASE.probabilities)
    adjacency = CASE.adjacency.tolil()
    adjacency[7], adjacency[:, 7] = 0, 0
    mixed = diffused_scores(scores, adjacency.tocsr(), 0.25)
    dense = adjacency.toarray()
    for node in range(NODES):
        if node != 7:
            average = dense[node] @ scores / dense[node].sum()
            np.testing.assert_allclose(mixed[node], 0.75 * scores[node] + 0.25 * average)
    np.testing.assert_array_equal(mixed[7], scores[7])
    np.testing.assert_array_equal(diffused_scores(scores, CASE.adjacency, 0.0), scores)


def test_diffusion_makes_smaller_sets_where_neighbours_share_a_class() -> None:
    generator = np.random.default_rng(9)
    labels = np.repeat(np.arange(4), 100)
    same = labels[:, None] == labels
    edges = np.triu(generator.random((400, 400)) < np.where(same, 0.05, 0.002), 1)
    adjacency = sp.csr_array((edges | edges.T).astype(float))
    logits = 1.5 * np.eye(4)[labels] + generator.normal(size=(400, 4))
    scores = adaptive_scores(softmax(logits, axis=1), seed=0)
    calibration = generator.permutation(400)[:150]
    sizes = [
        prediction_sets(each, labels, calibration, 0.1).sum(axis=1).mean()
        for each in (scores, diffused_scores(scores, adjacency))
    ]
    assert sizes[1] < 0.9 * sizes[0]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: conformal_quantile([1.0], 0.0), "alpha is 0.0; expected a number between"),
        (lambda: prediction_sets([[0.1]], [0, 0], [0], 0.1), "labels have shape (2,) for 1 rows"),
        (lambda: prediction_sets([[0.1]], [-1], [0], 0.1), "-1, unknown"),
        (lambda: prediction_sets([[0.1]], [0], [1], 0.1), "hold node 1; expected positions from"),
        (lambda: prediction_sets([[0.1]], [0], [0, 0], 0.1), "hold node 0 twice"),
        (lambda: prediction_sets([[0.1]], [0], [True], 0.1), "numpy.flatnonzero(mask)"),
        (lambda: diffused_scores([[0.1]], sp.eye_array(2)), "adjacency has shape (2, 2) for 1"),
        (lambda: diffused_scores([[0.1]], sp.eye_array(1), 1.5), "neighbours = 1.5; expected"),
        (lambda: adaptive_scores([[0.5, 0.4]]), "sum to 0.9"),
        (lambda: coverage_band(10, 0, 0.1), "test = 0; expected a whole number of at least 1"),
        (lambda: coverage_band(10, 10, 0.1, 1.0), "level is 1.0; expected"),
    ],
)
def test_errors_say_what_was_expected(call: Any, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        call()
    assert told in str(caught.value)
