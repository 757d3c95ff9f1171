"""GraphMix: one set of weights for two networks, mixup, pseudo-labels and their ramp."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from dropnode.errors import ConfigError
from dropnode.graph import Graph
from dropnode.methods.baselines.graphmix import GraphMix, GraphMixConfig, Mixing
from dropnode.ops.randomness import Stream
from dropnode.training import Outcome, train
from oracles import operator_of, rows_of, sharpened, softmax
from rounding import exactly, lost

SETTINGS: dict[str, Any] = {
    "feature_scaling": "row",
    "hidden": 6,
    "dropout": 0.0,
    "auxiliary_share": 0.5,
    "concentration": 1.0,
    "guesses": 4,
    "temperature": 0.3,
    "unlabelled_weight": 10.0,
    "ramp_start": 3,
    "ramp_end": 9,
    "learning_rate": 0.01,
    "weight_decay": 5e-4,
    "stopping": "never",
    "patience": 50,
    "max_epochs": 12,
}


def make(**changes: Any) -> GraphMix:
    return GraphMix(GraphMixConfig.from_dict(SETTINGS | changes))


def prepared(graph: Graph, **changes: Any) -> GraphMix:
    method = make(**changes)
    assert graph.split is not None
    with Stream(3).torch_global():
        method.prepare(graph, graph.split, Stream(3))
        for weight in method.network.parameters():
            torch.nn.init.normal_(weight)
    return method


class Dense:
    """Both networks once more, with bounds on what float32 may be off."""

    def __init__(self, method: GraphMix, graph: Graph) -> None:
        state = method.state()
        self.first, self.last = (exactly(state[f"{n}.weight"]).T for n in ("first", "last"))
        self.x, self.operator = rows_of(graph.features), operator_of(graph.adjacency)

    def convolutional(self) -> Any:
        hidden: Any = np.maximum(self.operator @ self.x @ self.first, 0)
        return softmax(self.operator @ hidden @ self.last)

    def mixed_loss(self, rows: np.ndarray, targets: Any, partners: np.ndarray, share: float) -> Any:
        """Mix hidden rows and targets; a binary cross-entropy for each class."""
        hidden: Any = np.maximum(self.x @ self.first, 0)[rows]
        z: Any = softmax((share * hidden + (1 - share) * hidden[partners]) @ self.last)
        y = share * targets + (1 - share) * targets[partners]
        return -(y * np.log(z) + (1 - y) * np.log(1 - z)).mean()


def test_both_networks_have_the_same_weights(community: Graph) -> None:
    method = prepared(community)
    features = method.tensors.features
    assert not torch.allclose(method.connect(features), method.classify(method.tensors))
    for weight in method.network.parameters():
        before = method.connect(features), method.classify(method.tensors)
        with torch.no_grad():
            weight[0] += 1.0
        after = method.connect(features), method.classify(method.tensors)
        for one, other in zip(before, after, strict=True):
            assert (one != other).any()


def test_without_edges_they_are_one_network(community: Graph) -> None:
    bare = Graph.from_edges(
        np.empty((0, 2), int), community.features, community.labels, split=community.split
    )
    method = prepared(bare)
    expected = Dense(method, bare).convolutional()
    for logits in (method.connect(method.tensors.features), method.logits()):
        expected.assert_near(logits.detach().softmax(dim=1))


def test_the_ramp() -> None:
    method = make(ramp_start=500, ramp_end=1000)
    weights = [method.ramp(epoch) for epoch in range(2000)]
    assert weights[0] == weights[500] == pytest.approx(10 * np.exp(-5))
    assert weights[750] == pytest.approx(10 * np.exp(-1.25))
    assert weights[1000] == weights[-1] == 10
    assert (np.diff(weights[500:1001]) > 0).all()
    assert make(ramp_start=0, ramp_end=0).ramp(1) == 10
    with pytest.raises(ConfigError, match="ramp_end = 4 comes before ramp_start = 5"):
        make(ramp_start=5, ramp_end=4)


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array])
def test_some_nodes_are_classified_from_what_they_see(community: Graph, storage: Any) -> None:
    graph = Graph.from_scipy(
        community.adjacency, storage(community.features), community.labels, split=community.split
    )
    method = prepared(graph)
    for rows in ([3, 25, 11, 3], [25], range(26)):
        chosen = np.array(rows)
        seen = method.convolve(method.field(chosen), [None, None])
        expected = Dense(method, graph).convolutional()[chosen]
        for found in (seen[:, 0], seen[:, 1], method.logits(rows=chosen)):
            expected.assert_near(found.detach().softmax(dim=1))
    assert method.field(np.array([25])).features.shape == (1, 9)  # it has no neighbour


def test_pseudo_labels_are_sharpened_means_of_noisy_predictions(community: Graph) -> None:
    rows, stream = np.array([7, 2, 20]), Stream(0)
    method = prepared(community, dropout=0.5)
    guessed = method.guess(rows, stream)
    field = method.field(rows)
    noisy = [
        softmax(exactly(method.convolve(field, [stream.at("guess", k)])[:, 0])) for k in range(4)
    ]
    assert np.std([each.value for each in noisy], axis=0).min() > 0
    sharpened(sum(noisy[1:], start=noisy[0]) / 4, 0.3).assert_near(guessed)
    assert not guessed.requires_grad

    certain = prepared(community)
    expected = sharpened(Dense(certain, community).convolutional()[rows], 0.3)
    expected.assert_near(certain.guess(rows, stream))


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_at_its_ends_mixing_leaves_either_row_alone(community: Graph, share: float) -> None:
    method = prepared(community)
    features = method.tensors.features
    partners = torch.randperm(community.num_nodes, generator=torch.Generator().manual_seed(0))
    plain = method.connect(features)
    expected = plain if share else plain[partners]
    # The other row is multiplied by zero, which rounds nothing.
    assert torch.equal(method.connect(features, Mixing(share, partners)), expected)


def test_the_auxiliary_loss(community: Graph) -> None:
    method, stream = prepared(community, auxiliary_share=1.0), Stream(0).at("epoch", 1)
    loss, parts = method.loss(6, stream)
    dense = Dense(method, community)
    assert community.split is not None
    train_rows = community.split.train
    drawn = method.draw_unlabelled(stream)
    assert len(drawn) == len(train_rows)
    assert not set(drawn) & set(train_rows)
    labels = np.eye(community.num_classes)[community.labels[train_rows]]
    expected = {}
    for name, rows, targets in (
        ("labelled", train_rows, labels),
        ("unlabelled", drawn, sharpened(dense.convolutional()[drawn], 0.3)),
    ):
        mixing = method.mixing(len(rows), stream.at(name))
        assert 0 < mixing.share < 1
        partners = mixing.partners.numpy()
        expected[name] = dense.mixed_loss(rows, targets, partners, mixing.share)
    expected["labelled"].assert_near(parts["mixed"].detach())
    expected["unlabelled"].assert_near(parts["mixed_unlabelled"].detach())
    total = expected["labelled"] + 10 * np.exp(-1.25) * expected["unlabelled"]
    total.assert_near(loss.detach())


def test_a_coin_decides_what_an_epoch_trains(community: Graph) -> None:
    def kinds(**changes: Any) -> list[bool]:
        history = train(make(max_epochs=30, **changes), community).history
        auxiliary = ["mixed" in line for line in history]
        assert auxiliary == ["mixed_unlabelled" in line for line in history]
        assert auxiliary == ["supervised" not in line for line in history]
        return auxiliary

    assert 8 <= sum(kinds()) <= 22
    assert kinds() == kinds(hidden=3)
    assert all(kinds(auxiliary_share=1.0))
    assert not any(kinds(auxiliary_share=0.0))


def test_a_resumed_ramp_goes_on_where_it_was(community: Graph, tmp_path: Path) -> None:
    class Interrupt:
        def on_epoch(self, phase: object, outcome: Outcome) -> None:
            if outcome.epochs == 6:
                raise KeyboardInterrupt

    settings = {"auxiliary_share": 1.0, "dropout": 0.5}
    whole = make(**settings)
    history = train(whole, community).history
    path = tmp_path / "checkpoint"
    stopped = train(
        make(**settings),
        community,
        callbacks=[Interrupt()],
        checkpoint=path,
        checkpoint_every=0.0,
    )
    assert stopped.interrupted
    resumed = make(**settings)
    assert train(resumed, community, checkpoint=path).history == history
    assert torch.equal(resumed.logits(), whole.logits())
    for line in history:
        mixed, unlabelled = (exactly(line[name]) for name in ("mixed", "mixed_unlabelled"))
        expected = mixed + whole.ramp(int(line["epoch"]) - 1) * unlabelled
        expected.assert_near(line["loss"])


def test_equal_class_weights_change_nothing(community: Graph) -> None:
    plain = prepared(community, auxiliary_share=1.0)
    weighted = GraphMix(plain.config, class_weights=np.full(3, 2.5))
    assert community.split is not None
    weighted.prepare(community, community.split, Stream(3))
    weighted.load_state(plain.state())
    losses = [method.loss(6, Stream(0))[0].item() for method in (plain, weighted)]
    # The weights multiply and divide the terms of two means over six nodes and three classes.
    assert losses[0] == pytest.approx(losses[1], rel=2 * lost(20))
