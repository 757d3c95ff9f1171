"""Calibration against known truths: simulated labels, scikit-learn, exhaustive search."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import log_softmax, softmax
from sklearn.metrics import log_loss

from dropnode.analysis.calibration import (
    LEAST,
    MOST,
    apply_temperature,
    brier_score,
    expected_calibration_error,
    expected_calibration_error_by_chance,
    fit_temperature,
    negative_log_likelihood,
)
from dropnode.errors import ConfigError


def drawn(nodes: int, classes: int, seed: int, scale: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """Logits, and labels drawn from their softmax: perfectly calibrated at T = 1."""
    generator = np.random.default_rng(seed)
    logits = scale * generator.normal(size=(nodes, classes))
    cumulated = softmax(logits, axis=1).cumsum(axis=1)
    labels = (generator.random((nodes, 1)) > cumulated[:, :-1]).sum(axis=1)
    return logits, labels


def loss(logits: np.ndarray, labels: np.ndarray, temperature: float) -> float:
    return float(-log_softmax(logits / temperature, axis=1)[np.arange(len(labels)), labels].mean())


@pytest.mark.parametrize("factor", [0.2, 1.0, 7.0])
def test_the_temperature_undoes_a_factor_on_calibrated_logits(factor: float) -> None:
    logits, labels = drawn(20_000, 5, seed=0)
    found = fit_temperature(factor * logits, labels)
    # Its standard error with so many labels is below 1 %.
    assert found == pytest.approx(factor, rel=0.03)
    before = expected_calibration_error(labels, softmax(factor * logits, axis=1))
    after = expected_calibration_error(labels, apply_temperature(factor * logits, found))
    assert after < (before if factor != 1.0 else 0.02)


@given(st.integers(1, 12), st.integers(1, 4), st.integers(0, 10**6))
def test_no_temperature_between_the_bounds_is_better(nodes: int, classes: int, seed: int) -> None:
    """Where all are correct, the rule of succession decides instead of the loss."""
    generator = np.random.default_rng(seed)
    logits = generator.integers(-3, 4, (nodes, classes)) * generator.choice([0.1, 1.0, 50.0])
    labels = generator.integers(0, classes, nodes)
    found = fit_temperature(logits, labels)
    assert LEAST <= found <= MOST
    probabilities = apply_temperature(logits, found)
    assert np.isfinite(probabilities).all()
    if (logits[np.arange(nodes), labels] == logits.max(axis=1)).all():
        assert found <= 1.0
        assert probabilities.max(axis=1).mean() <= max(
            (nodes + 1) / (nodes + 2) + 1e-9, softmax(logits, axis=1).max(axis=1).mean() + 1e-12
        )
        return
    grid = np.geomspace(LEAST, MOST, 200)
    best = min(loss(logits, labels, temperature) for temperature in grid)
    assert loss(logits, labels, found) <= best + 1e-9 * max(1.0, abs(best))


def test_when_every_node_is_correct_confidence_stays_below_the_rule_of_succession() -> None:
    unsure = np.array([[0.4, 0.0, 0.0], [0.0, 0.9, 0.0], [0.0, 0.0, 0.2]])
    found = fit_temperature(unsure, [0, 1, 2])
    assert apply_temperature(unsure, found).max(axis=1).mean() == pytest.approx(4 / 5)
    assert fit_temperature(2.0 * unsure, [0, 1, 2]) == pytest.approx(2.0 * found)
    # A model that is surer than the rule allows is left as it is.
    assert fit_temperature(20.0 * unsure, [0, 1, 2]) == 1.0


def test_one_node_one_class_and_equal_logits() -> None:
    assert fit_temperature([[5.0, 0.0]], [0]) == 1.0
    # A single error in a single node: no confidence at all is justified.
    assert fit_temperature([[5.0, 0.0]], [1]) == MOST
    assert fit_temperature([[5.0], [2.0]], [0, 0]) == 1.0
    assert fit_temperature([[2.0, 2.0], [1.0, 1.0]], [0, 1]) == 1.0
    # The label shares the highest logit with another class in every node.
    assert fit_temperature([[1.0, 1.0, 0.0]], [0]) == LEAST


def test_no_better_than_chance_makes_nearly_equal_probabilities() -> None:
    generator = np.random.default_rng(1)
    logits, labels = generator.normal(size=(50, 3)), generator.integers(0, 3, 50)
    reversed_ = np.where(np.arange(3) == labels[:, None], -1.0, 1.0) * np.abs(logits)
    assert fit_temperature(reversed_, labels) == MOST
    assert apply_temperature(reversed_, MOST).max() == pytest.approx(1 / 3, abs=1e-3)


def test_a_temperature_changes_no_prediction() -> None:
    logits, labels = drawn(500, 4, seed=3)
    found = fit_temperature(5 * logits, labels)
    np.testing.assert_array_equal(
        apply_temperature(5 * logits, found).argmax(axis=1), logits.argmax(axis=1)
    )


def test_scores_agree_with_scikit_learn_and_with_a_loop() -> None:
    logits, labels = drawn(300, 4, seed=5)
    probabilities = softmax(logits, axis=1)
    expected = log_loss(labels, probabilities, labels=range(4))
    assert negative_log_likelihood(labels, probabilities) == pytest.approx(expected)
    total = 0.0
    for row, label in zip(probabilities, labels, strict=True):
        total += sum((p - (c == label)) ** 2 for c, p in enumerate(row))
    assert brier_score(labels, probabilities) == pytest.approx(total / 300)
    assert negative_log_likelihood([1], [[1.0, 0.0]]) == np.inf


def test_the_error_agrees_with_a_loop_over_bins() -> None:
    logits, labels = drawn(400, 3, seed=6)
    probabilities = softmax(3 * logits, axis=1)
    confidence, hit = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    for bins in (1, 7, 15):
        error = 0.0
        for b in range(bins):
            inside = (confidence >= b / bins) & (confidence < (b + 1) / bins + (b == bins - 1))
            if inside.any():
                error += inside.mean() * abs(confidence[inside].mean() - hit[inside].mean())
        assert expected_calibration_error(labels, probabilities, bins) == pytest.approx(error)


def test_the_error_by_chance_is_that_of_labels_drawn_from_the_probabilities() -> None:
    """Against its definition: draw labels, measure the error, again and again."""
    logits, _ = drawn(120, 3, seed=8)
    probabilities = softmax(logits, axis=1)
    generator = np.random.default_rng(0)
    cumulated = probabilities.cumsum(axis=1)
    errors = []
    for _ in range(600):
        labels = (generator.random((120, 1)) > cumulated[:, :-1]).sum(axis=1)
        errors.append(expected_calibration_error(labels, probabilities))
    chance = expected_calibration_error_by_chance(probabilities, draws=4000, quantile=0.9)
    spread = np.std(errors) * np.sqrt(1 / 600 + 1 / 4000)
    assert abs(chance.mean - np.mean(errors)) < 5 * spread
    # The share of errors below the quantile, which both samples estimate.
    below = np.mean(np.array(errors) <= chance.quantile)
    assert abs(below - 0.9) < 5 * np.sqrt(0.9 * 0.1 * (1 / 600 + 1 / 4000))


def test_the_error_by_chance_of_one_bin_has_a_closed_form() -> None:
    """With one confidence, the error is |correct / n - p| of a binomial number."""
    chance = expected_calibration_error_by_chance(
        np.tile([0.8, 0.2], (50, 1)), draws=20_000, seed=4
    )
    correct = np.arange(51)
    weights = stats.binom(50, 0.8).pmf(correct)
    gaps = np.abs(correct / 50 - 0.8)
    mean = weights @ gaps
    spread = np.sqrt(weights @ gaps**2 - mean**2)
    assert abs(chance.mean - mean) < 5 * spread / np.sqrt(20_000)


def test_the_error_by_chance_repeats_by_its_seed_and_vanishes_when_certain() -> None:
    logits, _ = drawn(60, 3, seed=9)
    probabilities = softmax(logits, axis=1)
    first = expected_calibration_error_by_chance(probabilities, seed=1)
    assert first == expected_calibration_error_by_chance(probabilities, seed=1)
    assert first != expected_calibration_error_by_chance(probabilities, seed=2)
    assert expected_calibration_error_by_chance(np.eye(3)) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: fit_temperature([1.0, 2.0], [0]), "shape (2,); expected numbers, one row per"),
        (lambda: fit_temperature([[1.0, np.nan]], [0]), "logits of row 0 are not finite"),
        (lambda: fit_temperature([[1.0, 2.0]], [-1]), "the label of row 0 is -1, unknown"),
        (lambda: fit_temperature([[1.0, 2.0]], [2]), "expected class codes from 0 to 1"),
        (lambda: fit_temperature([[1.0, 2.0]], [0, 1]), "expected 1 class codes"),
        (lambda: fit_temperature(np.empty((0, 2)), np.empty(0, int)), "there are no labels"),
        (lambda: apply_temperature([[1.0]], 0.0), "temperature is 0.0; expected a finite"),
        (lambda: brier_score([0], [[0.9, 0.9]]), "row 0 sum to 1.8"),
        (lambda: brier_score([0], [[1.5, -0.5]]), "the least is -0.5"),
        (lambda: expected_calibration_error([0], [[1.0, 0.0]], 0), "bins = 0; expected"),
        (lambda: expected_calibration_error_by_chance([[1.0]], quantile=2), "quantile is 2"),
        (lambda: expected_calibration_error_by_chance([[1.0]], seed=-1), "seed = -1"),
        (lambda: expected_calibration_error_by_chance(np.empty((0, 2))), "no probabilities"),
    ],
)
def test_errors_say_what_was_expected(call: Any, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        call()
    assert told in str(caught.value)
