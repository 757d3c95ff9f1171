"""Meta-gradients equal those of automatic differentiation through the whole training."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from small_graphs import small_graph

from dropnode.analysis.attacks.metattack import (
    TRAIN_SHARE,
    Metattack,
    edge_gradient,
    surrogate_task,
)
from dropnode.analysis.attacks.surrogate import (
    Task,
    Weights,
    initial_weights,
    logits_of,
    trained,
    unrolled,
)
from dropnode.graph import Graph
from dropnode.ops.propagation import normalise
from dropnode.ops.randomness import Stream
from dropnode.ops.sparse_matrix import SparseMatrix

STEPS = 25


class Dense:
    """The surrogate in float64, on a dense adjacency matrix that has gradients."""

    def __init__(self, graph: Graph, task: Task) -> None:
        features = graph.features.toarray() if sp.issparse(graph.features) else graph.features
        self.features = torch.tensor(features, dtype=torch.float64)
        self.adjacency = torch.tensor(graph.adjacency.toarray(), dtype=torch.float64)
        self.adjacency.requires_grad_()
        symmetric = (self.adjacency + self.adjacency.T) / 2 + torch.eye(graph.num_nodes)
        scale = symmetric.sum(dim=1) ** -0.5
        self.operator = scale[:, None] * symmetric * scale
        self.targets = task.targets.double()
        self.train = task.train

    def loss(self, weights: list[torch.Tensor], of: torch.Tensor) -> torch.Tensor:
        logits = self.operator @ (self.operator @ (self.features @ weights[0]) @ weights[1])
        return -(of[:, None] * self.targets * logits.log_softmax(dim=1)).sum()

    def labelled(self) -> torch.Tensor:
        shares = torch.zeros(len(self.targets), dtype=torch.float64)
        shares[self.train] = 1 / len(self.train)
        return shares


def exact(dense: Dense, start: Weights, attacked: torch.Tensor, options: Metattack) -> torch.Tensor:
    weights = [start.first.double().requires_grad_(), start.second.double().requires_grad_()]
    velocities = [torch.zeros_like(each) for each in weights]
    for _ in range(options.steps):
        loss = dense.loss(weights, dense.labelled())
        gradients = torch.autograd.grad(loss, weights, create_graph=True)
        pairs = zip(velocities, gradients, strict=True)
        velocities = [options.momentum * v + g for v, g in pairs]
        weights = [w - options.learning_rate * v for w, v in zip(weights, velocities, strict=True)]
    return torch.autograd.grad(dense.loss(weights, attacked), dense.adjacency)[0]


def first_order(
    dense: Dense, start: Weights, attacked: torch.Tensor, options: Metattack
) -> torch.Tensor:
    weights = [start.first.double().requires_grad_(), start.second.double().requires_grad_()]
    adam = torch.optim.Adam(weights, lr=options.learning_rate / 10)
    total = torch.zeros_like(dense.adjacency)
    for _ in range(options.steps):
        loss = dense.loss(weights, attacked)
        total += torch.autograd.grad(loss, dense.adjacency, retain_graph=True)[0]
        gradients = torch.autograd.grad(
            dense.loss(weights, dense.labelled()), weights, retain_graph=True
        )
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = gradient
        adam.step()
    return total


@pytest.mark.parametrize("features", ["sparse", "dense"])
@pytest.mark.parametrize("gradient", ["exact", "first-order"])
@pytest.mark.parametrize("mode", TRAIN_SHARE)
def test_the_gradient_is_that_of_automatic_differentiation(
    mode: str, gradient: str, features: str
) -> None:
    graph = small_graph(seed=len(mode), dense=features == "dense")
    options = Metattack(rate=0.1, mode=mode, gradient=gradient, steps=STEPS)
    task = surrogate_task(graph, options, Stream(1))
    start = initial_weights(12, options.hidden, 3, Stream(2).generator())
    found = edge_gradient(graph.adjacency, task, start, options).block(0, graph.num_nodes)

    differentiate = exact if gradient == "exact" else first_order
    by_entry = differentiate(Dense(graph, task), start, task.node_weights.double(), options)
    expected = (by_entry + by_entry.T).numpy()
    apart = ~np.eye(graph.num_nodes, dtype=bool)
    error = abs(found - expected)[apart].max() / abs(expected[apart]).max()
    assert error <= 1e-5


def test_a_block_is_the_upper_part_of_its_rows() -> None:
    graph = small_graph()
    options = Metattack(rate=0.1, steps=3)
    task = surrogate_task(graph, options, Stream(1))
    start = initial_weights(12, options.hidden, 3, Stream(2).generator())
    factors = edge_gradient(graph.adjacency, task, start, options)
    whole = factors.block(0, graph.num_nodes)
    np.testing.assert_allclose(whole, whole.T, rtol=1e-4, atol=1e-8)
    np.testing.assert_allclose(factors.block(10, 25), whole[10:25, 10:], rtol=1e-4, atol=1e-8)


def test_training_is_gradient_descent_with_momentum() -> None:
    graph = small_graph()
    operator = SparseMatrix.from_scipy(normalise(graph.adjacency), symmetric=True)
    task = surrogate_task(graph, Metattack(rate=0.1), Stream(0))
    start = initial_weights(12, 5, 3, Stream(3).generator())
    weights = [torch.nn.Parameter(each.clone()) for each in (start.first, start.second)]
    sgd = torch.optim.SGD(weights, lr=0.1, momentum=0.9)
    labels = task.targets[task.train].argmax(dim=1)
    for _ in range(STEPS):
        sgd.zero_grad()
        logits = logits_of(operator, task.features, Weights(*weights))[task.train]
        torch.nn.functional.cross_entropy(logits, labels).backward()
        sgd.step()
    found = trained(operator, task, start, STEPS, 0.1, 0.9)
    torch.testing.assert_close(found.first, weights[0].data, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(found.second, weights[1].data, rtol=1e-4, atol=1e-6)

    inputs = (operator @ (operator @ task.features.to_dense()))[task.train]
    again = unrolled(inputs, task.targets[task.train], start, STEPS, 0.1, 0.9)
    torch.testing.assert_close(again.first, found.first, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(again.second, found.second, rtol=1e-4, atol=1e-6)
