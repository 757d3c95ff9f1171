"""Inspection tells what a graph has, and advises against methods that do not suit it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dropnode.assessment import HeldOut, hold_out
from dropnode.data import load_dataset
from dropnode.graph import Graph
from dropnode.graph.labels import UNKNOWN
from dropnode.inspection import (
    Comparison,
    advice,
    draw_inspection,
    features_alone,
    inspect_graph,
    structure_of,
)


def judged(correct: Any) -> HeldOut:
    right = np.asarray(correct, dtype=bool)
    logits = np.where(right[:, None], [1.0, 0.0], [0.0, 1.0])
    return HeldOut(np.arange(len(right)), np.zeros(len(right), int), logits, np.zeros(len(right)))


def compared(**shares: float) -> Comparison:
    every = {"grand": 0.7, "grand_no_cr": 0.7, "logistic": 0.7, "label_propagation": 0.7} | shares
    rows = np.arange(100) / 100
    return Comparison({name.replace("_", "-"): judged(rows < s) for name, s in every.items()})


def told(comparison: Comparison) -> str:
    graph = load_dataset("sbm", nodes=120, classes=2)
    return " ".join(advice(structure_of(graph), comparison))


def test_advice_follows_the_comparison() -> None:
    assert "features alone predict 90 %" in told(compared(logistic=0.9))
    assert "edges alone predict 90 %" in told(compared(label_propagation=0.9))
    assert "consistency_weight=0" in told(compared(grand_no_cr=0.9))
    assert told(compared()) == ""
    # The better of the two is what others are compared with.
    assert "features alone" not in told(compared(logistic=0.8, grand_no_cr=0.8))


def test_a_difference_that_chance_makes_is_no_advice() -> None:
    """Five wins of five are told at 5 %, four of four are not."""
    for wins, better in ((4, False), (5, True)):
        rows = np.zeros((2, 20), dtype=bool)
        rows[0, :wins] = True
        found = Comparison({"one": judged(rows[0]), "other": judged(rows[1])})
        assert found.better("one", "other") == better
        assert not found.better("other", "one")


def test_structure_counts_what_labels_do_not_reach() -> None:
    edges = [(0, 1), (1, 2), (3, 4)]
    found = structure_of(Graph.from_edges(edges, np.eye(6), ["a", None, "b", None, None, None]))
    assert (found.nodes, found.edges, found.components) == (6, 3, 3)
    assert (found.isolated, found.unreached, found.largest) == (1, 3, 0.5)
    assert found.label_counts == {"a": 1, "b": 1}
    assert found.degrees.tolist() == [1, 2, 1, 1, 1, 0]
    sentences = " ".join(advice(found, None))
    assert "class 'a' has 1 label" in sentences
    assert "3 of 6 nodes have no path to a labelled one" in sentences


def test_unbalanced_labels_are_told() -> None:
    labels = ["a"] * 13 + ["b"] * 2 + [None] * 5
    graph = Graph.from_edges([(at, at + 1) for at in range(19)], np.eye(20), labels)
    sentences = " ".join(advice(structure_of(graph), None))
    assert "2 to 13 labels" in sentences
    assert "class_weight='balanced'" in sentences


def test_test_labels_are_never_read() -> None:
    graph = load_dataset("sbm", nodes=180, classes=3)
    assert graph.split is not None
    shuffled = graph.labels.copy()
    shuffled[graph.split.test] = UNKNOWN
    hidden = graph.with_labels(shuffled, graph.class_names)
    assert inspect_graph(graph).as_dict() == inspect_graph(hidden).as_dict()


@pytest.mark.parametrize("labelled", [2, 40])
def test_the_picture_has_four_panels(labelled: int) -> None:
    graph = load_dataset("sbm", nodes=180, classes=3).with_split(None)
    labels = np.where(np.arange(180) < labelled, graph.labels, UNKNOWN)
    found = inspect_graph(graph.with_labels(labels, ("$a", "b" * 50, "c")))
    figure = draw_inspection(found)
    figure.canvas.draw()
    assert len([axes for axes in figure.axes if axes.get_title()]) == 4


def test_features_alone_read_no_edges() -> None:
    graph = load_dataset("sbm", nodes=120, classes=2)
    other = Graph.from_edges([(0, 1)], graph.features, graph.labels, split=graph.split)
    one, two = (features_alone(0).fit(each).predict_proba() for each in (graph, other))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("scaling", ["none", "unit"])
def test_features_are_scaled_as_in_the_training_that_follows(scaling: str) -> None:
    graph = load_dataset("sbm", nodes=120, classes=2)
    found = inspect_graph(graph, feature_scaling=scaling)
    assert found.scaling == scaling
    assert found.comparison is not None
    assert graph.split is not None
    labels = np.where(np.isin(np.arange(120), graph.split.test), UNKNOWN, graph.labels)
    bare = graph.with_split(None).with_labels(labels, graph.class_names)
    alone = features_alone(0, validation_fraction=None, feature_scaling=scaling)
    expected = hold_out(alone, bare, 0)
    assert expected is not None
    np.testing.assert_array_equal(found.comparison.held["logistic"].logits, expected.logits)
