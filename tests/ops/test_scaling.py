"""Feature scaling: row sums, unit variance, and nothing that turns into NaN."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.preprocessing import normalize

import oracles
from dropnode.data import load_dataset
from dropnode.errors import GraphError
from dropnode.graph.arrays import Matrix
from dropnode.ops.scaling import CHOICES, KINDS, LENGTH, FeatureScaling, suitable
from oracles import RandomGraph, random_graphs


def both(features: np.ndarray) -> list[Matrix]:
    """The same features, dense and sparse, as a graph holds them."""
    dense = features.astype(np.float32)
    return [dense, sp.csr_array(dense)]


def dense(features: Matrix) -> np.ndarray:
    return np.asarray(features.toarray() if sp.issparse(features) else features)


@given(random_graphs())
def test_rows_sum_to_one_and_empty_rows_stay_empty(drawn: RandomGraph) -> None:
    for features in both(drawn.features):
        scaled = FeatureScaling.fit("row", features).apply(features)
        assert sp.issparse(scaled) == sp.issparse(features)
        assert scaled.dtype == np.float32
        np.testing.assert_allclose(dense(scaled), oracles.row_normalised(drawn.features), rtol=1e-6)


@given(
    arrays(
        np.float32,
        st.tuples(st.integers(1, 6), st.integers(1, 40)),
        elements=st.one_of(
            st.just(0.0), st.floats(0, float(np.finfo(np.float32).max), width=32), st.floats(0, 4)
        ),
        fill=st.nothing(),
    ),
    st.booleans(),
)
def test_sparse_rows_are_bit_identical_to_scikit_learns(values: np.ndarray, stored: bool) -> None:
    """Whatever the sizes in a row, and whether zeros are stored."""
    features = sp.csr_array(values)
    if stored:
        at = np.indices(values.shape).reshape(2, -1)
        features = sp.csr_array((values.ravel(), at), shape=values.shape)
    before = features.copy()
    scaled = FeatureScaling.fit("row", features).apply(features)
    assert_same_matrix(scaled, normalize(features, norm="l1"))
    assert_same_matrix(features, before)


@pytest.mark.parametrize("name", ["citeseer", "cora", "pubmed"])
def test_real_rows_are_bit_identical_to_scikit_learns(name: str) -> None:
    features = load_dataset(name).features
    ones = (features != 0).astype(np.float32)
    for kind, raw in (("row", features), ("binary", ones)):
        scaled = FeatureScaling.fit(kind, features).apply(features)
        assert_same_matrix(scaled, normalize(raw, norm="l1"))


def assert_same_matrix(ours: sp.csr_array, theirs: sp.csr_array) -> None:
    """The same stored entries, bit by bit."""
    assert ours.shape == theirs.shape
    for part in ("data", "indices", "indptr"):
        mine, other = getattr(ours, part), getattr(theirs, part)
        assert mine.dtype == other.dtype
        assert mine.tobytes() == other.tobytes()


SIZES = [1e-30, 1e-8, 1e-3, 1.0, 1e30, 1e38]


@pytest.mark.parametrize("size", SIZES)
def test_rows_are_divided_whatever_their_size(size: float) -> None:
    for features in both(np.array([[1.0, 3.0], [0.0, 0.0], [2.0, 0.0]]) * size):
        scaled = FeatureScaling.fit("row", features).apply(features)
        np.testing.assert_allclose(
            dense(scaled), np.array([[0.25, 0.75], [0, 0], [1, 0]]), rtol=1e-6
        )


def test_binary_features_forget_how_much() -> None:
    for features in both(np.array([[0.5, 3.0], [0.0, 0.0], [0.0, -7.0]])):
        scaled = FeatureScaling.fit("binary", features).apply(features)
        assert sp.issparse(scaled) == sp.issparse(features)
        assert scaled.dtype == np.float32
        np.testing.assert_array_equal(dense(scaled), [[0.5, 0.5], [0.0, 0.0], [0.0, 1.0]])


def test_negative_features_have_no_row_scaling() -> None:
    for features in both(np.array([[1.0, 2.0], [3.0, -0.5]])):
        with pytest.raises(GraphError, match=r"a feature is -0\.5; use feature_scaling='standard'"):
            FeatureScaling.fit("row", features).apply(features)


@pytest.mark.parametrize("size", SIZES)
def test_rows_have_one_length_and_empty_rows_stay_empty(size: float) -> None:
    raw = np.array([[0.3, 0.0, -0.4, 0.0], [0.0] * 4, [0.0, 0.0, 0.0, 0.7]])
    for features in both(raw * size):
        scaled = FeatureScaling.fit("unit", features).apply(features)
        assert sp.issparse(scaled) == sp.issparse(features)
        assert scaled.dtype == np.float32
        expected = [[0.6, 0, -0.8, 0], [0] * 4, [0, 0, 0, 1]]
        np.testing.assert_allclose(dense(scaled), LENGTH * np.array(expected), rtol=1e-6)


def test_auto_goes_by_the_values_and_not_by_their_form() -> None:
    generator = np.random.default_rng(0)
    words = (generator.random((30, 20)) < 0.1) * generator.integers(1, 5, (30, 20))
    sizes = generator.normal(170.0, 10.0, (30, 4))
    for raw, kind in ((words, "unit"), (sizes, "standard")):
        for features in both(raw):
            assert suitable(features) == kind
            assert FeatureScaling.fit("auto", features).kind == kind


def test_standard_gives_unit_variance_and_centres_what_is_dense() -> None:
    generator = np.random.default_rng(0)
    raw = generator.poisson(2.0, (50, 4)) * np.array([1.0, 10.0, 0.01, 3.0])
    for features in both(raw):
        scaled = FeatureScaling.fit("standard", features).apply(features)
        centre = 0.0 if not sp.issparse(features) else raw.mean(axis=0)
        assert sp.issparse(scaled) == sp.issparse(features)
        assert scaled.dtype == np.float32
        np.testing.assert_allclose(
            dense(scaled), (raw - (raw.mean(axis=0) - centre)) / raw.std(axis=0), atol=2e-5
        )


@pytest.mark.parametrize("size", SIZES)
def test_columns_are_divided_whatever_their_size(size: float) -> None:
    for features in both(np.array([[1.0, 3.0], [0.0, 0.0], [2.0, 0.0]]) * size):
        scaled = dense(FeatureScaling.fit("standard", features).apply(features))
        np.testing.assert_allclose(scaled.astype(float).std(axis=0), [1.0, 1.0], rtol=1e-5)


def test_sparse_features_keep_their_zeros() -> None:
    features = sp.random_array((40, 30), density=0.1, rng=np.random.default_rng(0)).astype("f4")
    features = sp.csr_array(features)
    for kind in KINDS:
        scaled = FeatureScaling.fit(kind, features).apply(features)
        np.testing.assert_array_equal(scaled.toarray() != 0, features.toarray() != 0)


@pytest.mark.parametrize("value", [0.0, 1.0, -3.5, 0.1, 1e6])
def test_a_constant_column_is_no_nan(value: float) -> None:
    raw = np.column_stack([np.full(30, value), np.arange(30.0)])
    for features in both(raw):
        scaled = dense(FeatureScaling.fit("standard", features).apply(features))
        expected = 0.0 if not sp.issparse(features) else np.float32(value)
        np.testing.assert_array_equal(scaled[:, 0], np.full(30, expected))
        assert np.isfinite(scaled).all()


def test_a_new_graph_is_scaled_with_what_the_first_taught() -> None:
    first = np.array([[1.0, 10.0], [3.0, 30.0]])
    new = np.array([[5.0, 10.0]])
    expected = [[(5 - 2) / 1.0, (10 - 20) / 10.0]], [[5 / 1.0, 10 / 10.0]]
    for fitted_on, features, wanted in zip(both(first), both(new), expected, strict=True):
        scaled = FeatureScaling.fit("standard", fitted_on).apply(features)
        np.testing.assert_allclose(dense(scaled), wanted, rtol=1e-6)


def test_none_changes_nothing() -> None:
    for features in both(np.array([[-1.0, 2.0], [0.0, 1e20]])):
        scaled = FeatureScaling.fit("none", features).apply(features)
        np.testing.assert_array_equal(dense(scaled), dense(features))


@pytest.mark.parametrize("kind", CHOICES)
def test_the_callers_features_are_left_alone(kind: str) -> None:
    for features in both(np.array([[1.0, 2.0], [0.0, 5.0], [4.0, 4.0]])):
        before = dense(features).copy()
        FeatureScaling.fit(kind, features).apply(features)
        np.testing.assert_array_equal(dense(features), before)
