"""Â and Ā against dense matrices, on graphs a generator of trouble draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

import oracles
from dropnode.graph import Graph
from dropnode.ops import propagation
from dropnode.ops.propagation import mixed_order, normalise, power_rows, propagated_rows
from dropnode.ops.randomness import Stream, keep_mask
from dropnode.ops.sparse_matrix import SparseMatrix
from oracles import RandomGraph, assert_rounded, random_graphs


def assert_propagated(result: Any, operator: np.ndarray, order: int, x: Any) -> None:
    """Equal to Āx up to the roundings of the hops, and of Â, if it was normalised in float32."""
    x = np.asarray(x, dtype=np.float64)
    magnitude = oracles.mixed(np.abs(operator), order) @ np.abs(x)
    operations = 3 + order * (2 * len(operator) + 4)
    assert_rounded(np.asarray(result), oracles.mixed(operator, order) @ x, magnitude, operations)


def adjacency_of(drawn: RandomGraph) -> sp.csr_array:
    return Graph.from_edges(
        np.array(drawn.edges, dtype=np.int64).reshape(-1, 2),
        drawn.features,
        weights=drawn.weights,
    ).adjacency


def dropped(adjacency: sp.csr_array, seed: int) -> SparseMatrix:
    """Â without some of its entries: no longer symmetric."""
    operator = SparseMatrix.from_scipy(normalise(adjacency))
    mask = keep_mask(Stream(seed), (operator.values.numel(),), 0.4)
    return operator.reweighted(torch.from_numpy(mask))


@given(random_graphs())
def test_normalised_adjacency(drawn: RandomGraph) -> None:
    result = normalise(adjacency_of(drawn))
    assert result.dtype == np.float32
    expected = oracles.normalised(drawn.adjacency)
    # The degrees are sums over a row, and an entry has the root of two of them.
    assert_rounded(result.toarray(), expected, expected, len(expected) + 3)


@given(random_graphs(), st.integers(0, 6))
def test_mixed_order_is_the_average_of_powers(drawn: RandomGraph, order: int) -> None:
    operator = SparseMatrix.from_scipy(normalise(adjacency_of(drawn)))
    result = mixed_order(operator, torch.tensor(drawn.features, dtype=torch.float32), order)
    assert_propagated(result, oracles.normalised(drawn.adjacency), order, drawn.features)


@given(random_graphs(), st.integers(0, 6), st.integers(0, 2**16))
def test_mixed_order_of_an_operator_that_is_not_symmetric(
    drawn: RandomGraph, order: int, seed: int
) -> None:
    operator = dropped(adjacency_of(drawn), seed)
    dense = operator.to_dense().double().numpy()
    result = mixed_order(operator, torch.tensor(drawn.features, dtype=torch.float32), order)
    assert_propagated(result, dense, order, drawn.features)


@given(random_graphs(), st.integers(0, 5), st.integers(0, 2**16), st.booleans())
def test_the_gradient_is_the_adjoint(
    drawn: RandomGraph, order: int, seed: int, symmetric: bool
) -> None:
    """<Āx, y> = <x, Āᵀy>, also where DropEdge has made Ā differ from its transpose."""
    adjacency = adjacency_of(drawn)
    operator = (
        SparseMatrix.from_scipy(normalise(adjacency)) if symmetric else dropped(adjacency, seed)
    )
    x = torch.tensor(drawn.features, dtype=torch.float32, requires_grad=True)
    y = torch.randn(x.shape, generator=torch.Generator().manual_seed(seed))
    forward = mixed_order(operator, x, order)
    (forward * y).sum().backward()
    assert x.grad is not None
    dense = operator.to_dense().double().numpy()
    assert_propagated(x.grad, dense.T, order, y)
    assert_propagated(forward.detach(), dense, order, drawn.features)


@given(random_graphs(), st.integers(0, 2**16))
def test_the_gradient_of_a_product_is_the_product_with_the_transpose(
    drawn: RandomGraph, seed: int
) -> None:
    matrix = dropped(adjacency_of(drawn), seed)
    x = torch.tensor(drawn.features, dtype=torch.float32, requires_grad=True)
    y = torch.randn(x.shape, generator=torch.Generator().manual_seed(seed))
    product = matrix @ x
    (product * y).sum().backward()
    dense = matrix.to_dense().double().numpy()
    assert x.grad is not None
    for result, matrix64, factor in (
        (product.detach(), dense, drawn.features),
        (x.grad, dense.T, y.double().numpy()),
    ):
        magnitude = np.abs(matrix64) @ np.abs(factor)
        assert_rounded(result.numpy(), matrix64 @ factor, magnitude, len(dense) + 1)
    np.testing.assert_array_equal(matrix.transpose.to_dense().numpy(), dense.T.astype(np.float32))


@given(random_graphs(), st.integers(0, 4), st.booleans(), st.booleans(), st.data())
def test_propagated_rows_are_rows_of_the_whole(
    drawn: RandomGraph, order: int, sparse: bool, symmetric: bool, data: st.DataObject
) -> None:
    adjacency = adjacency_of(drawn)
    operator = SparseMatrix.from_scipy(normalise(adjacency)) if symmetric else dropped(adjacency, 1)
    dense = torch.tensor(drawn.features, dtype=torch.float32)
    features = SparseMatrix.from_scipy(sp.csr_array(drawn.features)) if sparse else dense
    nodes = len(drawn.adjacency)
    rows = data.draw(st.lists(st.integers(0, nodes - 1), min_size=1, max_size=12))
    result = propagated_rows(operator, features, torch.tensor(rows), order)
    hops = operator.to_dense().double().numpy()
    whole = oracles.mixed(hops, order) @ drawn.features
    magnitude = oracles.mixed(np.abs(hops), order) @ drawn.features
    operations = 3 + order * (nodes + 1) + nodes
    assert_rounded(result.numpy(), whole[rows], magnitude[rows], operations)


def test_more_rows_and_columns_than_a_block_holds() -> None:
    generator = np.random.default_rng(0)
    nodes, columns = 300, 331
    adjacency = sp.random_array((nodes, nodes), density=0.02, rng=generator, dtype=np.float32)
    adjacency = sp.csr_array(adjacency + adjacency.T)
    adjacency.setdiag(0)
    x = generator.standard_normal((nodes, columns))
    operator = SparseMatrix.from_scipy(normalise(adjacency))
    hops = oracles.normalised(adjacency.toarray())
    expected, magnitude = (oracles.mixed(hops, 3) @ each for each in (x, np.abs(x)))
    tensor = torch.tensor(x, dtype=torch.float32)
    entries = np.diff(operator.csr[0]).max()
    operations = 3 + 3 * (2 * entries + 4)
    assert_rounded(mixed_order(operator, tensor, 3).numpy(), expected, magnitude, operations)
    rows = torch.arange(nodes - 1, -1, -1)
    backwards = propagated_rows(operator, tensor, rows, 3).numpy()
    assert_rounded(backwards, expected[::-1], magnitude[::-1], operations + nodes)


def test_propagation_leaves_its_input_alone() -> None:
    operator = SparseMatrix.from_scipy(normalise(sp.csr_array(np.ones((3, 3)) - np.eye(3))))
    x = torch.arange(6.0).view(3, 2)
    before = x.clone()
    for order in (0, 1, 3):
        assert mixed_order(operator, x, order) is not x
    assert torch.equal(x, before)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("columns", [3, 70])
def test_few_features_are_propagated_instead_of_many_rows(
    columns: int, sparse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(1)
    nodes, order = 160, 4
    adjacency = sp.random_array((nodes, nodes), density=0.05, rng=generator, dtype=np.float32)
    adjacency = sp.csr_array(adjacency + adjacency.T)
    operator = SparseMatrix.from_scipy(normalise(adjacency), symmetric=True)
    x = generator.standard_normal((nodes, columns)).astype(np.float32)
    features = SparseMatrix.from_scipy(sp.csr_array(x)) if sparse else torch.from_numpy(x)
    hops = operator.to_dense().double().numpy()
    rows = generator.integers(nodes, size=150)
    widths: list[int] = []
    original = propagation._mixed
    monkeypatch.setattr(
        propagation, "_mixed", lambda m, x, k: widths.append(x.shape[1]) or original(m, x, k)
    )
    found = propagated_rows(operator, features, torch.from_numpy(rows), order).numpy()
    assert sum(widths) == columns
    single = power_rows(operator, features, torch.from_numpy(rows), order).numpy()
    power = np.linalg.matrix_power
    for result, matrix in ((found, oracles.mixed(hops, order)), (single, power(hops, order))):
        magnitude = np.abs(matrix) @ np.abs(x)
        operations = 3 + order * (nodes + 1) + nodes
        assert_rounded(result, (matrix @ x)[rows], magnitude[rows], operations)
