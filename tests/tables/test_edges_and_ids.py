"""Ids, edges and labels: what is the same, what is unknown, and what is said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dropnode import read_tables
from dropnode.errors import TableError
from dropnode.tables.edges import one_way

HUGE = "12345678901234567890123"


def graph_of(ids: list[Any], source: list[Any], target: list[Any]) -> Any:
    nodes = pa.table({"id": ids, "x": [float(at) for at in range(len(ids))]})
    return read_tables(nodes, pa.table({"source": source, "target": target})).graph


def test_numbers_and_their_text_are_the_same_ids() -> None:
    edges = {(0, 1), (1, 0), (1, 2), (2, 1)}
    for source in ([7, -8], ["7", "-8"], [7.0, -8.0], [" 7", "-8 "]):
        graph = graph_of([7, -8, 9], source, ["-8", "9"])
        assert set(zip(*graph.adjacency.nonzero(), strict=True)) == edges
        assert graph.ids.tolist() == [7, -8, 9]


def test_ids_beyond_64_bits_and_codes_stay_text() -> None:
    graph = graph_of([HUGE, "007", "7"], [HUGE, "7"], ["007", "007"])
    assert graph.ids.tolist() == [HUGE, "007", "7"]
    assert graph.num_edges == 2


def test_texts_that_mean_a_missing_value_elsewhere_are_ids() -> None:
    graph = graph_of(["NA", "nan", "null"], ["NA"], ["nan"])
    assert graph.ids.tolist() == ["NA", "nan", "null"]
    assert graph.num_edges == 1


@pytest.mark.parametrize(
    ("ids", "told"),
    [
        ([1.5, 2.0], "row 1, column id: 1.5 cannot be an id"),
        ([2.0**60, 2.0], "row 1, column id: 1.152921504606847e+18 cannot be an id"),
        ([True, False], "column id: bool cannot be an id"),
        ([[1], [2]], "column id: list<item: int64> cannot be an id"),
        (["a", "a"], "row 2, column id: id 'a' is in row 1 too"),
        (["a", " a"], "row 2, column id: id ' a' is in row 1 too"),
        (["a", ""], "row 2, column id: there is no id"),
    ],
)
def test_what_cannot_be_an_id(ids: list[Any], told: str) -> None:
    with pytest.raises(TableError) as caught:
        graph_of(ids, ["a"], ["a"])
    assert f"nodes, {told}" in str(caught.value)


def test_the_column_of_ids_is_found_by_its_name_or_place() -> None:
    edges = pa.table({"source": ["a"], "target": ["b"]})
    for name in ("id", "ID", "node", "node_id"):
        nodes = pa.table({"x": [1.0, 2.0], name: ["a", "b"]})
        assert read_tables(nodes, edges).columns[0].column == name
    nodes = pa.table({"who": ["a", "b"], "x": [1.0, 2.0]})
    assert read_tables(nodes, edges).columns[0].column == "who"
    assert read_tables(pa.table({"x": ["a", "b"], "who": [1, 2]}), edges, id="x").ids[0] == "a"


@pytest.mark.parametrize(
    "names", [("src", "dst"), ("From", "To"), ("u", "v"), ("one", "other"), ("citing", "cited")]
)
def test_the_ends_of_edges_are_found_by_their_names_or_place(names: tuple[str, str]) -> None:
    nodes = pa.table({"id": ["a", "b", "c"], "x": [1.0, 2.0, 3.0]})
    tables = read_tables(nodes, pa.table({names[0]: ["a"], names[1]: ["b"], "w": [2.0]}))
    assert tables.graph.adjacency[0, 1] == 2.0
    told = [note for note in tables.notes if "edges join the columns" in note]
    assert told == (["edges: edges join the columns 'one' and 'other'"] if "one" in names else [])
    swapped = pa.table({"k": [9], names[1]: ["b"], names[0]: ["a"]})
    named = read_tables(nodes, swapped, source=names[0], target=names[1], weight="k")
    assert named.graph.adjacency[0, 1] == 9.0


def test_a_first_row_of_ids_is_no_header(tmp_path: Any) -> None:
    nodes = pa.table({"id": ["a", "b", "c"], "x": [1.0, 2.0, 3.0]})
    (tmp_path / "edges.csv").write_text("a,b\nb,c\n")
    tables = read_tables(nodes, tmp_path / "edges.csv")
    assert tables.graph.num_edges == 2
    assert any("has no header: its first row is data" in note for note in tables.notes)
    (tmp_path / "edges.csv").write_text("1,2\nb,c\n")
    with pytest.raises(TableError, match="row 1, column column 1: '1' is no id in nodes"):
        read_tables(nodes, tmp_path / "edges.csv")


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"source": ["a"]}, "edges has one column, 'source'; expected the two ends"),
        ({"source": ["a"], "target": [None]}, "row 1, column target: there is no id"),
        ({"source": ["a"], "target": ["z"]}, "row 1, column target: 'z' is no id in nodes"),
        ({"source": ["a"], "target": [["b"]]}, "column target: list<item: string> cannot be an id"),
    ],
)
def test_edges_that_cannot_be_used(columns: dict[str, Any], told: str) -> None:
    nodes = pa.table({"id": ["a", "b"], "x": [1.0, 2.0]})
    with pytest.raises(TableError) as caught:
        read_tables(nodes, pa.table(columns))
    assert told in str(caught.value)


PAIR = {"p": ["a", "b"], "q": ["b", "a"], "w": [1.0, 2.0]}


@pytest.mark.parametrize(
    ("given", "ends"),
    [
        ({"source": "p"}, ("p", "q")),
        ({"source": "q"}, ("q", "p")),
        ({"target": "p"}, ("q", "p")),
        ({"target": "q"}, ("p", "q")),
    ],
)
def test_one_end_alone_is_given(given: dict[str, str], ends: tuple[str, str]) -> None:
    nodes = pa.table({"id": ["a", "b"], "x": [1.0, 2.0]})
    notes = read_tables(nodes, pa.table(PAIR), **given).notes
    assert f"edges: edges join the columns {ends[0]!r} and {ends[1]!r}" in notes


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"source": "p", "target": "p"}, "column p: is given as both ends of the edges; give"),
        ({"weight": "q"}, "column q: is an end of the edges, and is given as the weight; give"),
        ({"source": "w", "weight": "w"}, "column w: is an end of the edges, and is given as"),
    ],
)
def test_a_column_of_edges_is_given_once(given: dict[str, str], told: str) -> None:
    nodes = pa.table({"id": ["a", "b"], "x": [1.0, 2.0]})
    with pytest.raises(TableError, match=f"edges, {told}"):
        read_tables(nodes, pa.table(PAIR), **given)


@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf, 1e300, None])
def test_weights_are_numbers_from_zero_on(weight: Any) -> None:
    nodes = pa.table({"id": ["a", "b"], "x": [1.0, 2.0]})
    edges = pa.table({"source": ["a", "b"], "target": ["b", "a"], "weight": [1.0, weight]})
    with pytest.raises(TableError, match="row 2, column weight"):
        read_tables(nodes, edges)


def test_edges_are_counted_without_direction() -> None:
    source, target = np.array([0, 1, 1, 1, 2, 3, 3]), np.array([1, 0, 2, 2, 2, 0, 1])
    weights = np.array([1, 1, 1, 1, 1, 1, 0], dtype=np.float32)
    pairs = {(0, 1), (1, 0), (1, 2), (3, 0)}
    once = [pair for pair in pairs if pair[::-1] not in pairs]
    assert one_way((source, target, weights), 4) == (3, len(once))


@pytest.mark.parametrize(
    ("labels", "classes", "codes"),
    [
        (["b", None, "a"], ("a", "b"), [1, -1, 0]),
        ([2, None, 10], ("2", "10"), [0, -1, 1]),
        ([2.0, float("nan"), 10.0], ("2", "10"), [0, -1, 1]),
        (["2.0", "", "10"], ("2", "10"), [0, -1, 1]),
        (["02", "NA", "10"], ("10", "02"), [1, -1, 0]),
        ([True, None, False], ("false", "true"), [1, -1, 0]),
        (["True", "", "False"], ("False", "True"), [1, -1, 0]),
        (["True", "true", "FALSE"], ("false", "true"), [1, 1, 0]),
        (["true", "True", "other"], ("True", "other", "true"), [2, 0, 1]),
        (["-0", "0", "1"], ("0", "1"), [0, 0, 1]),
        (["0.0", "-0.0", "+3"], ("0", "3"), [0, 0, 1]),
        (["٣.٥", "٤.٥", None], ("٣.٥", "٤.٥"), [0, 1, -1]),
        (["None", "n/a", "0.5"], ("0.5", "None"), [1, -1, 0]),
        ([" a", "null", "=b"], ("=b", "a"), [1, -1, 0]),
    ],
)
def test_labels_are_classes_in_order(labels: list[Any], classes: Any, codes: list[int]) -> None:
    nodes = pa.table({"id": ["x", "y", "z"], "v": [1.0, 2.0, 3.0], "label": labels})
    edges = pa.table({"source": ["x"], "target": ["y"]})
    graph = read_tables(nodes, edges, label="label").graph
    assert graph.class_names == classes
    assert graph.labels.tolist() == codes


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        ([[1], [2]], "column label: lists of labels; a node has one class"),
        ([0, -1], "row 2, column label: the label -1 may be a class or an unknown"),
        (["a", "-1"], "row 2, column label: the label '-1' may be a class or an unknown"),
        ([0.25, 1.0], "column label: labels such as '0.25' are quantities"),
        ([f"c{at}" for at in range(30)], "column label: all of the 30 labels differ"),
    ],
)
def test_what_cannot_be_labels(labels: list[Any], told: str) -> None:
    ids = [f"n{at}" for at in range(len(labels))]
    nodes = pa.table({"id": ids, "v": [float(at) for at in range(len(ids))], "label": labels})
    with pytest.raises(TableError) as caught:
        read_tables(nodes, pa.table({"source": ["n0"], "target": ["n1"]}), label="label")
    assert f"nodes, {told}" in str(caught.value)
