"""What a caller may pass as labels, ids, edges, weights and features, and what is refused."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

from dropnode import memory
from dropnode.errors import GraphError, WorkError
from dropnode.graph import Graph, Split, nodes
from dropnode.graph.labels import encode_labels

X = np.arange(6, dtype=np.float32).reshape(3, 2)
PATH = [(0, 1), (1, 2)]
NAMES = ["ann", "bob", "cy"]


def refuse(*words: str, **given: Any) -> None:
    """A path of three nodes with the given inputs is refused, in a message with these words."""
    arguments = {"edges": PATH, "features": X} | given
    with pytest.raises(GraphError) as caught:
        Graph.from_edges(**arguments)
    for word in words:
        assert word in str(caught.value)


def neighbours(graph: Graph) -> list[list[int]]:
    return [[*map(int, graph.adjacency[[row]].indices)] for row in range(graph.num_nodes)]


PATH_NEIGHBOURS = [[1], [0, 2], [1]]


# Labels


@pytest.mark.parametrize(
    ("labels", "codes", "classes"),
    [
        ([5, -1, 3], [1, -1, 0], [3, 5]),
        (np.array([5, -1, 3], dtype=np.int8), [1, -1, 0], [3, 5]),
        (np.array([5, 2**64 - 1, 3], dtype=np.uint64), [1, 2, 0], [3, 5, 2**64 - 1]),
        ([2**63, 1, -1], [1, 0, -1], [1, 2**63]),
        (["tea", None, "mate"], [1, -1, 0], ["mate", "tea"]),
        (["tea", float("nan"), "mate"], [1, -1, 0], ["mate", "tea"]),
        (["tea", -1, "mate"], [1, -1, 0], ["mate", "tea"]),
        (np.array(["tea", "mate"]), [1, 0], ["mate", "tea"]),
        ([np.str_("tea"), np.str_("mate")], [1, 0], ["mate", "tea"]),
        (np.array([1.0, np.nan, 0.0, -1.0]), [1, -1, 0, -1], [0, 1]),
        ([0.5, 2.0, np.nan], [0, 1, -1], [0.5, 2.0]),
        ([True, False, None], [1, 0, -1], [False, True]),
        (np.array([True, False]), [1, 0], [False, True]),
        (np.array([1, None, np.int64(0), 2.0], dtype=object), [1, -1, 0, 2], [0, 1, 2]),
        (pd.Series(["tea", None, "mate"], index=[7, 8, 9]), [1, -1, 0], ["mate", "tea"]),
        (pd.Series([1, None, 0]), [1, -1, 0], [0, 1]),
        (pd.Series([1, None, 0], dtype="Int64"), [1, -1, 0], [0, 1]),
        (np.array(["tea", pd.NA], dtype=object), [0, -1], ["tea"]),
        (pd.Series(["tea", None], dtype="category"), [0, -1], ["tea"]),
        (pd.DataFrame({"y": [1, 0]}), [1, 0], [0, 1]),
        (torch.tensor([1, -1, 0]), [1, -1, 0], [0, 1]),
        (torch.tensor([[1], [0]]), [1, 0], [0, 1]),
        ([torch.tensor(1), torch.tensor(0)], [1, 0], [0, 1]),
        (iter("ba"), [1, 0], ["a", "b"]),
        ([(1, 2), (0, 9)], [1, 0], [(0, 9), (1, 2)]),
        ([datetime.date(2020, 5, 1), pd.NaT], [0, -1], [datetime.date(2020, 5, 1)]),
        ([None, -1, np.nan], [-1, -1, -1], []),
        ([], [], []),
    ],
)
def test_labels_of_every_kind_are_encoded(labels: Any, codes: list[int], classes: list) -> None:
    got_codes, got_classes = encode_labels(labels)
    assert got_codes.tolist() == codes
    assert got_codes.dtype == np.int64
    assert got_classes.tolist() == classes
    assert [type(value) for value in got_classes.tolist()] == [type(value) for value in classes]


@given(st.lists(st.one_of(st.integers(), st.none()), max_size=20))
def test_decoding_gives_the_labels_back(labels: list[int | None]) -> None:
    codes, classes = encode_labels(labels)
    decoded = [None if code == -1 else classes[code] for code in codes]
    assert decoded == [None if label == -1 else label for label in labels]
    assert classes.tolist() == sorted(set(labels) - {None, -1})


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["tea", 3, "mate"], ["mix", "int, str", "one kind"]),
        ([1.0, np.inf, 0.0], ["infinite", "None"]),
        (np.array([1.0, -np.inf, 0.0]), ["infinite"]),
        (np.array(["tea", np.nan, "mate"]), ["'nan'", "None"]),
        (np.array(["tea", -1, "mate"]), ["'-1'", "None"]),
        (np.eye(3), ["(3, 3)", "(number of nodes,)", "multi-label"]),
        ([[1, 0], [0, 1], [1, 1]], ["a label is [1, 0]", "multi-label", "argmax(axis=1)"]),
        ([torch.tensor([1, 0])] * 3, ["unhashable"]),
        (7, ["int", "sequence"]),
        (np.int64(7), ["shape ()"]),
        ({"ann": 1, "bob": 0, "cy": 1}, ["dict", "sequence"]),
        ("abc", ["str", "sequence"]),
        ([0, 1], ["2 labels for 3 nodes", "-1"]),
    ],
)
def test_unusable_labels_are_refused(labels: Any, words: list[str]) -> None:
    refuse(*words, labels=labels)


def test_with_class_names_labels_are_codes() -> None:
    graph = Graph.from_edges(PATH, X, [2.0, np.nan, 0], class_names=["a", "b", np.str_("c")])
    assert graph.labels.tolist() == [2, -1, 0]
    assert graph.class_names == ("a", "b", "c")
    assert {type(name) for name in graph.class_names} == {str}
    assert (
        Graph.from_edges(PATH, X, [True, False, True], class_names=["no", "yes"]).num_classes == 2
    )
    assert Graph.from_edges(PATH, X, class_names=["a", "b"]).class_names == ("a", "b")


def test_labels_outside_class_names_are_refused() -> None:
    refuse("label 2", "2 class_names", "0 to 1", labels=[0, 1, 2], class_names=["a", "b"])
    refuse("label -2", labels=[0, 1, -2], class_names=["a", "b"])
    refuse("label 'mate'", labels=["tea", "mate", "tea"], class_names=["mate", "tea"])
    refuse("label 0.5", labels=[0.5, 1, 1], class_names=["a", "b"])
    refuse("'a'", "more than once", labels=[0, 1, 1], class_names=["a", "b", "a"])


# Ids


@pytest.mark.parametrize(
    "ids",
    [
        NAMES,
        np.array(NAMES),
        np.array(NAMES, dtype=object),
        pd.Series(NAMES, index=[5, 6, 7]),
        pd.Index(NAMES),
        dict.fromkeys(NAMES).keys(),
        [30, 10, 20],
        np.array([30, 10, 20], dtype=np.uint8),
        torch.tensor([30, 10, 20]),
        [2**70, 2**63, -1],
        [(0, 0), (0, 1), (1, 0)],
        ["a", 1, (2, "b")],
        [0.5, 1.5, 2.5],
        ["a", "a\0", "a\0\0"],
        [datetime.date(2020, 1, day) for day in (1, 2, 3)],
    ],
)
def test_ids_of_every_kind_name_nodes_and_edges(ids: Any) -> None:
    names = ids.tolist() if isinstance(ids, torch.Tensor) else list(ids)
    graph = Graph.from_edges([(names[0], names[1]), (names[2], names[1])], X, ids=ids)
    assert graph.ids.tolist() == names
    assert neighbours(graph) == PATH_NEIGHBOURS


def test_integer_ids_are_int64_and_positions_by_default() -> None:
    assert Graph.from_edges([], X).ids.tolist() == [0, 1, 2]
    assert Graph.from_edges([], X, ids=[30, 10, 20]).ids.dtype == np.int64
    assert Graph.from_edges([], X, ids=NAMES).ids.dtype == object


def test_permuted_integer_ids_are_not_taken_for_positions() -> None:
    graph = Graph.from_edges(np.array([[2, 0]]), X, ids=[2, 1, 0])
    assert neighbours(graph) == [[2], [], [0]]


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (["ann", "bob", "ann"], ["'ann'", "positions 0 and 2", "unique"]),
        (["ann", None, "cy"], ["position 1", "missing"]),
        (pd.Series(["ann", "bob", None]), ["position 2", "missing"]),
        (["ann", pd.NA, "cy"], ["position 1", "missing"]),
        ([1.0, 2.0, math.nan], ["position 2", "missing"]),
        (["ann", "bob"], ["2 ids", "3 rows"]),
        ([["ann"], ["bob"], ["cy"]], ["ids", "unhashable"]),
        (np.zeros((3, 2)), ["ids have shape (3, 2)"]),
        (set(NAMES), ["set", "order"]),
        (5, ["ids", "sequence"]),
    ],
)
def test_unusable_ids_are_refused(ids: Any, words: list[str]) -> None:
    refuse(*words, edges=[], ids=ids)


# Edges


@pytest.mark.parametrize(
    "edges",
    [
        PATH,
        [[0, 1], [1, 2]],
        tuple(PATH),
        set(PATH),
        zip([0, 1], [1, 2], strict=True),
        (pair for pair in PATH),
        np.array(PATH),
        np.array(PATH, dtype=np.uint64),
        np.array(PATH, dtype=np.int8),
        np.array(PATH, dtype=object),
        np.array(PATH, dtype=np.float64),
        np.array(PATH).T[::-1].T,
        [(0.0, 1.0), (1, np.int64(2))],
        torch.tensor(PATH),
        torch.tensor(PATH, dtype=torch.float16),
        [(torch.tensor(0), torch.tensor(1)), (torch.tensor(1), torch.tensor(2))],
        list(torch.tensor(PATH)),
        pd.DataFrame(PATH, columns=["source", "target"]),
        pd.DataFrame(PATH, dtype="Int64"),
    ],
)
def test_edges_of_every_kind_are_read(edges: Any) -> None:
    assert neighbours(Graph.from_edges(edges, X)) == PATH_NEIGHBOURS


@pytest.mark.parametrize(
    "edges", [[], (), np.empty((0, 2)), np.empty((2, 0), int), pd.DataFrame({"a": [], "b": []})]
)
def test_a_graph_may_have_no_edges(edges: Any) -> None:
    graph = Graph.from_edges(edges, X)
    assert graph.num_edges == 0
    assert graph.adjacency.shape == (3, 3)


@pytest.mark.parametrize(
    ("bad", "shown"),
    [
        (3, "3"),
        (-1, "-1"),
        (2**40, str(2**40)),
        (2**63 - 1, str(2**63 - 1)),
        (2**63, str(2**63)),
        (2**64 - 1, str(2**64 - 1)),
        (2**64 + 1, str(2**64 + 1)),
        (0.5, "0.5"),
        (math.nan, "nan"),
        (math.inf, "inf"),
        (1e300, "1e+300"),
        ("1", "'1'"),
    ],
)
@pytest.mark.parametrize("form", [list, np.array, pd.DataFrame])
def test_an_edge_to_an_unknown_position_is_named(bad: Any, shown: str, form: Any) -> None:
    pairs: Any = [(0, 1), (2, bad)]
    if form is np.array:
        # Left to itself, NumPy would make text or floats of these.
        kind = np.uint64 if bad in (2**63, 2**64 - 1) else object if bad == "1" else None
        pairs = np.array(pairs, dtype=kind)
    elif form is pd.DataFrame:
        pairs = pd.DataFrame(pairs)
    refuse("edge 1", f"unknown node {shown}", "numbered 0 to 2", "ids=", edges=pairs)


def test_a_gap_in_a_column_of_edges_is_named() -> None:
    frame = pd.DataFrame({"source": ["ann", "bob"], "target": ["bob", None]})
    refuse("edge 1", "unknown node nan", edges=frame, ids=NAMES)
    refuse("edge 1", "unknown node None", edges=[("ann", "bob"), ("bob", None)], ids=NAMES)


def test_large_ids_survive_a_frame_whose_columns_differ_in_type() -> None:
    ids = [2**53, 2**53 + 1, 2**53 + 2]
    frame = pd.DataFrame({"source": [2**53 + 1], "target": np.array([2**53 + 2], dtype=np.uint64)})
    assert neighbours(Graph.from_edges(frame, X, ids=ids)) == [[], [2], [1]]


def test_no_huge_number_wraps_into_a_valid_position() -> None:
    for bits in (8, 16, 32, 64):
        pairs = np.array([[0, 2**bits + 1 if bits < 64 else 2**63 + 1]], dtype=np.uint64)
        refuse("unknown node", str(int(pairs[0, 1])), edges=pairs)


@pytest.mark.parametrize("form", [list, np.array, pd.DataFrame])
def test_an_edge_to_an_unknown_id_is_named(form: Any) -> None:
    pairs = form([("ann", "bob"), ("bob", "dee")])
    refuse("edge 1", "unknown node 'dee'", "3 ids", "add the node", edges=pairs, ids=NAMES)
    refuse("edge 0", "unknown node 'ann'", "ids=", edges=pairs)


def test_ids_are_compared_with_their_type() -> None:
    refuse("'7'", "'7' is not 7", edges=[("7", "8")], ids=[7, 8, 9])
    refuse("unknown node 7", "'7' is not 7", edges=np.array([[7, 8]]), ids=["7", "8", "9"])


@pytest.mark.parametrize(
    ("edges", "words"),
    [
        (np.array([[0, 1, 1], [1, 2, 0]]), ["(2, 3)", "(number of edges, 2)", "transpose"]),
        (pd.DataFrame({"u": [0], "v": [1], "w": [2]}), ["(1, 3)", "two columns"]),
        (pd.DataFrame({"u": [0], "v": [1], "w": [0.5]}), ["edge 0 has 3 parts", "weights="]),
        (np.array([0, 1]), ["(2,)"]),
        ([(0, 1), (0, 1, 0.5)], ["edge 1 has 3 parts", "weights="]),
        (([0, 1, 2], [1, 2, 0]), ["edge 0 has 3 parts", "zip(sources, targets)"]),
        (pd.Series([(0, 1), (1, 2)]), ["(2,)", "(number of edges, 2)"]),
        ([0, 1, 2], ["pairs", "int"]),
        (None, ["pairs", "NoneType"]),
        ([([0], [1])], ["edges", "unhashable"]),
    ],
)
def test_edges_of_the_wrong_shape_are_refused(edges: Any, words: list[str]) -> None:
    refuse(*words, edges=edges)


# Weights


@pytest.mark.parametrize(
    "weights",
    [
        [2, 0.5],
        np.array([2, 0.5]),
        torch.tensor([2, 0.5], requires_grad=True),
        pd.Series([2, 0.5], index=[8, 9]),
        np.array([2, 0.5], dtype=object),
    ],
)
def test_weights_of_every_kind_are_read(weights: Any) -> None:
    graph = Graph.from_edges(PATH, X, weights=weights)
    assert graph.adjacency.toarray().tolist() == [[0, 2, 0], [2, 0, 0.5], [0, 0.5, 0]]
    assert graph.adjacency.dtype == np.float32


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([1, -0.5], ["from 1 to 2", "weighs -0.5", "at least 0"]),
        ([math.nan, 1], ["from 0 to 1", "weighs nan"]),
        ([1, math.inf], ["from 1 to 2", "weighs inf"]),
        ([1, 1e300], ["from 1 to 2", "weighs inf in float32", "rescale"]),
        ([1, None], ["from 1 to 2", "weighs nan"]),
        ([1], ["(1,)", "2 edges"]),
        ([[1], [1]], ["(2, 1)", "2 edges"]),
        (2.0, ["shape ()", "one weight per edge"]),
        (["heavy", "light"], ["edge weights", "heavy"]),
        ([1j, 1], ["complex"]),
    ],
)
def test_unusable_weights_are_refused(weights: Any, words: list[str]) -> None:
    refuse(*words, weights=weights)


def test_a_bad_weight_is_named_by_the_ids_of_its_edge() -> None:
    pairs = [("ann", "bob"), ("cy", "bob")]
    refuse("from 'cy' to 'bob'", "-1.0", edges=pairs, ids=NAMES, weights=[1, -1])
    with pytest.raises(GraphError, match="from 'bob' to 'cy' weighs nan"):
        Graph.from_scipy(np.array([[0, 1, 0], [1, 0, math.nan], [0, 1, 0]]), X, ids=NAMES)


# Features


@pytest.mark.parametrize(
    "features",
    [
        X,
        X.tolist(),
        X.astype(np.float64),
        X.astype(np.int64),
        np.asfortranarray(X),
        X.astype(object),
        np.asmatrix(X),
        torch.tensor(X, requires_grad=True),
        torch.tensor(X, dtype=torch.bfloat16),
        pd.DataFrame(X, index=NAMES, columns=["a", "b"]),
        pd.DataFrame({"a": [0, 2, 4], "b": [1.0, 3.0, 5.0]}),
    ],
)
def test_dense_features_of_every_kind_become_float32(features: Any) -> None:
    got = Graph.from_edges(PATH, features).features
    assert type(got) is np.ndarray
    assert got.dtype == np.float32
    assert got.flags.c_contiguous
    assert got.tolist() == X.tolist()


@pytest.mark.parametrize(
    "features",
    [
        sp.csr_array(X),
        sp.csr_matrix(X),
        sp.csc_array(X),
        sp.coo_array(X),
        sp.lil_array(X),
        sp.dok_array(X),
        sp.csr_array(X.astype(np.int64)),
        sp.csr_array(X.astype(np.float64)),
        torch.tensor(X).to_sparse_coo(),
        torch.tensor(X).to_sparse_csr(),
        # Stored twice adds up, and a stored zero is nothing.
        sp.coo_array(
            (
                np.array([1, 1, 1, 3, 4, 5, 0]),
                (np.array([0, 1, 1, 1, 2, 2, 0]), np.array([1, 0, 0, 1, 0, 1, 0])),
            ),
            shape=(3, 2),
        ),
    ],
)
def test_sparse_features_of_every_kind_stay_sparse(features: Any) -> None:
    got = Graph.from_edges(PATH, features).features
    assert isinstance(got, sp.csr_array)
    assert got.dtype == np.float32
    assert got.nnz == 5
    assert got.has_canonical_format
    assert got.toarray().tolist() == X.tolist()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e39, 10**39])
@pytest.mark.parametrize("form", [np.array, sp.csr_array, sp.coo_matrix, torch.tensor])
def test_a_feature_that_is_not_finite_is_named_by_node(value: float, form: Any) -> None:
    features = np.zeros((3, 2), dtype=np.float64)
    features[2, 1] = value
    what = "NaN" if value != value else "too large for float32"
    refuse("feature 1 of node 2", what, "SimpleImputer", features=form(features))
    refuse("feature 1 of node 'cy'", what, edges=[], features=form(features), ids=NAMES)
    refuse("feature 1 of node 9", what, edges=[], features=form(features), ids=np.array([7, 8, 9]))


@pytest.mark.parametrize(
    ("features", "words"),
    [
        (None, ["features", "eye_array"]),
        (np.arange(3), ["(3,)", "two dimensions"]),
        (np.zeros((3, 2, 1)), ["(3, 2, 1)"]),
        (np.zeros((3, 0)), ["(3, 0)", "at least one column"]),
        (np.zeros((0, 2)), ["empty", "no nodes"]),
        (sp.csr_array((0, 2)), ["empty", "no nodes"]),
        (sp.coo_array((2**31, 2)), ["too many nodes", "2,147,483,647", "2,147,483,648"]),
        (sp.coo_array((2**40, 2)), ["too many nodes", f"{2**40:,}"]),
        ([[1, 2], [3], [4, 5]], ["features cannot be read as numbers"]),
        ([["a"], ["b"], ["c"]], ["features cannot be read as numbers", "a"]),
        (pd.DataFrame({"id": NAMES, "age": [1, 2, 3]}), ["numbers", "ann", "ids"]),
        (np.full((3, 1), 1j), ["complex"]),
        (sp.csr_array(np.full((3, 1), 1j)), ["complex"]),
        ([[10**400], [1], [2]], ["numbers", "too large"]),
        ([[None], [1], [2]], ["feature 0 of node 0", "NaN"]),
        (pd.DataFrame({"age": [1.0, None, 2.0]}), ["feature 0 of node 1", "NaN"]),
    ],
)
def test_unusable_features_are_refused(features: Any, words: list[str]) -> None:
    refuse(*words, edges=[], features=features)


# Split


@pytest.mark.parametrize(
    ("train", "words"),
    [
        ([0, 1, 1], ["node 1", "more than once", "'mine'"]),
        ([0, 3], ["node 3", "more than once"]),
        ([-1], ["train", "-1"]),
        (np.array([2**64 - 1], dtype=np.uint64), ["train", str(2**64 - 1)]),
        ([2**40], ["train", str(2**40)]),
        ([True, False, True], ["train", "bool", "flatnonzero"]),
        ([0.5], ["train", "float64"]),
        (np.zeros((2, 2), int), ["(2, 2)"]),
        (None, ["train", "object"]),
    ],
)
def test_an_unusable_split_is_refused(train: Any, words: list[str]) -> None:
    with pytest.raises(GraphError) as caught:
        Split(train, [3], [4], name="mine")
    for word in words:
        assert word in str(caught.value)


def test_a_split_keeps_the_order_and_copies() -> None:
    train = np.array([4, 0])
    split = Split(train, torch.tensor([1]), ())
    train[0] = 9
    assert split.train.tolist() == [4, 0]
    assert split.val.tolist() == [1]
    assert split.test.tolist() == []
    assert {part.dtype for part in (split.train, split.val, split.test)} == {np.dtype(np.int64)}


def wild_matrices() -> dict[str, Any]:
    """Sparse matrices that would make compiled code read or write outside of its arrays."""
    dense = np.triu(np.ones((6, 6)), 1)
    made: dict[str, Any] = {}
    for kind in ("csr", "csc", "bsr"):
        for name, index, value in (
            ("indices", 0, 99),
            ("indices", 0, -1),
            ("indptr", 2, 10**6),
            ("indptr", 2, -5),
        ):
            matrix = sp.csr_array(dense).asformat(kind)
            getattr(matrix, name)[index] = value
            made[f"{kind} {name} {value}"] = matrix
    hidden = sp.csr_array(dense)
    hidden.indptr[:] = [0, *[10**6] * 5, 0]  # SciPy looks at no index if the last pointer is 0.
    made["csr that ends in 0"] = hidden
    for axis in (0, 1):
        for value in (99, -1):
            coo = sp.coo_array(dense)
            coo.coords[axis][0] = value
            made[f"coo {axis} {value}"] = coo
    lil = sp.lil_array(dense)
    lil.rows[0], lil.data[0] = [99], [1.0]
    made["lil"] = lil
    pointers, indices = torch.tensor([0, 1, 1, 1, 1, 1, 1]), torch.tensor([99])
    made["torch"] = torch.sparse_csr_tensor(pointers, indices, torch.ones(1), size=(6, 6))
    return made


@pytest.mark.parametrize("name", wild_matrices())
def test_indices_outside_of_a_matrix_are_refused(name: str) -> None:
    wild = wild_matrices()[name]
    with pytest.raises(GraphError, match="is not sound"):
        Graph.from_scipy(wild, np.eye(6))
    with pytest.raises(GraphError, match="is not sound"):
        Graph.from_edges([(0, 1)], wild)


def test_a_check_changes_nothing_of_the_callers() -> None:
    matrix = sp.csr_array(np.eye(4, k=1))
    matrix.data = np.append(matrix.data, 7.0)
    matrix.indices = np.append(matrix.indices, 0)
    Graph.from_scipy(matrix, np.eye(4))
    assert (len(matrix.data), len(matrix.indices)) == (4, 4)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: Graph.from_edges([(0, 1)], np.ma.masked_less(np.eye(2), 1)), "masked array"),
        (lambda: Graph.from_edges([(0, 1)], np.eye(2), np.ma.array([0, 1])), "masked array"),
        (lambda: Split(np.ma.array([0]), [1], [2]), "masked array"),
        (lambda: encode_labels(np.array(["2020", "NaT"], "M8[ns]")), "labels are datetime64"),
        (lambda: encode_labels(["a", ""]), "the text ''"),
        (lambda: Graph.from_edges([(0, 1)], np.eye(2, dtype="m8[D]")), "timedelta64"),
        (
            lambda: Graph.from_edges([], np.eye(2), [0, 1], class_names="ab"),
            "class_names are a str",
        ),
        (lambda: Graph.from_edges([], np.eye(2), [0, 1], class_names=["a", ""]), "needs a name"),
        (lambda: Graph.from_edges([], np.eye(2), [0, 1], class_names=3), "class_names cannot be"),
        (lambda: Split([[0], [1, 2]], [], []), "cannot be read as an array"),
        (lambda: Graph.from_networkx(3), "3 is no graph"),
        (lambda: Graph.from_networkx([(0, 1)]), "is no graph"),
        (lambda: Graph.from_edges([], np.eye(2), name=3), "name is 3"),
    ],
)
def test_what_was_silently_taken_is_refused(call: Callable[[], object], told: str) -> None:
    with pytest.raises(GraphError, match=told):
        call()


def test_missing_dates_in_a_list_are_unknown() -> None:
    codes, classes = encode_labels([np.datetime64("2020-01-01"), np.datetime64("NaT"), None])
    assert (codes.tolist(), classes.tolist()) == ([0, -1, -1], ["2020-01-01"])


@pytest.mark.parametrize("shape", [(10**7, 10**7), (10**9, 3)])
def test_a_view_that_claims_any_size_is_refused(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 10**9)
    with pytest.raises(WorkError, match=r"features of shape .* needs at least"):
        Graph.from_edges([], np.broadcast_to(np.float32(1), shape))
    with pytest.raises(WorkError, match="labels needs at least"):
        Graph.from_edges([], np.eye(3), range(10**12))


MIXED = st.one_of(st.text(max_size=3), st.integers(-3, 3), st.integers(2**62, 2**65))


@pytest.mark.filterwarnings("ignore::dropnode.errors.GraphWarning")
@given(
    st.one_of(st.lists(kind, min_size=1, unique=True) for kind in (MIXED, st.text(max_size=3))),
    st.data(),
)
def test_many_names_are_looked_up_as_few_are(ids: list[Any], data: st.DataObject) -> None:
    known = st.sampled_from(ids)
    pairs = data.draw(st.lists(st.tuples(known, known), min_size=1))
    arrays = [pairs, np.array(pairs, dtype=object)]
    if all(isinstance(name, str) for name in ids):
        # NumPy drops zeros at the end of text.
        arrays += [np.array(pairs)] if not any("\0" in name for name in ids) else []
    features = np.ones((len(ids), 1))
    few = Graph.from_edges(pairs, features, ids=ids).adjacency.toarray()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nodes, "MANY", 0)
        for edges in arrays:
            many = Graph.from_edges(edges, features, ids=ids).adjacency.toarray()
            np.testing.assert_array_equal(many, few)
        stranger = "stranger" if isinstance(ids[0], str) else -99
        with pytest.raises(GraphError, match=f"edge 0 joins the unknown node {stranger!r}"):
            Graph.from_edges([(stranger, ids[0])], features, ids=ids)


def test_names_of_another_kind_are_unknown_among_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "MANY", 0)
    for ids, edges in (
        (["7", "8"], [(7, 8)]),
        ([7, 8], [("7", "8")]),
        (["a", "b"], [(b"a", b"b")]),
    ):
        with pytest.raises(GraphError, match="unknown node"):
            Graph.from_edges(edges, np.ones((2, 1)), ids=ids)


@pytest.mark.parametrize("mask", [np.array([True, False, True]), [True, False, True]])
def test_a_mask_is_no_list_of_ids(mask: Any) -> None:
    """As numbers, true and false are the ids of two nodes."""
    with pytest.raises(GraphError, match=r"a mask; expected ids of nodes: pass ids\[mask\]"):
        nodes.to_rows(mask, np.arange(3))


def test_weights_are_no_sparse_matrix() -> None:
    refuse("sparse matrix", "one weight per edge", weights=sp.coo_array(np.array([1.0, 2.0])))


def test_a_tensor_that_is_partly_dense_is_refused() -> None:
    hybrid = torch.sparse_coo_tensor(torch.tensor([[0, 1, 2]]), torch.eye(3), (3, 3))
    refuse("1 dense dimensions", "to_dense", features=hybrid)


@pytest.mark.parametrize("form", [list, iter, np.array])
@pytest.mark.parametrize(
    ("names", "word"), [(["a", None], "every class needs a name"), (["a", "a"], "more than once")]
)
def test_class_names_are_looked_at_in_any_form(form: Any, names: list[Any], word: str) -> None:
    refuse(word, labels=[0, 1, 0], class_names=form(names))
