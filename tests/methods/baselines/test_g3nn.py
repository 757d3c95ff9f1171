"""G³NN: every part of its loss against dense arithmetic, and what its edge model learns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from dropnode.graph import Graph, Split
from dropnode.methods.baselines.g3nn import G3NN, G3NNConfig
from dropnode.ops.randomness import Stream
from dropnode.training import train
from oracles import Array, operator_of, rows_of, softmax
from rounding import Rounded, exactly, joined

SETTINGS: dict[str, Any] = {
    "feature_scaling": "row",
    "hidden": 5,
    "latent": 2,
    "input_dropout": 0.0,
    "dropout": 0.0,
    "negatives": 1.5,
    "discriminative_weight": 0.7,
    "learning_rate": 0.02,
    "weight_decay": 5e-4,
    "stopping": "never",
    "patience": 50,
    "max_epochs": 100,
}


def prepared(graph: Graph, **changes: Any) -> G3NN:
    """Return the method before its first epoch, with no weight at zero."""
    method = G3NN(G3NNConfig.from_dict(SETTINGS | changes))
    assert graph.split is not None
    with Stream(3).torch_global():
        method.prepare(graph, graph.split, Stream(3))
        for parameter in method.network.parameters():
            torch.nn.init.normal_(parameter)
    return method


class Dense:
    """The method once more: matrices spelt out, with bounds on what float32 may be off."""

    def __init__(self, method: G3NN, graph: Graph) -> None:
        assert graph.split is not None
        self.w: dict[str, Any] = {k: exactly(v) for k, v in method.state().items()}
        self.x = rows_of(graph.features)
        self.graph, self.train = graph, graph.split.train
        self.rest = np.setdiff1d(np.arange(graph.num_nodes), self.train)

    def posterior(self) -> Any:
        a = operator_of(self.graph.adjacency)
        w = self.w
        hidden = a @ self.x @ w["posterior.0.lin.weight"].T + w["posterior.0.bias"]
        output = a @ np.maximum(hidden, 0) @ w["posterior.1.lin.weight"].T + w["posterior.1.bias"]
        return softmax(output)

    def prior(self) -> Any:
        w = self.w
        hidden = np.maximum(self.x @ w["prior.0.weight"].T + w["prior.0.bias"], 0)
        return softmax(hidden @ w["prior.1.weight"].T + w["prior.1.bias"])

    def ends(self) -> Rounded:
        latent: Any = np.maximum(self.x @ self.w["latent.weight"].T + self.w["latent.bias"], 0)
        guess = self.prior()
        known = np.zeros((len(guess), 1))
        known[self.train] = 1.0
        labels = (1.0 - known) * guess + known * np.eye(guess.shape[1])[self.graph.labels]
        return joined([latent, labels], np.concatenate, -1)

    def edge_scores(self, pairs: np.ndarray) -> Any:
        ends = self.ends()
        sides = joined([ends[pairs[0]], ends[pairs[1]]], np.concatenate, -1)
        return sides @ self.w["edge.weight"][0] + self.w["edge.bias"]

    def edge_probabilities(self, pairs: np.ndarray) -> Any:
        return 1.0 / (1.0 + np.exp(-self.edge_scores(pairs)))

    def parts(self, pairs: np.ndarray) -> dict[str, Any]:
        q, p = self.posterior(), self.prior()
        gold = self.graph.labels[self.train]
        edges = np.argwhere(self.graph.adjacency.toarray()).T
        return {
            "supervised": -np.log(q[self.train, gold]).mean(),
            "prior": -np.log(p[self.train, gold]).mean(),
            "agreement": -(q * np.log(p))[self.rest].mean(),
            "entropy": -(q * np.log(q))[self.rest].mean(),
            "edges": -np.log(self.edge_probabilities(edges)).mean()
            - np.log(1.0 - self.edge_probabilities(pairs)).mean(),
        }


def test_every_part_of_the_loss(community: Graph) -> None:
    method = prepared(community)
    stream = Stream(0).at("epoch", 1)
    loss, parts = method.loss(None, stream)
    pairs = method.random_pairs(stream.at("pairs")).numpy()
    expected = Dense(method, community).parts(pairs)
    assert set(parts) == set(expected)
    for name, part in parts.items():
        expected[name].assert_near(part.detach(), name)
    total = sum(expected.values(), start=-0.3 * expected["supervised"])
    total.assert_near(loss.detach())


def test_what_classifies_is_the_posterior(community: Graph) -> None:
    method = prepared(community)
    expected = Dense(method, community).posterior()
    expected.assert_near(method.logits().softmax(dim=1))


def test_training_nodes_have_their_known_label_as_an_end_of_an_edge(community: Graph) -> None:
    method = prepared(community)
    prior = method.prior(method.tensors)
    ends = method.ends(method.tensors, prior)[:, method.config.latent :]
    rows, rest = method.train_rows, method.unlabelled
    gold = np.eye(community.num_classes)[community.labels[rows]]
    np.testing.assert_array_equal(ends[rows].detach().numpy(), gold)
    softmax(exactly(prior))[rest.numpy()].assert_near(ends[rest].detach())
    (gradient,) = torch.autograd.grad(ends.square().sum(), prior)
    assert (gradient[rows] == 0).all()
    assert (gradient[rest].abs().sum(dim=1) > 0).all()


def test_random_pairs_are_drawn_anew_and_in_proportion(community: Graph) -> None:
    method = prepared(community)
    first, again, other = (
        method.random_pairs(Stream(0).at("epoch", epoch, "pairs")) for epoch in (1, 1, 2)
    )
    assert first.shape == (2, int(1.5 * 2 * community.num_edges))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert set(first.flatten().tolist()) == set(range(community.num_nodes))


@pytest.fixture(scope="module")
def uneven() -> Graph:
    """Two classes of sixty nodes; within the first are six of seven edges."""
    generator = np.random.default_rng(5)
    labels = np.repeat([0, 1], 60)
    density = np.array([[0.25, 0.01], [0.01, 0.02]])
    drawn = generator.random((120, 120)) < density[labels][:, labels]
    features = generator.standard_normal((120, 8)) + 3.0 * np.eye(8)[labels * 4]
    parts = [np.flatnonzero(np.arange(120) % 12 == place) for place in (0, 1)]
    test = np.setdiff1d(np.arange(120), np.concatenate(parts))
    return Graph.from_edges(
        np.argwhere(np.triu(drawn, 1)), features, labels, split=Split(*parts, test)
    )


def scores(method: G3NN, graph: Graph) -> Array:
    """Return the trained logit of an edge between any two nodes."""
    with torch.no_grad():
        ends = method.ends(method.tensors, method.prior(method.tensors))
        nodes = torch.arange(graph.num_nodes)
        found = method.edge_scores(ends, torch.cartesian_prod(nodes, nodes).T)
    return found.numpy().reshape(graph.num_nodes, graph.num_nodes).astype(np.float64)


def test_trained_edges_score_above_random_pairs(uneven: Graph) -> None:
    method = prepared(uneven, feature_scaling="standard", dropout=0.3)
    outcome = train(method, uneven)
    found = scores(method, uneven)
    joined = found[uneven.adjacency.toarray() > 0]
    assert joined.mean() > found.mean() + 0.75 * found.std()
    assert (joined > np.median(found)).mean() > 0.8
    # To tell nothing, a probability of one half for every pair, costs log 2 on either side.
    losses = [line["edges"] for line in outcome.history[-20:]]
    assert np.mean(losses) < 2 * np.log(2) - 0.15


def test_an_edge_is_a_sum_of_its_ends(community: Graph) -> None:
    """So the model knows who has many edges, and not who with whom."""
    method = prepared(community)
    found = scores(method, community)
    swapped = found[:, None, :, None] - found[:, None, None, :]
    # Four scores are compared, and each is rounded.
    pairs = np.indices(found.shape).reshape(2, -1)
    bound = 4 * Dense(method, community).edge_scores(pairs).bound.max()
    np.testing.assert_allclose(swapped, np.broadcast_to(swapped[:1], swapped.shape), atol=bound)


def test_neither_edges_nor_unlabelled_nodes_are_needed(community: Graph) -> None:
    everyone = Split(np.arange(community.num_nodes), [], [])
    alone = Graph.from_edges(
        np.empty((0, 2), int), community.features, community.labels, split=everyone
    )
    method = prepared(alone)
    assert set(train(method, alone).history[-1]) >= {"supervised", "prior"}
    assert torch.isfinite(method.logits()).all()
