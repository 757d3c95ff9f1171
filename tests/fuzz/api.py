"""Broken input of the Python interface: arrays, labels, masks, parameters."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import junk
import networkx as nx
import numpy as np

from dropnode import GrandClassifier, Graph, load_dataset, save_graph
from dropnode.data.splits import label_rate_split, per_class_split, stratified_holdout
from dropnode.graph import Split
from dropnode.graph.neighbours import nearest_neighbour_graph
from dropnode.methods.table import METHODS, configuration, make_method

X = np.random.default_rng(0).random((junk.NODES, 3))
Y = [0, 0, 1, 1, -1, -1, 0, 1, -1, -1, -1, -1]
EDGES = [(0, 1), (1, 2), (2, 3), (4, 5)]


@cache
def fitted() -> GrandClassifier:
    return small().fit(X, Y)


def warm_up() -> None:
    """Compile the kernels, and import what takes seconds."""
    fitted()
    # Some methods import it. The time limit of a case must not end an import half-way.
    importlib.import_module("torch_geometric.nn")


def small(**parameters: Any) -> GrandClassifier:
    return GrandClassifier(**{"max_epochs": 2, "hidden": 4, "random_state": 0} | parameters)


def case(random: Random, folder: Path) -> Callable[[], object]:
    """Return a call of the interface with something wrong in it."""
    return random.choice(CASES)(random, folder)


def graph(random: Random, folder: Path) -> Callable[[], object]:
    given: dict[str, Any] = {"features": X, "labels": Y}
    built: Any = Graph.from_edges
    if random.random() < 0.5:
        given["edges"] = EDGES
        spare = ["weights", "ids", "class_names", "split", "name", "labels", "features", "edges"]
    else:
        built, given["adjacency"] = Graph.from_scipy, np.eye(junk.NODES)[::-1]
        spare = ["ids", "class_names", "split", "name", "labels", "features", "adjacency"]
    for key in random.sample(spare, random.choice([1, 1, 2])):
        given[key] = junk.value(random) if random.random() < 0.4 else _like(key, random)
    return lambda: _use(built(**given))


def _like(key: str, random: Random) -> Any:
    """Return something near what a parameter takes."""
    square, column = (junk.NODES, junk.NODES), (junk.NODES,)
    shapes = {"features": (junk.NODES, 3), "adjacency": square, "edges": (5, 2), "weights": (4,)}
    if key in ("features", "adjacency") and random.random() < 0.5:
        dense = np.random.default_rng(0).integers(0, 2, shapes[key]).astype(float)
        return junk.sparse(random, dense)
    if key == "class_names":
        return random.choice(["ab", ["a", "a"], ["a", ""], [None, "b"], {"a": 1}, ["a"], 3])
    if key == "labels":
        return random.choice([[""] * 12, [np.datetime64("NaT")] * 12, junk.array(random, column)])
    return junk.array(random, shapes.get(key, column))


def _use(made: Graph) -> None:
    """Read everything in a graph: one that exists is sound."""
    adjacency = made.adjacency
    assert (adjacency != adjacency.T).nnz == 0
    assert not adjacency.diagonal().any()
    assert made.labels.max() < max(made.num_classes, 0) or made.labels.max() == -1
    features = made.features if isinstance(made.features, np.ndarray) else made.features.toarray()
    assert np.isfinite(features).all()
    made.fingerprint()


def constructor(random: Random, folder: Path) -> Callable[[], object]:
    whole = Graph.from_edges(EDGES, X, Y)
    key = random.choice(["adjacency", "features", "labels", "ids", "class_names", "split", "name"])
    changed = _like(key, random)
    if key in ("labels", "ids", "features") and random.random() < 0.5:
        np.save(folder / "a.npy", np.full(junk.NODES, 99))
        changed = np.load(folder / "a.npy", mmap_mode="r")
    return lambda: _use(replace(whole, **{key: changed}))


def split(random: Random, folder: Path) -> Callable[[], object]:
    parts = [[0, 1], [2], [3]]
    parts[random.randrange(3)] = junk.value(random)
    labels = np.array(Y)
    return random.choice(
        [
            lambda: Split(*parts),
            lambda: Graph.from_edges(EDGES, X, Y, split=Split(*parts)),
            lambda: per_class_split(labels, 1, 1, seed=junk.number(random)),
            lambda: label_rate_split(labels, 0.1, seed=junk.number(random)),
            lambda: stratified_holdout(labels, 0.3, seed=junk.number(random)),
            lambda: nearest_neighbour_graph(junk.array(random), junk.value(random)),
        ]
    )


def networks(random: Random, folder: Path) -> Callable[[], object]:
    if random.random() < 0.5:
        network = nx.path_graph(4)
        nx.set_node_attributes(network, 1.0, "x")
        network.nodes[random.randrange(4)][random.choice("xy")] = junk.value(random)
        network.edges[0, 1]["weight"] = random.choice([1, junk.value(random)])
        given = random.choice([network, network, junk.value(random)])
        return lambda: _use(Graph.from_networkx(given))
    data = {"x": X, "edge_index": np.array(EDGES).T, "y": np.array(Y)}
    keys = ["x", "edge_index", "y", "edge_weight", "train_mask", "val_mask", "class_names"]
    data[random.choice(keys)] = junk.value(random)
    given = random.choice([SimpleNamespace(**data), SimpleNamespace(**data), junk.value(random)])
    return lambda: _use(Graph.from_pyg(given))


def parameters(random: Random, folder: Path) -> Callable[[], object]:
    name = random.choice(sorted(GrandClassifier().get_params()))
    given = junk.value(random)
    if name == "class_weight" and random.random() < 0.7:
        given = {0: junk.number(random), 1: 1.0}
    if name == "device":
        given = random.choice(["cuda", "meta", "mps", "cpu:9", "warp", "", given])
    return lambda: small(**{name: given}).fit(X, Y)


def fit(random: Random, folder: Path) -> Callable[[], object]:
    given = [X, Y, None]
    place = random.randrange(3)
    given[place] = random.choice([junk.value(random), junk.array(random, np.shape(given[place]))])
    return lambda: small().fit(*given)


def predict(random: Random, folder: Path) -> Callable[[], object]:
    given, labels = junk.value(random), random.choice([Y, [0], Y * 2, junk.value(random)])
    rows = X[: random.choice([1, 5, 12])]
    return random.choice(
        [
            lambda: fitted().predict(given),
            lambda: fitted().predict(rows, graph=given),
            lambda: fitted().score(X, labels),
            lambda: fitted().score(given, labels),
            lambda: fitted().save(given),
            lambda: GrandClassifier.load(given),
        ]
    )


def settings(random: Random, folder: Path) -> Callable[[], object]:
    method = random.choice(METHODS)
    names = configuration(method, None)[1].names()
    changes = {random.choice(names): junk.value(random) for _ in range(random.choice([1, 2]))}
    preset = random.choice([None, None, junk.value(random)])
    return lambda: make_method(random.choice([method, junk.value(random)]), None, preset, changes)


def datasets(random: Random, folder: Path) -> Callable[[], object]:
    option = random.choice(["nodes", "classes", "average_degree", "homophily", "features", "seed"])
    given = junk.value(random)
    return random.choice(
        [
            lambda: load_dataset("sbm", **{option: given}),
            lambda: load_dataset(given),
            lambda: load_dataset("digits", split_seed=given),
            lambda: save_graph(Graph.from_edges(EDGES, X, Y), given),
            lambda: save_graph(given, folder / "a.npz"),
        ]
    )


CASES = [
    graph,
    graph,
    graph,
    constructor,
    split,
    networks,
    parameters,
    fit,
    predict,
    settings,
    datasets,
]
