"""The naive path computes what the product computes, so that comparing their times is fair."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import scipy.sparse as sp
import torch

from dropnode.bench.naive import NaiveGrand
from dropnode.graph import Graph, Split
from dropnode.methods.grand.config import GrandConfig
from dropnode.methods.grand.model import Grand
from dropnode.ops.randomness import Stream, keep_mask
from dropnode.training import Method, train
from grand_oracle import (
    StepResult,
    assert_trained,
    inferred_logits,
    move_from_the_start,
    trained,
)

Configure = Callable[..., GrandConfig]
STREAM = Stream(21).at("phase", 0, "epoch", 1, "batch", 0)

LAYERS: dict[str, dict[str, Any]] = {
    f"{head}{'-norm' * norm}{'-input-dropout' * dropped}": {
        "head": head,
        "batch_norm": norm,
        "input_dropout": 0.35 * dropped,
    }
    for head, norm, dropped in itertools.product(("mlp", "gcn"), (False, True), (False, True))
}


class SameMasks(NaiveGrand):
    """The naive path with masks from the product's addresses instead of torch's generator."""

    def keep_nodes(self, stream: Stream) -> torch.Tensor:
        return self._kept(stream.at("perturbation"), (len(self.features),), self.config.drop_rate)

    def keep_edges(self, stream: Stream) -> torch.Tensor:
        entries = self.adjacency.values().shape
        return self._kept(stream.at("perturbation"), tuple(entries), self.config.drop_rate)

    def dropout(self, x: torch.Tensor, rate: float, stream: Stream, place: str) -> torch.Tensor:
        return x * self._kept(stream.at(place), tuple(x.shape), rate) / (1.0 - rate)

    def _kept(self, stream: Stream, shape: tuple[int, ...], rate: float) -> torch.Tensor:
        return torch.from_numpy(keep_mask(stream, shape, rate)).float()


def both_kinds(graph: Graph) -> tuple[Graph, Graph]:
    """The graph with dense and with sparse features."""
    dense = graph.features.toarray() if sp.issparse(graph.features) else graph.features
    return tuple(
        Graph.from_scipy(graph.adjacency, features, graph.labels, split=graph.split)
        for features in (dense, sp.csr_array(dense))
    )  # type: ignore[return-value]


def prepared(method: Method, graph: Graph) -> Method:
    assert graph.split is not None
    method.prepare(graph, graph.split, Stream(3).at("initialisation"))
    move_from_the_start(method.head)  # type: ignore[attr-defined]
    return method


def assert_same_step(config: GrandConfig, graph: Graph) -> None:
    """Both are the oracle's, up to the rounding of float32."""
    expected = StepResult.of(prepared(Grand(config), graph), graph, STREAM)
    for method in (prepared(Grand(config), graph), prepared(SameMasks(config), graph)):
        expected.assert_taken_by(method, STREAM)
        inferred_logits(method, graph).assert_near(method.logits())


@pytest.mark.parametrize("perturbation", ["dropnode", "dropedge"])
@pytest.mark.parametrize("layers", LAYERS)
def test_losses_gradients_and_logits_agree(
    community: Graph, configure: Configure, layers: str, perturbation: str
) -> None:
    for graph, mask_scaling, reduction in itertools.product(
        both_kinds(community), ("training", "inference"), ("mean", "sum")
    ):
        config = configure(
            perturbation=perturbation,
            mask_scaling=mask_scaling,
            reduction=reduction,
            **LAYERS[layers],
        )
        assert_same_step(config, graph)


@pytest.mark.parametrize("changes", [
    {"augmentations": 1},
    {"order": 0},
    {"consistency_weight": 0.0},
    {"hidden": 40, "order": 8, "augmentations": 4},
])  # fmt: skip
def test_other_sizes_agree(community: Graph, configure: Configure, changes: dict[str, Any]) -> None:
    assert_same_step(configure(**changes), community)


@pytest.mark.parametrize("perturbation", ["dropnode", "dropedge"])
@pytest.mark.parametrize("layers", LAYERS)
def test_weights_agree_after_five_epochs(
    community: Graph, configure: Configure, layers: str, perturbation: str
) -> None:
    config = configure(max_epochs=5, perturbation=perturbation, **LAYERS[layers])
    assert community.split is not None
    # The last weights are kept if nothing validates.
    graph = community.with_split(Split(community.split.train, [], []))
    ours, naive = Grand(config), SameMasks(config)
    assert graph.split is not None
    ours.prepare(graph, graph.split, Stream(4).at("initialisation"))
    expected = trained(config, graph, 4, ours.head)
    for method in (ours, naive):
        assert_trained(expected, train(method, graph, seed=4).history, method.head)


def test_its_own_masks_keep_the_rate_and_the_scale(community: Graph, configure: Configure) -> None:
    """What the timed path draws from torch, which the tests above replace."""
    config = configure(drop_rate=0.25)
    method = prepared(NaiveGrand(config), community)
    assert isinstance(method, NaiveGrand)
    torch.manual_seed(0)
    nodes = torch.stack([method.keep_nodes(STREAM) for _ in range(2000)])
    entries = torch.stack([method.keep_edges(STREAM) for _ in range(2000)])
    for drawn in (nodes, entries):
        assert set(drawn.unique().tolist()) == {0.0, 1.0}
        # Of some 50,000 coins; five standard deviations.
        assert abs(drawn.mean().item() - 0.75) < 5 * (0.25 * 0.75 / drawn.numel()) ** 0.5
    assert method.dropout(torch.ones(4000), 0.5, STREAM, "hidden").unique().tolist() == [0.0, 2.0]


def test_what_it_cannot_do_it_says(configure: Configure) -> None:
    with pytest.raises(ValueError, match="dropnode or dropedge"):
        NaiveGrand(configure(perturbation="dropout"))
