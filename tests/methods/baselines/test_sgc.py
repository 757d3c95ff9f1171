"""SGC is logistic regression on Âᴷ X: W may come first, the logits and gradients are the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric.nn import SGConv

import oracles
from dropnode.graph import Graph
from dropnode.methods.baselines.sgc import SGC, SGCConfig
from dropnode.ops.randomness import Stream
from dropnode.training import train
from rounding import Rounded, exactly

pytestmark = pytest.mark.usefixtures("features_as_given")

CONFIG = SGCConfig(
    feature_scaling="row",
    steps=2,
    learning_rate=0.2,
    weight_decay=1e-5,
    stopping="never",
    patience=1,
    max_epochs=5,
)


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_logits_are_those_of_propagated_features(steps: int, community: Graph) -> None:
    method = SGC(CONFIG.replace(steps=steps))
    train(method, community)
    weight, bias = map(exactly, method.network.parameters())
    expected = propagated(community, steps) @ weight.T + bias
    expected.assert_near(method.logits())


def propagated(graph: Graph, steps: int) -> Rounded:
    """Âᴷ X, hop by hop."""
    x = oracles.rows_of(graph.features)
    for _ in range(steps):
        x = oracles.operator_of(graph.adjacency) @ x
    return x


def test_loss_and_gradients_are_the_librarys(community: Graph) -> None:
    """And those of logistic regression, up to the rounding of both."""
    method = SGC(CONFIG)
    train(method, community)
    weight, bias = map(exactly, method.network.parameters())
    rows = method.train_rows.numpy()
    seen = propagated(community, CONFIG.steps)[rows]
    chances = oracles.softmax(seen @ weight.T + bias)
    wrong = (chances - np.eye(community.num_classes)[community.labels[rows]]) / len(rows)
    gradients = wrong.T @ seen, wrong.sum(axis=0)
    layer = SGConv(community.num_features, community.num_classes, K=CONFIG.steps)
    layer.lin.load_state_dict(method.network.state_dict())
    edges, weights = method.tensors.edges
    logits = layer(method.tensors.features, edges, weights)
    theirs = torch.nn.functional.cross_entropy(logits[method.train_rows], method.train_targets)
    ours, _ = method.loss(None, Stream(0))
    method.network.zero_grad()
    for loss, network in ((ours, method.network), (theirs, layer)):
        loss.backward()
        oracles.supervised(
            [chances], np.arange(len(rows)), community.labels[rows], "mean"
        ).assert_near(loss.detach())
        for parameter, gradient in zip(network.parameters(), gradients, strict=True):
            gradient.assert_near(parameter.grad)
