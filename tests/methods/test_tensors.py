"""GraphTensors: parts of a graph and new nodes have the entries of Â that the whole gives them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

import oracles
from dropnode.graph import Graph
from dropnode.methods.tensors import GraphTensors
from dropnode.ops.selection import feature_rows, select_columns
from dropnode.ops.sparse_matrix import Features, SparseMatrix
from oracles import RandomGraph, assert_rounded, random_graphs


def assert_normalised(actual: torch.Tensor, expected: np.ndarray, terms: int) -> None:
    """Entries of Â: each has the root of two degrees, which are sums of so many terms."""
    assert_rounded(actual.numpy(), expected, np.abs(expected), terms + 4)


def tensors_of(drawn: RandomGraph, sparse: bool = False) -> GraphTensors:
    edges = np.array(drawn.edges, dtype=np.int64).reshape(-1, 2)
    graph = Graph.from_edges(edges, drawn.features, weights=drawn.weights)
    return GraphTensors(held(graph.features, sparse), graph.adjacency)


def held(features: np.ndarray, sparse: bool) -> Features:
    if sparse:
        return SparseMatrix.from_scipy(sp.csr_array(features))
    return torch.tensor(np.asarray(features), dtype=torch.float32)


def dense(features: Features) -> torch.Tensor:
    return features.to_dense() if isinstance(features, SparseMatrix) else features


def within(adjacency: np.ndarray, rows: np.ndarray, hops: int) -> np.ndarray:
    """Nodes within some hops, by powers of a dense matrix."""
    looped = (adjacency + np.eye(len(adjacency))) > 0
    reached = np.isin(np.arange(len(adjacency)), rows)
    for _ in range(hops):
        reached = looped @ reached
    return np.flatnonzero(reached)


@given(random_graphs())
def test_the_operator_and_the_edges_are_those_of_the_graph(drawn: RandomGraph) -> None:
    tensors = tensors_of(drawn)
    expected = oracles.normalised(drawn.adjacency)
    assert_normalised(tensors.operator.to_dense(), expected, len(expected))
    (source, target), weights = tensors.edges
    found = np.zeros_like(drawn.adjacency)
    found[target, source] = weights
    np.testing.assert_array_equal(found, drawn.adjacency)


def test_the_operator_is_made_when_first_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def counted(*arguments: Any) -> sp.csr_array:
        made.append(arguments)
        return sp.eye_array(2, format="csr")

    monkeypatch.setattr("dropnode.methods.tensors.normalise", counted)
    tensors = GraphTensors(torch.eye(2), sp.csr_array((2, 2)))
    assert not made
    assert tensors.operator is tensors.operator
    assert len(made) == 1


@given(random_graphs(), st.integers(0, 4), st.integers(0, 2**16), st.booleans())
def test_a_part_holds_what_the_whole_says_of_its_nodes(
    drawn: RandomGraph, hops: int, seed: int, sparse: bool
) -> None:
    tensors = tensors_of(drawn, sparse)
    count = tensors.num_nodes
    rows = np.random.default_rng(seed).integers(count, size=2)
    nodes = tensors.reached(rows, hops)
    np.testing.assert_array_equal(nodes, within(drawn.adjacency, rows, hops))

    part = tensors.part(nodes)
    whole = tensors.operator.to_dense()
    assert torch.equal(part.operator.to_dense(), whole[np.ix_(nodes, nodes)])
    assert torch.equal(dense(part.features), dense(tensors.features)[nodes])

    around, places = tensors.around(rows, hops)
    small = 2 * len(nodes) <= count
    assert around.num_nodes == (len(nodes) if small else count)
    assert torch.equal(dense(around.features)[places], dense(tensors.features)[rows])


@given(random_graphs(), st.integers(1, 4), st.integers(0, 2**16), st.booleans())
def test_new_nodes_receive_messages_and_send_none(
    drawn: RandomGraph, new: int, seed: int, sparse: bool
) -> None:
    tensors = tensors_of(drawn, sparse)
    old = tensors.num_nodes
    generator = np.random.default_rng(seed)
    links = generator.random((new, old)) * (generator.random((new, old)) < 0.5)
    links = links.astype(np.float32)
    features = generator.random((new, drawn.features.shape[1])).astype(np.float32)
    joined = tensors.joined_by(held(features, sparse), sp.csr_array(links))

    assert (joined.num_nodes, joined.receivers) == (old + new, new)
    assert torch.equal(dense(joined.features)[old:], torch.from_numpy(features))
    together = joined.operator.to_dense()
    assert torch.equal(together[:old, :old], tensors.operator.to_dense())
    assert not together[:old, old:].any()
    degrees = drawn.adjacency.sum(axis=1) + 1.0
    for i, row in enumerate(links.astype(np.float64)):
        own = row.sum() + 1.0
        assert_normalised(together[old + i, :old], row / np.sqrt(own * degrees), old)
        assert_normalised(together[old + i, old:], np.eye(new)[i] / own, old)
    # The transpose, which carries gradients, is another matrix.
    assert torch.equal(joined.operator.backward.to_dense(), together.T)


@given(random_graphs(), st.integers(1, 4), st.integers(0, 2**16))
def test_new_nodes_may_send_messages_to_each_other(drawn: RandomGraph, new: int, seed: int) -> None:
    tensors = tensors_of(drawn, False)
    old = tensors.num_nodes
    generator = np.random.default_rng(seed)
    links = (generator.random((new, old)) * (generator.random((new, old)) < 0.5)).astype("f4")
    half = np.triu(generator.random((new, new)) * (generator.random((new, new)) < 0.7), 1)
    among = (half + half.T).astype("f4")
    features = generator.random((new, drawn.features.shape[1])).astype("f4")
    joined = tensors.joined_by(held(features, False), sp.csr_array(links), sp.csr_array(among))

    together = joined.operator.to_dense()
    assert torch.equal(together[:old, :old], tensors.operator.to_dense())
    assert not together[:old, old:].any()
    own = links.sum(axis=1, dtype="f8") + among.sum(axis=1, dtype="f8") + 1.0
    degrees = drawn.adjacency.sum(axis=1) + 1.0
    terms = old + new
    assert_normalised(together[old:, :old], links / np.sqrt(np.outer(own, degrees)), terms)
    corner = (among + np.eye(new)) / np.sqrt(np.outer(own, own))
    assert_normalised(together[old:, old:], corner, terms)


@given(st.integers(0, 2**16), st.integers(1, 6), st.integers(0, 6))
def test_columns_are_selected(seed: int, rows: int, kept: int) -> None:
    generator = np.random.default_rng(seed)
    matrix = generator.random((rows, 6)) * (generator.random((rows, 6)) < 0.5)
    columns = np.sort(generator.choice(6, kept, replace=False))
    chosen = select_columns(sp.csr_array(matrix), columns)
    np.testing.assert_array_equal(chosen.toarray(), matrix[:, columns])


@pytest.mark.parametrize("sparse", [False, True])
def test_rows_of_features(sparse: bool) -> None:
    features = np.arange(12.0).reshape(4, 3)
    for rows in ([2, 0], [], [3, 3]):
        chosen = feature_rows(held(features, sparse), np.array(rows, dtype=np.int64))
        np.testing.assert_array_equal(dense(chosen), features[rows])
