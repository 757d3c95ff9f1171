"""Nodes that arrive later are encoded alike and attached to the training graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

from dropnode import read_tables
from dropnode.errors import ConfigError, TableError
from dropnode.graph.neighbours import NeighbourIndex
from dropnode.tables import Tables
from dropnode.tables.new import NewNodes, read_new_nodes

NODES = {"id": [1, 2, 3, 4], "x": [0.0, 1.0, 2.0, 4.0], "y": ["k", None, "m", None]}
EDGES = {"source": [1, 2, 3], "target": [2, 3, 4]}


def trained(**options: Any) -> Tables:
    return read_tables(pa.table(NODES), pa.table(EDGES), label="y", **options)


def new_nodes(tables: Tables, nodes: Any, edges: Any = None, **options: Any) -> NewNodes:
    edges = None if edges is None else pa.table(edges)
    return read_new_nodes(tables.graph, tables.encoders, pa.table(nodes), edges, **options)


def test_new_nodes_are_linked_to_old_ones_and_to_each_other() -> None:
    edges = {
        "source": ["1", "7", "7", "9", "2", "9", "8", "7"],
        "target": ["7", "2", "9", "7", "3", "9", "7", "1"],
        "weight": [0.5, 1.0, 2.0, 3.0, 1.0, 1.0, 0.25, 0.75],
    }
    new = new_nodes(trained(), {"id": [7, 8, 9], "x": [1.0, 2.0, 9.0]}, edges)
    assert new.ids.tolist() == [7, 8, 9]
    assert new.links.toarray().tolist() == [[0.75, 1.0, 0, 0], [0] * 4, [0] * 4]
    assert new.among.toarray().tolist() == [[0, 0.25, 3.0], [0.25, 0, 0], [3.0, 0, 0]]
    assert new.notes == (
        "edges: self-loops removed, as propagation adds its own: 1",
        "edges: edges between nodes of the training graph left out: 1",
    )


def test_new_rows_are_encoded_as_old_ones_were() -> None:
    tables = trained()
    again = new_nodes(tables, {"id": list("abcd"), "x": NODES["x"]})
    np.testing.assert_array_equal(again.features, tables.graph.features)
    assert again.links.shape == (4, 4)
    assert not again.links.nnz


def test_without_edges_new_rows_are_joined_to_their_nearest() -> None:
    tables = read_tables(pa.table(NODES), label="y", n_neighbors=2)
    new = new_nodes(tables, {"id": ["a"], "x": [1.9]})
    expected = NeighbourIndex(tables.graph.features, 2).links(new.features)
    assert (new.links != expected).nnz == 0
    with pytest.raises(ConfigError, match="trained without edges; give nodes alone"):
        new_nodes(tables, {"id": ["a"], "x": [1.9]}, EDGES)
    for option in ("source", "target", "weight"):
        with pytest.raises(ConfigError, match="columns of edges, which is None"):
            new_nodes(tables, {"id": ["a"], "x": [1.9]}, **{option: "u"})


def test_nodes_known_by_their_edges_need_edges() -> None:
    bare = {"id": NODES["id"], "y": NODES["y"]}
    tables = read_tables(pa.table(bare), pa.table(EDGES), label="y")
    with pytest.raises(ConfigError, match="knows nodes by their edges; give edges too"):
        new_nodes(tables, {"id": ["a"]})
    joined = {"source": ["a"], "target": ["3"]}
    with pytest.raises(ConfigError, match="it has no use for features"):
        new_nodes(tables, {"id": ["a"]}, joined, features=np.ones((1, 2)))
    new = new_nodes(tables, {"id": ["a"]}, {"source": ["a"], "target": ["3"]})
    place = tables.graph.features[2, :-1]
    np.testing.assert_allclose(new.features[0, :-1], place, rtol=1e-5)


def test_the_id_column_is_that_of_training() -> None:
    tables = read_tables(
        pa.table({"x": [1.0, 2.0, 5.0], "who": ["a", "b", "c"]}),
        pa.table({"source": ["a"], "target": ["b"]}),
        id="who",
    )
    assert new_nodes(tables, {"x": [1.0], "id": [5], "who": ["q"]}).ids.tolist() == ["q"]
    assert new_nodes(tables, {"x": [1.0], "k": ["r"]}, id="k").ids.tolist() == ["r"]


def test_another_column_is_never_taken_for_the_ids() -> None:
    tables = read_tables(
        pa.table({"paper": ["a", "b", "c"], "x": [1.0, 2.0, 5.0]}),
        pa.table({"source": ["a"], "target": ["b"]}),
    )
    with pytest.raises(TableError, match="nodes has no column 'paper' for the ids"):
        new_nodes(tables, {"x": [1.0, 7.0], "id": ["q", "r"]})


def test_problems_of_new_nodes_are_told_together() -> None:
    with pytest.raises(TableError) as caught:
        new_nodes(
            trained(),
            {"id": ["7", "2", "7"], "x": ["1", "2", "three"]},
            {"source": ["7", "8"], "target": ["1", "9"]},
        )
    told = [line.strip() for line in str(caught.value).splitlines()[1:]]
    assert told == [
        "nodes, row 3, column id: id '7' is in row 1 too; ids must be unique",
        "nodes, row 2, column id: '2' is a node of the training graph, which has its prediction; "
        "remove the row",
        "nodes, row 3, column x: 'three' is not a number; correct it or empty the cell",
        "edges, row 2, column source: '8' is no id in nodes or in the training graph; correct it, "
        "add the node, or remove the edge",
        "edges, row 2, column target: '9' is no id in nodes or in the training graph; correct it, "
        "add the node, or remove the edge",
    ]


def test_vectors_belong_to_all_nodes_or_to_none() -> None:
    tables = trained(features=np.eye(4, 2))
    with pytest.raises(TableError, match="needs 2 features from one; give it as features"):
        new_nodes(tables, {"id": [7], "x": [1.0]})
    with pytest.raises(TableError, match=r"features has vectors of 3 numbers; .* trained with 2"):
        new_nodes(tables, {"id": [7], "x": [1.0]}, features=np.ones((1, 3)))
    new = new_nodes(tables, {"id": [7], "x": [1.0]}, features=sp.csr_array([[5.0, 6.0]]))
    assert new.features[0, 1:].tolist() == [5.0, 6.0]
    with pytest.raises(TableError, match="trained without"):
        new_nodes(trained(), {"id": [7], "x": [1.0]}, features=np.ones((1, 3)))


def test_no_new_nodes_are_a_problem(tmp_path: Any) -> None:
    (tmp_path / "new.csv").write_text("id,x\n")
    tables = trained()
    with pytest.raises(TableError, match="has no rows below its header"):
        read_new_nodes(tables.graph, tables.encoders, tmp_path / "new.csv")
