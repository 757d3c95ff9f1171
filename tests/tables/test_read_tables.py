"""Files of nodes and edges become the same graph, whatever their format."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from writers import write_csv, write_everywhere

from dropnode import Graph, read_tables
from dropnode.errors import ConfigError, GraphWarning, TableError
from dropnode.tables import Tables

NODES = {
    "id": ["ann", "bob", "cy", "dee", "eve", "flo"],
    "age": [31, 25, None, 47, 52, 38],
    "town": ["Ulm", "Ulm", "Bern", "Bern", "Ulm", "Bern"],
    "about": ["likes tea", "tea and cake", "mate", None, "mate at night", "cake"],
    "drinks": ["tea", None, "mate", None, None, None],
}
EDGES = {
    "source": ["ann", "bob", "cy", "dee", "eve"],
    "target": ["bob", "cy", "dee", "eve", "flo"],
}

# To shrink an example takes minutes, and a small table says as much.
WITHOUT_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)


def write(folder: Path, nodes: dict[str, Any] = NODES, edges: dict[str, Any] = EDGES) -> Any:
    return write_csv(folder / "nodes.csv", nodes), write_csv(folder / "edges.csv", edges)


def problems_of(*arguments: Any, **options: Any) -> list[str]:
    """Return the lines about problems, with the names of the files alone."""
    with pytest.raises(TableError) as caught:
        read_tables(*arguments, **options)
    title, *lines = str(caught.value).splitlines()
    told = sum(not line.strip().startswith("and ") for line in lines)
    assert title.split()[1].startswith("problem")
    assert told <= 20
    return [re.sub(r"\S*/", "", line.strip()) for line in lines]


def test_a_table_becomes_a_graph(tmp_path: Path) -> None:
    tables = read_tables(*write(tmp_path), label="drinks", text="about")
    graph = tables.graph
    assert graph.ids.tolist() == NODES["id"]
    assert graph.class_names == ("mate", "tea")
    assert graph.labels.tolist() == [1, -1, 0, -1, -1, -1]
    assert graph.num_edges == 5
    told = {each.column: each.became for each in tables.columns}
    assert told == {
        "id": "id",
        "drinks": "label, 2 classes, known for 2 of 6",
        "age": "numbers, standardised, and whether one is missing",
        "town": "2 categories",
        "about": "text, 3 words",
    }
    assert graph.num_features == sum(each.features for each in tables.columns) == 2 + 2 + 3


names = st.text(st.characters(codec="utf-8", categories=["L"]), min_size=1, max_size=4).filter(
    lambda text: text.lower() not in ("nan", "na", "null", "true", "false", "inf", "infinity")
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """Draw a table of nodes with every kind of column, and a table of edges."""
    count = draw(st.integers(4, 12))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=count, max_size=count))

    whole = st.integers(-(10**6), 10**6)
    ids = draw(st.lists(st.one_of(whole) if draw(st.booleans()) else names,
                        min_size=count, max_size=count, unique=True))  # fmt: skip
    few = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    words = st.lists(names, max_size=4).map(" ".join)
    nodes = {
        "id": ids,
        "whole": column(st.none() | whole),
        "real": column(st.none() | st.floats(-1e9, 1e9, width=32)),
        "flag": column(st.none() | st.booleans()),
        "category": column(st.none() | st.sampled_from(few)),
        "text": column(words.map(lambda text: text or None)),
        "tags": column(st.lists(st.sampled_from(few), max_size=3)),
        "label": ["x", "y", *column(st.none() | st.sampled_from(["x", "y"]))[2:]],
    }
    pairs = draw(st.lists(st.tuples(st.sampled_from(ids), st.sampled_from(ids)), min_size=1))
    edges = {
        "source": [a for a, _ in pairs],
        "target": [b for _, b in pairs],
        "weight": draw(
            st.lists(st.sampled_from([0.5, 1.0, 2.25]), min_size=len(pairs), max_size=len(pairs))
        ),
    }
    return nodes, edges


def parts(tables: Tables) -> tuple[Any, ...]:
    graph = tables.graph
    encoders = tables.encoders.record()
    return graph.fingerprint(), graph.ids.tolist(), graph.ids.dtype, encoders, tables.columns


@settings(max_examples=12, phases=WITHOUT_SHRINKING)
@given(tables())
def test_every_format_gives_the_same_graph(
    tmp_path_factory: pytest.TempPathFactory, drawn: Any
) -> None:
    nodes, edges = drawn
    folder = tmp_path_factory.mktemp("tables")
    of_nodes = write_everywhere(folder, "nodes", nodes)
    of_edges = write_everywhere(folder, "edges", edges)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphWarning)
        read = {
            kind: read_tables(
                of_nodes[kind], of_edges[kind], label="label", text="text", lists="tags"
            )
            for kind in of_nodes
        }
    expected = parts(read["parquet"])
    for kind, found in read.items():
        assert parts(found) == expected, kind


@settings(max_examples=12, phases=WITHOUT_SHRINKING)
@given(tables())
def test_edges_are_those_of_an_edge_list(
    tmp_path_factory: pytest.TempPathFactory, drawn: Any
) -> None:
    nodes, edges = drawn
    folder = tmp_path_factory.mktemp("tables")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphWarning)
        found = read_tables(*write(folder, nodes, edges), drop=["tags"]).graph
        pairs = list(zip(edges["source"], edges["target"], strict=True))
        same = Graph.from_edges(
            pairs, np.eye(len(nodes["id"])), weights=edges["weight"], ids=nodes["id"]
        )
    assert (found.adjacency != same.adjacency).nnz == 0


def test_data_frames_are_tables_too(tmp_path: Path) -> None:
    files = parts(read_tables(*write(tmp_path), label="drinks"))
    frames = read_tables(pd.DataFrame(NODES), pd.DataFrame(EDGES), label="drinks")
    arrow = read_tables(pa.table(NODES), pa.table(EDGES), label="drinks")
    assert parts(frames) == parts(arrow) == files


def test_without_nodes_they_are_the_ends_of_edges(tmp_path: Path) -> None:
    _, edges = write(tmp_path)
    graph = read_tables(edges=edges).graph
    assert graph.ids.tolist() == NODES["id"]
    assert graph.num_edges == 5
    with pytest.raises(ConfigError, match="belong to nodes"):
        read_tables(edges=edges, label="drinks")
    with pytest.raises(ConfigError, match="both are None"):
        read_tables()


def test_without_edges_rows_are_joined_to_their_nearest(tmp_path: Path) -> None:
    from dropnode.graph.neighbours import nearest_neighbour_graph

    nodes, _ = write(tmp_path)
    tables = read_tables(nodes, label="drinks", n_neighbors=2)
    expected = nearest_neighbour_graph(tables.graph.features, 2)
    assert (tables.graph.adjacency != expected).nnz == 0
    assert tables.encoders.neighbours == 2
    assert "2 nearest" in tables.notes[-1]


def test_a_graph_without_features_gets_structural_ones(tmp_path: Path) -> None:
    bare = {"id": NODES["id"], "drinks": NODES["drinks"]}
    nodes, edges = write(tmp_path, bare)
    tables = read_tables(nodes, edges, label="drinks")
    assert tables.encoders.structure is not None
    assert tables.graph.num_features == 6
    again = read_tables(nodes, edges, label="drinks")
    assert np.array_equal(tables.graph.features, again.graph.features)
    assert problems_of(nodes, label="drinks") == [
        "nodes.csv has no column that becomes features, and there are no edges"
    ]


def test_vectors_of_a_file_stand_behind_the_columns(tmp_path: Path) -> None:
    nodes, edges = write(tmp_path)
    vectors = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    np.save(tmp_path / "vectors.npy", vectors)
    sp.save_npz(tmp_path / "sparse.npz", sp.csr_array(vectors))
    np.savez(tmp_path / "dense.npz", vectors)
    for name in ("vectors.npy", "sparse.npz", "dense.npz"):
        tables = read_tables(nodes, edges, label="drinks", features=tmp_path / name)
        assert tables.encoders.vector_size == 3
        np.testing.assert_array_equal(tables.graph.features[:, -3:], vectors)
    assert problems_of(nodes, edges, features=vectors[:5]) == [
        "features is 5 × 3; expected one row for each of the 6 rows of nodes"
    ]
    vectors[4, 1] = np.nan
    assert problems_of(nodes, edges, features=vectors) == [
        "features, row 5: a number is missing, infinite or too large for float32; replace it"
    ]
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY")
    assert (
        "holds no matrix of numbers"
        in problems_of(nodes, edges, features=tmp_path / "broken.npy")[0]
    )


def test_all_problems_are_told_together(tmp_path: Path) -> None:
    nodes = NODES | {
        "id": ["ann", "bob", "ann", None, "eve", "flo"],
        "age": [31, "inf", 3, 4, 5, 6],
    }
    edges = EDGES | {"weight": [1, -1, "x", 1, None]}
    told = problems_of(*write(tmp_path, nodes, edges), label="drink", text="abuot")
    assert told == [
        "nodes.csv has no column 'abuot' for the text; did you mean 'about'?",
        "nodes.csv has no column 'drink' for the labels; did you mean 'drinks'?",
        "nodes.csv, row 5, column id: there is no id; fill the cell, or remove the row",
        "nodes.csv, row 4, column id: id 'ann' is in row 2 too; ids must be unique",
        "nodes.csv, row 3, column age: 'inf' is infinite; write a finite number or empty the cell",
        "edges.csv, row 4, column weight: 'x' is not a number; correct it or empty the cell",
        "edges.csv, row 4, column source: 'cy' is no id in nodes.csv; correct it, add the node, "
        "or remove the edge",
        "edges.csv, row 5, column source: 'dee' is no id in nodes.csv; correct it, add the node, "
        "or remove the edge",
        "edges.csv, row 3, column target: 'cy' is no id in nodes.csv; correct it, add the node, "
        "or remove the edge",
        "edges.csv, row 4, column target: 'dee' is no id in nodes.csv; correct it, add the node, "
        "or remove the edge",
    ]


def test_a_million_problems_are_counted_and_a_few_are_told() -> None:
    nodes = pa.table({"id": ["a", "b"], "x": [1.0, 2.0], "y": ["k", None]})
    ends = np.arange(100_000).astype(str)
    told = problems_of(nodes, pa.table({"source": ends, "target": ["a"] * 100_000}), label="y")
    assert len(told) == 21
    assert told[0] == "nodes, column y: every label is 'k'; a classifier needs at least two classes"
    assert told[1].startswith("edges, row 1, column source: '0' is no id in nodes")
    assert told[-1] == "and 99,981 more"


@pytest.mark.parametrize(
    ("column", "told"),
    [
        ("id", "nodes.csv, column id: the column of ids cannot be that of labels"),
        ("empty", "nodes.csv, column empty: no row has a label"),
        ("one", "nodes.csv, column one: every label is 'k'; a classifier needs at least two"),
        ("share", "nodes.csv, column share: labels such as '0.5' are quantities"),
    ],
)
def test_labels_from_which_nothing_can_be_learnt(tmp_path: Path, column: str, told: str) -> None:
    nodes = NODES | {
        "empty": [None] * 6,
        "one": ["k", None, "k", "k", None, "NaN"],
        "share": [0.5, 1, 2, 3, 4, 5],
    }
    assert problems_of(*write(tmp_path, nodes), label=column)[0].startswith(told)


def test_one_column_has_one_role(tmp_path: Path) -> None:
    nodes, edges = write(tmp_path)
    with pytest.raises(ConfigError, match="'about' is given as text and as drop; choose one"):
        read_tables(nodes, edges, text="about", drop=["age", "about"])
    with pytest.raises(ConfigError, match="expected names of columns"):
        read_tables(nodes, edges, text=[3])


def test_the_ids_and_the_labels_become_no_features(tmp_path: Path) -> None:
    nodes, edges = write(tmp_path)
    for role in ("text", "categories", "lists", "drop"):
        for name, what in (("id", "ids"), ("drinks", "labels")):
            assert problems_of(nodes, edges, label="drinks", **{role: name}) == [
                f"nodes.csv, column {name}: is the column of {what}, which becomes no feature, and "
                f"is given as {role} too; choose one"
            ]


def test_options_that_nothing_would_read_are_refused(tmp_path: Path) -> None:
    nodes, edges = write(tmp_path)
    for option in ("source", "target", "weight"):
        with pytest.raises(ConfigError, match="columns of edges, which is None"):
            read_tables(nodes, label="drinks", **{option: "x"})
    with pytest.raises(ConfigError, match="n_neighbors = 10 joins nodes that have no edges"):
        read_tables(nodes, edges, label="drinks", n_neighbors=10)


def test_what_follows_from_a_problem_is_no_problem_of_its_own(tmp_path: Path) -> None:
    bare = pa.table({"id": ["a", "b"]})
    assert problems_of(bare) == [
        "nodes has no column that becomes features, and there are no edges"
    ]
    (told,) = problems_of(bare, features=tmp_path / "none.npy")
    assert "none.npy cannot be read" in told


def test_notes_are_true_of_tiny_graphs() -> None:
    three = pa.table({"id": list("abc"), "x": [1.0, 2.0, 5.0]})
    assert read_tables(three).notes == (
        "without edges, every node is joined to its 2 nearest nodes",
    )
    loops = pa.table({"source": ["a"], "target": ["a"]})
    with pytest.warns(GraphWarning):
        notes = read_tables(three, loops).notes
    assert notes == ("edges: self-loops removed, as propagation adds its own: 1",)


def test_a_warning_about_edges_names_their_file(tmp_path: Path) -> None:
    edges = {"source": ["ann", "ann"], "target": ["bob", "ann"]}
    with pytest.warns(GraphWarning, match=r"^edges.csv: self-loops removed"):
        tables = read_tables(*write(tmp_path, edges=edges), label="drinks")
    assert tables.graph.name == "nodes.csv"


def test_repairs_are_said(tmp_path: Path) -> None:
    edges = {
        "from": ["ann", "bob", "bob", "cy", "cy", "ann"],
        "to": ["bob", "ann", "cy", "cy", "dee", "bob"],
        "since": [1, 2, 3, 4, 5, 6],
    }
    with pytest.warns(GraphWarning):
        tables = read_tables(*write(tmp_path, edges=edges), label="drinks")
    told = [note.removeprefix(f"{tmp_path}/edges.csv: ") for note in tables.notes]
    assert told == [
        "not used: 'since'",
        "2 of 3 edges are listed in one direction only, and count in both",
        "self-loops removed, as propagation adds its own: 1",
        "parallel edges merged, keeping the largest weight: 1",
    ]
    # An edge in both directions does not count twice.
    assert set(tables.graph.adjacency.data) == {1.0}


def test_the_count_of_rows_of_a_data_frame_is_no_column(tmp_path: Path) -> None:
    frame = pd.DataFrame({"id": list("abcd"), "x": [1.0, 2.5, 4.0, 9.0]}).iloc[[3, 0, 2, 1]]
    edges = pd.DataFrame({"from": ["a", "a", "b", "d"], "to": ["b", "c", "c", "c"]})
    edges = edges.iloc[[3, 0, 2]]
    frame.to_parquet(tmp_path / "nodes.parquet")
    for nodes in (frame, tmp_path / "nodes.parquet"):
        tables = read_tables(nodes, edges)
        assert [report.column for report in tables.columns] == ["id", "x"]
        assert tables.graph.num_edges == 3
        assert not any("not used" in note for note in tables.notes)
        new = pd.DataFrame({"id": ["e"], "x": [3.0]})
        assert tables.encoders.transform(new).shape == (1, 1)
    named = frame.set_index("id")
    assert read_tables(named, edges, id="id").ids.tolist() == ["d", "a", "c", "b"]
