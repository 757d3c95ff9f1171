"""What a scikit-learn call may give for a graph, and what it is told if it gives something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.data import Data

from dropnode.errors import ConfigError, GraphError
from dropnode.estimator import GrandClassifier
from dropnode.graph import Graph, Split

NAMES = ["ann", "bob", "cy", "dee", "eve", "fay"]
EDGES = [(0, 1), (1, 2), (3, 4), (4, 5), (2, 3)]
X = np.vstack([np.eye(3)[[0, 0, 0]], np.eye(3)[[1, 1, 2]]])
DATA = Data(x=torch.tensor(X), edge_index=torch.tensor(EDGES).T)


def named() -> Graph:
    ends = [(NAMES[a], NAMES[b]) for a, b in EDGES]
    # Labels and a split that must not be read.
    labels = ["no"] * 5 + ["yes"]
    return Graph.from_edges(ends, X, labels, ids=NAMES, split=Split([0, 5], [1], [2]))


def quick(**parameters: Any) -> GrandClassifier:
    options = {"max_epochs": 5, "hidden": 4, "random_state": 0, "validation_fraction": None}
    return GrandClassifier(**options | parameters)


# Rows that are nodes


def test_rows_are_nodes_by_their_ids_in_any_order(tmp_path: Path) -> None:
    graph = named()
    model = quick(graph=graph).fit(["dee", "ann", "bob"], ["tea", "mate", "mate"])

    assert model.classes_.tolist() == ["mate", "tea"]
    assert model.graph_.labels.tolist() == [0, 0, -1, 1, -1, -1]
    assert model.graph_.split.train.tolist() == [0, 1, 3]
    everything = model.predict_proba()
    assert np.array_equal(model.predict(["fay", "cy"]), model.predict()[[5, 2]])
    for rows in (["fay", "cy"], np.array([["fay"], ["cy"]]), pd.Series(["fay", "cy"])):
        np.testing.assert_allclose(model.predict_proba(rows), everything[[5, 2]], rtol=1e-5)
    assert (
        model.score(["ann", "dee", "cy"], ["mate", "tea", None])
        == (model.predict(["ann", "dee"]) == ["mate", "tea"]).mean()
    )

    model.save(tmp_path / "model")
    loaded = GrandClassifier.load(tmp_path / "model")
    assert np.array_equal(loaded.predict_proba(NAMES), model.predict_proba(NAMES))
    again = loaded.fit(["dee", "ann", "bob"], ["tea", "mate", "mate"])
    assert np.array_equal(again.predict_proba(), everything)


def test_the_preset_of_the_catalogue_is_that_of_its_graph(community: Graph) -> None:
    from dataclasses import replace

    listed = replace(community, catalogue_name="citeseer")
    model = quick(graph=listed, max_epochs=1).fit(np.arange(26), community.labels)
    assert (model.preset_, model.graph_.catalogue_name) == ("official", "citeseer")


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: quick(graph=named()).fit(["ann", "bo"], [0, 1]), "no node 'bo': nodes are named"),
        (lambda: quick(graph=named()).fit([0, 1], [0, 1]), "no node 0: nodes are named by 6 ids"),
        (lambda: quick(graph=Graph.from_pyg(DATA)).fit([0, 6], [0, 1]), "numbered 0 to 5"),
        (lambda: quick(graph=Graph.from_pyg(DATA)).fit([0, -1], [0, 1]), "no node -1"),
        (lambda: quick(graph=named()).fit(["ann", "ann"], [0, 1]), "'ann' occurs more than once"),
        (lambda: quick(graph=named()).fit(["ann", "bob"], [0]), "1 labels in y for 2 nodes in X"),
        (lambda: quick(graph=named()).fit(X, [0] * 6), r"shape \(6, 3\).* X holds the ids"),
        (lambda: quick(graph=named()).fit(["ann"], None), "requires y"),
        (lambda: quick(graph=named()).fit(named()), "in addition to that of the constructor"),
        (
            lambda: quick(graph=named()).fit(NAMES, [0] * 6, graph=np.eye(6)),
            "in addition to that of the constructor",
        ),
        (lambda: quick(graph=np.eye(6)).fit(NAMES, [0] * 6), "ndarray; expected a dropnode.Graph"),
        (lambda: quick(graph=DATA).fit(NAMES, [0] * 6), r"Data stands.*Graph.from_pyg\(data\)"),
        (lambda: quick(graph=nx.Graph()).fit(NAMES, [0] * 6), "Graph.from_networkx"),
    ],
)
def test_what_is_no_node_is_refused(call: Any, told: str) -> None:
    with pytest.raises((ConfigError, GraphError), match=told):
        call()


# A graph in the wrong place


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: quick().fit(DATA), r"a table of features.*Graph.from_pyg\(data\)"),
        (lambda: quick().fit(nx.path_graph(6), [0, 1] * 3), "Graph.from_networkx"),
        (lambda: quick().fit(X, [0, 1] * 3, graph=DATA), "Graph.from_pyg"),
        (lambda: quick().fit(X, [0, 1] * 3, graph=nx.path_graph(6)), "Graph.from_networkx"),
        (lambda: quick().fit(X, [0, 1] * 3, graph=named()), r"call fit\(graph\) alone"),
        (
            lambda: quick().fit(X, [0, 1] * 3, graph=DATA.edge_index),
            r"\(2, 5\).*Graph.from_edges\(edge_index.T, X, y\)",
        ),
        (
            lambda: quick().fit(X, [0, 1] * 3, graph=EDGES),
            r"\(5, 2\).*Graph.from_edges\(edges, X, y\)",
        ),
        (lambda: quick().fit(X, np.eye(3)[[0, 1, 2] * 2]), r"multi-label.*argmax\(axis=1\)"),
        (lambda: quick().fit(X, [[0, 1], [0]] * 3), r"a label is \[0, 1\].*multi-label"),
        (lambda: quick(method="grnd").fit(X, [0, 1] * 3), "did you mean 'grand'"),
        (lambda: quick(method="GCN").fit(X, [0, 1] * 3), "did you mean 'gcn'"),
        (lambda: quick(preset="offical").fit(X, [0, 1] * 3), "did you mean 'official'"),
        (
            lambda: quick(method="gcn", preset="defalt").fit(X, [0, 1] * 3),
            "did you mean 'default'",
        ),
    ],
)
def test_a_frequent_mistake_is_refused_with_the_cure(call: Any, told: str) -> None:
    with pytest.raises((ConfigError, GraphError), match=told):
        call()
