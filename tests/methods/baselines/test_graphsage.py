"""GraphSAGE averages over neighbours, whoever they are, and may listen to a sample in training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.nn import SAGEConv

from dropnode.graph import Graph
from dropnode.methods.baselines.graphsage import Aggregation, GraphSAGE, GraphSAGEConfig, sampled
from dropnode.ops.randomness import Stream
from dropnode.ops.sparse_matrix import SparseMatrix
from dropnode.training import train
from rounding import Rounded, exactly, joined

CONFIG = GraphSAGEConfig(
    feature_scaling="none",
    hidden=6,
    neighbours=0,
    dropout=0.0,
    learning_rate=0.05,
    weight_decay=5e-4,
    stopping="accuracy",
    patience=50,
    max_epochs=5,
)


def aggregated(x: Rounded, graph: Graph, layer: Aggregation) -> Rounded:
    """A node's own row and its neighbours' mean, each mapped, one node at a time."""
    of_others, bias, own = map(exactly, (layer.lin_l.weight, layer.lin_l.bias, layer.lin_r.weight))
    adjacency = graph.adjacency.toarray()
    rows = []
    for node in range(graph.num_nodes):
        neighbours = np.flatnonzero(adjacency[node])
        heard = x[neighbours].mean(axis=0) if len(neighbours) else 0.0 * x[node]
        rows.append(own @ x[node] + of_others @ heard + bias)
    return joined(rows, np.stack, -2)


def test_logits_average_over_neighbours(community: Graph) -> None:
    """Edges of another weight count as much; the last two nodes have no neighbour at all."""
    method = GraphSAGE(CONFIG)
    train(method, community)
    first, second = method.network
    hidden: Any = np.maximum(aggregated(exactly(community.features), community, first), 0.0)
    lengths: Any = np.sqrt(np.square(hidden).sum(axis=1, keepdims=True))
    expected = aggregated(hidden / np.maximum(lengths, 1e-12), community, second)
    assert len(set(community.adjacency.data)) > 1
    expected.assert_near(method.logits())


def test_the_layer_is_the_librarys_on_dense_and_on_sparse_features(community: Graph) -> None:
    ours = Aggregation(community.num_features, 5, neighbours=0)
    theirs = SAGEConv(community.num_features, 5)
    theirs.load_state_dict(ours.state_dict())
    method = GraphSAGE(CONFIG)
    train(method, community)
    edges = method.tensors.edges[0]
    x = torch.tensor(community.features)
    expected = aggregated(exactly(x), community, ours)
    sparse = SparseMatrix(x.to_sparse_csr())
    for found in (theirs(x, edges), ours(x, edges), ours(sparse, edges)):
        expected.assert_near(found.detach())


@pytest.mark.parametrize("neighbours", [1, 3, 100])
def test_a_sample_has_so_many_neighbours_of_every_node(neighbours: int, community: Graph) -> None:
    method = GraphSAGE(CONFIG)
    train(method, community)
    edges = method.tensors.edges[0]
    torch.manual_seed(5)
    drawn = sampled(edges, neighbours)
    degrees = edges[1].bincount(minlength=community.num_nodes)
    kept = drawn[1].bincount(minlength=community.num_nodes)
    assert torch.equal(kept, degrees.clamp(max=neighbours))
    pairs = set(map(tuple, drawn.T.tolist()))
    assert len(pairs) == drawn.shape[1]
    assert pairs <= set(map(tuple, edges.T.tolist()))


def test_every_neighbour_is_as_likely() -> None:
    """A node with five neighbours listens to two of them: each in two draws of five."""
    edges = torch.tensor([[1, 2, 3, 4, 5, 0], [0, 0, 0, 0, 0, 3]])
    torch.manual_seed(1)
    draws = torch.cat([sampled(edges, 2) for _ in range(2000)], dim=1)
    counts = draws[0][draws[1] == 0].bincount(minlength=6)[1:]
    assert counts.sum() == 4000
    # Five standard deviations of a binomial count.
    assert ((counts - 800).abs() < 5 * (2000 * 0.4 * 0.6) ** 0.5).all()


def test_samples_are_drawn_in_training_only(community: Graph) -> None:
    method = GraphSAGE(CONFIG.replace(neighbours=1))
    train(method, community)
    assert torch.equal(method.logits(), method.logits())
    losses = []
    for seed in range(4):
        with Stream(seed).torch_global():
            losses.append(method.loss(None, Stream(0))[0].item())
    assert len(set(losses)) > 1
