"""Random views of pushed rows: averages of features with weights that sum to one."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from dropnode.methods.grand_plus.pushed import PushedRows
from dropnode.ops.randomness import Part, Stream
from dropnode.ops.sparse_matrix import SparseMatrix
from oracles import assert_rounded

NODES, WIDTH = 20, 21


def parts(sparse: bool) -> tuple[sp.csr_array, np.ndarray, PushedRows]:
    """Scores of seven rows, one of them empty; features; and both held."""
    generator = np.random.default_rng(1)
    scores = (generator.random((7, NODES)) < 0.3) * generator.random((7, NODES))
    scores[3] = 0.0
    scores = scores.astype(np.float32)
    x = (
        generator.standard_normal((NODES, WIDTH)) * (generator.random((NODES, WIDTH)) < 0.6)
    ).astype(np.float32)
    held = SparseMatrix.from_scipy(sp.csr_array(x)) if sparse else torch.from_numpy(x)
    return scores, x, PushedRows(sp.csr_array(scores), held)


@pytest.mark.parametrize("kernels", ["0", "1"])
@pytest.mark.parametrize("sparse", [False, True])
def test_without_dropping_a_view_is_the_weighted_average(
    sparse: bool, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DROPNODE_KERNELS", kernels)
    scores, x, rows = parts(sparse)
    chosen = np.array([6, 0, 3, 3, 6, 1])
    view = rows.view(chosen, 0.0, Stream(0))
    sums = scores.astype(np.float64).sum(axis=1, keepdims=True)
    weights = (scores / np.where(sums == 0, 1.0, sums))[chosen]
    assert view.shape == (6, WIDTH)
    assert_rounded(view.numpy(), weights @ x, weights @ np.abs(x), NODES + 2)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_part_of_a_view_is_that_of_the_whole(sparse: bool) -> None:
    """Also of rows that were sent to another process."""
    rows = parts(sparse)[2]
    chosen = np.array([6, 0, 3, 3, 6, 1])
    whole = rows.view(chosen, 0.4, Stream(0))
    sent = pickle.loads(pickle.dumps(rows, protocol=5))
    for own in ([0, 1, 2], [3, 4, 5], [1, 4], []):
        part = Part(np.array(own, dtype=np.int64), len(chosen))
        assert torch.equal(sent.view(chosen, 0.4, Stream(0), part), whole[own])


@pytest.mark.parametrize("sparse", [False, True])
def test_entries_are_dropped_at_the_rate_and_the_rest_sums_to_one(sparse: bool) -> None:
    """Features that are unit vectors show the weights themselves."""
    scores = parts(sparse)[0]
    unit = np.eye(NODES, dtype=np.float32)
    held = SparseMatrix.from_scipy(sp.csr_array(unit)) if sparse else torch.from_numpy(unit)
    rows = PushedRows(sp.csr_array(scores), held)
    # Only nodes with a score are held, and a view has all columns.
    chosen = np.repeat(np.arange(7), 400)
    weights = rows.view(chosen, 0.3, Stream(5)).numpy()
    kept = weights > 0
    assert not kept[scores[chosen] == 0].any()
    draws = 400 * np.count_nonzero(scores)
    # Four deviations of a binomial.
    assert abs(kept.sum() / draws - 0.7) < 4 * np.sqrt(0.21 / draws)
    some = kept.any(axis=1)
    assert_rounded(weights.sum(axis=1)[some], np.ones(some.sum()), np.ones(some.sum()), NODES)
    left = kept * scores[chosen].astype(np.float64)
    expected = left[some] / left[some].sum(axis=1, keepdims=True)
    assert_rounded(weights[some], expected, expected, 2)
    # Repeated rows are different views.
    assert len(np.unique(kept[:400], axis=0)) > 1


@pytest.mark.parametrize("kernels", ["0", "1"])
@pytest.mark.parametrize("sparse", [False, True])
def test_with_a_tail_nothing_is_truncated(
    sparse: bool, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If nothing is dropped, a view is the exact row; if all is, it is what the scores lack."""
    monkeypatch.setenv("DROPNODE_KERNELS", kernels)
    scores, x, _ = parts(sparse)
    generator = np.random.default_rng(8)
    whole = scores + generator.random(scores.shape)
    whole = (whole / whole.sum(axis=1, keepdims=True)).astype(np.float32)
    scores = np.where(scores > 0, whole, 0.0).astype(np.float32)
    held = SparseMatrix.from_scipy(sp.csr_array(x)) if sparse else torch.from_numpy(x)
    exact = torch.from_numpy(whole @ x)
    rows = PushedRows(sp.csr_array(scores), held, exact)
    magnitude = whole @ np.abs(x)
    everything = rows.view(np.arange(7), 0.0, Stream(0))
    assert_rounded(everything.numpy(), exact.numpy(), magnitude, 4 * NODES)
    nothing = rows.view(np.arange(7), 1.0 - 1e-9, Stream(0))
    tail = whole.astype(np.float64) - scores
    mass = tail.sum(axis=1, keepdims=True)
    assert_rounded(nothing.numpy(), tail @ x / mass, magnitude / mass, 4 * NODES)


def test_a_stream_determines_a_view() -> None:
    rows = parts(sparse=False)[2]
    chosen = np.arange(7)
    one, same, other = (rows.view(chosen, 0.5, Stream(seed)) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
