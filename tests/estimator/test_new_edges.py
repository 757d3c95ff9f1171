"""New rows whose edges to the training graph are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from dropnode import GrandClassifier, Graph, GraphError
from dropnode.data.generators import sbm
from dropnode.data.splits import every_label_split
from dropnode.errors import ConfigError, GraphWarning


@pytest.fixture(scope="module")
def graph() -> Graph:
    made = sbm.make(nodes=90, classes=3, features=6, average_degree=6, homophily=0.9)
    return made.with_split(every_label_split(made.labels))


def trained(graph: Graph, method: str = "grand") -> GrandClassifier:
    return GrandClassifier(method=method, random_state=0, max_epochs=40).fit(graph)


@pytest.fixture(scope="module")
def model(graph: Graph) -> GrandClassifier:
    return trained(graph)


def links_to(graph: Graph, classes: list[int]) -> np.ndarray:
    """Return edges that join each new node to five nodes of a class."""
    links = np.zeros((len(classes), graph.num_nodes))
    for row, code in enumerate(classes):
        links[row, np.flatnonzero(graph.labels == code)[:5]] = 1.0
    return links


@pytest.mark.parametrize("method", ["grand", "grand-plus", "gcn", "sgc", "appnp", "gat"])
def test_nodes_without_features_get_the_class_of_those_they_are_joined_to(
    graph: Graph, method: str
) -> None:
    fitted = trained(graph, method)
    before = fitted.predict_proba()
    found = fitted.predict(np.zeros((3, 6)), edges=links_to(graph, [2, 0, 1]))
    assert found.tolist() == [graph.class_names[code] for code in (2, 0, 1)]
    assert np.array_equal(fitted.predict_proba(), before), "the training graph was changed"


def test_edges_between_new_nodes_count_too(graph: Graph, model: GrandClassifier) -> None:
    """The second node knows the training graph through the first alone, listed in one direction."""
    among = np.array([[0.0, 1.0], [0.0, 0.0]])
    to_graph = np.vstack([links_to(graph, [1]), np.zeros(graph.num_nodes)])
    x = np.zeros((2, 6))
    apart = model.predict_proba(x, edges=to_graph)
    joined = model.predict_proba(x, edges=np.hstack([to_graph, among]))
    turned = model.predict_proba(x, edges=np.hstack([to_graph, among.T]))
    code = model.classes_.tolist().index(graph.class_names[1])
    assert joined[1].argmax() == code
    assert joined[1, code] > apart[1, code] + 0.1
    assert np.array_equal(joined, turned)


def test_the_form_of_the_edges_does_not_matter(graph: Graph, model: GrandClassifier) -> None:
    links, x = links_to(graph, [0, 2]), np.ones((2, 6))
    expected = model.predict_proba(x, edges=links)
    for form in (sp.csr_array, sp.coo_matrix, sp.csc_array, np.float32, np.ndarray.tolist):
        assert np.array_equal(model.predict_proba(x, edges=form(links)), expected)
    wider = np.hstack([links, np.zeros((2, 2))])
    assert np.array_equal(model.predict_proba(x, edges=wider), expected)


def test_a_node_does_not_depend_on_others_of_the_call(graph: Graph, model: GrandClassifier) -> None:
    links, x = links_to(graph, [0, 2, 1]), np.eye(3, 6)
    together = model.predict_proba(x, edges=links)
    for row in range(3):
        alone = model.predict_proba(x[[row]], edges=links[[row]])
        assert np.array_equal(alone[0], together[row])


def test_a_graph_of_the_constructor_takes_new_nodes(graph: Graph) -> None:
    nodes = np.flatnonzero(graph.labels >= 0)
    fitted = GrandClassifier(graph=graph, random_state=0, max_epochs=40)
    fitted.fit(graph.ids[nodes], graph.labels[nodes])
    assert fitted.predict(np.zeros((2, 6)), edges=links_to(graph, [1, 2])).tolist() == [1, 2]


def test_repairs_are_told(graph: Graph, model: GrandClassifier) -> None:
    links = np.hstack([links_to(graph, [0, 1]), np.eye(2)])
    with pytest.warns(GraphWarning, match="edges=: self-loops removed.*: 2") as caught:
        model.predict(np.ones((2, 6)), edges=links)
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("edges", "words"),
    [
        (np.ones((2, 3)), r"shape \(2, 3\) for 2 rows.*\(2, 90\).*\(2, 92\)"),
        (np.ones((3, 90)), r"shape \(3, 90\) for 2 rows"),
        (np.ones(90), r"shape \(90,\) for 2 rows"),
        (np.full((2, 90), -1.0), "weighs -1.0"),
        (np.full((2, 90), np.nan), "weighs nan"),
        ([["a"] * 90] * 2, "edges cannot be read as numbers"),
    ],
)
def test_unusable_edges_are_refused(model: GrandClassifier, edges: Any, words: str) -> None:
    with pytest.raises(GraphError, match=words):
        model.predict(np.ones((2, 6)), edges=edges)


def test_edges_join_rows_of_features_alone(graph: Graph, model: GrandClassifier) -> None:
    links = links_to(graph, [0])
    for given in ({"X": None}, {"X": graph}, {"X": np.ones((1, 6)), "graph": np.zeros((1, 1))}):
        with pytest.raises(ConfigError, match="edges= joins new rows to the training graph"):
            model.predict(**given, edges=links)
