"""Bounds on the error of float32 hold for float32, and are not far above what it does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from rounding import Rounded, joined, lost


def wide(x: Any) -> Any:
    """Float32 numbers as exact ones."""
    return Rounded(x.astype(np.float64))


def in_some_order(a: np.ndarray, b: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """A product in float32 whose terms are added one by one, in a random order."""
    total = np.zeros((len(a), b.shape[1]), np.float32)
    for k in generator.permutation(a.shape[1]):
        total = total + a[:, [k]] * b[[k]]
    return total


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.sampled_from([1, 7, 60]))
def test_float32_is_within_the_bound(seed: int, terms: int) -> None:
    """Two layers with a norm and a softmax, in either order of the first two products."""
    generator = np.random.default_rng(seed)
    shapes = (12, terms), (terms, 9), (9, 5), (5, 4)
    graph, x, first, second = (
        generator.standard_normal(shape).astype(np.float32) for shape in shapes
    )

    def network(hidden: Any, weights: Any) -> Any:
        active = np.maximum(hidden, 0.0)
        normed = (active - active.mean(axis=0)) / np.sqrt(active.var(axis=0) + 1e-5)
        return oracles.softmax(normed @ weights)

    hidden = wide(graph) @ wide(x) @ wide(first)
    expected = network(hidden, wide(second))
    for order in (
        in_some_order(in_some_order(graph, x, generator), first, generator),
        in_some_order(graph, in_some_order(x, first, generator), generator),
    ):
        hidden.assert_near(order)
        expected.assert_near(network(order, second))
    # It would not hide the loss of a term.
    assert np.all(hidden.bound < 1e-4 * hidden.size.max())
    assert np.median(expected.bound) < 1e-3


def test_a_chain_of_roundings_loses_as_much_as_its_length_or_its_root() -> None:
    assert lost(1) == pytest.approx(2.0**-24, rel=0.02)
    assert lost(20) == pytest.approx(20 * lost(1))
    assert lost(10_000) == pytest.approx(600 * lost(1))


def test_what_is_lost_together_stays_together() -> None:
    """A variable less itself is zero, however inexact it is."""
    x = np.exp(Rounded(np.linspace(-1, 1, 50), steps=30))  # type: ignore[call-overload]
    difference = 3.0 * x - 3.0 * x
    np.testing.assert_array_equal(difference.samples, 0.0)


def test_a_number_on_the_edge_may_fall_on_either_side() -> None:
    x = Rounded(np.array([1.0, 1e-9, -1e-9, -1.0]), size=np.ones(4), steps=1)
    positive: Any = np.greater(x, 0)  # type: ignore[call-overload]
    np.testing.assert_array_equal(positive.value, [1, 1, 0, 0])
    np.testing.assert_allclose(positive.bound, [0, 1, 1, 0])
    positive.assert_near([1, 0, 1, 0])


def test_what_is_not_near_is_refused() -> None:
    x = wide(np.ones((2, 3))) @ wide(np.ones((3, 2)))
    x.assert_near(np.full((2, 2), 3.0))
    for wrong in (3.00001, np.nan, np.inf):
        found = np.full((2, 2), 3.0)
        found[1, 0] = wrong
        with pytest.raises(AssertionError):
            x.assert_near(found)
    with pytest.raises(AssertionError):
        x.assert_near(np.full(2, 3.0))


def test_joined_arrays_keep_their_bounds() -> None:
    exact, inexact = wide(np.ones((2, 3))), Rounded(np.ones((2, 2)), steps=4)
    side_by_side = joined([exact, np.exp(inexact)], np.concatenate, -1)  # type: ignore
    assert side_by_side.shape == (2, 5)
    assert np.all(side_by_side.bound[:, 3:] >= np.exp(inexact).bound)  # type: ignore
