"""What every method owes its users, whatever it is: one battery, run on all of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from dropnode.data.generators.sbm import make
from dropnode.errors import GraphError
from dropnode.estimator import GrandClassifier
from dropnode.graph import Graph, Split
from dropnode.methods.base import NodeClassifier
from dropnode.methods.baselines import BASELINES
from dropnode.methods.table import make_method, restore_method
from dropnode.saving import load_model, save_model
from dropnode.training import Outcome, train
from rounding import disturbed

# Enough to learn what is easy, and enough for everything else.
LEARNT, SHORT = 40, 8

# Methods that see nothing but edges; they cannot classify a graph without its labels.
WITHOUT_FEATURES = {"label-propagation"}

# Methods in closed form, with no epoch that could be cut short or interrupted.
CLOSED_FORM = {"label-propagation", "logistic", "boosting"}

# Methods with phases, or epochs, whose length ``max_epochs`` does not tell.
ROUNDS: dict[str, dict[str, Any]] = {"gmnn": {"round_epochs": SHORT}, "grand-plus": {"batches": 3}}

# GRAND and its variants have tests of their own.
EVERY = ("grand-plus", *BASELINES)

every_baseline = pytest.mark.parametrize("name", EVERY)
every_trained_one = pytest.mark.parametrize("name", [n for n in EVERY if n not in CLOSED_FORM])


@pytest.fixture(scope="module")
def small() -> Graph:
    """Four groups of fifty nodes, five labels each: edges and features tell them apart."""
    graph = make(nodes=200, classes=4, features=24, average_degree=8, homophily=0.85, seed=3)
    # The generator's features alone say little; a perceptron needs more.
    clear = graph.features + 1.5 * np.repeat(np.eye(4), 6, axis=1)[graph.labels]
    return Graph.from_scipy(graph.adjacency, clear, graph.labels, split=_split(graph.labels))


def _split(labels: np.ndarray) -> Split:
    order = np.random.default_rng(0).permutation(len(labels))
    of_class = [order[labels[order] == c] for c in range(labels.max() + 1)]
    train = np.concatenate([nodes[:5] for nodes in of_class])
    val = np.concatenate([nodes[5:12] for nodes in of_class])
    return Split(np.sort(train), np.sort(val), np.setdiff1d(order, np.concatenate([train, val])))


def method_of(name: str, **changes: Any) -> NodeClassifier:
    """Return a method with its default preset, cut short."""
    if name not in CLOSED_FORM:
        changes = {"max_epochs": SHORT, **ROUNDS.get(name, {}), **changes}
    return make_method(name, "any", changes=changes).method


def trained(name: str, graph: Graph, seed: int = 0, **changes: Any) -> NodeClassifier:
    method = method_of(name, **changes)
    train(method, graph, seed=seed)
    return method


def accuracy(method: NodeClassifier, graph: Graph) -> float:
    assert graph.split is not None
    test = graph.split.test
    return float((method.logits().argmax(dim=1).numpy() == graph.labels)[test].mean())


@every_baseline
def test_it_learns(name: str, small: Graph) -> None:
    # One in four is what guessing gets.
    longer = {} if name in CLOSED_FORM else {"max_epochs": LEARNT}
    assert accuracy(trained(name, small, **longer), small) > 0.6


@every_baseline
def test_a_seed_determines_every_bit(name: str, small: Graph) -> None:
    torch.manual_seed(1)
    once = trained(name, small, seed=3).logits()
    torch.manual_seed(2)
    assert torch.equal(once, trained(name, small, seed=3).logits())


@every_baseline
def test_test_labels_are_never_looked_at(name: str, small: Graph) -> None:
    assert small.split is not None
    labels = small.labels.copy()
    test = small.split.test
    labels[test] = (labels[test] + 1 + np.arange(len(test)) % 3) % 4
    assert (labels[test] != small.labels[test]).all()
    assert torch.equal(trained(name, small).logits(), trained(name, _with(small, labels)).logits())


@every_trained_one
def test_validation_labels_choose_and_do_not_teach(name: str, small: Graph) -> None:
    """Where nothing is left to choose, they change nothing."""
    assert small.split is not None
    labels = small.labels.copy()
    labels[small.split.val] = (labels[small.split.val] + 1) % 4
    settings = {"stopping": "never", "max_epochs": 10}
    here, there = (trained(name, g, **settings) for g in (small, _with(small, labels)))
    assert torch.equal(here.logits(), there.logits())


def _with(graph: Graph, labels: np.ndarray) -> Graph:
    return Graph.from_scipy(
        graph.adjacency, graph.features, labels, class_names=graph.class_names, split=graph.split
    )


@every_baseline
def test_isolated_nodes_weighted_edges_and_empty_rows(name: str, community: Graph) -> None:
    logits = trained(name, community).logits()
    assert logits.shape == (community.num_nodes, community.num_classes)
    assert torch.isfinite(logits).all()


@every_baseline
def test_sparse_and_dense_features_give_the_same(name: str, small: Graph) -> None:
    settings = {"feature_scaling": "none", **_without_dropout(name)}
    if name not in CLOSED_FORM:
        settings |= {"max_epochs": 3, "stopping": "never"}

    def learnt(features: Any) -> torch.Tensor:
        graph = Graph.from_scipy(small.adjacency, features, small.labels, split=small.split)
        return trained(name, graph, **settings).logits()

    features = np.maximum(small.features, 0.0)
    # No sum has more terms than there are nodes; training passes their roundings on.
    expected = disturbed(learnt, features, steps=small.num_nodes)
    expected.assert_near(learnt(sp.csr_array(features)))
    if name not in WITHOUT_FEATURES:
        assert np.median(expected.bound) < 0.01 * np.abs(expected.value).max()


def _without_dropout(name: str) -> dict[str, Any]:
    """Masks follow the storage of features: without dropout both kinds compute the same."""
    keys = method_of(name).config_type.names()
    return {key: 0.0 for key in keys if "dropout" in key}


@every_baseline
def test_it_is_saved_and_loaded(name: str, small: Graph, tmp_path: Path) -> None:
    method = trained(name, small)
    save_model(tmp_path, method, small)
    loaded = load_model(tmp_path).method
    assert type(loaded) is type(method)
    assert loaded.config == method.config
    assert torch.equal(loaded.logits(), method.logits())


@every_trained_one
def test_a_resumed_run_ends_with_the_same_bits(name: str, small: Graph, tmp_path: Path) -> None:
    whole = method_of(name)
    outcome = train(whole, small, seed=1)
    for epoch in (1, outcome.epochs // 2, outcome.epochs - 1):
        checkpoint = tmp_path / f"{epoch}.safetensors"
        with pytest.raises(Killed):
            train(
                method_of(name),
                small,
                seed=1,
                callbacks=[Kill(epoch)],
                checkpoint=checkpoint,
                checkpoint_every=0.0,
            )
        resumed = method_of(name)
        again = train(resumed, small, seed=1, checkpoint=checkpoint)
        assert again.epochs == outcome.epochs
        assert torch.equal(resumed.logits(), whole.logits())


class Killed(Exception):  # noqa: N818
    """Stands for a process that ends without warning."""


class Kill:
    """Ends a training after the first epoch whose checkpoint has been written."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_epoch(self, phase: object, outcome: Outcome) -> None:
        if outcome.epochs == self.epoch + 1:
            raise Killed


@every_baseline
def test_another_graph(name: str, small: Graph) -> None:
    longer = {} if name in CLOSED_FORM else {"max_epochs": LEARNT}
    method = trained(name, small, **longer)
    assert small.split is not None
    keep = np.arange(0, small.num_nodes, 2)
    part = Graph.from_scipy(
        small.adjacency[keep][:, keep], small.features[keep], small.labels[keep], name="part"
    )
    if name in WITHOUT_FEATURES:
        with pytest.raises(GraphError, match="another graph"):
            method.logits(part)
        return
    logits = method.logits(part)
    assert logits.shape == (len(keep), 4)
    assert float((logits.argmax(dim=1).numpy() == part.labels).mean()) > 0.5


@every_baseline
def test_the_estimator_takes_it(name: str, small: Graph) -> None:
    """Fit on a table without a graph, then classify the same rows again, and new ones."""
    features = small.features
    assert small.split is not None
    known = np.concatenate([small.split.train, small.split.val])
    y = np.full(small.num_nodes, -1)
    y[known] = small.labels[known]
    model = GrandClassifier(method=name, random_state=0)
    if name not in CLOSED_FORM:
        model.set_params(max_epochs=SHORT, options=ROUNDS.get(name))
    model.fit(features, y)
    assert model.predict().shape == y.shape
    chances = model.predict_proba(features[:7])
    assert chances.shape == (7, 4)
    # A softmax of four classes in float64.
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, rtol=8 * 2.0**-52)
    alone = model.predict_proba(features[3:4])
    if model.method_.hops is not None:
        np.testing.assert_array_equal(chances[3:4], alone)
        return
    # What reads the whole graph computes with one that has other new nodes.
    expected = disturbed(model.predict_proba, features[:7], steps=small.num_nodes)
    expected[3:4].assert_near(alone)


@every_baseline
def test_a_stored_identity_makes_the_same_method(name: str) -> None:
    for dataset in ("cora", "citeseer", "pubmed", "any"):
        choice = make_method(name, dataset)
        assert choice.preset == ("default" if dataset == "any" else "official")
        assert restore_method(name, choice.identity).config == choice.method.config


@every_baseline
def test_no_validation_nodes(name: str, small: Graph) -> None:
    assert small.split is not None
    split = replace(small.split, val=np.array([], dtype=np.int64))
    method = method_of(name)
    outcome = train(method, small.with_split(split))
    assert outcome.best_epoch == outcome.epochs
    assert torch.isfinite(method.logits()).all()


@every_baseline
def test_weights_of_classes_and_nodes_count_or_are_refused(name: str, small: Graph) -> None:
    weights = np.array([1.0, 50.0, 1.0, 1.0])
    of_classes = {"class_weights": weights}
    of_nodes = {"node_weights": weights[small.labels]}
    if name in WITHOUT_FEATURES:
        for given, told in ((of_classes, "class weights"), (of_nodes, "sample weights")):
            with pytest.raises(ValueError, match=told):
                train(_weighted(name, given), small)
        return
    methods = method_of(name), _weighted(name, of_classes), _weighted(name, of_nodes)
    for method in methods:
        train(method, small)
    plain, *weighted = [m.logits().softmax(dim=1)[:, 1].mean().item() for m in methods]
    assert min(weighted) > plain
    if name != "gmnn":  # It weights classes of nodes without labels, too.
        assert weighted[0] == weighted[1]


def _weighted(name: str, weights: dict[str, np.ndarray]) -> NodeClassifier:
    return restore_method(name, method_of(name).config.identity(), **weights)
