"""Labels are judged by models that never saw them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dropnode.assessment.held_out as module
from dropnode.assessment import hold_out
from dropnode.estimator import GrandClassifier
from dropnode.graph import Graph
from dropnode.graph.labels import UNKNOWN


def few_labels(graph: Graph) -> Graph:
    labels = np.where(np.arange(graph.num_nodes) % 2 == 0, graph.labels, UNKNOWN)
    return graph.with_split(None).with_labels(labels, graph.class_names)


def quick(**parameters: Any) -> GrandClassifier:
    return GrandClassifier(
        random_state=0, **{"max_epochs": 4, "hidden": 4, "order": 1} | parameters
    )


def test_every_label_is_judged_once_by_a_model_without_it(
    community: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, seen = few_labels(community), []
    fit = GrandClassifier.fit

    def spied(self: GrandClassifier, X: Graph, *more: Any, **others: Any) -> Any:
        seen.append(X.labels.copy())
        return fit(self, X, *more, **others)

    monkeypatch.setattr(GrandClassifier, "fit", spied)
    told: list[tuple[int, int]] = []
    held = hold_out(quick(), graph, seed=1, watch=lambda done, total: told.append((done, total)))
    assert held is not None
    assert sorted(held.nodes) == np.flatnonzero(graph.labels != UNKNOWN).tolist()
    assert held.labels.tolist() == graph.labels[held.nodes].tolist()
    assert told == [(at, 5) for at in range(5)]
    for number, labels in enumerate(seen):
        hidden = held.nodes[held.fold == number]
        assert (labels[hidden] == UNKNOWN).all()
        others = np.setdiff1d(held.nodes, hidden)
        assert labels[others].tolist() == graph.labels[others].tolist()


def test_the_logits_are_those_of_the_model_without_the_labels(community: Graph) -> None:
    graph = few_labels(community)
    held = hold_out(quick(), graph, seed=1)
    assert held is not None
    hidden = held.nodes[held.fold == 2]
    labels = graph.labels.copy()
    labels[hidden] = UNKNOWN
    alone = quick().fit(graph.with_labels(labels, graph.class_names))
    expected = alone.method_.logits(rows=hidden).numpy()
    np.testing.assert_array_equal(held.logits[held.fold == 2], expected)
    assert held.correct.tolist() == (held.logits.argmax(axis=1) == held.labels).tolist()


def test_all_classifiers_are_judged_on_the_same_folds(community: Graph) -> None:
    graph = few_labels(community)
    one = hold_out(quick(), graph, seed=3)
    other = hold_out(GrandClassifier(method="label-propagation", random_state=9), graph, seed=3)
    assert one is not None
    assert other is not None
    np.testing.assert_array_equal(one.nodes, other.nodes)
    np.testing.assert_array_equal(one.fold, other.fold)


def test_with_many_labels_one_fold_is_enough(
    community: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ENOUGH", 8)
    held = hold_out(quick(), few_labels(community))
    assert held is not None
    assert np.unique(held.fold).tolist() == [0]
    assert len(held.nodes) == 3


def test_too_few_labels_are_not_judged(community: Graph) -> None:
    labels = np.full(community.num_nodes, UNKNOWN)
    labels[[0, 1, 8]] = community.labels[[0, 1, 8]]
    graph = community.with_split(None).with_labels(labels, community.class_names)
    assert hold_out(quick(), graph) is None
