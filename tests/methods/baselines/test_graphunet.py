"""Graph U-Net computes what PyTorch Geometric's does, and keeps as many nodes as it is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.nn import GraphUNet as PygGraphUNet
from torch_geometric.utils import from_scipy_sparse_matrix

from dropnode.graph import Graph
from dropnode.methods.baselines.graphunet import GraphUNet, GraphUNetConfig, UNet, two_steps
from dropnode.methods.tensors import GraphTensors
from dropnode.training import train
from rounding import disturbed, lost

CONFIG = GraphUNetConfig(
    feature_scaling="row",
    hidden=5,
    depth=3,
    pooled=20,
    input_dropout=0.3,
    hidden_dropout=0.3,
    edge_dropout=0.2,
    learning_rate=0.05,
    weight_decay=1e-3,
    stopping="accuracy",
    patience=50,
    max_epochs=5,
)


def random_adjacency(nodes: int, edges: int, seed: int = 0) -> sp.csr_array:
    generator = np.random.default_rng(seed)
    ends = generator.integers(nodes, size=(2, edges))
    weights = generator.uniform(0.5, 2.0, edges).astype(np.float32)
    upper = sp.triu(sp.coo_array((weights, tuple(ends)), shape=(nodes, nodes)), k=1)
    return sp.csr_array(upper + upper.T, dtype=np.float32)


# Few edges, so that every level stays sparse; and enough to fill the second and third.
@pytest.mark.parametrize(("nodes", "edges", "pooled"), [(400, 250, 300), (60, 90, 40)])
def test_it_computes_what_the_library_does(nodes: int, edges: int, pooled: int) -> None:
    adjacency = random_adjacency(nodes, edges)
    torch.manual_seed(0)
    ours = UNet(7, 3, CONFIG.replace(hidden=6, pooled=pooled, hidden_dropout=0.0))
    theirs = PygGraphUNet(7, 6, 3, 3, [pooled, 0.5])
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(nodes, 7)
    target = torch.randn(nodes, 3)
    scores = ours(x, adjacency, nodes)
    (scores - target).square().sum().backward()
    edge_index, weights = from_scipy_sparse_matrix(adjacency)
    theirs = theirs.double()

    def learnt(x: np.ndarray) -> np.ndarray:
        """Scores, and after them the gradients of all parameters, in float64."""
        expected = theirs(torch.from_numpy(x), edge_index, edge_weight=weights.double())
        gradients = torch.autograd.grad(
            (expected - target).square().sum(), list(theirs.parameters())
        )
        return torch.cat([part.detach().flatten() for part in (expected, *gradients)]).numpy()

    found = [scores.detach(), *(parameter.grad for parameter in ours.parameters())]
    # No sum of a convolution has more terms than a level has nodes.
    expected = disturbed(learnt, x.double().numpy(), steps=pooled)
    expected.assert_near(torch.cat([part.flatten() for part in found]))


@pytest.mark.parametrize("edges", [30, 400])
def test_pooled_nodes_are_joined_by_walks_of_two_steps(edges: int) -> None:
    adjacency = random_adjacency(50, edges)
    nodes = np.array([3, 41, 7, 20, 11])
    looped = adjacency.toarray() + np.eye(50)
    expected = (looped @ looped)[np.ix_(nodes, nodes)]
    np.fill_diagonal(expected, 0.0)
    for held in (adjacency, adjacency.toarray()):
        joined = two_steps(held, nodes)
        dense = joined.toarray() if sp.issparse(joined) else joined
        # Sums of at most fifty products.
        np.testing.assert_allclose(dense, expected, rtol=lost(51))


def sizes(method: GraphUNet) -> list[int]:
    """Return how many nodes every convolution on the way down sees after a pooling."""
    seen: list[int] = []

    def watched(adjacency: Any, nodes: np.ndarray) -> Any:
        seen.append(len(nodes))
        return two_steps(adjacency, nodes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dropnode.methods.baselines.graphunet.two_steps", watched)
        method.logits()
    return seen


@pytest.mark.parametrize(
    ("pooled", "depth", "kept"),
    [(20, 3, [20, 10, 5]), (2000, 3, [26, 13, 7]), (26, 1, [26]), (1, 2, [1, 1])],
)
def test_poolings_keep_what_they_are_told(
    pooled: int, depth: int, kept: list[int], community: Graph
) -> None:
    """On graphs with fewer nodes than the first pooling keeps, none are lost there."""
    method = GraphUNet(CONFIG.replace(pooled=pooled, depth=depth))
    train(method, community)
    assert sizes(method) == kept
    assert torch.isfinite(method.logits()).all()


def test_new_nodes_do_not_compete(community: Graph) -> None:
    method = GraphUNet(CONFIG.replace(feature_scaling="none"))
    train(method, community)
    count = community.num_nodes
    features = community.features
    # Rows as large as these would be ranked first.
    new = 100.0 * np.vstack([features[:4], features[:4]])
    links = sp.csr_array(np.tile(np.eye(4, count, k=9, dtype=np.float32), (2, 1)))
    joined = method.tensors.joined_by(method.held(new), links)

    def old(x: np.ndarray) -> torch.Tensor:
        return method.infer(GraphTensors(torch.tensor(x), method.tensors.adjacency))

    disturbed(old, features, steps=count).assert_near(method.infer(joined)[:count])
    together = disturbed(lambda x: method.new_logits(x, links), new, steps=count)
    together[[1]].assert_near(method.new_logits(new[1:2], links[[1]]))
