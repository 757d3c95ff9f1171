"""Sparse products and propagation against dense matrices in float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from dropnode.ops.kernels import sparse
from dropnode.ops.kernels.sparse import multiply, multiply_views, multiply_views_adjoint, propagate
from packing import assert_rounded, csr, no_words, packed, random_csr

WIDTHS = st.sampled_from([16, 32, 48, 64, 80, 128, 144])
SEEDS = st.integers(0, 2**32)


@st.composite
def operators(draw: st.DrawFn) -> sp.csr_array:
    """Draw a square matrix: dense to empty, one node to some, symmetric or not, loops or not."""
    generator = np.random.default_rng(draw(SEEDS))
    nodes = draw(st.sampled_from([1, 2, 3, 9, 40]))
    matrix = random_csr(generator, nodes, nodes, draw(st.sampled_from([0.0, 0.05, 0.3, 1.0])))
    if draw(st.booleans()):
        matrix = sp.csr_array(matrix + matrix.T)
    if draw(st.booleans()):
        matrix = sp.csr_array(matrix + sp.eye_array(nodes, dtype=np.float32))
    # Rows that sum to one at most, as those of Â: powers neither grow nor vanish.
    return matrix / max(1.0, np.abs(matrix).sum(axis=1).max())


def dense(matrix: sp.csr_array) -> np.ndarray:
    """What the kernels read, in float64."""
    return matrix.astype(np.float32).astype(np.float64).toarray()


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def untouched(*shape: int) -> np.ndarray:
    """Memory whose old content would show."""
    return np.full(shape, np.nan, dtype=np.float32)


def assert_propagated(matrix: sp.csr_array, x: np.ndarray, order: int, result: np.ndarray) -> None:
    expected = oracles.mixed(dense(matrix), order) @ x.astype(np.float64)
    magnitude = oracles.mixed(np.abs(dense(matrix)), order) @ np.abs(x.astype(np.float64))
    entries = np.diff(matrix.indptr).max(initial=0)
    assert_rounded(result, expected, magnitude, 2 + order * (entries + 1))


@pytest.mark.parametrize("large", [False, True])
@given(operators(), WIDTHS, st.sampled_from([0, 1, 2, 7]), SEEDS, st.booleans())
def test_propagation_is_the_average_of_powers(
    large: bool, matrix: sp.csr_array, width: int, order: int, seed: int, in_place: bool
) -> None:
    """Of a graph whose columns are shared between threads, and of one whose nodes are."""
    x = numbers(seed, matrix.shape[0], width)
    before = x.copy()
    out = x if in_place else untouched(*x.shape)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparse, "MANY", 1 if large else 2**62)
        patch.setattr(sparse, "FAR", 1 if order % 2 else 2**62)
        propagate(csr(matrix), x, order, out)
    assert_propagated(matrix, before, order, out)
    if not in_place:
        np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("width", [64, 144])
def test_propagation_with_wide_indices_has_the_same_bits(width: int) -> None:
    matrix = random_csr(np.random.default_rng(0), 50, 50, 0.2) / 8
    x = numbers(1, 50, width)
    results = [untouched(50, width) for _ in range(2)]
    for index, out in zip((np.int32, np.int64), results, strict=True):
        propagate(csr(matrix, index), x, 3, out)
    assert_propagated(matrix, x, 3, results[0])
    np.testing.assert_array_equal(results[0], results[1])


def test_columns_are_propagated_alike_wherever_they_stand() -> None:
    """A column has the same bits alone, among others, in a wide block or in a narrow one."""
    matrix = random_csr(np.random.default_rng(2), 30, 30, 0.3) / 8
    column = numbers(3, 30, 1)
    results = []
    for width in (16, 48, 64, 144):
        for place in (0, width // 2, width - 1):
            x = numbers(width, 30, width)
            x[:, [place]] = column
            propagate(csr(matrix), x, 4, x)
            results.append(x[:, place].copy())
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("width", [64, 144])
def test_how_propagation_is_shared_does_not_show(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    matrix = random_csr(np.random.default_rng(8), 500, 500, 0.02) / 8
    x = numbers(9, 500, width)
    results = []
    never = 2**62
    for count, many, far in ((1, never, 1), (1, 1, never), (2, never, 1), (2, 1, 1), (5, 1, never)):
        torch.set_num_threads(count)
        monkeypatch.setattr(sparse, "MANY", many)
        monkeypatch.setattr(sparse, "FAR", far)
        out = untouched(500, width)
        propagate(csr(matrix), x, 4, out)
        results.append(out)
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


@given(operators(), WIDTHS, st.sampled_from([1, 2, 7]), SEEDS)
def test_propagation_with_the_transpose_is_the_adjoint(
    matrix: sp.csr_array, width: int, order: int, seed: int
) -> None:
    """<Āx, y> = <x, Āᵀy>."""
    x, y = numbers(seed, 2, matrix.shape[0], width)
    forward, backward = untouched(*x.shape), untouched(*x.shape)
    propagate(csr(matrix), x, order, forward)
    propagate(csr(sp.csr_array(matrix.T)), y, order, backward)
    assert_adjoint(forward, y, x, backward)


def assert_adjoint(mapped: np.ndarray, y: np.ndarray, x: np.ndarray, back: np.ndarray) -> None:
    """<Ax, y> = <x, Aᵀy>, up to the rounding of Ax and Aᵀy."""
    one = mapped.astype(np.float64) * y
    other = x.astype(np.float64) * back
    size = np.linalg.norm(mapped) * np.linalg.norm(y) + np.linalg.norm(x) * np.linalg.norm(back)
    assert abs(one.sum() - other.sum()) <= 1e-6 * size


@given(
    st.tuples(st.sampled_from([1, 2, 7, 8, 9, 33]), st.sampled_from([1, 5, 40])),
    st.sampled_from([0.0, 0.1, 1.0]),
    WIDTHS,
    SEEDS,
)
def test_a_product_with_a_sparse_matrix(
    shape: tuple[int, int], density: float, width: int, seed: int
) -> None:
    matrix = random_csr(np.random.default_rng(seed), *shape, density)
    x, out = numbers(seed, shape[1], width), untouched(shape[0], width)
    multiply(csr(matrix), x, out)
    magnitude = np.abs(dense(matrix)) @ np.abs(x)
    entries = np.diff(matrix.indptr).max(initial=0)
    assert_rounded(out, dense(matrix) @ x.astype(np.float64), magnitude, entries + 1)
    y, back = numbers(seed + 1, shape[0], width), untouched(shape[1], width)
    multiply(csr(sp.csr_array(matrix.T)), y, back)
    assert_adjoint(out, y, x, back)


def test_a_product_with_wide_indices_has_the_same_bits() -> None:
    matrix = random_csr(np.random.default_rng(4), 20, 30, 0.2)
    x = numbers(5, 30, 48)
    results = [untouched(20, 48) for _ in range(2)]
    for index, out in zip((np.int32, np.int64), results, strict=True):
        multiply(csr(matrix, index), x, out)
    np.testing.assert_array_equal(results[0], results[1])


class Views:
    """Several views of sparse features, with what each drops, drawn from a seed."""

    def __init__(
        self,
        seed: int,
        nodes: int,
        columns: int,
        density: float,
        views: int,
        drops_nodes: bool,
        drops_entries: bool,
    ) -> None:
        generator = np.random.default_rng(seed)
        self.matrix = random_csr(generator, nodes, columns, density)
        self.nodes, self.columns, self.views = nodes, columns, views
        self.scale = 1.7
        kept = generator.random((views, nodes)) < 0.6
        kept_entries = generator.random((views, self.matrix.nnz)) < 0.6
        self.node_words = packed(kept) if drops_nodes else no_words(views)
        self.entry_words = packed(kept_entries) if drops_entries else no_words(views)
        self.seen = []
        for view in range(views):
            masked = self.matrix.astype(np.float64)
            if drops_entries:
                masked.data = masked.data * kept_entries[view]
            rows = kept[view] if drops_nodes else np.ones(nodes)
            self.seen.append(self.scale * rows[:, None] * masked.toarray())

    def forward(self, weights: np.ndarray, index: type = np.int32) -> np.ndarray:
        out = untouched(self.nodes, self.views * weights.shape[2])
        multiply_views(
            csr(self.matrix, index), weights, self.node_words, self.entry_words, self.scale, out
        )
        return out

    def backward(self, gradient: np.ndarray, index: type = np.int32) -> np.ndarray:
        out = untouched(self.views, self.columns, gradient.shape[1] // self.views)
        multiply_views_adjoint(
            csr(self.matrix, index), gradient, self.node_words, self.entry_words, self.scale, out
        )
        return out


drawn_views = st.builds(
    Views,
    SEEDS,
    st.sampled_from([1, 3, 8, 70]),
    st.sampled_from([1, 4, 33]),
    st.sampled_from([0.0, 0.1, 0.7]),
    st.integers(1, 5),
    st.booleans(),
    st.booleans(),
)


@settings(max_examples=120)
@given(drawn_views, st.sampled_from([16, 32, 48, 64, 80, 128]), st.booleans(), SEEDS)
def test_products_of_views(drawn: Views, hidden: int, shared: bool, seed: int) -> None:
    weights = numbers(seed, 1 if shared else drawn.views, drawn.columns, hidden)
    out = drawn.forward(weights)
    for view, seen in enumerate(drawn.seen):
        weight = weights[0 if shared else view].astype(np.float64)
        part = out[:, view * hidden : (view + 1) * hidden]
        assert_rounded(part, seen @ weight, np.abs(seen) @ np.abs(weight), drawn.columns + 3)


@settings(max_examples=120)
@given(drawn_views, st.sampled_from([16, 32, 48, 64, 80, 128]), SEEDS)
def test_adjoint_products_of_views(drawn: Views, hidden: int, seed: int) -> None:
    gradient = numbers(seed, drawn.nodes, drawn.views * hidden)
    out = drawn.backward(gradient)
    for view, seen in enumerate(drawn.seen):
        given_part = gradient[:, view * hidden : (view + 1) * hidden].astype(np.float64)
        magnitude = np.abs(seen).T @ np.abs(given_part)
        assert_rounded(out[view], seen.T @ given_part, magnitude, drawn.nodes + 3)
    weights = numbers(seed + 1, drawn.views, drawn.columns, hidden)
    assert_adjoint(drawn.forward(weights), gradient, weights, out)


@pytest.mark.parametrize("direction", [Views.forward, Views.backward])
def test_products_of_views_with_wide_indices_have_the_same_bits(
    direction: Callable[..., np.ndarray],
) -> None:
    drawn = Views(6, 20, 10, 0.4, 3, True, True)
    given_part = numbers(7, 3, 10, 32) if direction is Views.forward else numbers(7, 20, 96)
    narrow, wide = (direction(drawn, given_part, index) for index in (np.int32, np.int64))
    np.testing.assert_array_equal(narrow, wide)
