"""Graph: what every builder promises, what it repairs, what it refuses, and that it stays put."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import io
import pickle
import time
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from dropnode.errors import GraphError, GraphWarning
from dropnode.graph import Graph, Split

X = np.arange(6, dtype=np.float32).reshape(3, 2)
NAMES = ["ann", "bob", "cy"]
PATH = [(0, 1), (1, 2)]
DENSE_PATH = [[0, 1, 0], [1, 0, 1], [0, 1, 0]]

ZEROS = "edges of weight 0 dropped: {}"
LOOPS = "self-loops removed, as propagation adds its own: {}"
PARALLEL = "parallel edges merged, keeping the largest weight: {}"


def members(graph: Graph) -> list[np.ndarray]:
    """Every array a graph is made of."""
    found = []
    for part in (graph.adjacency, graph.features, graph.labels, graph.ids):
        found += [part.data, part.indices, part.indptr] if sp.issparse(part) else [part]
    if graph.split is not None:
        found += [graph.split.train, graph.split.val, graph.split.test]
    return found


def assert_immutable(graph: Graph) -> None:
    for array in members(graph):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    for field in dataclasses.fields(graph):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(graph, field.name, None)


def assert_same(one: Graph, other: Graph) -> None:
    assert one.fingerprint() == other.fingerprint()
    assert one.ids.tolist() == other.ids.tolist()
    assert (one.name, one.notes, one.class_names) == (other.name, other.notes, other.class_names)
    assert repr(one) == repr(other)


@pytest.fixture
def graph() -> Graph:
    """A path of three named nodes with sparse features, weights, labels and a split."""
    return Graph.from_edges(
        [("ann", "bob"), ("bob", "cy")],
        sp.csr_array(X),
        ["tea", None, "mate"],
        weights=[2, 0.5],
        ids=NAMES,
        split=Split([0, 2], [], [1], name="tiny"),
        name="drinks",
    )


# The adjacency, against a naive dense oracle


@st.composite
def edge_lists(draw: st.DrawFn) -> tuple[int, list[tuple[int, int, float]]]:
    size = draw(st.integers(1, 6))
    end = st.integers(0, size - 1)
    weight = st.sampled_from([0.0, 0.25, 1.0, 1.5, 7.0])
    return size, draw(st.lists(st.tuples(end, end, weight), max_size=30))


def naive_adjacency(size: int, edges: list[tuple[int, int, float]]) -> np.ndarray:
    adjacency = np.zeros((size, size))
    for u, v, weight in edges:
        if u != v:
            adjacency[u, v] = adjacency[v, u] = max(adjacency[u, v], weight)
    return adjacency


def naive_notes(edges: list[tuple[int, int, float]]) -> tuple[str, ...]:
    real = [(u, v) for u, v, weight in edges if weight > 0]
    repeats = Counter(pair for pair in real if pair[0] != pair[1])
    counts = {
        ZEROS: len(edges) - len(real),
        LOOPS: sum(u == v for u, v in real),
        PARALLEL: sum(times - 1 for times in repeats.values()),
    }
    return tuple(note.format(count) for note, count in counts.items() if count)


def assert_sound(graph: Graph, size: int, edges: list[tuple[int, int, float]]) -> None:
    adjacency = graph.adjacency
    assert isinstance(adjacency, sp.csr_array)
    assert adjacency.dtype == np.float32
    assert adjacency.has_canonical_format
    np.testing.assert_array_equal(adjacency.toarray(), naive_adjacency(size, edges))
    assert adjacency.nnz == np.count_nonzero(naive_adjacency(size, edges)) == 2 * graph.num_edges


@given(edge_lists(), st.sampled_from(["positions", "names", "numbers"]), st.booleans())
def test_edges_become_the_symmetric_maximum(
    drawn: tuple[int, list[tuple[int, int, float]]], naming: str, as_frame: bool
) -> None:
    size, edges = drawn
    ids = {
        "positions": list(range(size)),
        "names": [f"node {i}" for i in range(size)],
        "numbers": [7 * (size - i) for i in range(size)],
    }[naming]
    frame = pd.DataFrame([(ids[u], ids[v]) for u, v, _ in edges], columns=["from", "to"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        graph = Graph.from_edges(
            frame if as_frame else frame.to_numpy().tolist(),
            np.ones((size, 1)),
            weights=[weight for _, _, weight in edges],
            ids=None if naming == "positions" else ids,
            name="drawn",
        )
    assert_sound(graph, size, edges)
    assert graph.notes == naive_notes(edges)
    assert [str(warning.message) for warning in caught] == [f"drawn: {n}" for n in graph.notes]


@given(edge_lists(), st.sampled_from(["coo", "csr", "matrix", "dense", "tensor"]))
@pytest.mark.filterwarnings("ignore::dropnode.errors.GraphWarning")
def test_a_matrix_becomes_the_symmetric_maximum(
    drawn: tuple[int, list[tuple[int, int, float]]], form: str
) -> None:
    size, edges = drawn
    if form in ("dense", "csr", "matrix", "tensor"):
        # These hold a pair once; the last edge drawn is the one that stays.
        edges = [(u, v, weight) for (u, v), weight in {(u, v): w for u, v, w in edges}.items()]
    source, target, weights = np.array(edges).reshape(-1, 3).T
    entries = sp.coo_array((weights, (source.astype(int), target.astype(int))), shape=(size, size))
    matrix = {
        "coo": lambda: entries,
        "csr": entries.tocsr,
        "matrix": lambda: sp.csc_matrix(entries),
        "dense": entries.toarray,
        "tensor": lambda: torch.tensor(entries.toarray()).to_sparse_coo(),
    }[form]()
    graph = Graph.from_scipy(matrix, np.ones((size, 1)), ids=[f"node {i}" for i in range(size)])
    assert_sound(graph, size, edges)
    # What a matrix stores as zero is no edge, so there is nothing to report about it.
    assert graph.notes == naive_notes([edge for edge in edges if edge[2] > 0])


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint64, np.float16, np.float64])
def test_a_matrix_of_any_number_type_is_read(dtype: Any) -> None:
    dense = np.array(DENSE_PATH, dtype=dtype)
    for matrix in (dense, dense.tolist(), np.asmatrix(dense), pd.DataFrame(dense)):
        assert Graph.from_scipy(matrix, X).adjacency.toarray().tolist() == DENSE_PATH
    if dtype is not np.float16:  # SciPy knows no sparse matrix of these.
        for sparse in (sp.csr_array, sp.csr_matrix, sp.coo_array, sp.lil_matrix, sp.dok_array):
            assert Graph.from_scipy(sparse(dense), X).adjacency.toarray().tolist() == DENSE_PATH


@pytest.mark.parametrize(
    ("adjacency", "words"),
    [
        (np.ones((3, 2)), ["(3, 2)", "square"]),
        (sp.csr_array((3, 4)), ["(3, 4)", "square"]),
        (np.ones((4, 4)), ["(4, 4)", "3 rows of features"]),
        (sp.coo_array((2**40, 2**40)), [str(2**40), "3 rows of features"]),
        (np.ones(3), ["(3,)", "square"]),
        (None, ["adjacency"]),
        (np.full((3, 3), "a"), ["the adjacency cannot be read as numbers"]),
        (sp.csr_array(np.full((3, 3), 1j)), ["complex"]),
        (-np.array(DENSE_PATH), ["from 0 to 1", "weighs -1.0"]),
    ],
)
def test_an_unusable_adjacency_is_refused(adjacency: Any, words: list[str]) -> None:
    with pytest.raises(GraphError) as caught:
        Graph.from_scipy(adjacency, X)
    for word in words:
        assert word in str(caught.value)


def test_isolated_nodes_and_rows_of_zeros_are_legal() -> None:
    for features in (np.zeros((3, 2)), sp.csr_array((3, 2))):
        graph = Graph.from_edges([], features)
        assert graph.num_nodes == 3
        assert graph.num_edges == 0
    assert Graph.from_edges([], [[1.0]]).adjacency.shape == (1, 1)


# Repairs are said once, where the caller can see them


def line_of_next_statement() -> int:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno + 1


@pytest.mark.parametrize("builder", ["edges", "scipy", "networkx", "pyg"])
def test_each_repair_is_one_warning_at_the_callers_line(builder: str) -> None:
    edges = [(0, 0), (0, 1), (0, 1), (1, 1)]
    network = nx.MultiDiGraph(edges)
    nx.set_node_attributes(network, 1.0, "x")
    data = Data(x=torch.ones(2, 1), edge_index=torch.tensor(edges).T)
    matrix = sp.coo_array((np.ones(4), tuple(np.array(edges).T)), shape=(2, 2))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if builder == "edges":
            line = line_of_next_statement()
            graph = Graph.from_edges(edges, np.ones((2, 1)))
        elif builder == "scipy":
            line = line_of_next_statement()
            graph = Graph.from_scipy(matrix, np.ones((2, 1)))
        elif builder == "networkx":
            line = line_of_next_statement()
            graph = Graph.from_networkx(network)
        else:
            line = line_of_next_statement()
            graph = Graph.from_pyg(data)
    assert graph.notes == (LOOPS.format(2), PARALLEL.format(1))
    assert [str(w.message) for w in caught] == [f"graph: {note}" for note in graph.notes]
    assert {(w.filename, w.lineno, w.category) for w in caught} == {(__file__, line, GraphWarning)}


def test_a_sound_input_gives_no_warning() -> None:
    both = [*PATH, (1, 0), (2, 1)]
    zero_diagonal = sp.csr_array(np.array(DENSE_PATH) + np.eye(3))
    zero_diagonal.setdiag(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Graph.from_edges(both, X).notes == ()
        assert Graph.from_scipy(zero_diagonal, X).notes == ()


def test_weight_decides_between_parallel_edges_but_not_for_self_loops() -> None:
    with pytest.warns(GraphWarning) as caught:
        graph = Graph.from_edges(
            [(0, 1), (1, 0), (0, 1), (2, 2), (1, 2)], X, weights=[1, 5, 3, 100, 0]
        )
    assert graph.adjacency.toarray().tolist() == [[0, 5, 0], [5, 0, 0], [0, 0, 0]]
    assert graph.notes == (ZEROS.format(1), LOOPS.format(1), PARALLEL.format(1))
    assert len(caught) == 3


# Immutability


def test_a_graph_refuses_every_write(graph: Graph) -> None:
    assert_immutable(graph)
    assert_immutable(Graph.from_edges(PATH, X, [0, 1, 0]))


@pytest.mark.filterwarnings("ignore::scipy.sparse.SparseEfficiencyWarning")
def test_changing_a_matrix_that_a_graph_gave_leaves_the_graph(graph: Graph) -> None:
    before = graph.fingerprint()
    adjacency = graph.adjacency
    adjacency.setdiag(1)
    adjacency.resize((5, 5))
    assert adjacency.shape == (5, 5)
    with pytest.raises(ValueError, match="read-only"):
        graph.features.resize((3, 1))
    with pytest.raises(ValueError, match="read-only"):
        graph.adjacency[0, 2] = 1
    with pytest.raises(ValueError, match="read-only"):
        graph.features.eliminate_zeros()
    assert graph.fingerprint() == before
    assert graph.adjacency.toarray().tolist() == [[0, 2, 0], [2, 0, 0.5], [0, 0.5, 0]]


def test_reading_does_not_copy_the_arrays(graph: Graph) -> None:
    assert graph.adjacency.data is graph.adjacency.data
    assert graph.with_split(None).features.data is graph.features.data


@pytest.mark.parametrize("sparse", [None, sp.csr_array, sp.csr_matrix, sp.coo_array])
def test_the_callers_arrays_are_neither_changed_nor_kept(sparse: Any) -> None:
    edges, weights = np.array(PATH), np.array([2, 0.5], dtype=np.float32)
    features = X.copy() if sparse is None else sparse(X)
    labels, ids = np.array([0, 1, -1]), np.array([0, 1, 2])
    train = np.array([0, 1])
    mine = [edges, weights, labels, ids, train]
    mine += [features] if sparse is None else [features.data]
    if sparse in (sp.csr_array, sp.csr_matrix):
        mine += [features.indices, features.indptr]
    if sparse is sp.coo_array:
        mine += list(features.coords)
    before = [array.copy() for array in mine]
    graph = Graph.from_edges(
        edges, features, labels, weights=weights, ids=ids, split=Split(train, [], [])
    )
    print_before = graph.fingerprint(), graph.ids.tolist(), graph.split.train.tolist()
    for array, copied in zip(mine, before, strict=True):
        np.testing.assert_array_equal(array, copied)
        assert array.flags.writeable
        array[...] = 0
    assert (graph.fingerprint(), graph.ids.tolist(), graph.split.train.tolist()) == print_before
    for array in members(graph):
        assert not any(np.shares_memory(array, other) for other in mine)


@pytest.mark.parametrize("form", [sp.csr_array, sp.coo_array, sp.csr_matrix, np.array])
def test_the_callers_adjacency_is_neither_changed_nor_kept(form: Any) -> None:
    matrix = form(np.array(DENSE_PATH, dtype=np.float32))
    if sp.issparse(matrix):
        # Neither a self-loop nor a stored zero may be tidied away in the caller's own matrix.
        matrix = form(sp.csr_array(matrix + sp.eye_array(3)))
        matrix.data[0] = 0
    stored = matrix.data.copy() if sp.issparse(matrix) else matrix.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = Graph.from_scipy(matrix, X)
    values = matrix.data if sp.issparse(matrix) else matrix
    np.testing.assert_array_equal(values, stored)
    values[...] = 9
    assert graph.adjacency.toarray().tolist() == DENSE_PATH


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_the_callers_duplicates_stay_the_callers(dtype: Any) -> None:
    where = (np.array([0, 0, 1]), np.array([1, 1, 2]))
    entries = sp.coo_array((np.array([1, 1, 1], dtype=dtype), where), shape=(3, 3))
    compressed = sp.csr_array((entries.data, where[1], np.array([0, 2, 3, 3])), shape=(3, 3))
    for matrix in (entries, compressed):
        with pytest.warns(GraphWarning, match="parallel edges"):
            graph = Graph.from_scipy(matrix, matrix)
        assert graph.adjacency.toarray().tolist() == DENSE_PATH
        assert graph.features.toarray().tolist() == [[0, 2, 0], [0, 0, 1], [0, 0, 0]]
        assert matrix.nnz == 3


def test_a_tensor_that_was_given_may_change_later() -> None:
    data = Data(
        x=torch.tensor(X.copy()), edge_index=torch.tensor(PATH).T, y=torch.tensor([0, 1, 0])
    )
    data.edge_weight = torch.ones(2)
    graph = Graph.from_pyg(data)
    before = graph.fingerprint()
    for tensor in (data.x, data.edge_index, data.y, data.edge_weight):
        tensor.zero_()
    assert graph.fingerprint() == before


def test_unchecked_arrays_make_no_graph(graph: Graph) -> None:
    labels = np.array([0, 1, 1])
    with pytest.raises(GraphError, match="from_ methods"):
        Graph(sp.csr_array(np.eye(3)), X.copy(), labels, np.arange(3), ("a", "b"))
    with pytest.raises(GraphError, match="from_ methods"):
        dataclasses.replace(graph, labels=labels)
    with pytest.raises(GraphError, match="from_ methods"):
        dataclasses.replace(graph, features=X.tolist())
    assert labels.flags.writeable
    assert dataclasses.replace(graph, notes=("new",)).notes == ("new",)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("dense", [True, False])
def test_a_pickled_graph_comes_back_immutable(graph: Graph, protocol: int, dense: bool) -> None:
    if dense:
        graph = Graph.from_edges(PATH, X, [0, 1, 1], split=graph.split)
    again = pickle.loads(pickle.dumps(graph, protocol))
    assert_same(again, graph)
    assert_immutable(again)
    assert not any(
        np.shares_memory(a, b) for a, b in zip(members(again), members(graph), strict=True)
    )


@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy])
def test_a_copied_graph_is_immutable(graph: Graph, copier: Any) -> None:
    again = copier(graph)
    assert_same(again, graph)
    assert_immutable(again)
    assert_immutable(graph)


# Tables, as most people keep a graph


def test_a_graph_from_csv_files() -> None:
    edges = pd.read_csv(io.StringIO("from,to,calls\nann,bob,3\nbob,cy,1\ncy,dee,2\n"))
    nodes = pd.read_csv(
        io.StringIO(
            "id,age,height,drink\nann,30,1.7,tea\nbob,41,1.8,\ncy,25,1.6,mate\ndee,9,1.2,tea\n"
        )
    )
    graph = Graph.from_edges(
        edges[["from", "to"]],
        nodes[["age", "height"]],
        nodes["drink"],
        weights=edges["calls"],
        ids=nodes["id"],
    )
    assert graph.ids.tolist() == ["ann", "bob", "cy", "dee"]
    assert graph.class_names == ("mate", "tea")
    assert graph.labels.tolist() == [1, -1, 0, 1]
    assert graph.adjacency.toarray()[[0, 1, 2], [1, 2, 3]].tolist() == [3, 1, 2]
    np.testing.assert_allclose(graph.features[1], [41, 1.8])


def test_numbers_with_gaps_keep_their_names() -> None:
    nodes = pd.read_csv(io.StringIO("id,x,group\n10,1,2\n20,2,\n30,3,5\n"))
    edges = pd.read_csv(io.StringIO("u,v\n10,30\n"))
    graph = Graph.from_edges(edges, nodes[["x"]], nodes["group"], ids=nodes["id"])
    assert graph.class_names == ("2", "5")
    assert graph.labels.tolist() == [0, -1, 1]
    assert graph.adjacency[0, 2] == 1


# networkx


def test_the_karate_club() -> None:
    club = nx.karate_club_graph()
    for node, degree in club.degree():
        club.nodes[node]["x"] = [degree, 1]
    graph = Graph.from_networkx(club, labels="club", name="karate")
    assert (graph.num_nodes, graph.num_edges) == (34, 78)
    assert graph.class_names == ("Mr. Hi", "Officer")
    assert np.bincount(graph.labels).tolist() == [17, 17]
    np.testing.assert_array_equal(graph.adjacency.toarray(), nx.to_numpy_array(club))


def with_features(network: nx.Graph) -> nx.Graph:
    for at, node in enumerate(network):
        network.nodes[node]["x"] = [at, 1.0]
    return network


@pytest.mark.parametrize("kind", [nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph])
@pytest.mark.filterwarnings("ignore::dropnode.errors.GraphWarning")
def test_every_kind_of_networkx_graph(kind: Any) -> None:
    network = kind()
    network.add_edge("cy", "ann", weight=2)
    network.add_edge("ann", "cy", weight=3)
    network.add_edge("ann", "cy", weight=1)
    network.add_edge("ann", "bob")
    network.add_edge("bob", "bob", weight=9)
    graph = Graph.from_networkx(with_features(network))
    assert graph.ids.tolist() == ["cy", "ann", "bob"]
    # A simple graph keeps the last weight it is told; the others hold parallel edges.
    heaviest = {nx.Graph: 1, nx.DiGraph: 2, nx.MultiGraph: 3, nx.MultiDiGraph: 3}[kind]
    assert graph.adjacency.toarray().tolist() == [[0, heaviest, 0], [heaviest, 0, 1], [0, 1, 0]]
    parallel = {nx.MultiGraph: (PARALLEL.format(2),), nx.MultiDiGraph: (PARALLEL.format(1),)}
    assert graph.notes == (LOOPS.format(1), *parallel.get(kind, ()))
    assert graph.class_names == ()
    assert graph.labels.tolist() == [-1, -1, -1]


def test_networkx_names_and_attributes_of_any_kind() -> None:
    network = nx.grid_2d_graph(2, 2)
    for at, node in enumerate(network):
        network.nodes[node]["position"] = torch.tensor(node)
        network.nodes[node]["colour"] = [None, "red", float("nan"), "blue"][at]
    graph = Graph.from_networkx(network, features="position", labels="colour")
    assert graph.ids.tolist() == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert graph.features.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert graph.labels.tolist() == [-1, 1, -1, 0]
    mixed = with_features(nx.Graph([("a", 1), (1, (2, 3))]))
    nx.set_edge_attributes(mixed, 4, "strength")
    assert Graph.from_networkx(mixed, weight="strength").adjacency.max() == 4
    scalar = nx.path_graph(2)
    nx.set_node_attributes(scalar, {0: 5.0, 1: 6.0}, "x")
    assert Graph.from_networkx(scalar).features.tolist() == [[5], [6]]


@pytest.mark.parametrize(
    ("features", "words"),
    [
        ({"a": [1, 2]}, ["node 'b' has no features", "'x'", "features="]),
        ({"a": [1, 2], "b": [1]}, ["node 'b' has 1 features", "equally many"]),
        ({"a": [1], "b": ["old"]}, ["features of node 'b'", "old"]),
        ({"a": [1], "b": [float("nan")]}, ["feature 0 of node 'b'", "NaN"]),
        ({"a": [], "b": []}, ["node 'a' has no features"]),
    ],
)
def test_unusable_networkx_features_are_refused(features: Any, words: list[str]) -> None:
    network = nx.Graph([("a", "b")])
    for node, vector in features.items():
        network.nodes[node]["x"] = vector
    with pytest.raises(GraphError) as caught:
        Graph.from_networkx(network)
    for word in words:
        assert word in str(caught.value)


def test_an_empty_or_negative_networkx_graph_is_refused() -> None:
    with pytest.raises(GraphError, match="empty"):
        Graph.from_networkx(nx.Graph())
    with pytest.raises(GraphError, match=r"from 'a' to 'b' weighs -2\.0"):
        Graph.from_networkx(with_features(nx.Graph([("a", "b", {"weight": -2})])))


# PyTorch Geometric


@given(edge_lists(), st.booleans(), st.booleans())
@pytest.mark.filterwarnings("ignore::dropnode.errors.GraphWarning")
def test_a_graph_goes_to_pyg_and_back(
    drawn: tuple[int, list[tuple[int, int, float]]], labelled: bool, divided: bool
) -> None:
    size, edges = drawn
    graph = Graph.from_edges(
        [(u, v) for u, v, _ in edges],
        np.arange(2.0 * size).reshape(size, 2),
        # The second class has no node: its code must survive all the same.
        [0, -1, 2, 2, -1, 0][:size] if labelled else None,
        weights=[weight for _, _, weight in edges],
        class_names=["a", "b", "c"] if labelled else None,
        split=Split(range(0, size, 3), range(1, size, 3), []) if divided else None,
    )
    data = graph.to_pyg()
    assert data.validate()
    again = Graph.from_pyg(data)
    assert again.fingerprint() == graph.fingerprint()
    assert repr(again) == repr(graph)
    assert again.notes == ()
    if divided:
        for part in ("train", "val", "test"):
            assert getattr(again.split, part).tolist() == getattr(graph.split, part).tolist()


def test_pyg_gets_dense_features_and_both_directions(graph: Graph) -> None:
    data = graph.to_pyg()
    assert data.x.layout == torch.strided
    assert data.x.tolist() == X.tolist()
    assert data.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert data.edge_weight.tolist() == [2, 2, 0.5, 0.5]
    assert data.y.tolist() == [1, -1, 0]
    assert data.train_mask.tolist() == [True, False, True]
    before = graph.fingerprint()
    for tensor in (data.x, data.edge_weight, data.y):
        tensor.zero_()
    assert graph.fingerprint() == before


def pyg_path(**attributes: Any) -> Data:
    return Data(**({"x": torch.tensor(X), "edge_index": torch.tensor(PATH).T} | attributes))


def test_pyg_attributes_of_every_kind() -> None:
    sparse = Graph.from_pyg(pyg_path(x=torch.tensor(X).to_sparse_csr()))
    assert sp.issparse(sparse.features)
    assert sparse.features.toarray().tolist() == X.tolist()
    assert sparse.split is None
    column = Graph.from_pyg(pyg_path(y=torch.tensor([[2], [0], [2]])))
    assert column.labels.tolist() == [1, 0, 1]
    learnt = Graph.from_pyg(pyg_path(x=torch.tensor(X, requires_grad=True)))
    assert learnt.features.tolist() == X.tolist()
    mask = torch.tensor([True, False, False])
    data = pyg_path(x=torch.tensor(X).to_sparse_csr(), train_mask=mask, test_mask=~mask)
    split = Graph.from_pyg(data).split
    assert [part.tolist() for part in (split.train, split.val, split.test)] == [[0], [], [1, 2]]


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"x": None}, ["no x"]),
        ({"edge_index": None}, ["no edge_index"]),
        ({"edge_index": torch.tensor([[0, 5], [1, 2]])}, ["edge 1", "unknown node 5"]),
        ({"edge_index": torch.tensor([*PATH, (0, 2)])}, ["edges", "transpose"]),
        ({"edge_weight": torch.ones(3)}, ["(3,)", "2 edges"]),
        ({"y": torch.tensor([0, 1])}, ["2 labels for 3 nodes"]),
        ({"y": torch.eye(3)}, ["labels have shape (3, 3)"]),
        ({"train_mask": torch.ones(3, 10, dtype=torch.bool)}, ["train_mask", "(3, 10)", "column"]),
        ({"val_mask": torch.ones(2, dtype=torch.bool)}, ["val_mask", "(2,)", "3 nodes"]),
        (
            {"train_mask": torch.tensor([True, False, True]), "val_mask": torch.tensor([True] * 3)},
            ["node 0", "more than once"],
        ),
    ],
)
def test_unusable_pyg_data_is_refused(attributes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(GraphError) as caught:
        Graph.from_pyg(pyg_path(**attributes))
    for word in words:
        assert word in str(caught.value)


# Splits and training


def test_a_split_fits_its_graph(graph: Graph) -> None:
    other = graph.with_split(Split([1], [], []))
    assert other.split.train.tolist() == [1]
    assert graph.split.name == "tiny"
    assert graph.with_split(None).split is None
    with pytest.raises(GraphError, match=r"split 'far' holds node 3, but nodes .* 0 to 2"):
        graph.with_split(Split([0], [], [3], name="far"))
    with pytest.raises(GraphError, match="dict"):
        graph.with_split({"train": [0]})  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="holds node 3"):
        Graph.from_edges(PATH, X, split=Split([3], [], []))


def test_an_unlabelled_graph_is_legal_until_it_trains() -> None:
    graph = Graph.from_edges(PATH, X, split=Split([0], [], []))
    assert graph.num_classes == 0
    with pytest.raises(GraphError, match="no node has a label"):
        graph.check_trainable()


@pytest.mark.parametrize(
    ("labels", "split", "message"),
    [
        (["tea", "tea", None], Split([0], [], []), "only class 'tea'.*two classes"),
        (["tea", "mate", None], None, r"no split.*with_split"),
        (
            ["tea", "mate", None],
            Split([], [], [0]),
            "training part of split 'custom'.*'mate', 'tea'",
        ),
        (["tea", "mate", None], Split([0], [1], []), "training part of split 'custom'.*'mate'"),
        (["tea", "mate", None], Split([0, 1, 2], [], []), "node 'cy'.*train.*'custom'.*no label"),
        (["tea", "mate", None], Split([0, 1], [2], []), "node 'cy'.*val.*no label"),
    ],
)
def test_what_cannot_train_is_said_before_training(
    labels: list, split: Split | None, message: str
) -> None:
    graph = Graph.from_edges([], X, labels, ids=NAMES, split=split)
    with pytest.raises(GraphError, match=message):
        graph.check_trainable()


def test_a_class_that_was_only_named_needs_a_training_node_too() -> None:
    graph = Graph.from_edges(PATH, X, [0, 1, 1], class_names=["a", "b", "c"])
    with pytest.raises(GraphError, match="class 'c'"):
        graph.check_trainable(Split([0, 1], [], []))


def test_the_split_that_is_passed_is_the_one_that_is_checked() -> None:
    graph = Graph.from_edges(PATH, X, [0, 1, 1], split=Split([0, 1], [], [2]))
    graph.check_trainable()
    with pytest.raises(GraphError, match="'narrow' has no node of class '0'"):
        graph.check_trainable(Split([1], [], [], name="narrow"))
    with pytest.raises(GraphError, match="holds node 7"):
        graph.check_trainable(Split([0, 1, 7], [], []))


# The fingerprint


def test_the_fingerprint_follows_the_data_and_nothing_else() -> None:
    base = Graph.from_edges(PATH, X, [0, 1, 1])
    same = Graph.from_scipy(
        sp.csc_matrix(np.array(DENSE_PATH)).astype(np.int64),
        X.astype(np.float64),
        np.array([0, 1, 1], dtype=np.int8),
        ids=NAMES,
        split=Split([0], [], []),
        name="other",
    )
    assert base.fingerprint() == same.fingerprint()
    changed = [
        Graph.from_edges(PATH[:1], X, [0, 1, 1]),
        Graph.from_edges(PATH, X, [0, 1, 1], weights=[1, 1.5]),
        Graph.from_edges(PATH, X + 0.25, [0, 1, 1]),
        Graph.from_edges(PATH, X, [0, 1, 0]),
        Graph.from_edges(PATH, X, [0, 1, 1], class_names=["a", "b"]),
        Graph.from_edges(PATH, X, [0, 1, -1]),
    ]
    assert len({graph.fingerprint() for graph in [base, *changed]}) == 1 + len(changed)


def test_the_fingerprint_of_a_split_tells_where_a_part_ends() -> None:
    """The same nodes in the same order are another split if they are cut elsewhere."""
    splits = [
        Split([0, 1], [2], [3]),
        Split([0], [1, 2], [3]),
        Split([0], [1], [2, 3]),
        Split([0, 1, 2, 3], [], []),
    ]
    assert len({split.fingerprint() for split in splits}) == len(splits)
    assert Split([0, 1], [2], [3], name="other").fingerprint() == splits[0].fingerprint()


def test_the_repr_counts(graph: Graph) -> None:
    assert repr(graph) == (
        "Graph('drinks': 3 nodes, 2 edges, 2 sparse features, 2 classes, 2 labels, "
        "split Split('tiny', 2/0/1))"
    )


# Size


def test_a_million_nodes_and_five_million_edges_are_built_in_seconds() -> None:
    generator = np.random.default_rng(0)
    pairs = generator.integers(0, 1_000_000, (5_000_000, 2))
    features = generator.standard_normal((1_000_000, 4), dtype=np.float32)
    labels = generator.integers(0, 5, 1_000_000)
    start = time.process_time()
    with pytest.warns(GraphWarning):
        graph = Graph.from_edges(pairs, features, labels)
    assert time.process_time() - start < 8
    loops = np.count_nonzero(pairs[:, 0] == pairs[:, 1])
    assert graph.notes[0] == LOOPS.format(loops)
    assert 4_999_000 < graph.num_edges < 5_000_000 - loops


def test_many_names_are_looked_up_in_seconds() -> None:
    names = np.array([f"user-{number}" for number in range(200_000)])
    ends = np.random.default_rng(0).integers(0, len(names), (300_000, 2))
    ends = ends[ends[:, 0] < ends[:, 1]]
    start = time.process_time()
    graph = Graph.from_edges(names[np.unique(ends, axis=0)], np.ones((len(names), 1)), ids=names)
    assert time.process_time() - start < 4
    assert graph.num_edges == len(np.unique(ends, axis=0))


@pytest.mark.parametrize("name", ["adjacency", "features", "labels", "ids"])
def test_only_the_arrays_of_a_builder_make_a_graph(name: str, tmp_path: Path) -> None:
    """Read-only arrays, such as those of a mapped file, have passed no check."""
    graph = Graph.from_edges(PATH, X)
    np.save(tmp_path / "a.npy", np.full(len(X), 99))
    for foreign in (
        np.load(tmp_path / "a.npy", mmap_mode="r"),
        np.broadcast_to(np.int64(99), (len(X),)),
        np.frombuffer(bytes(8 * len(X)), dtype=np.int64),
        sp.coo_array(np.eye(len(X))),
        None,
    ):
        with pytest.raises(GraphError, match="unchecked arrays"):
            replace(graph, **{name: foreign})
    again = pickle.loads(pickle.dumps(graph.with_split(None)))
    assert replace(again, name="again").fingerprint() == graph.fingerprint()
    assert replace(copy.deepcopy(graph), name="again").num_nodes == graph.num_nodes


def test_class_names_name_every_label() -> None:
    graph = Graph.from_edges(PATH, X, list(range(len(X))))
    for names, told in ((("a",), "1 class_names, but a label is 2"), ("abc", "a tuple of texts")):
        with pytest.raises(GraphError, match=told):
            replace(graph, class_names=names)


@pytest.mark.parametrize(
    ("attributes", "told"),
    [
        ({"train_mask": torch.tensor([1, 0, 1])}, "train_mask is int64; expected true or false"),
        ({"edge_index": [[0, 1], [1, 2, 0]]}, "edge_index cannot be read as an array"),
        ({"edge_index": 3}, "edge_index has shape"),
        ({"x": 3, "train_mask": torch.tensor([True])}, "train_mask has shape"),
        ({"x": 3}, "features have shape"),
        ({"class_names": "ab"}, "class_names are a str"),
    ],
)
def test_odd_pyg_data_is_refused(attributes: dict[str, Any], told: str) -> None:
    data = {"x": X, "edge_index": np.array(PATH).T} | attributes
    with pytest.raises(GraphError, match=told):
        Graph.from_pyg(SimpleNamespace(**data))


def test_other_labels_share_the_arrays_of_the_graph(graph: Graph) -> None:
    other = graph.with_labels([1, 0, -1], ("one", "two"))
    assert other.labels.tolist() == [1, 0, -1]
    assert other.class_names == ("one", "two")
    assert other.split is graph.split
    assert np.shares_memory(other.adjacency.data, graph.adjacency.data)
    assert_immutable(other)
    expected = Graph.from_scipy(
        graph.adjacency, graph.features, [1, 0, -1], class_names=("one", "two")
    )
    assert other.fingerprint() == expected.fingerprint()
    with pytest.raises(GraphError, match="2 labels for 3 nodes"):
        graph.with_labels([1, 0], ("one", "two"))


def test_a_deep_copy_takes_no_memory(graph: Graph) -> None:
    """A graph is a parameter of an estimator, and scikit-learn copies those for every fit."""
    assert copy.deepcopy({"graph": graph})["graph"] is graph


def test_a_class_of_the_test_part_may_lack_training_nodes() -> None:
    """Some splits were published so."""
    labels = [0, 1, 2, 2, 0, 1]
    graph = Graph.from_edges([(0, 1)], np.eye(6), labels, split=Split([0, 1], [], [2, 3, 4]))
    told = "no node of class '2', so that no label teaches it, although 2 of 3 test nodes"
    with pytest.warns(GraphWarning, match=told):
        graph.check_trainable()
    for train, test in (([0, 1], [4, 5]), ([0, 4], [1, 2]), ([], [0, 1, 2])):
        with pytest.raises(GraphError, match="add a labelled node of each class"):
            graph.check_trainable(Split(train, [], test))
