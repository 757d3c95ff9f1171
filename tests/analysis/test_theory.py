"""The theorems against every mask there is, on graphs small enough to enumerate them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from dropnode.analysis.theory import (
    LinearGrand,
    closed_forms,
    consistency_regulariser,
    expected_consistency_loss,
    expected_supervised_excess,
    fit_exponent,
    monte_carlo,
    promised_exponent,
    supervised_regulariser,
    theory_curves,
    variance,
)
from dropnode.errors import ConfigError
from oracles import RandomGraph, random_graphs

Exact = Callable[[LinearGrand, float], float]
LABELLED = np.array([0, 2, 3])
SIZES = np.geomspace(0.01, 0.1, 5)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


def dense(matrix: object) -> np.ndarray:
    return matrix.toarray().astype(float) if sp.issparse(matrix) else np.array(matrix, float)


def outcomes(model: LinearGrand, size: float) -> Iterator[tuple[float, np.ndarray]]:
    """Every perturbed ĀX̃·W with its probability."""
    features = dense(model.features)
    mixed = oracles.mixed(dense(model.operator), model.order)
    stored = len(features) if model.kind == "dropnode" else np.count_nonzero(features)
    for kept in product([False, True], repeat=stored):
        mask = np.array(kept)
        drop = oracles.drop_nodes if model.kind == "dropnode" else oracles.drop_stored
        full = drop(features, mask) / (1 - model.drop_rate)
        probability = np.prod(np.where(mask, 1 - model.drop_rate, model.drop_rate))
        yield probability, mixed @ (features + size * (full - features)) @ model.weights


def exact_variance(model: LinearGrand) -> np.ndarray:
    weights, logits = map(np.array, zip(*outcomes(model, 1.0), strict=True))
    return weights @ (logits - weights @ logits) ** 2


def exact_consistency(model: LinearGrand, size: float) -> float:
    """Over all pairs of masks: half of the mean squared difference is the variance."""
    weights, logits = map(np.array, zip(*outcomes(model, size), strict=True))
    z = sigmoid(logits)
    return float((weights @ (z - weights @ z) ** 2).sum())


def exact_excess(model: LinearGrand, size: float) -> float:
    """With labels, although they cancel."""
    labels = np.arange(len(LABELLED)) % 2

    def loss(logits: np.ndarray) -> np.ndarray:
        z = sigmoid(logits[..., LABELLED])
        return -(labels * np.log(z) + (1 - labels) * np.log(1 - z)).sum(axis=-1)

    weights, logits = map(np.array, zip(*outcomes(model, size), strict=True))
    original = oracles.mixed(dense(model.operator), model.order) @ dense(model.features)
    return float(weights @ loss(logits) - loss(original @ model.weights))


def small(kind: str, drop_rate: float, sparse: bool = False) -> LinearGrand:
    """Seven nodes, nine stored features, logits that are not symmetric about zero."""
    generator = np.random.default_rng(4)
    nodes = 7
    adjacency = np.zeros((nodes, nodes))
    for i, j in [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (4, 5)]:
        adjacency[i, j] = adjacency[j, i] = 1.0
    features = np.zeros((nodes, 3))
    stored = generator.permutation(nodes * 3)[:9]
    features.ravel()[stored] = generator.uniform(0.5, 2.0, len(stored))
    return LinearGrand(
        sp.csr_array(oracles.normalised(adjacency)),
        sp.csr_array(features) if sparse else features,
        np.array([1.1, 0.8, -0.3]),
        order=2,
        drop_rate=drop_rate,
        kind=kind,
    )


every_kind = pytest.mark.parametrize("kind", ["dropnode", "dropout"])
every_rate = pytest.mark.parametrize("drop_rate", [0.5, 0.2, 0.8])


@settings(max_examples=25)
@given(
    random_graphs(max_nodes=5),
    st.sampled_from(["dropnode", "dropout"]),
    st.sampled_from([0.5, 0.2, 0.7]),
    st.integers(0, 4),
    st.booleans(),
)
def test_variances_and_regularisers(
    drawn: RandomGraph, kind: str, drop_rate: float, order: int, sparse: bool
) -> None:
    features = drawn.features[:, :2]
    weights = np.array([0.7, -1.2])[: features.shape[1]]
    operator = oracles.normalised(drawn.adjacency)
    model = LinearGrand(
        sp.csr_array(operator),
        sp.csr_array(features) if sparse else features,
        weights,
        order,
        drop_rate,
        kind,
    )
    expected = exact_variance(model)
    np.testing.assert_allclose(variance(model), expected, rtol=1e-9, atol=1e-12)
    z = sigmoid(oracles.mixed(operator, order) @ features @ weights)
    assert consistency_regulariser(model) == pytest.approx(
        np.sum((z * (1 - z)) ** 2 * expected), rel=1e-9, abs=1e-12
    )
    labelled = np.arange(0, len(z), 2)
    assert supervised_regulariser(model, labelled) == pytest.approx(
        np.sum((z * (1 - z) * expected)[labelled]) / 2, rel=1e-9, abs=1e-12
    )


@every_kind
def test_the_formulas_of_the_paper(kind: str) -> None:
    """R^c and R^q with the sums in the order in which the paper writes them."""
    model = small(kind, 0.3)
    features, mixed = dense(model.features), oracles.mixed(dense(model.operator), model.order)
    z = sigmoid(mixed @ features @ model.weights)
    consistency = supervised = 0.0
    for j in range(model.nodes):
        if kind == "dropnode":
            confidence = (features[j] @ model.weights) ** 2
        else:
            confidence = sum(features[j] ** 2 * model.weights**2)
        uncertain = sum(mixed[i, j] ** 2 * (z[i] * (1 - z[i])) ** 2 for i in range(model.nodes))
        labelled = sum(mixed[i, j] ** 2 * z[i] * (1 - z[i]) for i in LABELLED)
        consistency += 0.3 / 0.7 * confidence * uncertain
        supervised += 0.5 * 0.3 / 0.7 * confidence * labelled
    assert consistency_regulariser(model) == pytest.approx(consistency, rel=1e-12)
    assert supervised_regulariser(model, LABELLED) == pytest.approx(supervised, rel=1e-12)


def test_an_operator_that_is_not_symmetric() -> None:
    generator = np.random.default_rng(0)
    model = LinearGrand(
        sp.csr_array(generator.uniform(0, 0.5, (4, 4))), np.eye(4), np.ones(4), 3, 0.4
    )
    np.testing.assert_allclose(variance(model), exact_variance(model), rtol=1e-10)
    np.testing.assert_allclose(variance(model, np.array([2])), exact_variance(model)[[2]])


def test_closed_forms_over_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small("dropout", 0.3)
    whole = variance(model)
    monkeypatch.setattr(closed_forms, "CELLS", 2 * model.nodes)
    np.testing.assert_allclose(variance(model), whole, rtol=1e-14)


def test_the_expected_consistency_loss_is_that_of_all_pairs_of_masks() -> None:
    """The short way of the oracle above, against the definition of the loss."""
    model = replace(small("dropnode", 0.3), order=1)
    each = [(chance, sigmoid(logits)) for chance, logits in outcomes(model, 0.7)]
    total = sum(p * q * np.sum((z - y) ** 2) / 2 for p, z in each for q, y in each)
    assert exact_consistency(model, 0.7) == pytest.approx(total, rel=1e-10)


@every_kind
@every_rate
def test_monte_carlo_finds_the_exact_expectations(kind: str, drop_rate: float) -> None:
    model = small(kind, drop_rate, sparse=drop_rate == 0.2)
    sizes = [0.05, 0.3, 1.0]
    for found, exact in (
        (expected_consistency_loss(model, sizes, 1000, seed=3), exact_consistency),
        (expected_supervised_excess(model, LABELLED, sizes, 1000, seed=3), exact_excess),
    ):
        expected = np.array([exact(model, size) for size in sizes])
        assert (np.abs(found.mean - expected) < 4 * found.standard_error).all()
        error = expected - found.closed_form
        assert (np.abs(found.error - error) < 4 * found.error_standard_error).all()
        # Removing what is known pays, and most where the perturbation is small.
        assert (found.error_standard_error < 0.6 * found.standard_error).all()
        assert found.error_standard_error[0] < 0.02 * found.standard_error[0]


def test_standard_errors_are_honest() -> None:
    """Over many seeds, estimates scatter as much as they say, and about the right value."""
    model = small("dropout", 0.2)
    sizes = [0.1, 1.0]
    found = [expected_consistency_loss(model, sizes, 64, seed) for seed in range(100)]
    exact = np.array([exact_consistency(model, size) for size in sizes])
    off = np.array([(each.mean - exact) / each.standard_error for each in found])
    improved = np.array(
        [(each.error + each.closed_form - exact) / each.error_standard_error for each in found]
    )
    for scores in (off, improved):
        assert (np.abs(scores.mean(axis=0)) < 0.35).all()
        assert (scores.std(axis=0) > 0.75).all()
        assert (scores.std(axis=0) < 1.4).all()


def test_draws_do_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small("dropnode", 0.5)
    whole = expected_consistency_loss(model, [0.5], 20, seed=1)
    monkeypatch.setattr(monte_carlo, "CELLS", 6 * model.nodes)
    blocks = expected_consistency_loss(model, [0.5], 20, seed=1)
    assert blocks.mean == pytest.approx(whole.mean, rel=1e-14)
    assert expected_consistency_loss(model, [0.5], 20, seed=2).mean != whole.mean


@every_kind
@every_rate
@pytest.mark.parametrize("exact", [exact_consistency, exact_excess])
def test_the_promised_rate_holds_exactly(kind: str, drop_rate: float, exact: Exact) -> None:
    model = small(kind, drop_rate)
    expected = np.array([exact(model, size) for size in SIZES])
    closed = regulariser(model, exact) * SIZES**2
    fit = fit_exponent(SIZES, expected / closed - 1)
    assert fit.exponent == pytest.approx(promised_exponent(drop_rate), abs=0.2)


@every_kind
@pytest.mark.parametrize("exact", [exact_consistency, exact_excess])
def test_the_terms_that_follow(kind: str, exact: Exact) -> None:
    """With the terms of third and fourth order added, the rest is of fifth order."""
    model = small(kind, 0.2)
    logits, expected = model.logits(), closed_forms.moments(model)
    if exact is exact_consistency:
        terms = closed_forms.consistency_terms(logits, expected)
    else:
        second, third, fourth = (each[LABELLED] for each in expected)
        terms = closed_forms.supervised_terms(logits[LABELLED], (second, third, fourth))
    sizes = np.geomspace(0.02, 0.06, 4)
    series = sum(sizes**power * term.sum() for power, term in zip((2, 3, 4), terms, strict=True))
    rest = np.array([exact(model, size) for size in sizes]) - series
    assert fit_exponent(sizes, rest).exponent == pytest.approx(5, abs=0.3)


@every_kind
@pytest.mark.parametrize("exact", [exact_consistency, exact_excess])
def test_other_sizes_have_other_rates(kind: str, exact: Exact) -> None:
    """Small weights give an exponent of 2 for every rate; a small rate leaves an error behind."""
    model = small(kind, 0.2)
    scales = np.geomspace(0.02, 0.2, 5)
    lighter = [replace(model, weights=scale * model.weights) for scale in scales]
    errors = [exact(each, 1.0) / regulariser(each, exact) - 1 for each in lighter]
    assert fit_exponent(scales, errors).exponent == pytest.approx(2, abs=0.2)

    rarer = [replace(model, drop_rate=rate) for rate in (1e-3, 1e-4)]
    first, second = (exact(each, 1.0) / regulariser(each, exact) - 1 for each in rarer)
    assert abs(second) > 0.02
    assert first == pytest.approx(second, rel=0.05)


def regulariser(model: LinearGrand, exact: Exact) -> float:
    if exact is exact_consistency:
        return consistency_regulariser(model)
    return supervised_regulariser(model, LABELLED)


def scattered(kind: str, drop_rate: float, seed: int) -> LinearGrand:
    """A random graph too large to enumerate its masks."""
    generator = np.random.default_rng(seed)
    upper = np.triu(generator.random((60, 60)) < 0.08, 1)
    operator = sp.csr_array(oracles.normalised((upper + upper.T).astype(float)))
    features = generator.normal(0.5, 1.0, (60, 4))
    return LinearGrand(operator, features, np.array([1.5, 1.0, -0.5, 0.5]), 3, drop_rate, kind)


@every_kind
@pytest.mark.parametrize("drop_rate", [0.5, 0.2])
@pytest.mark.parametrize("seed", [1, 2])
def test_curves_show_the_promised_rate(kind: str, drop_rate: float, seed: int) -> None:
    model = scattered(kind, drop_rate, seed)
    curves = theory_curves(model, np.arange(10), draws=512, seed=seed)
    assert json.loads(json.dumps(curves)) == curves
    assert curves["consistency"]["sizes"][-1] == pytest.approx(1.0)
    assert curves["consistency"]["closed_form"][-1] == pytest.approx(consistency_regulariser(model))
    for name in ("consistency", "supervised"):
        curve = curves[name]
        assert curve["exponent"] == pytest.approx(curves["promised_exponent"], abs=0.2)
        lengths = {len(value) for value in curve.values() if isinstance(value, list)}
        assert lengths == {len(curve["sizes"])}


def test_no_rate_is_claimed_from_too_few_draws_or_sizes() -> None:
    few_draws = theory_curves(scattered("dropout", 0.5, 0), np.arange(10), draws=64)
    assert few_draws["consistency"]["exponent"] is None
    few_sizes = theory_curves(small("dropnode", 0.2), LABELLED, sizes=[0.5, 1.0], draws=64)
    assert few_sizes["supervised"]["exponent"] is None
    assert few_sizes["supervised"]["sizes"] == [0.5, 1.0]


def test_a_fit_ignores_noise_and_tells_its_uncertainty() -> None:
    sizes = np.geomspace(0.01, 1, 9)
    errors = 0.3 * sizes**2
    noisy = errors.copy()
    noisy[:3] = 1e-3
    fit = fit_exponent(sizes, noisy, [1e-3] * 3 + [1e-6] * 6)
    assert fit.exponent == pytest.approx(2.0)
    assert fit.used.tolist() == [False] * 3 + [True] * 6
    assert 0 < fit.uncertainty < 0.01  # type: ignore[operator]
    rough = fit_exponent(sizes, -errors * np.exp(0.2 * np.cos(7.0 * np.arange(9))))
    assert abs(rough.exponent - 2) < 3 * rough.uncertainty  # type: ignore[operator]
    logs = np.log(sizes), np.log(errors) + 0.2 * np.cos(7.0 * np.arange(9))
    slopes, covariance = np.polyfit(*logs, 1, cov=True)
    assert rough.exponent == pytest.approx(slopes[0])
    assert rough.uncertainty == pytest.approx(covariance[0, 0] ** 0.5)
    assert fit_exponent([0.1, 1.0], [0.1, 1.0]).exponent is None


def test_what_is_refused() -> None:
    model = small("dropnode", 0.5)
    for change, message in (
        ({"kind": "dropedge"}, "expected one of dropnode, dropout"),
        ({"drop_rate": 1.0}, "drop_rate is 1.0"),
        ({"order": -1}, "order = -1"),
        ({"order": 1.5}, "order = 1.5"),
        ({"features": np.full((7, 3), np.nan)}, "not finite"),
        ({"weights": np.ones(2)}, r"weights \(2,\) do not fit"),
    ):
        with pytest.raises(ConfigError, match=message):
            replace(model, **change)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="draws is 2"):
        expected_consistency_loss(model, [1.0], 2)
    with pytest.raises(ConfigError, match="a size is 0"):
        expected_consistency_loss(model, [1.0, 0.0], 100)
    for silent, labelled in (
        (replace(model, weights=np.zeros(3)), LABELLED),
        (model, np.array([], dtype=int)),
    ):
        with pytest.raises(ConfigError, match="changes no logit"):
            theory_curves(silent, labelled)
