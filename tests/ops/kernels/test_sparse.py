"""Sparse products and propagation against dense matrices in float64."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

import oracles
from dropnode.ops.kernels import sparse
from dropnode.ops.kernels.sparse import (
    compress,
    multiply,
    multiply_sparse,
    multiply_transposed,
    nonzero_entries,
    propagate,
)
from oracles import assert_rounded
from packing import assert_adjoint, csr, numbers, packed, random_csr, untouched

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


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("width", [16, 64, 80])
def test_propagation_in_place_reads_no_row_that_it_has_written(width: int, order: int) -> None:
    """Also of a single block of columns, which needs no copy if there are several hops."""
    matrix = random_csr(np.random.default_rng(6), 40, 40, 0.3) / 8
    x = numbers(7, 40, width)
    before = x.copy()
    propagate(csr(matrix), x, order, x)
    assert_propagated(matrix, before, order, x)


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
    entries = max(np.diff(matrix.indptr).max(), np.bincount(matrix.indices, minlength=1).max())
    magnitude = oracles.mixed(np.abs(dense(matrix)), order) @ np.abs(x.astype(np.float64))
    assert_adjoint(forward, y, x, backward, magnitude, 2 + order * (entries + 1))


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
    assert_adjoint(out, y, x, back, magnitude, max(shape) + 1)


def test_a_product_with_wide_indices_has_the_same_bits() -> None:
    matrix = random_csr(np.random.default_rng(4), 20, 30, 0.2)
    x = numbers(5, 30, 48)
    results = [untouched(20, 48) for _ in range(2)]
    for index, out in zip((np.int32, np.int64), results, strict=True):
        multiply(csr(matrix, index), x, out)
    np.testing.assert_array_equal(results[0], results[1])


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("threads", [1, 3])
def test_a_product_of_sparse_matrices_has_the_bits_of_that_of_scipy(threads: int) -> None:
    torch.set_num_threads(threads)
    generator = np.random.default_rng(9)
    for density in (0.0, 0.1, 1.0):
        matrix, other = (random_csr(generator, *shape, density) for shape in ((20, 30), (30, 7)))
        out = np.full((20, 7), np.nan, dtype=np.float32)
        multiply_sparse(csr(matrix), csr(other), out)
        expected = matrix.astype(np.float32) @ other.astype(np.float32)
        np.testing.assert_array_equal(out, expected.toarray())


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("width", [16, 64, 144])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_transposed_product_has_the_bits_of_a_product_with_the_transpose(
    width: int, threads: int
) -> None:
    torch.set_num_threads(threads)
    for seed, density in enumerate((0.0, 0.1, 1.0)):
        matrix = random_csr(np.random.default_rng(seed), 20, 30, density)
        x = numbers(seed, 20, width)
        expected, out = untouched(30, width), untouched(30, width)
        multiply(csr(sp.csr_array(matrix.T)), x, expected)
        multiply_transposed(csr(matrix), x, out)
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("density", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("shape", [(20, 30), (1, 3), (4, 0), (0, 4)])
def test_the_entries_of_a_dense_matrix_are_those_that_scipy_finds(
    density: float, shape: tuple[int, int]
) -> None:
    x = random_csr(np.random.default_rng(10), *shape, density).astype(np.float32).toarray()
    expected = sp.csr_array(x)
    found = nonzero_entries(x, expected.nnz)
    for part, other in zip(found, csr(expected), strict=True):
        np.testing.assert_array_equal(part, other)


@pytest.mark.parametrize("density", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_compression_leaves_the_entries_whose_bit_is_set(density: float, share: float) -> None:
    generator = np.random.default_rng(6)
    matrix = random_csr(generator, 20, 30, density)
    kept = generator.random(matrix.nnz) < share
    words = packed(kept[None])[0]
    starts, columns, values = compress(csr(matrix), words, 2.5)
    rows = np.repeat(np.arange(20), np.diff(matrix.indptr))
    np.testing.assert_array_equal(np.repeat(np.arange(20), np.diff(starts)), rows[kept])
    np.testing.assert_array_equal(columns, matrix.indices[kept])
    np.testing.assert_array_equal(values, matrix.data[kept].astype(np.float32) * np.float32(2.5))
