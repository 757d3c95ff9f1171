"""GRAND composed: its loss and gradient against the oracle, and what must and must not matter."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import oracles
from dropnode.errors import GraphError
from dropnode.graph import Graph, Split
from dropnode.methods.grand.config import GrandConfig
from dropnode.methods.grand.heads import AttentionHead, DenseHead
from dropnode.methods.grand.model import Grand
from dropnode.ops.randomness import Stream
from dropnode.ops.scaling import KINDS
from dropnode.training import train
from grand_oracle import (
    StepResult,
    assert_trained,
    exact,
    inferred_logits,
    move_from_the_start,
    oracle_step,
    standardised,
    trained,
    weights_of,
)
from rounding import Rounded

pytestmark = pytest.mark.usefixtures("features_as_given")

Configure = Callable[..., GrandConfig]
STREAM = Stream(21).at("phase", 0, "epoch", 1, "batch", 0)

HEADS: dict[str, dict[str, Any]] = {
    "mlp": {},
    "mlp-input-dropout": {"input_dropout": 0.35},
    "mlp-batch-norm": {"batch_norm": True, "input_dropout": 0.35},
    "gcn": {"head": "gcn"},
    "gcn-input-dropout": {"head": "gcn", "input_dropout": 0.35},
    "gcn-batch-norm": {"head": "gcn", "batch_norm": True},
}


def with_features(graph: Graph, features: Any) -> Graph:
    """The same graph with other features."""
    return Graph.from_scipy(graph.adjacency, features, graph.labels, split=graph.split)


def sparse_features(graph: Graph) -> Graph:
    return with_features(graph, sp.csr_array(graph.features))


def prepared(config: GrandConfig, graph: Graph, **options: Any) -> Grand:
    method = Grand(config, **options)
    assert graph.split is not None
    method.prepare(graph, graph.split, Stream(3).at("initialisation"))
    move_from_the_start(method.head)
    return method


def assert_step_agrees(config: GrandConfig, graph: Graph, **weights: np.ndarray) -> None:
    method = prepared(config, graph, **weights)
    StepResult.of(method, graph, STREAM).assert_taken_by(method, STREAM)


@pytest.mark.parametrize("perturbation", ["dropnode", "dropout", "dropedge"])
@pytest.mark.parametrize("head", HEADS)
def test_loss_and_gradient_are_the_oracles(
    community: Graph, configure: Configure, head: str, perturbation: str
) -> None:
    """Every combination of what may differ, one training step each."""
    for graph, mask_scaling, reduction in itertools.product(
        (community, sparse_features(community)), ("training", "inference"), ("mean", "sum")
    ):
        config = configure(
            perturbation=perturbation,
            mask_scaling=mask_scaling,
            reduction=reduction,
            **HEADS[head],
        )
        assert_step_agrees(config, graph)


@pytest.mark.parametrize("changes", [
    {"augmentations": 1},
    {"order": 0},
    {"order": 8, "augmentations": 5, "hidden": 40},
    {"drop_rate": 0.0, "hidden_dropout": 0.0},
    {"drop_rate": 0.9},
    {"temperature": 1.0},
])  # fmt: skip
def test_other_sizes_and_rates(
    community: Graph, configure: Configure, changes: dict[str, Any]
) -> None:
    assert_step_agrees(configure(**changes), community)


def test_class_weights_reach_the_loss(community: Graph, configure: Configure) -> None:
    for reduction in ("mean", "sum"):
        weights = np.array([0.2, 1.0, 3.0])
        assert_step_agrees(configure(reduction=reduction), community, class_weights=weights)


@pytest.mark.parametrize("head", ["mlp", "gcn", "mlp-batch-norm"])
def test_an_integer_weight_repeats_the_loss_term_of_a_node(
    community: Graph, configure: Configure, head: str
) -> None:
    """In kernels and in plain torch; the oracle has the term as often as the weight says."""
    repeats = np.arange(community.num_nodes) % 4
    for reduction in ("mean", "sum"):
        config = configure(reduction=reduction, **HEADS[head])
        assert_step_agrees(config, community, node_weights=repeats)
        both = {"node_weights": repeats, "class_weights": np.array([0.2, 1.0, 3.0])}
        assert_step_agrees(config, community, **both)


@pytest.mark.parametrize("layers", [
    HEADS["mlp-batch-norm"],
    HEADS["gcn-batch-norm"],
    {"batch_norm": True, "input_norm": "fixed", "input_dropout": 0.35},
    {"input_dropout": 0.35, "input_dropout_on": "columns"},
])  # fmt: skip
def test_the_oracles_gradient_is_the_slope_of_its_loss(
    community: Graph, configure: Configure, layers: dict[str, Any]
) -> None:
    config = configure(hidden=3, augmentations=2, **layers)
    weights = weights_of(prepared(config, community).head)
    step = exact(oracle_step(config, community, STREAM))
    target = oracles.guessed(step.probabilities(weights), config.temperature)
    slopes = oracles.finite_differences(step, weights, target)
    for name, gradient in step.gradient(weights).items():
        slope, bound = slopes[name]
        assert np.all(np.abs(gradient - slope) <= bound), name
        assert bound.max() < 1e-3 * np.abs(slope).max()


def test_the_guess_is_no_path_for_gradients(community: Graph, configure: Configure) -> None:
    config = configure(hidden=3, augmentations=2)
    method = prepared(config, community)
    step = exact(oracle_step(config, community, STREAM))
    moving, bound = oracles.finite_differences(step, weights_of(method.head), None)["weight2"]
    loss, _ = method.loss(None, STREAM)
    loss.backward()
    assert isinstance(method.head, DenseHead)
    assert method.head.weight2.grad is not None
    difference = np.abs(method.head.weight2.grad.numpy() - moving).max()
    assert difference > 0.01 * np.abs(moving).max() > 100 * bound.max()


@pytest.mark.parametrize("perturbation", ["dropnode", "dropout", "dropedge"])
@pytest.mark.parametrize("head", ["mlp", "gcn"])
def test_multiply_first_equals_propagate_first(
    community: Graph,
    configure: Configure,
    monkeypatch: pytest.MonkeyPatch,
    perturbation: str,
    head: str,
) -> None:
    config = configure(perturbation=perturbation, head=head)
    for commutes in (True, False):
        monkeypatch.setattr(DenseHead, "commutes", commutes)
        method = prepared(config, community)
        StepResult.of(method, community, STREAM).assert_taken_by(method, STREAM)
        inferred_logits(method, community).assert_near(method.logits())


@pytest.mark.parametrize("perturbation", ["dropnode", "dropout", "dropedge"])
@pytest.mark.parametrize("place", ["columns", "entries"])
def test_attention_reads_features_that_are_dropped_before_propagation(
    community: Graph,
    configure: Configure,
    monkeypatch: pytest.MonkeyPatch,
    perturbation: str,
    place: str,
) -> None:
    """The first linear map of its views is the oracle's, and so is the gradient."""
    config = configure(
        head="gat", perturbation=perturbation, input_dropout=0.35, input_dropout_on=place
    )
    method = prepared(config, community)
    assert method.head.commutes
    weight = Rounded(method.head.weight1.detach().double().numpy())
    products: list[torch.Tensor] = []
    monkeypatch.setattr(
        AttentionHead, "rest", lambda _head, hidden, *_: products.append(hidden) or hidden
    )
    method.loss(None, STREAM)
    pull = np.random.default_rng(0).standard_normal(products[0].shape).astype(np.float32)
    products[0].backward(torch.from_numpy(pull))
    gradient: Any = 0.0
    for number, view in enumerate(oracle_step(config, community, STREAM).views):
        seen = oracles.propagated(view.operator, config.order, view.features) * view.input_mask
        (seen @ weight).assert_near(products[0][:, number].detach(), "the product")
        gradient = gradient + seen.T @ Rounded(pull[:, number].astype(np.float64))
    assert method.head.weight1.grad is not None
    gradient.assert_near(method.head.weight1.grad, "the gradient")


def test_sparse_and_dense_features_are_the_same_features(
    community: Graph, configure: Configure
) -> None:
    for head in HEADS.values():
        method = prepared(configure(**head), sparse_features(community))
        StepResult.of(method, community, STREAM).assert_taken_by(method, STREAM)
        inferred_logits(method, community).assert_near(method.logits())


def test_several_epochs_are_the_oracles(community: Graph, configure: Configure) -> None:
    """Masks, gradient, Adam and decay together: the weights after ten epochs."""
    config = configure(max_epochs=10, weight_decay=0.05)
    graph = community.with_split(Split(community.split.train, [], []))  # type: ignore
    method = Grand(config)
    method.prepare(graph, graph.split, Stream(4).at("initialisation"))  # type: ignore[arg-type]
    expected = trained(config, graph, 4, method.head)
    assert_trained(expected, train(method, graph, seed=4).history, method.head)


@pytest.mark.parametrize("temperature", [0.2, 0.3, 0.5])
@pytest.mark.parametrize("weight", [0.7, 1.0])
def test_weight_and_temperature_reach_the_loss(
    community: Graph, configure: Configure, weight: float, temperature: float
) -> None:
    """A port once trained every dataset at one weight and temperature, and nobody noticed."""
    config = configure(consistency_weight=weight, temperature=temperature)
    method = prepared(config, community)
    expected = StepResult.of(method, community, STREAM)
    expected.assert_taken_by(method, STREAM)
    right = expected.losses["consistency"].value
    step = exact(oracle_step(config, community, STREAM))
    views = step.probabilities(weights_of(method.head))
    for other in {0.2, 0.3, 0.5} - {temperature}:
        wrong = oracles.consistency(views, oracles.guessed(views, other), "mean")
        assert abs(wrong - right) > 0.01 * right


def test_without_consistency_there_is_only_the_supervised_loss(
    community: Graph, configure: Configure
) -> None:
    plain, parts = prepared(configure(consistency_weight=0.0), community).loss(None, STREAM)
    _, with_it = prepared(configure(consistency_weight=0.7), community).loss(None, STREAM)
    assert set(parts) == {"supervised"}
    assert plain.item() == with_it["supervised"].item()


def gradient_of(config: GrandConfig, graph: Graph) -> torch.Tensor:
    method = prepared(config, graph)
    method.loss(None, STREAM)[0].backward()
    assert isinstance(method.head, DenseHead)
    assert method.head.weight1.grad is not None
    return method.head.weight1.grad


@pytest.mark.parametrize("node", [24, 0], ids=["unlabelled", "labelled"])
def test_consistency_sees_every_node(community: Graph, configure: Configure, node: int) -> None:
    """Node 24 has no neighbour and no label: only agreement can hear of it; so with node 0."""
    config = configure(drop_rate=0.1)
    features = community.features.copy()
    features[node, 0] += 5.0
    changed = with_features(community, features)
    kept = [prepared(config, graph).loss(None, STREAM)[1] for graph in (community, changed)]
    assert kept[0]["consistency"].item() != kept[1]["consistency"].item()
    assert not torch.equal(gradient_of(config, community), gradient_of(config, changed))
    if node == 24:
        silent = config.replace(consistency_weight=0.0)
        assert torch.equal(gradient_of(silent, community), gradient_of(silent, changed))


def test_consistency_sees_a_labelled_node_that_nobody_else_hears_of(
    community: Graph, configure: Configure
) -> None:
    """Moving isolated node 24 into the training part changes the supervised loss alone."""
    assert community.split is not None
    train_part = np.append(community.split.train, 24)
    test_part = np.setdiff1d(community.split.test, 24)
    labelled = community.with_split(Split(train_part, community.split.val, test_part))
    parts = [
        prepared(configure(drop_rate=0.1), graph).loss(None, STREAM)[1]
        for graph in (community, labelled)
    ]
    assert parts[0]["supervised"].item() != parts[1]["supervised"].item()
    assert parts[0]["consistency"].item() == parts[1]["consistency"].item()


@pytest.mark.parametrize("perturbation", ["dropnode", "dropout", "dropedge"])
@pytest.mark.parametrize("mask_scaling", ["training", "inference"])
@pytest.mark.parametrize("head", HEADS)
def test_inference_is_unperturbed_and_scaled_as_the_key_says(
    community: Graph, configure: Configure, head: str, mask_scaling: str, perturbation: str
) -> None:
    config = configure(perturbation=perturbation, mask_scaling=mask_scaling, **HEADS[head])
    for graph in (community, sparse_features(community)):
        method = prepared(config, graph)
        expected = inferred_logits(method, graph)
        rows = np.array([0, 5, 24, 25, 3])
        # More than once, and mixed with other rows: what is cached must not show.
        for _ in range(2):
            for wanted in (rows, rows[::-1].copy(), None):
                part = expected if wanted is None else expected[wanted]
                part.assert_near(method.logits(rows=wanted))
            expected[rows].assert_near(method.logits(graph, rows))


def test_predicting_neither_perturbs_nor_learns(community: Graph, configure: Configure) -> None:
    for head in ({"head": "gat"}, *HEADS.values()):
        method = prepared(configure(**head), community)
        before = {name: value.clone() for name, value in method.state().items()}
        method.loss(None, STREAM)
        moved = {name: value.clone() for name, value in method.state().items()}
        first, second = method.logits(), method.logits()
        assert torch.equal(first, second)
        assert not first.requires_grad
        for name, value in method.state().items():
            assert torch.equal(value, moved[name]), name
            assert torch.equal(value, before[name]) or "running" in name or "tracked" in name


def test_another_graph_is_read_with_what_the_first_taught(
    community: Graph, configure: Configure
) -> None:
    config = configure(feature_scaling="standard", max_epochs=3)
    method = Grand(config)
    train(method, community)
    rows = np.arange(8)
    part = Graph.from_scipy(
        community.adjacency[rows][:, rows], community.features[rows], class_names=list("abc")
    )
    raw = community.features.astype(float)
    features = standardised(raw[rows], raw.mean(axis=0), raw.std(axis=0))
    inferred_logits(method, part, features).assert_near(method.logits(part))


@pytest.mark.parametrize("feature_scaling", KINDS)
def test_what_was_learnt_dense_is_applied_sparse_and_the_other_way(
    community: Graph, configure: Configure, feature_scaling: str
) -> None:
    for first, second in itertools.permutations((community, sparse_features(community))):
        method = prepared(configure(feature_scaling=feature_scaling), first)
        expected = inferred_logits(method, first)
        expected.assert_near(method.logits())
        expected.assert_near(method.logits(second))


def test_a_graph_with_other_columns_is_refused(community: Graph, configure: Configure) -> None:
    method = prepared(configure(), community)
    other = Graph.from_edges([(0, 1)], np.eye(3))
    with pytest.raises(
        GraphError, match="has 3 features per node, but the model was trained with 9"
    ):
        method.logits(other)


def test_the_same_masks_whatever_the_number_of_augmentations(
    community: Graph, configure: Configure
) -> None:
    """View s is a function of its address: drawing more views changes none of the first."""
    for head in HEADS.values():
        config = configure(augmentations=2, **head)
        weights = {
            name: Rounded(value)
            for name, value in weights_of(prepared(config, community).head).items()
        }
        step = oracle_step(config, community, STREAM)
        expected = [step.forward(view, weights)["logits"] for view in step.views]
        for count in (2, 4):
            method = prepared(config.replace(augmentations=count), community)
            method.head.train()
            streams = [STREAM.at("augmentation", s) for s in range(count)]
            views = [
                method.perturbation.draw(
                    s.at("perturbation"), method.tensors.operator, method.tensors.features
                )
                for s in streams
            ]
            logits = method.classify_views(method.tensors, views, streams).detach()
            for number, each in enumerate(expected):
                each.assert_near(logits[:, number])
