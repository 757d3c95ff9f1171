"""GRAND+ as a method: its presets, its batches, its loss, and validation by exact predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from dropnode.errors import ConfigError
from dropnode.graph import Graph
from dropnode.methods.grand_plus.agreement import agreement_loss, least_confidence
from dropnode.methods.grand_plus.config import GrandPlusConfig, preset, preset_names
from dropnode.methods.grand_plus.model import GrandPlus
from dropnode.ops.push import pushed_rows
from dropnode.ops.randomness import Dropout, Stream
from dropnode.training import train

# The scripts that the authors released.
SCRIPTS: dict[str, dict[str, Any]] = {
    "cora": {
        "walk": "ppr", "order": 20, "teleport": 0.2, "top": 32, "threshold": 1e-7, "hidden": 64,
        "layers": 2, "learning_rate": 0.01, "weight_decay": 1e-3, "input_dropout": 0.5,
        "hidden_dropout": 0.7, "batch_norm": False, "node_norm": False, "clip": 0.0,
        "consistency_weight": 1.5, "temperature": 0.1, "distance": "squared", "warmup": 1000,
        "labelled_batch": 50, "unlabelled_batch": 100, "patience": 200,
    },
    "citeseer": {
        "walk": "ppr", "order": 10, "teleport": 0.4, "top": 32, "threshold": 1e-7, "hidden": 256,
        "layers": 2, "learning_rate": 0.001, "weight_decay": 1e-3, "input_dropout": 0.0,
        "hidden_dropout": 0.0, "batch_norm": False, "node_norm": False, "clip": 0.0,
        "consistency_weight": 0.8, "temperature": 0.1, "distance": "squared", "warmup": 500,
        "labelled_batch": 50, "unlabelled_batch": 100, "patience": 200,
    },
    "pubmed": {
        "walk": "average", "order": 4, "top": 16, "threshold": 1e-5, "layers": 1,
        "learning_rate": 0.01, "weight_decay": 1e-2, "input_dropout": 0.2, "hidden_dropout": 0.2,
        "batch_norm": True, "node_norm": True, "clip": 0.1, "consistency_weight": 1.0,
        "temperature": 0.1, "distance": "squared", "warmup": 1000, "labelled_batch": 5,
        "unlabelled_batch": 100, "patience": 50,
    },
}  # fmt: skip


@pytest.mark.parametrize("dataset", SCRIPTS)
def test_official_is_what_the_scripts_have(dataset: str) -> None:
    name, config = preset(None, dataset)
    assert name == "official"
    assert config.as_dict() == config.as_dict() | SCRIPTS[dataset]


def test_presets() -> None:
    assert preset_names() == ["official", "default"]
    assert preset(None, None)[0] == preset(None, "amazon-photo")[0] == "default"
    with pytest.raises(ConfigError, match="no preset 'tuned'; expected one of official, default"):
        preset("tuned", "cora")
    with pytest.raises(ConfigError, match="exists for the datasets cora, citeseer, pubmed, not"):
        preset("official", "amazon-photo")


def made(graph: Graph, seed: int = 0, **changes: Any) -> GrandPlus:
    """A method that is prepared, and not trained."""
    assert graph.split is not None
    small = {"top": 4, "order": 2, "labelled_batch": 4, "unlabelled_batch": 5, "batches": 3}
    method = GrandPlus(config(**small | changes))
    method.prepare(graph, graph.split, Stream(seed))
    phase = method.phases()[0]
    method.begin(phase, Stream(seed).at("begin"))
    return method


def config(**changes: Any) -> GrandPlusConfig:
    return preset("default", None)[1].replace(**changes)


def test_every_training_node_is_seen_once_in_a_pass(community: Graph) -> None:
    method = made(community)
    phase = method.phases()[0]
    labelled = []
    for epoch in range(4):
        for batch in method.batches(phase, Stream(1).at(epoch)):
            labelled.append(batch[0])
            method.loss(batch, Stream(2))
    # Six training nodes: batches of four and of two, in another order in every pass.
    assert [len(batch) for batch in labelled] == [4, 2] * 6
    passes = [np.concatenate(labelled[first : first + 2]) for first in range(0, 12, 2)]
    for each in passes:
        assert sorted(each) == list(range(6))
    assert len({tuple(each) for each in passes}) > 1


@pytest.mark.parametrize("unlabelled", [3, 100])
@pytest.mark.parametrize("agree_on", ["test", "unlabelled"])
def test_which_nodes_have_to_agree(
    agree_on: str, unlabelled: int, community: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = community.split
    assert split is not None
    pushed = []

    def recorded(
        adjacency: Any, degrees: Any, sources: np.ndarray, *rest: Any, **options: Any
    ) -> Any:
        pushed.append(sources)
        return pushed_rows(adjacency, degrees, sources, *rest, **options)

    monkeypatch.setattr("dropnode.methods.grand_plus.model.pushed_rows", recorded)
    method = made(community, agree_on=agree_on, unlabelled=unlabelled)
    others = split.test if agree_on == "test" else np.setdiff1d(np.arange(26), split.train)
    assert method.unlabelled == min(unlabelled, len(others))
    # No other rows are computed.
    assert len(pushed) == 1
    assert np.array_equal(pushed[0][:6], split.train)
    assert len(set(pushed[0][6:])) == method.unlabelled
    assert set(pushed[0][6:]) <= set(others)
    batches = list(method.batches(method.phases()[0], Stream(3)))
    for _, drawn in batches:
        assert len(set(drawn)) == min(5, method.unlabelled)
        assert drawn.min() >= method.labelled
        assert drawn.max() < method.labelled + method.unlabelled
    if method.unlabelled > 5:
        assert len({tuple(sorted(drawn)) for _, drawn in batches}) == len(batches) > 1


@pytest.mark.parametrize("warmup", [0, 2])
@pytest.mark.parametrize("distance", ["squared", "kl"])
def test_the_loss_of_a_batch(distance: str, warmup: int, community: Graph) -> None:
    """Two views of every node, next to each other; the agreement counts more and more."""
    weights = np.array([1.0, 2.0, 0.5])
    method = made(
        community, distance=distance, warmup=warmup, confidence=1.0, consistency_weight=0.7
    )
    of_classes = torch.tensor(weights, dtype=torch.float32)
    method.train_weights = of_classes[method.train_targets]
    batch = np.array([5, 0, 2]), np.array([6, 9])
    for risen in [1.0, 1.0] if warmup == 0 else [0.5, 1.0, 1.0]:
        total, terms = method.loss(batch, Stream(4))
        chosen = np.repeat(np.concatenate(batch), 2)
        x = method.rows.view(chosen, method.config.drop_rate, Stream(4).at("scores"))
        logs = method.head(x, Dropout([Stream(4)])).log_softmax(dim=1)
        targets = method.train_targets[[5, 5, 0, 0, 2, 2]]
        supervised = F.nll_loss(logs[:6], targets, of_classes)
        least = least_confidence(1.0, 3)
        consistency = agreement_loss(
            logs[6:].view(2, 2, 3), method.config.temperature, distance, least
        )
        torch.testing.assert_close(terms["supervised"], supervised)
        torch.testing.assert_close(terms["consistency"], consistency)
        torch.testing.assert_close(total, supervised + 0.7 * risen * consistency)


@pytest.mark.parametrize("walk", ["fitted", "ppr"])
def test_validation_measures_the_predictions(walk: str, community: Graph) -> None:
    """Though rows of one entry, without a tail, are trained on."""
    method = GrandPlus(config(top=1, tail=False, walk=walk, max_epochs=3, batches=2))
    outcome = train(method, community)
    split = community.split
    assert split is not None
    right = method.logits().argmax(dim=1).numpy() == community.labels
    assert outcome.best["val_accuracy"] == pytest.approx(right[split.val].mean())
    assert outcome.best["train_accuracy"] == pytest.approx(right[split.train].mean())
    loss = F.cross_entropy(
        method.logits()[torch.from_numpy(split.val.copy())],
        torch.from_numpy(community.labels[split.val]),
    )
    assert outcome.best["val_loss"] == pytest.approx(loss.item(), rel=1e-5)


def test_the_fitted_walk_belongs_to_the_state(community: Graph) -> None:
    method = made(community, walk="fitted", order=3)
    assert method.shares.sum() == pytest.approx(1.0)
    assert method.shares[-1] > 0, "powers that do not count are not computed"
    again = GrandPlus(method.config)
    again.restore(community, method.scaling, method.state())
    assert np.array_equal(again.shares, method.shares)
    assert torch.equal(again.logits(), method.logits())


def test_without_agreement_no_other_node_is_classified(community: Graph) -> None:
    method = made(community, consistency_weight=0.0)
    batch = next(iter(method.batches(method.phases()[0], Stream(0))))
    total, terms = method.loss(batch, Stream(0))
    assert list(terms) == ["supervised"]
    assert total is terms["supervised"]


def test_every_node_may_be_labelled(community: Graph) -> None:
    """Then there is no other node to agree on."""
    split = community.split
    assert split is not None
    everything = type(split)(np.arange(community.num_nodes), np.array([], int), np.array([], int))
    outcome = train(GrandPlus(config(max_epochs=2, batches=2)), community, everything)
    assert list(outcome.history[0])[:3] == ["epoch", "loss", "supervised"]
