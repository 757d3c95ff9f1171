"""APPNP propagates predictions with personalised PageRank; each step drops from all of Â."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg

import oracles
from dropnode.graph import Graph
from dropnode.methods.baselines.appnp import APPNP, APPNPConfig
from dropnode.ops.randomness import Stream
from dropnode.training import train
from rounding import Rounded, exactly, lost

CONFIG = APPNPConfig(
    feature_scaling="row",
    hidden=6,
    dropout=0.5,
    steps=10,
    teleport=0.1,
    learning_rate=0.02,
    weight_decay=5e-3,
    stopping="accuracy",
    patience=50,
    max_epochs=4,
)


def trained(graph: Graph, **changes: Any) -> APPNP:
    method = APPNP(CONFIG.replace(**changes))
    train(method, graph)
    return method


def predictions(method: APPNP, graph: Graph) -> Rounded:
    """What the perceptron says, before anything is propagated."""
    first, second = (exactly(layer.weight) for layer in method.network)
    hidden: Any = np.maximum(oracles.rows_of(graph.features) @ first.T, 0.0)
    said: Rounded = hidden @ second.T
    return said


def walk(graph: Graph, steps: int, teleport: float) -> Rounded:
    """The iteration written out: αΣₖ((1-α)Â)ᵏ over the steps, and what has never teleported."""
    operator = (1.0 - teleport) * oracles.operator_of(graph.adjacency)
    power = Rounded(np.eye(graph.num_nodes))
    total: Any = 0.0
    for _ in range(steps):
        total = total + teleport * power
        power = operator @ power
    return total + power  # type: ignore[no-any-return]


@pytest.mark.parametrize(("steps", "teleport"), [(1, 0.1), (10, 0.1), (7, 0.35), (3, 0.0)])
def test_logits_are_the_power_iteration(steps: int, teleport: float, community: Graph) -> None:
    method = trained(community, steps=steps, teleport=teleport)
    expected = walk(community, steps, teleport) @ predictions(method, community)
    expected.assert_near(method.logits())


def test_many_steps_are_personalised_pagerank(community: Graph) -> None:
    method = trained(community, steps=200, teleport=0.2)
    operator = oracles.normalised(community.adjacency.toarray())
    identity = np.eye(len(operator))
    pagerank = 0.2 * np.linalg.inv(identity - 0.8 * operator)
    # As many roundings as the steps have; what they leave out is 0.8²⁰⁰, or 4e-20.
    steps = walk(community, 200, 0.2).steps
    expected = Rounded(pagerank, steps=steps) @ predictions(method, community)
    expected.assert_near(method.logits())


def test_the_library_agrees(community: Graph) -> None:
    method = trained(community)
    edges, weights = method.tensors.edges
    layer = pyg.APPNP(CONFIG.steps, CONFIG.teleport).eval()
    start = predictions(method, community)
    expected = walk(community, CONFIG.steps, CONFIG.teleport) @ start
    expected.assert_near(method.logits())
    expected.assert_near(layer(torch.from_numpy(start.value).float(), edges, weights))


def test_dropping_in_training_is_fair_in_every_step(community: Graph) -> None:
    """The mean over many draws is what inference computes: no step drops from what another left."""
    method = trained(community, dropout=0.4, steps=4)
    # Without the perceptron, whose own dropout is not linear.
    start = torch.from_numpy(predictions(method, community).value).float()
    method.network = _Fixed(start)
    exact = method.classify(method.tensors).numpy()
    draws = [method.classify(method.tensors, Stream(seed)).numpy() for seed in range(800)]
    error = np.std(draws, axis=0) / np.sqrt(len(draws))
    # Besides, sums of four steps are rounded; none is as large as one.
    assert (np.abs(np.mean(draws, axis=0) - exact) < 5.0 * error + lost(100)).all()
    assert (error[:24].max(axis=1) > 1e-5).all()


class _Fixed(torch.nn.ModuleList):
    """Layers that say the same whatever they see."""

    def __init__(self, output: torch.Tensor) -> None:
        super().__init__([_Constant(output)])


class _Constant(torch.nn.Module):
    def __init__(self, output: torch.Tensor) -> None:
        super().__init__()
        self.output = output

    def forward(self, x: object) -> torch.Tensor:
        return self.output


def test_weight_decay_is_on_the_first_layer_alone(community: Graph) -> None:
    method = trained(community, dropout=0.0, weight_decay=0.3)
    before = [layer.weight.detach().clone() for layer in method.network]
    optimiser = method.phases()[0].optimiser
    # A gradient of zero leaves nothing but decay to move a weight.
    for layer in method.network:
        layer.weight.grad = torch.zeros_like(layer.weight)
    optimiser.step()
    first, second = (layer.weight.detach() for layer in method.network)
    assert not torch.equal(first, before[0])
    assert torch.equal(second, before[1])
