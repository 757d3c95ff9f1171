"""DropEdge normalises anew what it keeps, direction by direction; inference keeps everything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import oracles
from dropnode.graph import Graph
from dropnode.methods.baselines.dropedge import DropEdge, DropEdgeConfig, kept_edges
from dropnode.ops.randomness import Stream
from dropnode.training import train
from rounding import Rounded, exactly

CONFIG = DropEdgeConfig(
    feature_scaling="row",
    hidden=6,
    dropout=0.0,
    edge_dropout=0.5,
    learning_rate=0.05,
    weight_decay=5e-4,
    stopping="accuracy",
    patience=50,
    max_epochs=5,
)


def trained(graph: Graph, **changes: Any) -> DropEdge:
    method = DropEdge(CONFIG.replace(**changes))
    train(method, graph)
    return method


def convolved(method: DropEdge, graph: Graph, adjacency: Any) -> Rounded:
    """A GCN of two layers with whatever edges."""
    operator = oracles.operator_of(adjacency)
    first, last = ((exactly(c.lin.weight), exactly(c.bias)) for c in method.network)
    x = operator @ oracles.rows_of(graph.features) @ first[0].T + first[1]
    result: Rounded = operator @ np.maximum(x, 0.0) @ last[0].T + last[1]
    return result


@pytest.mark.parametrize("seed", range(3))
def test_training_sees_the_kept_edges_normalised_anew(seed: int, community: Graph) -> None:
    method = trained(community)
    with Stream(seed).torch_global():
        edges = kept_edges(method.tensors, CONFIG.edge_dropout)
    kept = edges.toarray()
    whole = community.adjacency.toarray()
    assert not np.array_equal(kept, kept.T)
    assert np.array_equal(kept[kept > 0], whole[kept > 0])
    assert 0 < np.count_nonzero(kept) < np.count_nonzero(whole)
    with Stream(seed).torch_global():
        logits = method.classify(method.tensors, Stream(0))
    convolved(method, community, edges).assert_near(logits.detach())


def test_inference_sees_every_edge(community: Graph) -> None:
    method = trained(community, edge_dropout=0.8)
    convolved(method, community, community.adjacency).assert_near(method.logits())


def test_both_directions_can_go_together(community: Graph) -> None:
    method = trained(community)
    with Stream(0).torch_global():
        kept = kept_edges(method.tensors, 0.5, both_ways=True).toarray()
    assert np.array_equal(kept, kept.T)
    assert 0 < np.count_nonzero(kept) < community.adjacency.nnz


@pytest.mark.parametrize("both_ways", [False, True])
def test_every_edge_is_dropped_as_often_as_told(both_ways: bool, community: Graph) -> None:
    method = trained(community)
    torch.manual_seed(0)
    draws = 1000
    kept = sum(
        (kept_edges(method.tensors, 0.3, both_ways) > 0).toarray().astype(int) for _ in range(draws)
    )
    counts = kept[community.adjacency.toarray() > 0]
    # Five standard deviations of a binomial count.
    assert (np.abs(counts - 0.7 * draws) < 5 * np.sqrt(draws * 0.7 * 0.3)).all()


def test_every_step_draws_anew(community: Graph) -> None:
    """What is dropped is a function of the step: two epochs differ, two runs do not."""
    histories = [train(DropEdge(CONFIG.replace(learning_rate=1e-12)), community) for _ in range(2)]
    once, again = ([line["loss"] for line in outcome.history] for outcome in histories)
    assert once == again
    assert len(set(once)) == len(once)


def test_without_dropping_it_is_a_gcn(community: Graph) -> None:
    method = trained(community, edge_dropout=0.0)
    expected = convolved(method, community, community.adjacency)
    expected.assert_near(method.classify(method.tensors, Stream(0)).detach())
