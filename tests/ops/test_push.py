"""Push against its definition in Python, against exact rows, and with any number of threads."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

from dropnode.ops.propagation import normalise
from dropnode.ops.push import (
    WALKS,
    pushed_rows,
    walk_power_rows,
    walk_shares,
    walked,
    walked_rows,
)
from dropnode.ops.sparse_matrix import SparseMatrix
from oracles import assert_rounded

SEEDS = st.integers(0, 2**32)
THRESHOLDS = st.sampled_from([0.0, 1e-6, 1e-3, 0.02, 0.1, 1.0])


@st.composite
def graphs(draw: st.DrawFn, weighted: bool | None = None) -> sp.csr_array:
    """Draw edges, from none to all; weights and self-loops or not."""
    generator = np.random.default_rng(draw(SEEDS))
    nodes = draw(st.sampled_from([1, 2, 5, 12, 30]))
    dense = generator.random((nodes, nodes)) < draw(st.sampled_from([0.0, 0.1, 0.3, 1.0]))
    if draw(st.booleans()) if weighted is None else weighted:
        dense = dense * generator.uniform(0.01, 20.0, (nodes, nodes))
    dense = np.triu(dense, 0 if draw(st.booleans()) else 1).astype(np.float32)
    return sp.csr_array(dense + np.triu(dense, 1).T)


@st.composite
def walks(draw: st.DrawFn) -> np.ndarray:
    """Draw the weights of the powers of P."""
    order, teleport = draw(st.integers(0, 6)), draw(st.sampled_from([0.0, 0.2, 0.5, 1.0]))
    return walk_shares(draw(st.sampled_from(WALKS)), order, teleport)


def degrees_of(adjacency: sp.csr_array) -> np.ndarray:
    return adjacency.astype(np.float64).toarray().sum(axis=1) + 1.0


def transition(adjacency: sp.csr_array) -> np.ndarray:
    """P = D̃⁻¹(A + I)."""
    looped = adjacency.astype(np.float64).toarray() + np.eye(adjacency.shape[0])
    return looped / looped.sum(axis=1, keepdims=True)


def exact(adjacency: sp.csr_array, shares: np.ndarray) -> np.ndarray:
    """Π = Σₙ wₙPⁿ, power by power."""
    walk = transition(adjacency)
    return sum(
        (share * np.linalg.matrix_power(walk, power) for power, share in enumerate(shares)),
        np.zeros_like(walk),
    )


def row_by_definition(
    adjacency: sp.csr_array, source: int, shares: np.ndarray, threshold: float
) -> dict[int, float]:
    """The reserves of a walk, in dictionaries. Sums are in the order in which nodes are found."""
    degrees = degrees_of(adjacency)
    residue, reserve = {source: 1.0}, dict[int, float]()
    for hop, share in enumerate(shares):
        following = dict[int, float]()
        for node, amount in residue.items():
            if share > 0:
                reserve[node] = reserve.get(node, 0.0) + share * amount
            begin, end = adjacency.indptr[node : node + 2]
            if hop == len(shares) - 1 or amount < threshold * (end - begin + 1):
                continue
            part = amount / degrees[node]
            following[node] = following.get(node, 0.0) + part
            for other, weight in zip(
                adjacency.indices[begin:end].tolist(),
                adjacency.data[begin:end].tolist(),
                strict=True,
            ):
                following[other] = following.get(other, 0.0) + part * weight
        residue = following
    return reserve


def every_row(
    adjacency: sp.csr_array, shares: np.ndarray, threshold: float, top: int | None = None
) -> sp.csr_array:
    nodes = adjacency.shape[0]
    return pushed_rows(
        adjacency, degrees_of(adjacency), np.arange(nodes), shares, threshold, top or nodes
    )


@given(graphs(), walks(), THRESHOLDS, st.integers(1, 8))
def test_rows_are_those_of_the_definition(
    adjacency: sp.csr_array, shares: np.ndarray, threshold: float, top: int
) -> None:
    rows = every_row(adjacency, shares, threshold, top)
    assert rows.dtype == np.float32
    assert rows.has_canonical_format
    for source in range(adjacency.shape[0]):
        whole = row_by_definition(adjacency, source, shares, threshold)
        scores = {node: np.float32(amount) for node, amount in whole.items()}
        largest = sorted(scores, key=lambda node: (-scores[node], node))[:top]
        own = slice(*rows.indptr[source : source + 2])
        assert rows.indices[own].tolist() == sorted(largest)
        assert rows.data[own].tolist() == [scores[node] for node in sorted(largest)]


@given(graphs(), walks(), THRESHOLDS)
def test_no_entry_is_too_large_and_none_further_off_than_the_bound(
    adjacency: sp.csr_array, shares: np.ndarray, threshold: float
) -> None:
    missing = exact(adjacency, shares) - every_row(adjacency, shares, threshold).toarray()
    walk = transition(adjacency)
    places = np.diff(adjacency.indptr) + 1.0
    bound = sum(
        threshold * shares[power] * (places @ np.linalg.matrix_power(walk, power - hop))
        for hop in range(len(shares))
        for power in range(hop + 1, len(shares))
    ) + np.zeros(len(walk))
    rounding = 2.0**-22
    assert (missing >= -rounding).all()
    assert (missing <= bound + rounding).all()


@given(graphs(weighted=False), walks(), THRESHOLDS)
def test_without_weights_the_bound_is_the_published_one(
    adjacency: sp.csr_array, shares: np.ndarray, threshold: float
) -> None:
    adjacency.setdiag(0)
    adjacency.eliminate_zeros()
    missing = exact(adjacency, shares) - every_row(adjacency, shares, threshold).toarray()
    bound = threshold * (len(shares) - 1) * degrees_of(adjacency)
    assert (missing <= bound + 2.0**-22).all()


@given(graphs(), walks())
def test_without_a_threshold_rows_are_exact(adjacency: sp.csr_array, shares: np.ndarray) -> None:
    expected = exact(adjacency, shares)
    # In float64, but for the last step.
    assert_rounded(every_row(adjacency, shares, 0.0).toarray(), expected, expected, 1.01)


@given(graphs(), walks(), THRESHOLDS, st.integers(1, 8))
def test_plain_scipy_computes_the_same(
    adjacency: sp.csr_array, shares: np.ndarray, threshold: float, top: int
) -> None:
    # No residue of these is at the threshold, where the order of a sum would decide.
    threshold *= 0.98765
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dropnode.ops.push.BLOCK", 7)
        patch.setenv("DROPNODE_KERNELS", "0")
        plain = every_row(adjacency, shares, threshold), every_row(adjacency, shares, 0.0, top)
    kernels = every_row(adjacency, shares, threshold), every_row(adjacency, shares, 0.0, top)
    np.testing.assert_allclose(plain[0].toarray(), kernels[0].toarray(), rtol=2.0**-22)
    # Scores that differ in the last digit of float64 may fall on two sides of a float32, and then
    # another one of two equal nodes is kept; the scores stay.
    for one, other in zip(plain[1], kernels[1], strict=True):
        np.testing.assert_allclose(np.sort(one.data), np.sort(other.data), rtol=2.0**-22)


def backwards(function: Any, items: Any, *, shared: Any) -> Iterator[tuple[Any, Any]]:
    """An engine whose only worker takes the last item first."""
    function, shared = pickle.loads(pickle.dumps((function, shared), protocol=5))
    for item in reversed(list(items)):
        yield item, pickle.loads(pickle.dumps(function(shared, item)))


@given(graphs(), walks(), THRESHOLDS, st.integers(1, 8), st.integers(1, 9))
def test_blocks_of_an_engine_do_not_show(
    adjacency: sp.csr_array, shares: np.ndarray, threshold: float, top: int, pieces: int
) -> None:
    walk = adjacency, degrees_of(adjacency), np.arange(adjacency.shape[0]), shares, threshold, top
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dropnode.ops.push.PIECES", pieces)
        found = pushed_rows(*walk, run=backwards)
    expected = pushed_rows(*walk)
    for name in ("data", "indices", "indptr"):
        one, other = getattr(found, name), getattr(expected, name)
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()


@pytest.mark.usefixtures("threads")
def test_threads_and_other_rows_do_not_show() -> None:
    generator = np.random.default_rng(0)
    dense = np.triu(generator.random((300, 300)) < 0.03, 1) * generator.random((300, 300))
    adjacency = sp.csr_array((dense + dense.T).astype(np.float32))
    degrees, shares = degrees_of(adjacency), walk_shares("ppr", 5, 0.2)
    sources = generator.permutation(300)
    results = []
    for count in (1, 2, 5):
        torch.set_num_threads(count)
        results.append(pushed_rows(adjacency, degrees, sources, shares, 1e-4, 9))
    for result in results[1:]:
        assert (result != results[0]).nnz == 0
    wide = sp.csr_array(
        (adjacency.data, adjacency.indices.astype(np.int64), adjacency.indptr.astype(np.int64)),
        adjacency.shape,
    )
    for place in (0, 150, 299):
        alone = pushed_rows(wide, degrees, sources[[place]], shares, 1e-4, 9)
        assert (alone != results[0][[place]]).nnz == 0


@pytest.mark.parametrize("kernels", ["0", "1"])
def test_of_equal_scores_the_lowest_numbers_are_kept(
    kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes 8 and 5 are at the ends of two equal paths; the walk comes to 8 first."""
    monkeypatch.setenv("DROPNODE_KERNELS", kernels)
    dense = np.zeros((9, 9), np.float32)
    for one, other in ((0, 1), (0, 2), (1, 8), (2, 5)):
        dense[one, other] = dense[other, one] = 1.0
    adjacency = sp.csr_array(dense)
    shares = walk_shares("average", 2)
    source = np.array([0])
    assert exact(adjacency, shares)[0, 8] == exact(adjacency, shares)[0, 5] > 0
    rows = pushed_rows(adjacency, degrees_of(adjacency), source, shares, 0.0, 4)
    assert rows.indices.tolist() == [0, 1, 2, 5]


@pytest.mark.parametrize("kernels", ["0", "1"])
def test_no_source_is_no_row(kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DROPNODE_KERNELS", kernels)
    adjacency = sp.csr_array(np.ones((3, 3), np.float32))
    rows = pushed_rows(adjacency, np.full(3, 4.0), np.array([], int), np.ones(1), 0.0, 2)
    assert rows.shape == (0, 3)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kernels", ["0", "1"])
@pytest.mark.parametrize("wanted", [2, 25])
@pytest.mark.parametrize("kind", WALKS)
def test_exact_products_and_rows(
    sparse: bool, kernels: str, wanted: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more rows than features, which are then propagated, and with fewer."""
    monkeypatch.setenv("DROPNODE_KERNELS", kernels)
    generator = np.random.default_rng(5)
    dense = np.triu(generator.random((30, 30)) < 0.2, 1) * generator.uniform(0.1, 9.0, (30, 30))
    adjacency = sp.csr_array((dense + dense.T).astype(np.float32))
    x = generator.standard_normal((30, 11)).astype(np.float32)
    shares = walk_shares(kind, 4, 0.3)
    operator = SparseMatrix.from_scipy(normalise(adjacency), symmetric=True)
    degrees = degrees_of(adjacency)
    matrix = exact(adjacency, shares)
    expected, magnitude = matrix @ x, matrix @ np.abs(x)
    # Entries of Â have three roundings; a sum has a term per node and hop, and roots are rounded.
    steps = 4 * (30 + 4) + 30 + 6
    found = walked(operator, degrees, torch.from_numpy(x), shares)
    assert_rounded(found.numpy(), expected, magnitude, steps)
    rows = generator.permutation(30)[:wanted]
    features = SparseMatrix.from_scipy(sp.csr_array(x)) if sparse else torch.from_numpy(x)
    part = walked_rows(operator, degrees, features, torch.from_numpy(rows), shares)
    assert_rounded(part.numpy(), expected[rows], magnitude[rows], steps)
    powers = walk_power_rows(operator, degrees, features, torch.from_numpy(rows), 2)
    for number, found in enumerate(powers):
        power = np.linalg.matrix_power(transition(adjacency), number)[rows]
        assert_rounded(found.numpy(), power @ x, power @ np.abs(x), steps)
