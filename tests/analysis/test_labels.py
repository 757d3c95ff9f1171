"""Suspicious labels are judged by models that never saw them; new labels go where they help."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

import oracles
from dropnode.analysis.labels import label_next, suspicious_labels
from dropnode.data import load_dataset
from dropnode.errors import ConfigError
from dropnode.graph import Graph, Split
from dropnode.methods.table import make_method
from dropnode.training import train
from oracles import RandomGraph, random_graphs


class Spy:
    """A model that knows nothing, and remembers what it was trained on."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows = rows
        self.masks: list[np.ndarray] = []

    def __call__(self, mask: np.ndarray) -> np.ndarray:
        self.masks.append(mask.copy())
        # What the caller does with its mask must not matter.
        mask[:] = True
        return self.rows


@given(st.lists(st.integers(-1, 3), min_size=6, max_size=40), st.integers(2, 6))
def test_every_label_is_judged_once_by_a_model_that_never_saw_it(
    drawn: list[int], folds: int
) -> None:
    labels = np.array(drawn)
    counts = np.bincount(labels[labels >= 0], minlength=4)
    spy = Spy(np.full((len(labels), 4), 0.25))
    if (counts > 1).sum() < 2:
        with pytest.raises(ConfigError, match="classes have two labels or more; expected at"):
            suspicious_labels(labels, spy, folds=folds)
        return
    ranked = suspicious_labels(labels, spy, folds=folds)
    judged = np.flatnonzero((labels >= 0) & (counts[labels] > 1))
    assert sorted(ranked.nodes.tolist()) == judged.tolist()
    np.testing.assert_array_equal(ranked.given, labels[ranked.nodes])
    masks = np.array(spy.masks)
    assert 2 <= len(masks) <= folds
    # Every judged label is held out once; the others, known alone, always train.
    np.testing.assert_array_equal((~masks).sum(axis=0)[judged], 1)
    alone = np.setdiff1d(np.flatnonzero(labels >= 0), judged)
    assert masks[:, alone].all()
    assert not masks[:, labels < 0].any()
    # No model is asked about a class of which it has not seen a label.
    for mask in masks:
        assert set(labels[judged]) <= set(labels[mask])


def test_the_ranking_is_by_odds_whatever_the_temperature() -> None:
    generator = np.random.default_rng(0)
    labels, logits = generator.integers(0, 3, 50), generator.normal(size=(50, 3))
    ranked = suspicious_labels(labels, Spy(softmax(logits, axis=1)))
    others = np.where(np.eye(3, dtype=bool)[labels], -np.inf, logits)
    odds = logits[np.arange(50), labels] - others.max(axis=1)
    np.testing.assert_array_equal(ranked.nodes, np.argsort(odds))
    np.testing.assert_allclose(ranked.log_odds, np.sort(odds))
    np.testing.assert_array_equal(ranked.suggested, others.argmax(axis=1)[ranked.nodes])
    sharper = suspicious_labels(labels, Spy(softmax(5 * logits, axis=1)))
    np.testing.assert_array_equal(sharper.nodes, ranked.nodes)


def test_probabilities_of_zero_are_ranked_and_seeds_repeat() -> None:
    labels = np.array([0, 0, 1, 1, 0, 1])
    certain = np.eye(2)[[0, 1, 1, 1, 0, 0]]
    first, again = Spy(certain), Spy(certain)
    ranked = suspicious_labels(labels, first, folds=3, seed=4)
    assert ranked.nodes[:2].tolist() == [1, 5]
    assert np.isfinite(ranked.log_odds).all()
    suspicious_labels(labels, again, folds=3, seed=4)
    np.testing.assert_array_equal(first.masks, again.masks)


def planted(graph: Graph, per_class: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return labels of some nodes, five in a hundred of them wrong, those nodes, and the wrong."""
    generator = np.random.default_rng(seed)
    nodes = np.concatenate(
        [
            generator.choice(np.flatnonzero(graph.labels == code), per_class, replace=False)
            for code in range(graph.num_classes)
        ]
    )
    wrong = generator.choice(nodes, len(nodes) // 20, replace=False)
    labels = np.full(graph.num_nodes, -1)
    labels[nodes] = graph.labels[nodes]
    labels[wrong] = (labels[wrong] + generator.integers(1, 10, len(wrong))) % 10
    return labels, nodes, wrong


def probabilities(
    graph: Graph, labels: np.ndarray, mask: np.ndarray, method: str, **changes: Any
) -> np.ndarray:
    known = graph.with_labels(np.where(mask, labels, -1), graph.class_names)
    model = make_method(method, None, changes=changes).method
    train(model, known, Split(np.flatnonzero(mask), [], []), seed=0)
    return torch.softmax(model.logits().double(), dim=1).numpy()


def precision(method: str, per_class: int, seed: int, **changes: Any) -> float:
    graph = load_dataset("digits").with_split(None)
    labels, nodes, wrong = planted(graph, per_class, seed)
    ranked = suspicious_labels(
        labels, lambda mask: probabilities(graph, labels, mask, method, **changes)
    )
    top = ranked.nodes[: len(nodes) // 20]
    return float(np.isin(top, wrong).mean())


def test_planted_errors_are_found_by_a_simple_model() -> None:
    """Logistic regression on digits, twenty wrong labels of four hundred; chance is 5 %."""
    assert precision("logistic", 40, seed=0) >= 0.15


@pytest.mark.slow
def test_planted_errors_are_found_by_grand() -> None:
    found = [precision("grand", 100, seed, max_epochs=100) for seed in range(3)]
    assert min(found) >= 0.15
    assert np.mean(found) >= 0.7


def naive_next(
    rows: np.ndarray, adjacency: np.ndarray, labelled: list[int], most: int, order: int, apart: int
) -> list[int]:
    entropy = np.array([-sum(p * np.log(p) for p in row if p > 0) for row in rows])
    gain = oracles.mixed(oracles.normalised(adjacency), order) @ entropy
    # Equal gains, up to rounding, are taken by position.
    left = sorted(set(range(len(rows))) - set(labelled), key=lambda v: (-round(gain[v], 9), v))
    steps = np.where(adjacency > 0, 1.0, np.inf)
    np.fill_diagonal(steps, 0.0)
    for k in range(len(steps)):
        steps = np.minimum(steps, steps[:, k : k + 1] + steps[k])
    taken: list[int] = []
    while left and len(taken) < most:
        turn: list[int] = []
        for node in left:
            if len(taken) + len(turn) < most and all(steps[node, v] > apart for v in turn):
                turn.append(node)
        taken += turn
        left = [node for node in left if node not in turn]
    return taken


@given(random_graphs(), st.integers(0, 3), st.integers(0, 2), st.integers(1, 30))
def test_the_ranking_against_its_definition(
    drawn: RandomGraph, order: int, apart: int, most: int
) -> None:
    adjacency = drawn.adjacency.astype(float)
    generator = np.random.default_rng(len(adjacency))
    rows = softmax(3 * generator.normal(size=(len(adjacency), 3)), axis=1)
    found = label_next(rows, sp.csr_array(adjacency), [0], most, order=order, apart=apart)
    assert found.tolist() == naive_next(rows, adjacency, [0], most, order, apart)


def test_skipped_nodes_get_a_second_turn_and_labelled_ones_none() -> None:
    """A star: everything is within two hops of everything."""
    star = np.zeros((6, 6))
    star[0, 1:] = star[1:, 0] = 1.0
    rows = np.tile([0.5, 0.5], (6, 1))
    found = label_next(rows, star, [2], most=10)
    assert found[0] == 0
    assert sorted(found.tolist()) == [0, 1, 3, 4, 5]
    assert label_next(rows, star, range(6), most=3).tolist() == []


def test_uncertain_surroundings_count_more_than_an_uncertain_node_alone() -> None:
    """Node 0 is the least certain, but its neighbours are sure; nodes 4 to 7 are all uncertain."""
    adjacency = np.zeros((8, 8))
    adjacency[:4, :4] = adjacency[4:, 4:] = 1.0
    np.fill_diagonal(adjacency, 0.0)
    rows = np.array([[0.5, 0.5]] + [[0.99, 0.01]] * 3 + [[0.6, 0.4]] * 4)
    assert label_next(rows, adjacency, [], most=1, order=0).tolist() == [0]
    assert label_next(rows, adjacency, [], most=2).tolist() == [4, 0]


@pytest.mark.slow
def test_on_digits_chosen_labels_are_better_than_random_ones() -> None:
    """Twenty labels, then twenty more; seeds that had no part in choosing the settings."""
    graph = load_dataset("digits").with_split(None)
    every = np.arange(graph.num_nodes)
    accuracies: dict[str, list[float]] = {"random": [], "chosen": []}
    for seed in range(200, 206):
        generator = np.random.default_rng(seed)
        members = (np.flatnonzero(graph.labels == code) for code in range(10))
        given = np.concatenate([generator.choice(each, 2, replace=False) for each in members])
        mask = np.isin(every, given)
        before = probabilities(graph, graph.labels, mask, "grand", max_epochs=200)
        more = {
            "random": generator.choice(every[~mask], 20, replace=False),
            "chosen": label_next(before, graph.adjacency, given, most=20),
        }
        for name, nodes in more.items():
            known = mask | np.isin(every, nodes)
            after = probabilities(graph, graph.labels, known, "grand", max_epochs=200)
            hits = after.argmax(axis=1) == graph.labels
            accuracies[name].append(float(hits[~known].mean()))
    assert np.mean(accuracies["chosen"]) > np.mean(accuracies["random"])


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: suspicious_labels([[0, 1]], Spy(np.eye(2))), "labels are int64 of shape (1, 2)"),
        (lambda: suspicious_labels(["a", "b"], Spy(np.eye(2))), "expected a class code from 0"),
        (lambda: suspicious_labels([0, -2], Spy(np.eye(2))), "-1 where it is unknown"),
        (lambda: suspicious_labels([0, 0, 1, 1], Spy(np.eye(2))), "fit returned probabilities of"),
        (lambda: suspicious_labels([0, 0, 1, 1], Spy(np.eye(4)), folds=1), "folds = 1"),
        (lambda: label_next(np.eye(2), np.zeros((3, 3)), [], 1), "adjacency has shape (3, 3)"),
        (lambda: label_next(np.eye(2), np.zeros((2, 2)), [2], 1), "the labelled nodes hold node 2"),
        (lambda: label_next(np.eye(2), np.zeros((2, 2)), [], 0), "most = 0; expected"),
        (lambda: label_next(np.eye(2), np.zeros((2, 2)), [], 1, apart=-1), "apart = -1"),
    ],
)
def test_errors_say_what_was_expected(call: Any, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        call()
    assert told in str(caught.value)
