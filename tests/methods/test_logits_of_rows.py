"""Asking for rows costs rows: of every method, on small graphs of every shape."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dropnode.graph import Graph, Split
from dropnode.methods.base import NodeClassifier
from dropnode.methods.new_rows import NewRows
from dropnode.methods.table import METHODS, make_method
from dropnode.methods.tensors import GraphTensors
from dropnode.ops.sparse_matrix import SparseMatrix
from dropnode.training import train
from rounding import Rounded, disturbed

# Methods whose answers depend on the whole graph.
WHOLE = {"graphunet", "label-propagation"}

CLOSED_FORM = {"label-propagation", "logistic", "boosting"}

# Short receptive fields, so that a ring has nodes out of their reach.
SHORT: dict[str, dict[str, Any]] = {
    # A fitted walk may look at no neighbour at all.
    "grand-plus": {"walk": "average"},
    "appnp": {"steps": 3},
    "gmnn": {"round_epochs": 1},
    "logistic": {"order": 3},
    "label-propagation": {},
}

every_method = pytest.mark.parametrize("name", METHODS)
every_local_method = pytest.mark.parametrize("name", [m for m in METHODS if m not in WHOLE])


def ring(count: int, sparse: bool = False, chords: int = 0, seed: int = 0) -> Graph:
    """A ring of weighted edges, with some chords and one isolated node behind it."""
    generator = np.random.default_rng(seed)
    edges = [(i, (i + 1) % (count - 1)) for i in range(count - 1)]
    edges += [tuple(generator.choice(count - 1, 2, replace=False)) for _ in range(chords)]
    labels = np.arange(count) % 3
    features = generator.poisson(0.6 + 2.0 * np.repeat(np.eye(3), 4, axis=1)[labels])
    adjacency = sp.lil_array((count, count), dtype=np.float32)
    for i, j in edges:
        adjacency[i, j] = adjacency[j, i] = generator.uniform(0.5, 2.0)
    return Graph.from_scipy(
        adjacency,
        sp.csr_array(features.astype(np.float32)) if sparse else features,
        labels,
        split=Split(np.arange(9), np.arange(9, 15), []),
    )


@cache
def trained(name: str, count: int, sparse: bool = False, chords: int = 0) -> NodeClassifier:
    changes = dict(SHORT.get(name, {}))
    if name not in CLOSED_FORM:
        changes |= {"max_epochs": 2}
    if name.startswith("grand"):
        changes |= {"order": 3}
    method = make_method(name, "any", changes=changes).method
    train(method, ring(count, sparse, chords), seed=1)
    return method


def rounded(method: NodeClassifier, tensors: GraphTensors) -> Rounded:
    """Logits of all nodes, and what roundings of a sum over all nodes do to them."""
    features = tensors.features
    sparse = isinstance(features, SparseMatrix)

    def logits(x: np.ndarray) -> torch.Tensor:
        changed = copy(tensors)
        held = SparseMatrix.from_scipy(sp.csr_array(x)) if sparse else torch.from_numpy(x)
        changed.features = held
        return method.infer(changed)

    dense = features.to_dense() if isinstance(features, SparseMatrix) else features
    return disturbed(logits, dense.numpy(), tensors.num_nodes)


@cache
def rounded_whole(name: str, count: int, sparse: bool = False, chords: int = 0) -> Rounded:
    method = trained(name, count, sparse, chords)
    return rounded(method, method.tensors)


@contextmanager
def counted(method: NodeClassifier) -> Iterator[list[int]]:
    """Count the nodes of every graph that the method classifies."""
    seen: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        infer = method.infer

        def counting(tensors: GraphTensors) -> torch.Tensor:
            seen.append(tensors.num_nodes)
            return infer(tensors)

        patch.setattr(method, "infer", counting)
        yield seen


def new_nodes(
    method: NodeClassifier, count: int, seed: int, sparse: bool
) -> tuple[Any, sp.csr_array]:
    """Raw features and links of nodes that join the training graph; one may have no link."""
    generator = np.random.default_rng(seed)
    known = method.tensors.num_nodes
    features = generator.poisson(1.0, (count, 12)).astype(np.float32)
    links = np.zeros((count, known), dtype=np.float32)
    for row in range(count):
        chosen = generator.choice(known, generator.integers(0, 4), replace=False)
        links[row, chosen] = generator.uniform(0.1, 1.0, len(chosen))
    return sp.csr_array(features) if sparse else features, sp.csr_array(links)


@every_method
@settings(max_examples=8)
@given(rows=st.lists(st.integers(0, 39), min_size=1, max_size=3), case=st.integers(0, 3))
def test_some_rows_are_rows_of_the_whole(name: str, rows: list[int], case: int) -> None:
    options = {"sparse": case % 2 == 0, "chords": 4 * (case // 2)}
    wanted = np.array(rows)
    found = trained(name, 40, **options).logits(rows=wanted)
    rounded_whole(name, 40, **options)[wanted].assert_near(found)


@every_method
@settings(max_examples=8)
@given(seed=st.integers(0, 10**6), case=st.integers(0, 3))
def test_a_new_row_is_that_of_the_whole_graph_with_it(name: str, seed: int, case: int) -> None:
    method = trained(name, 40, sparse=case % 2 == 0, chords=4 * (case // 2))
    features, links = new_nodes(method, 3, seed, sparse=case % 2 == 0)
    joined = method.tensors.joined_by(method.held(features), links)
    rounded(method, joined)[-3:].assert_near(method.new_logits(features, links))


@every_local_method
@settings(max_examples=8)
@given(seed=st.integers(0, 10**6), case=st.integers(0, 3))
def test_a_new_row_has_the_same_bits_whatever_comes_with_it(
    name: str, seed: int, case: int
) -> None:
    method = trained(name, 40, sparse=case % 2 == 0, chords=4 * (case // 2))
    features, links = new_nodes(method, 7, seed, sparse=case % 2 == 0)
    together = method.new_logits(features, links)
    backwards = method.new_logits(features[::-1], links[::-1])
    assert torch.equal(backwards.flip(0), together)
    for chosen in ([0], [4], [2, 5], [6, 1, 3]):
        assert torch.equal(method.new_logits(features[chosen], links[chosen]), together[chosen])


def edges_among(count: int, pairs: list[tuple[int, int]]) -> sp.csr_array:
    """Edges between new nodes, whose weights differ."""
    among = np.zeros((count, count), dtype=np.float32)
    for number, (i, j) in enumerate(pairs):
        among[i, j] = among[j, i] = 0.3 + 0.2 * number
    return sp.csr_array(among)


@every_method
@settings(max_examples=4)
@given(seed=st.integers(0, 10**6), case=st.integers(0, 3))
def test_new_rows_that_are_joined_are_those_of_the_whole_graph_with_them(
    name: str, seed: int, case: int
) -> None:
    method = trained(name, 40, sparse=case % 2 == 0, chords=4 * (case // 2))
    features, links = new_nodes(method, 5, seed, sparse=case % 2 == 0)
    among = edges_among(5, [(0, 1), (1, 3), (2, 4)])
    joined = method.tensors.joined_by(method.held(features), links, among)
    expected = method.infer(joined)[-5:]
    found = method.new_logits(features, links, among)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    if method.hops and name != "boosting":  # The answers of trees change in steps.
        assert not torch.allclose(found, method.new_logits(features, links), rtol=1e-4, atol=1e-5)


@every_local_method
@settings(max_examples=4)
@given(seed=st.integers(0, 10**6), case=st.integers(0, 3))
def test_joined_rows_have_the_same_bits_whatever_else_comes_with_them(
    name: str, seed: int, case: int
) -> None:
    method = trained(name, 40, sparse=case % 2 == 0, chords=4 * (case // 2))
    features, links = new_nodes(method, 7, seed, sparse=case % 2 == 0)
    among = edges_among(7, [(0, 4), (4, 5), (1, 6)])
    together = method.new_logits(features, links, among)
    for group in ([0, 4, 5], [1, 6], [2], [0, 1, 4, 5, 6]):
        alone = method.new_logits(features[group], links[group], among[group][:, group])
        assert torch.equal(alone, together[group])
    # Nodes that no edge joins to others are as if there were no edges between new nodes.
    assert torch.equal(method.new_logits(features, links)[[2, 3]], together[[2, 3]])


@every_local_method
def test_work_follows_the_rows_and_not_the_graph(name: str) -> None:
    """On a ring, a node has two neighbours at every distance, whatever the size of the ring."""
    method = trained(name, 400)
    assert method.hops is not None
    reach = 2 * method.hops + 1
    rows = np.array([100, 250, 399])
    with counted(method) as seen:
        method.logits()
        part = method.logits(rows=rows)
    rounded_whole(name, 400)[rows].assert_near(part)
    # The last node is isolated.
    assert seen == [400, 2 * reach + 1]


@every_local_method
def test_a_new_row_costs_its_neighbourhood(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method = trained(name, 400)
    features, links = np.ones((2, 12), np.float32), np.zeros((2, 400), np.float32)
    links[0, 100], links[1, [200, 201]] = 1.0, 0.5
    method.new_logits(features, sp.csr_array(links))

    made: list[tuple[int, ...]] = []
    scale = type(method.scaling).apply
    monkeypatch.setattr(
        type(method.scaling),
        "apply",
        lambda self, x: (made.append(x.shape), scale(self, x))[1],
    )
    with counted(method) as seen:
        method.new_logits(features, sp.csr_array(links))
    assert made == [(2, 12)], "old features are not scaled again"
    if getattr(method, "_new_rows", None) is not None:
        assert seen == [], "what old nodes send is kept"
        return
    hops = method.hops
    assert hops is not None
    around = 2 * (hops - 1) + 1 if hops else 0
    assert seen == [around + 1, around + 2 if hops else 1]


def test_methods_that_read_the_whole_graph_say_so() -> None:
    for name in METHODS:
        assert (trained(name, 40).hops is None) == (name in WHOLE)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("grand", {}),
        ("grand-dropedge", {"mask_scaling": "inference"}),
        ("grand-no-cr", {"mask_scaling": "inference"}),
        ("grand-plus", {"walk": "ppr"}),
        ("grand-plus", {"walk": "single", "layers": 2, "batch_norm": True}),
    ],
)
def test_what_old_nodes_send_is_computed_once_for_the_weights(
    name: str, changes: dict[str, Any]
) -> None:
    changes = {"max_epochs": 2, "order": 3} | changes
    method = make_method(name, "any", changes=changes).method
    train(method, ring(40), seed=1)
    features, links = new_nodes(method, 4, 0, sparse=False)
    before = method.new_logits(features, links)
    rows: NewRows = method._new_rows  # type: ignore[attr-defined]
    kept = rows.kept
    assert kept is not None
    assert torch.equal(method.new_logits(features, links), before)
    assert rows.kept is kept

    with torch.no_grad():
        for parameter in method.network.parameters():
            parameter.mul_(1.5)
    after = method.new_logits(features, links)
    joined = method.tensors.joined_by(method.held(features), links)
    rounded(method, joined)[-4:].assert_near(after)
    assert not torch.allclose(after, before)


@every_local_method
def test_a_method_that_is_trained_again_forgets_the_graph_before(name: str) -> None:
    changes = SHORT.get(name, {}) | ({} if name in CLOSED_FORM else {"max_epochs": 1})
    again, new = (make_method(name, "any", changes=changes).method for _ in range(2))
    train(again, ring(40), seed=1)
    features, links = new_nodes(again, 3, 0, sparse=False)
    again.new_logits(features, links)
    for method in (again, new):
        train(method, ring(40, chords=8, seed=5), seed=2)
    assert torch.equal(again.new_logits(features, links), new.new_logits(features, links))
