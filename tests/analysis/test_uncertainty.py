"""Uncertainty from perturbed views, against masks and propagation spelt out with dense matrices."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

import oracles
from dropnode.analysis.uncertainty import VIEWS, sample_uncertainty
from dropnode.data import load_dataset
from dropnode.errors import ConfigError
from dropnode.graph import Graph, Split
from dropnode.methods.base import NodeClassifier
from dropnode.methods.grand.config import GrandConfig
from dropnode.methods.grand.model import Grand
from dropnode.methods.table import make_method
from dropnode.ops.randomness import Stream, keep_mask
from dropnode.training import train


def fitted(config: GrandConfig, graph: Graph) -> Grand:
    method = Grand(config)
    train(method, graph, seed=3)
    return method


@pytest.mark.parametrize("samples", [1, VIEWS + 3])
def test_against_the_definition(
    community: Graph, configure: Callable[..., GrandConfig], samples: int
) -> None:
    """One view after the other: mask rows, propagate, classify, average."""
    method = fitted(configure(), community)
    state = {key: value.double().numpy() for key, value in method.network.state_dict().items()}
    features = oracles.row_normalised(community.features)
    view = oracles.mixed(oracles.normalised(community.adjacency.toarray()), 3)
    sampled = []
    for number in range(samples):
        kept = keep_mask(Stream(5).at("uncertainty", number), (community.num_nodes,), 0.4)
        seen = oracles.drop_nodes(features, kept) / 0.6
        hidden = np.maximum(view @ seen @ state["weight1"] + state["bias1"], 0.0)
        sampled.append(oracles.softmax(hidden @ state["weight2"] + state["bias2"]))
    mean = np.mean(sampled, axis=0)
    entropies = [-(each * np.log(each)).sum(axis=1) for each in (*sampled, mean)]
    found = sample_uncertainty(method, samples, seed=5)
    np.testing.assert_allclose(found.probabilities, mean, atol=1e-6)
    np.testing.assert_allclose(found.entropy, entropies[-1], atol=1e-5)
    shared = np.mean(entropies[:-1], axis=0)
    np.testing.assert_allclose(found.mutual_information, entropies[-1] - shared, atol=1e-5)


def test_the_same_seed_gives_the_same_bits(
    community: Graph, configure: Callable[..., GrandConfig]
) -> None:
    method = fitted(configure(), community)
    first = sample_uncertainty(method, 12, seed=1)
    method.logits()
    again = sample_uncertainty(method, 12, seed=1)
    other = sample_uncertainty(method, 12, seed=2)
    for name in ("probabilities", "entropy", "mutual_information"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
    assert (first.probabilities != other.probabilities).any()


def test_a_node_with_neither_features_nor_neighbours_has_no_disagreement(
    community: Graph, configure: Callable[..., GrandConfig]
) -> None:
    found = sample_uncertainty(fitted(configure(), community), 10)
    # To the rounding of ten summands.
    assert found.mutual_information[-1] == pytest.approx(0.0, abs=1e-12)
    assert (found.mutual_information[:-2] > 1e-9).sum() > 10


@pytest.mark.parametrize(
    "changes",
    [
        {"perturbation": "dropout"},
        {"perturbation": "dropedge"},
        {"head": "gcn"},
        {"head": "gat"},
        {"batch_norm": True, "input_dropout": 0.3, "hidden_dropout": 0.5},
    ],
)
def test_any_head_and_perturbation(
    community: Graph, configure: Callable[..., GrandConfig], changes: dict[str, object]
) -> None:
    method = fitted(configure(**changes), community)
    found = sample_uncertainty(method, 20, graph=community)
    assert found.probabilities.sum(axis=1) == pytest.approx(np.ones(community.num_nodes))
    assert (found.mutual_information <= found.entropy).all()
    assert found.mutual_information.max() > 1e-6
    alone = sample_uncertainty(method, 1)
    # A single view agrees with itself.
    assert alone.mutual_information.max() < 1e-12


def test_other_methods_and_models_without_perturbation_are_refused(
    community: Graph, configure: Callable[..., GrandConfig]
) -> None:
    other: NodeClassifier = make_method("sgc", None, changes={"max_epochs": 1}).method
    train(other, community, seed=0)
    with pytest.raises(ConfigError, match="sgc does not perturb its input; expected grand"):
        sample_uncertainty(other)
    with pytest.raises(ConfigError, match="drop_rate = 0"):
        sample_uncertainty(fitted(configure(drop_rate=0.0), community))
    with pytest.raises(ConfigError, match="samples = 0; expected a whole number"):
        sample_uncertainty(fitted(configure(), community), 0)


@cache
def digits() -> tuple[Grand, Graph]:
    graph = load_dataset("digits")
    method = make_method("grand", None, changes={"max_epochs": 60}).method
    assert isinstance(method, Grand)
    assert graph.split is not None
    train(method, graph, Split(graph.split.train, [], graph.split.test), seed=0)
    return method, graph


def test_wrong_predictions_are_more_uncertain_than_correct_ones() -> None:
    """On digits: a random wrong prediction has the larger entropy in at least 4 of 5 pairs."""
    method, graph = digits()
    assert graph.split is not None
    found, test = sample_uncertainty(method, 20), graph.split.test
    wrong = found.probabilities[test].argmax(axis=1) != graph.labels[test]
    assert wrong.sum() > 10
    for measure in (found.entropy[test], found.mutual_information[test]):
        pairs = measure[wrong][:, None] > measure[~wrong]
        assert pairs.mean() > 0.8
