"""FastGCN: samples of columns whose products are right on average, and GCN where all are drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

from dropnode.graph import Graph
from dropnode.methods.baselines.fastgcn import FastGCN, FastGCNConfig, inclusion, sample_columns
from dropnode.ops.propagation import normalise
from dropnode.ops.randomness import Stream
from dropnode.training import Phase
from oracles import operator_of, rows_of, softmax, supervised
from rounding import Rounded, exactly

SETTINGS: dict[str, Any] = {
    "feature_scaling": "row",
    "hidden": 6,
    "dropout": 0.0,
    "learning_rate": 0.01,
    "weight_decay": 5e-4,
    "batch_size": 4,
    "samples": 1000,
    "stopping": "accuracy",
    "patience": 50,
    "max_epochs": 10,
}


def prepared(graph: Graph, **changes: Any) -> FastGCN:
    method = FastGCN(FastGCNConfig.from_dict(SETTINGS | changes))
    assert graph.split is not None
    with Stream(3).torch_global():
        method.prepare(graph, graph.split, Stream(3))
        for layer in method.network:
            torch.nn.init.normal_(layer.bias)  # zero at first, and would go unseen
    return method


def rows_of_operator(graph: Graph) -> sp.csr_array:
    """Return rows of Â with more columns between them than a small sample has."""
    return normalise(graph.adjacency)[np.arange(5)]


def column_norms(graph: Graph) -> np.ndarray:
    return np.linalg.norm(normalise(graph.adjacency).toarray(), axis=0)


def estimates(graph: Graph, hidden: np.ndarray, samples: int, draws: int) -> np.ndarray:
    """Return independent estimates of ÂH (draws, rows, width)."""
    operator, norms = rows_of_operator(graph), column_norms(graph)
    generator = np.random.default_rng(1)
    found = []
    for _ in range(draws):
        sampled, drawn = sample_columns(operator, norms, samples, generator)
        found.append(sampled @ hidden[drawn])
    return np.stack(found)


@pytest.fixture(scope="module")
def hidden(community: Graph) -> np.ndarray:
    return np.random.default_rng(0).normal(1.0, 1.0, (community.num_nodes, 3))


def test_the_estimate_is_right_on_average(community: Graph, hidden: np.ndarray) -> None:
    exact = rows_of_operator(community) @ hidden
    found = estimates(community, hidden, samples=4, draws=1500)
    error = found.std(axis=0) / np.sqrt(len(found))
    assert (error > 0).all()
    assert (np.abs(found.mean(axis=0) - exact) < 5 * error).all()


def test_the_error_falls_with_the_square_root_of_the_draws(
    community: Graph, hidden: np.ndarray
) -> None:
    exact = rows_of_operator(community) @ hidden
    found = estimates(community, hidden, samples=4, draws=3200)
    few, many = (
        np.sqrt(((found.reshape(-1, draws, *exact.shape).mean(axis=1) - exact) ** 2).mean())
        for draws in (4, 64)
    )
    # Two deviations: fifty groups of 64 draws tell their error to a tenth.
    assert few / many == pytest.approx(4.0, rel=0.2)


def test_larger_samples_err_less_and_a_full_one_not_at_all(
    community: Graph, hidden: np.ndarray
) -> None:
    operator = rows_of_operator(community)
    exact = operator @ hidden
    columns = len(np.unique(operator.indices))
    errors = [
        np.sqrt(((estimates(community, hidden, samples, 150) - exact) ** 2).mean())
        for samples in (2, 4, 8, columns - 1)
    ]
    assert errors == sorted(errors, reverse=True)
    whole = Rounded(operator.toarray().astype(np.float64), steps=2) @ Rounded(hidden)
    whole.assert_near(estimates(community, hidden, columns, 1)[0])


def test_columns_come_as_often_as_their_norm_says(community: Graph) -> None:
    operator, norms = rows_of_operator(community), column_norms(community)
    generator = np.random.default_rng(1)
    samples, draws = 4, 1500
    counts = np.zeros(community.num_nodes)
    for _ in range(draws):
        drawn = sample_columns(operator, norms, samples, generator)[1]
        assert len(drawn) == samples
        counts[drawn] += 1
    columns = np.unique(operator.indices)
    assert set(np.flatnonzero(counts)) == set(columns)
    expected = samples * norms[columns] / norms[columns].sum()
    assert (expected < 1).all()
    error = np.sqrt(expected * (1 - expected) / draws)
    assert (np.abs(counts[columns] / draws - expected) < 5 * error).all()


@given(
    sizes=st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=30),
    samples=st.integers(1, 40),
)
def test_chances_sum_to_the_sample_and_none_is_above_one(sizes: list[float], samples: int) -> None:
    weights = np.array(sizes)
    chances = inclusion(weights, samples)
    assert chances.sum() == pytest.approx(min(samples, len(weights)))
    assert (chances > 0).all()
    assert (chances <= 1).all()
    # Below one in proportion; and whoever is certain is no smaller than whoever is not.
    below = chances < 1
    if below.any():
        factors = chances[below] / weights[below]
        np.testing.assert_allclose(factors, factors[0])
        assert (weights[~below] * factors[0] >= 1 - 1e-9).all()


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("sparse", [False, True])
def test_with_every_column_a_batch_is_classified_as_by_gcn(
    community: Graph, layers: int, sparse: bool
) -> None:
    method = prepared(_held(community, sparse), layers=layers)
    rows = method.train_rows[[4, 0, 3]]
    sampled = method.classify_sampled(rows.numpy(), Stream(1)).detach()
    expected = convolved(method, community)
    expected.assert_near(method.logits())
    expected[rows.numpy()].assert_near(sampled)


def convolved(method: FastGCN, graph: Graph) -> Any:
    """Graph convolutions, as many as there are layers."""
    operator, x = operator_of(graph.adjacency), rows_of(graph.features)
    for number, layer in enumerate(method.network):
        x = np.maximum(x, 0.0) if number else x  # type: ignore[call-overload]
        x = operator @ (x @ exactly(layer.lin.weight).T) + exactly(layer.bias)
    return x


def _held(graph: Graph, sparse: bool) -> Graph:
    features = graph.features.toarray() if sp.issparse(graph.features) else graph.features
    held = sp.csr_array(features) if sparse else features
    return Graph.from_scipy(graph.adjacency, held, graph.labels, split=graph.split)


def test_logits_of_two_layers_are_right_on_average(community: Graph) -> None:
    method = prepared(community, samples=3)
    rows = method.train_rows.numpy()
    with torch.no_grad():
        found = torch.stack([method.classify_sampled(rows, Stream(seed)) for seed in range(500)])
    error = found.std(dim=0) / len(found) ** 0.5
    assert (error > 0).any()
    # Labels whose neighbours are all drawn have no error but that of float32.
    rounding = torch.from_numpy(convolved(method, community)[rows].bound)
    assert ((found.mean(dim=0) - method.logits()[rows]).abs() < 5 * error + rounding).all()


def test_propagated_features_are_kept_of_nodes_a_batch_can_reach(community: Graph) -> None:
    assert community.split is not None
    reached = np.flatnonzero(normalise(community.adjacency).toarray()[community.split.train].any(0))
    method = prepared(community)
    assert len(reached) < community.num_nodes
    assert method.propagated.shape == (len(reached), community.num_features)


def test_an_epoch_goes_once_through_the_labelled_nodes(community: Graph) -> None:
    assert community.split is not None
    method = prepared(community)
    phase: Phase = method.phases()[0]
    epochs = [list(method.batches(phase, Stream(0).at("epoch", n))) for n in (1, 2)]
    for batches in epochs:
        assert [len(batch) for batch in batches] == [4, 2]
        assert sorted(torch.cat(batches).tolist()) == list(range(6))
    assert not torch.equal(torch.cat(epochs[0]), torch.cat(epochs[1]))


def test_a_batch_is_scored_by_its_own_labels(community: Graph) -> None:
    method = prepared(community)
    batch = torch.tensor([5, 1])
    nodes = method.train_rows[batch]
    chances = softmax(convolved(method, community)[nodes.numpy()])
    expected = supervised([chances], np.arange(2), community.labels[nodes], "mean")
    expected.assert_near(method.loss(batch, Stream(1))[0].detach())
