"""The fitted walk: leave-one-out errors by leaving one out, and the walk that suits a graph."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dropnode.data.generators import sbm
from dropnode.data.splits import per_class_split
from dropnode.methods.grand_plus.fitting import RIDGES, candidates, fitted_shares, leave_one_out
from dropnode.methods.tensors import GraphTensors


def by_leaving_out(x: np.ndarray, targets: np.ndarray) -> float:
    """Fit to all rows but one, with an intercept, and predict that one."""
    centred = x - x.mean(axis=0)
    scale = np.square(centred).sum() / len(x)
    errors = np.zeros((len(RIDGES), len(x)))
    for number, ridge in enumerate(RIDGES * scale):
        for left_out in range(len(x)):
            rows = np.delete(np.arange(len(x)), left_out)
            mean, middle = x[rows].mean(axis=0), targets[rows].mean(axis=0)
            own = x[rows] - mean
            inner = own @ own.T + ridge * np.eye(len(rows))
            weights = own.T @ np.linalg.solve(inner, targets[rows] - middle)
            predicted = (x[left_out] - mean) @ weights + middle
            errors[number, left_out] = np.square(predicted - targets[left_out]).sum()
    return float(errors.mean(axis=1).min())


@pytest.mark.parametrize("features", [3, 40])
def test_the_error_is_that_of_leaving_one_out(features: int) -> None:
    generator = np.random.default_rng(features)
    x = generator.standard_normal((15, features)) + 5.0
    targets = np.eye(3)[generator.integers(3, size=15)]
    assert leave_one_out(x, targets) == pytest.approx(by_leaving_out(x, targets), rel=1e-8)


def test_rows_that_are_all_alike_are_no_error() -> None:
    """Then the mean of the other targets is predicted."""
    targets = np.eye(2)[[0, 1, 0, 1]]
    assert leave_one_out(np.ones((4, 3)), targets) == pytest.approx(8 / 9)


def test_candidates_are_averages() -> None:
    for shares in candidates(4, 0.3):
        assert shares.shape == (5,)
        assert shares.sum() == pytest.approx(1.0)
        assert (shares >= 0).all()


@pytest.mark.parametrize(
    ("homophily", "own"),
    # A neighbour is of the same class by chance with probability 1/4.
    [(0.9, False), (0.25, True)],
)
def test_own_features_count_where_neighbours_tell_little(homophily: float, own: bool) -> None:
    graph = sbm.make(nodes=2000, classes=4, average_degree=12, homophily=homophily, features=16)
    train = per_class_split(graph.labels, 20, 5).train
    tensors = GraphTensors(torch.from_numpy(np.asarray(graph.features).copy()), graph.adjacency)
    shares = fitted_shares(tensors, train, graph.labels[train], 4, 0.2, lambda rows: rows)
    assert (shares[0] > 0.15) == own


def test_more_training_nodes_than_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dropnode.methods.grand_plus.fitting.MOST_ROWS", 7)
    graph = sbm.make(nodes=100, classes=2, features=4)
    rows = np.flatnonzero(graph.labels >= 0)
    tensors = GraphTensors(torch.from_numpy(np.asarray(graph.features).copy()), graph.adjacency)
    shares = fitted_shares(tensors, rows, graph.labels, 2, 0.2, lambda rows: rows)
    assert shares.sum() == pytest.approx(1.0)
