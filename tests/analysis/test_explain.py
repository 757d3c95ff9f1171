"""Explanations: exact sums, against autograd, against a dense formula, and by taking nodes away."""

from __future__ import annotations

import tracemalloc
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import oracles
from dropnode.analysis.explain import Explanation, explain, first_layer
from dropnode.data import load_dataset
from dropnode.errors import ConfigError
from dropnode.graph import Graph, Split
from dropnode.methods.base import NodeClassifier
from dropnode.methods.grand_plus.model import GrandPlus
from dropnode.methods.table import METHODS, make_method
from dropnode.methods.tensors import GraphTensors
from dropnode.ops.randomness import Stream
from dropnode.training import train

pytestmark = pytest.mark.usefixtures("features_as_given")

REFUSED = {
    "grand-gat",
    "boosting",
    "gat",
    "graphunet",
    "mixhop",
    "graphnas",
    "graphsage",
    "label-propagation",
}
CLOSED_FORM = {"logistic"}
FEW_EPOCHS: dict[str, dict[str, Any]] = {"gmnn": {"rounds": 1, "round_epochs": 1}}

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    name: (name, {}) for name in METHODS if name not in REFUSED
} | {
    "three layers": ("gcn", {"layers": 3}),
    "fewer units than neighbours": ("gcn", {"hidden": 2, "layers": 3}),
    "no hop": ("grand", {"order": 0}),
    "walk": ("grand-plus", {"walk": "ppr"}),
    "two layers after a walk": ("grand-plus", {"walk": "average", "layers": 2, "batch_norm": True}),
    "batch norm": ("grand", {"batch_norm": True}),
    "fixed norm": ("grand", {"batch_norm": True, "input_norm": "fixed"}),
    "scaled at inference": ("grand", {"mask_scaling": "inference", "drop_rate": 0.4}),
    "convolutions with batch norm": ("grand-gcn", {"batch_norm": True}),
    "edges scaled at inference": (
        "grand-dropedge",
        {"mask_scaling": "inference", "drop_rate": 0.4},
    ),
}
"""Every method that can be taken apart, and GRAND with every kind of norm and scale."""

NODES = 40


def ring(count: int, columns: int = 12, sparse: bool = False) -> Graph:
    """A ring of weighted edges with chords, an isolated node, and a row of zeros."""
    generator = np.random.default_rng(count)
    labels = np.arange(count) % 3
    features = generator.poisson(0.4 + 2.0 * np.repeat(np.eye(3), columns // 3, axis=1)[labels])
    features[5] = 0
    around = np.arange(count - 1)
    ends = (
        np.concatenate([around, around[::9]]),
        np.concatenate([(around + 1) % (count - 1), (around[::9] + 4) % (count - 1)]),
    )
    weights = generator.uniform(0.5, 2.0, len(ends[0]))
    adjacency = sp.csr_array((weights, ends), shape=(count, count))
    return Graph.from_scipy(
        adjacency + adjacency.T,
        sp.csr_array(features.astype(np.float32)) if sparse else features,
        labels,
        split=Split(np.arange(9), np.arange(9, 15), []),
    )


@cache
def trained(variant: str, sparse: bool = False) -> tuple[NodeClassifier, Graph]:
    name, changes = VARIANTS[variant]
    if name not in CLOSED_FORM:
        changes = {"max_epochs": 4} | FEW_EPOCHS.get(name, {}) | changes
    if name.startswith("grand"):
        changes = {"order": 3, "hidden": 10} | changes
    graph = ring(NODES, sparse=sparse)
    method = make_method(name, "any", changes=changes).method
    train(method, graph, seed=1)
    return method, graph


def dense_contributions(why: Explanation) -> np.ndarray:
    whole = np.zeros((NODES, why.contributions.shape[1]))
    whole[why.nodes] = why.contributions.toarray()
    return whole


def by_autograd(method: NodeClassifier, node: int, direction: np.ndarray) -> np.ndarray:
    """Features times the gradient of a score by them, in single precision."""
    held = method.tensors.features
    features = (held if isinstance(held, torch.Tensor) else held.to_dense()).clone()
    features.requires_grad_()
    method.network.eval()
    if isinstance(method, GrandPlus):
        logits = by_a_dense_walk(method, features)
    else:
        logits = method.classify(GraphTensors(features, method.tensors.adjacency))
    (logits[node] @ torch.from_numpy(direction).float()).backward()
    assert features.grad is not None
    return (features * features.grad).detach().double().numpy()


def by_a_dense_walk(method: GrandPlus, features: torch.Tensor) -> torch.Tensor:
    """The formula of GRAND+ spelt out, since its exact propagation has no gradient."""
    adjacency = method.tensors.adjacency.toarray().astype(np.float64) + np.eye(NODES)
    walk = adjacency / adjacency.sum(axis=1, keepdims=True)
    powers = [share * np.linalg.matrix_power(walk, n) for n, share in enumerate(method.shares)]
    weight, offset = method.head.folded(0)
    return method.head.rest(torch.from_numpy(sum(powers)).float() @ features @ weight + offset)


SPARSE = ("grand", "batch norm", "convolutions with batch norm", "walk", "gcn", "sgc")


@pytest.mark.parametrize(
    ("variant", "sparse"),
    [(variant, False) for variant in VARIANTS] + [(variant, True) for variant in SPARSE],
)
def test_contributions_and_bias_are_the_logit(variant: str, sparse: bool) -> None:
    """The bias is computed from the biases, not from the rest."""
    method, _ = trained(variant, sparse)
    logits = method.logits().double().numpy()
    for node in (0, 5, 17, NODES - 1):
        for label in (None, 1):
            why = explain(method, node, label=label)
            assert why.label == (logits[node].argmax() if label is None else label)
            magnitude = np.abs(why.contributions).sum() + abs(why.bias) + 1
            assert why.by_node.sum() + why.bias == pytest.approx(why.score, abs=1e-12 * magnitude)
            assert why.by_column.sum() + why.bias == pytest.approx(why.score, abs=1e-12 * magnitude)
            assert why.score == pytest.approx(logits[node, why.label], abs=1e-5 * magnitude)


@pytest.mark.parametrize("variant", VARIANTS)
def test_contributions_are_features_times_gradients(variant: str) -> None:
    method, _ = trained(variant)
    for node in (17, NODES - 1):
        why = explain(method, node, label=2)
        expected = by_autograd(method, node, np.eye(3)[2])
        scale = np.abs(expected).max() + 1e-3
        np.testing.assert_allclose(dense_contributions(why), expected, atol=1e-5 * scale)
        rather = explain(method, node, label=2, against=0)
        expected -= by_autograd(method, node, np.eye(3)[0])
        np.testing.assert_allclose(dense_contributions(rather), expected, atol=2e-5 * scale)
        logits = method.logits().double().numpy()[node]
        assert rather.score == pytest.approx(logits[2] - logits[0], abs=1e-4)


@pytest.mark.parametrize("variant", ["grand", "batch norm", "fixed norm"])
def test_contributions_against_the_formula(variant: str) -> None:
    """Ā_vu · X_uj · Σ over active units h of W_jh · w2_h, spelt out with dense matrices."""
    method, graph = trained(variant)
    assert method.scaling.kind == "standard"
    head: Any = method.network
    state = {key: value.double().numpy() for key, value in head.state_dict().items()}
    mean, deviation = method.scaling.mean, method.scaling.deviation
    features = (graph.features - mean) / deviation
    propagation = oracles.mixed(oracles.normalised(graph.adjacency.toarray()), method.config.order)
    weight, bias = state["weight1"], state["bias1"]
    gain, shift = np.ones(len(bias)), np.zeros(len(bias))
    if head.norm1 is not None:
        fixed = variant == "fixed norm"
        spread = state["norm1.deviation"] if fixed else np.sqrt(state["norm1.running_var"] + 1e-5)
        centre = state["norm1.mean"] if fixed else state["norm1.running_mean"]
        bias = bias + (state["norm1.bias"] - centre * state["norm1.weight"] / spread) @ weight
        weight = weight * (state["norm1.weight"] / spread)[:, None]
        gain = state["norm2.weight"] / np.sqrt(state["norm2.running_var"] + 1e-5)
        shift = state["norm2.bias"] - state["norm2.running_mean"] * gain
    for node in (0, 20):
        why = explain(method, node, label=1)
        hidden = propagation[node] @ features @ weight + bias
        slope = (hidden > 0) * gain * state["weight2"][:, 1]
        expected = propagation[node][:, None] * features * (weight @ slope)
        np.testing.assert_allclose(dense_contributions(why), expected, atol=1e-6)
        constant = bias @ slope + shift @ state["weight2"][:, 1] + state["bias2"][1]
        assert why.bias == pytest.approx(constant, abs=1e-6)


def without(graph: Graph, node: int) -> Graph:
    """The graph with the features of a node erased; its edges stay."""
    features = graph.features.copy()
    features[node] = 0.0
    return Graph.from_scipy(graph.adjacency, features, graph.labels)


@pytest.mark.parametrize("variant", ["raw", "sgc", "gcn", "grand-gcn"])
def test_without_a_neighbour_the_first_layer_changes_by_its_part(variant: str) -> None:
    method, graph = raw(variant)
    before = first_layer(method, 11)
    others = before.nodes != 11
    top = int(before.nodes[others][np.abs(before.parts[others]).sum(axis=1).argmax()])
    after = first_layer(method, 11, without(graph, top))
    part = before.parts[before.nodes == top][0]
    assert np.abs(part).max() > 1e-3
    np.testing.assert_allclose(
        after.parts.sum(axis=0) + after.bias,
        before.parts.sum(axis=0) + before.bias - part,
        atol=1e-12,
    )
    # The same in the network itself, which computes in single precision.
    if variant == "raw":
        head: Any = method.network
        for given, layer in ((graph, before), (without(graph, top), after)):
            hidden = method.tensors_of(given).features @ head.weight1
            view = oracles.mixed(oracles.normalised(given.adjacency.toarray()), 3)
            own = view[11] @ hidden.detach().double().numpy()
            np.testing.assert_allclose(layer.parts.sum(axis=0), own, atol=1e-5)
            np.testing.assert_allclose(layer.weights, view[11, layer.nodes], atol=1e-7)


@cache
def raw(variant: str) -> tuple[NodeClassifier, Graph]:
    """Unscaled features, so that erasing a row changes nothing else."""
    name = "grand" if variant == "raw" else variant
    changes: dict[str, Any] = {"max_epochs": 8, "feature_scaling": "none"}
    if name.startswith("grand"):
        changes |= {"order": 3, "hidden": 10}
    method = make_method(name, "any", changes=changes).method
    graph = ring(NODES)
    train(method, graph, seed=1)
    return method, graph


def test_without_a_neighbour_a_linear_method_changes_by_its_contribution() -> None:
    method, graph = raw("sgc")
    why = explain(method, 11)
    top = why.strongest_nodes(1)[0]
    after = method.logits(without(graph, top.name)).double().numpy()[11, why.label]
    assert abs(top.amount) > 0.01
    assert after == pytest.approx(why.score - top.amount, abs=1e-5)


def test_a_small_change_that_switches_no_unit_changes_the_score_as_predicted() -> None:
    """A hundredth less of the strongest neighbour's features, in a network with ReLU."""
    method, graph = raw("raw")
    why = explain(method, 11)
    top = why.strongest_nodes(1)[0]
    features = graph.features.copy()
    features[top.name] *= 0.99
    less = explain(method, 11, Graph.from_scipy(graph.adjacency, features, graph.labels))
    assert less.bias == pytest.approx(why.bias, abs=1e-12)
    assert less.score == pytest.approx(why.score - 0.01 * top.amount, rel=1e-6)


def test_strongest_nodes_and_columns_have_names_and_sums() -> None:
    method, _ = trained("grand")
    why = explain(method, 17)
    ids = [f"n{number}" for number in range(NODES)]
    names = [f"word {number}" for number in range(12)]
    amounts = dict(zip(why.nodes.tolist(), why.by_node.tolist(), strict=True))
    listed = why.strongest_nodes(4, ids)
    assert [amounts[int(share.name[1:])] for share in listed] == [s.amount for s in listed]
    assert [abs(share.amount) for share in listed] == sorted(
        np.abs(why.by_node).tolist(), reverse=True
    )[:4]
    columns = why.strongest_columns(3, names)
    best = int(np.abs(why.by_column).argmax())
    assert columns[0] == (f"word {best}", why.by_column[best])
    assert len(columns) == 3
    with pytest.raises(ConfigError, match="2 names for 12 feature columns"):
        why.strongest_columns(names=["a", "b"])


def test_an_isolated_node_is_explained_by_itself() -> None:
    method, _ = trained("grand")
    assert explain(method, NODES - 1).nodes.tolist() == [NODES - 1]


def test_a_network_whose_units_are_all_off_is_all_bias() -> None:
    method = make_method("grand", "any", changes={"max_epochs": 1, "batch_norm": False}).method
    train(method, ring(NODES), seed=0)
    with torch.no_grad():
        method.network.bias1.fill_(-1e3)
    why = explain(method, 4)
    assert why.score == why.bias == pytest.approx(method.network.bias2[why.label].item())
    assert len(why.nodes) == 0
    assert why.strongest_nodes() == why.strongest_columns() == []


@pytest.mark.slow
def test_on_cora_contributions_and_bias_are_the_logit() -> None:
    graph = load_dataset("cora")
    for name, preset in (("grand", "official"), ("grand", "fast"), ("grand-gcn", "official")):
        method = make_method(name, "cora", preset, {"max_epochs": 20}).method
        train(method, graph, seed=0)
        logits = method.logits().double().numpy()
        for node in range(0, graph.num_nodes, 400):
            why = explain(method, node)
            magnitude = np.abs(why.contributions).sum() + abs(why.bias)
            total = why.by_node.sum() + why.bias
            assert total == pytest.approx(logits[node, why.label], abs=1e-5 * magnitude)


@pytest.mark.parametrize("variant", ["grand", "gcn", "convolutions with batch norm"])
def test_repeated_calls_are_bit_identical(variant: str) -> None:
    method, _ = trained(variant, sparse=True)
    first = explain(method, 17)
    explain(method, 3)
    method.logits()
    again = explain(method, 17)
    assert (first.score, first.bias, first.label) == (again.score, again.bias, again.label)
    np.testing.assert_array_equal(first.nodes, again.nodes)
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(
            getattr(first.contributions, name), getattr(again.contributions, name)
        )


def test_the_cost_is_that_of_the_neighbourhood() -> None:
    """On a large ring, memory for a node's explanation is a small part of one column."""
    nodes = 100_001
    graph = ring(nodes, columns=30, sparse=True)
    assert graph.split is not None
    method = make_method("sgc", "any", changes={"steps": 3}).method
    method.prepare(graph, graph.split, Stream(0))
    explain(method, 7)  # Degrees are computed once.
    tracemalloc.start()
    why = explain(method, 50_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 7 <= len(why.nodes) <= 30
    assert peak < nodes


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_methods_that_cannot_be_taken_apart_say_which_can(name: str) -> None:
    changes = {} if name in ("label-propagation", "boosting") else {"max_epochs": 1}
    method = make_method(name, "any", changes=changes).method
    train(method, ring(NODES), seed=0)
    with pytest.raises(ConfigError) as caught:
        explain(method, 0)
    assert "cannot be taken apart" in str(caught.value)
    assert (
        "grand with another head than 'gat', grand-plus with node_norm = false, or one of gcn, "
        in (str(caught.value))
    )


def test_a_node_norm_is_not_linear() -> None:
    changes = {"max_epochs": 1, "node_norm": True}
    method = make_method("grand-plus", "any", changes=changes).method
    train(method, ring(NODES), seed=0)
    with pytest.raises(ConfigError, match="grand-plus with a node norm cannot be taken apart"):
        explain(method, 0)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"node": NODES}, f"node = {NODES}; expected a number from 0 to {NODES - 1}"),
        ({"node": -1}, "node = -1"),
        ({"node": 1.5}, "node = 1.5"),
        ({"node": 0, "label": 3}, "label = 3; expected a number from 0 to 2"),
        ({"node": 0, "against": 7}, "against = 7"),
    ],
)
def test_errors_say_what_was_expected(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        explain(trained("grand")[0], **given)
    assert told in str(caught.value)
