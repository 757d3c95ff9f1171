"""MADGap against distances spelt out pair by pair."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

from dropnode.analysis import smoothing
from dropnode.analysis.smoothing import last_layer, madgap_by_hops, madgap_by_labels
from dropnode.errors import ConfigError
from oracles import RandomGraph, random_graphs

Relation = Callable[[int, int], bool]


def distance(first: np.ndarray, second: np.ndarray) -> float:
    """One minus the cosine; 1 where there is none, exactly 0 between parallel rows."""
    if not first.any() or not second.any():
        return 1.0
    # Small whole numbers: parallel rows have exactly equal products.
    if np.array_equal(np.outer(first, second), np.outer(second, first)) and first @ second > 0:
        return 0.0
    return 1.0 - first @ second / (np.linalg.norm(first) * np.linalg.norm(second))


def mean_average(rows: np.ndarray, related: Relation) -> float | None:
    averages, pairs = [], 0
    for i in range(len(rows)):
        others = [j for j in range(len(rows)) if j != i and related(i, j)]
        pairs += len(others)
        counted = [d for d in (distance(rows[i], rows[j]) for j in others) if d != 0]
        if counted:
            averages.append(sum(counted) / len(counted))
    if not pairs:
        return None
    return sum(averages) / len(averages) if averages else 0.0


def gap(rows: np.ndarray, near: Relation, remote: Relation) -> float | None:
    neighbouring, far = mean_average(rows, near), mean_average(rows, remote)
    return None if neighbouring is None or far is None else far - neighbouring


def hops_apart(adjacency: np.ndarray) -> np.ndarray:
    """Floyd and Warshall; infinite where there is no path."""
    apart = np.where(adjacency != 0, 1.0, np.inf)
    np.fill_diagonal(apart, 0.0)
    for k in range(len(apart)):
        apart = np.minimum(apart, apart[:, k : k + 1] + apart[k])
    return apart


def assert_same(actual: float | None, expected: float | None) -> None:
    if expected is None:
        assert actual is None
    else:
        assert actual == pytest.approx(expected, abs=1e-12)


@st.composite
def whole_rows(draw: st.DrawFn, nodes: int) -> np.ndarray:
    """Small whole numbers: many rows are equal, parallel, opposite or zero."""
    columns, largest = draw(st.integers(1, 3)), draw(st.integers(0, 2))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows = generator.integers(-largest, largest + 1, (nodes, columns))
    return rows * generator.choice([1.0, 3.0, 7.0], (nodes, 1)) if draw(st.booleans()) else rows


@given(st.data(), st.integers(1, 12), st.integers(1, 4))
def test_by_labels(data: st.DataObject, nodes: int, classes: int) -> None:
    rows = data.draw(whole_rows(nodes)).astype(float)
    drawn = st.lists(st.integers(-1, classes - 1), min_size=nodes, max_size=nodes)
    labels = np.array(data.draw(drawn))
    known = labels >= 0
    named, inside = labels[known], rows[known]
    expected = gap(inside, lambda i, j: named[i] == named[j], lambda i, j: named[i] != named[j])
    assert_same(madgap_by_labels(rows, labels), expected)


@given(st.data(), random_graphs(max_nodes=12), st.integers(1, 3), st.integers(1, 4))
def test_by_hops(data: st.DataObject, drawn: RandomGraph, near: int, further: int) -> None:
    rows = data.draw(whole_rows(len(drawn.adjacency))).astype(float)
    apart = hops_apart(drawn.adjacency)
    remote = near + further
    expected = gap(rows, lambda i, j: apart[i, j] <= near, lambda i, j: apart[i, j] >= remote)
    actual = madgap_by_hops(rows, sp.csr_array(drawn.adjacency), near, remote)
    assert_same(actual, expected)


def test_by_hops_over_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(3)
    nodes = 150
    adjacency = np.zeros((nodes, nodes))
    for i in range(1, nodes - 2):  # A tree, and two nodes on their own.
        j = generator.integers(max(0, i - 3), i)
        adjacency[i, j] = adjacency[j, i] = 2.5
    rows = generator.normal(size=(nodes, 5))
    rows[20] = rows[140]
    apart = hops_apart(adjacency)
    expected = gap(rows, lambda i, j: apart[i, j] <= 3, lambda i, j: apart[i, j] >= 8)
    for sources in (64, 128, 1024):
        monkeypatch.setattr(smoothing, "SOURCES", sources)
        assert_same(madgap_by_hops(rows, sp.csr_array(adjacency)), expected)


def test_rows_that_are_nearly_equal_keep_their_digits() -> None:
    """Over-smoothed representations differ by little; the gap is then tiny, not noise."""
    generator = np.random.default_rng(0)
    shape = generator.normal(size=(40, 3))
    labels = np.repeat([0, 1], 20)
    shape[labels == 1] += 2.0
    size = 1e-6
    rows = np.array([1.0, 2.0, 3.0]) + size * shape
    # 1 - cos is half the squared distance on the sphere, to first order that on its tangent plane.
    axis = np.array([1.0, 2.0, 3.0]) / np.sqrt(14)
    flat = (shape - np.outer(shape @ axis, axis)) / np.sqrt(14)
    apart = np.square(flat[:, None] - flat).sum(axis=2) / 2
    same = labels[:, None] == labels
    expected = apart[~same].mean() - apart[same].sum() / (40 * 19)
    assert madgap_by_labels(rows, labels) == pytest.approx(size**2 * expected, rel=1e-4)
    ring = sp.csr_array(np.kron(np.eye(2), 1 - np.eye(20)))
    assert madgap_by_hops(rows, ring) == pytest.approx(size**2 * expected, rel=1e-4)


def test_only_directions_count() -> None:
    generator = np.random.default_rng(1)
    rows, labels = generator.normal(size=(30, 4)), generator.integers(0, 3, 30)
    lengths = generator.uniform(1e-3, 1e3, (30, 1))
    assert_same(madgap_by_labels(rows * lengths, labels), madgap_by_labels(rows, labels))


def test_what_has_no_gap() -> None:
    rows, one_class = np.eye(3), np.zeros(3, dtype=int)
    path = sp.csr_array(np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
    assert madgap_by_labels(rows, one_class) is None
    assert madgap_by_labels(rows, np.arange(3)) is None
    assert madgap_by_labels(rows, np.full(3, -1)) is None
    assert madgap_by_labels(np.full((3, 2), np.nan), np.array([0, 0, 1])) is None
    assert madgap_by_hops(rows, path) is None
    assert madgap_by_hops(rows, sp.csr_array((3, 3))) is None


def test_what_is_no_representation_label_or_graph_is_refused() -> None:
    rows, labels = np.eye(3), np.array([0, 0, 1])
    path = sp.csr_array(np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
    for wrong in (np.ones(3), np.ones((3, 2), dtype=complex), np.full((3, 2), "a")):
        with pytest.raises(ConfigError, match=r"representations are .* expected numbers"):
            madgap_by_labels(wrong, labels)
        with pytest.raises(ConfigError, match=r"representations are .* expected numbers"):
            madgap_by_hops(wrong, path)
    for codes in (labels[:2], labels.astype(float), np.array([0, 0, -2]), labels[:, None]):
        with pytest.raises(ConfigError, match=r"labels are .* expected 3 class codes"):
            madgap_by_labels(rows, codes)
    with pytest.raises(ConfigError, match=r"adjacency of shape \(3, 3\) and 2 rows"):
        madgap_by_hops(rows[:2], path)
    with pytest.raises(ConfigError, match="not symmetric"):
        madgap_by_hops(rows, sp.triu(path))
    for near, remote, message in (
        (3, 3, "near=3 and remote=3"),
        (0, 8, "near = 0"),
        (1.5, 8, "near = 1.5"),
        (3, "8", "remote = '8'"),
    ):
        with pytest.raises(ConfigError, match=message):
            madgap_by_hops(rows, path, near=near, remote=remote)  # type: ignore[arg-type]


def test_one_direction_for_all_has_a_gap_of_zero() -> None:
    rows = np.outer([1.0, 2.0, 3.0, 7.0], [0.1, 0.2, 0.3])
    assert madgap_by_labels(np.outer([1, 2, 3, 7], [1, 2, 3]), np.array([0, 0, 1, 1])) == 0.0
    assert madgap_by_labels(rows, np.array([0, 0, 1, 1])) == pytest.approx(0.0, abs=1e-30)


def test_the_last_layer_is_the_logits() -> None:
    class Trained:
        def logits(self) -> torch.Tensor:
            return torch.tensor([[1.5, -2.0]], requires_grad=True)

    found = last_layer(Trained())  # type: ignore[arg-type]
    assert found.dtype == np.float64
    assert found.tolist() == [[1.5, -2.0]]
