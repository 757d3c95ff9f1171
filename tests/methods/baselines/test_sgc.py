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
    operator = oracles.normalised(community.adjacency.toarray())
    propagated = np.linalg.matrix_power(operator, steps) @ oracles.row_normalised(
        community.features
    )
    weight, bias = (p.detach().double().numpy() for p in method.network.parameters())
    expected = propagated @ weight.T + bias
    np.testing.assert_allclose(method.logits().numpy(), expected, rtol=1e-4, atol=1e-5)


def test_loss_and_gradients_are_the_librarys(community: Graph) -> None:
    method = SGC(CONFIG)
    train(method, community)
    layer = SGConv(community.num_features, community.num_classes, K=CONFIG.steps)
    layer.lin.load_state_dict(method.network.state_dict())
    edges, weights = method.tensors.edges
    logits = layer(method.tensors.features, edges, weights)
    expected = torch.nn.functional.cross_entropy(logits[method.train_rows], method.train_targets)
    loss, _ = method.loss(None, Stream(0))
    torch.testing.assert_close(loss, expected)
    method.network.zero_grad()
    for value in (loss, expected):
        value.backward()
    for ours, theirs in zip(method.network.parameters(), layer.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6)
