"""Boosted trees: the numbers of scikit-learn, from arrays that need no pickle."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from sklearn.ensemble import HistGradientBoostingClassifier

from dropnode.data.generators.sbm import make
from dropnode.errors import ModelError
from dropnode.graph import Graph, Split
from dropnode.methods.baselines.boosted_trees import Trees
from dropnode.methods.baselines.boosting import Boosting
from dropnode.methods.table import make_method
from dropnode.ops.propagation import normalise
from dropnode.saving import load_model, save_model
from dropnode.training import train


@pytest.fixture(scope="module")
def graph() -> Graph:
    made = make(nodes=160, classes=3, features=12, average_degree=8, homophily=0.85, seed=1)
    nodes = np.arange(160)
    split = Split(nodes[nodes % 4 == 0], nodes[nodes % 4 == 1], nodes[nodes % 4 > 1])
    return made.with_split(split)


def trained(graph: Graph, seed: int = 0, **changes: Any) -> Boosting:
    method = make_method("boosting", "any", changes={"rounds": 12} | changes).method
    train(method, graph, seed=seed)
    assert isinstance(method, Boosting)
    return method


@pytest.mark.parametrize("classes", [2, 4])
def test_arrays_predict_what_scikit_learn_does(classes: int) -> None:
    """To the bit, after every round, and on values that lie on a threshold."""
    rng = np.random.default_rng(classes)
    rows = rng.integers(0, 9, (200, 5)).astype(np.float64)
    model = HistGradientBoostingClassifier(max_iter=15, min_samples_leaf=3, random_state=0)
    model.fit(rows, (rows[:, 0] + rows[:, 1] * 2).astype(int) % classes)
    trees = Trees.of(model)
    new = np.vstack([rows, rng.uniform(-1, 10, (300, 5)), rng.integers(0, 18, (300, 5)) / 2])

    raw = model._raw_predict(new)
    assert np.array_equal(trees.predict(new), raw)
    expected = [stage.reshape(raw.shape) for stage in model._staged_raw_predict(new)]
    np.testing.assert_allclose(trees.stages(new), expected, rtol=1e-12, atol=1e-12)
    assert np.array_equal(trees.first(4).predict(new), expected[3])
    assert (trees.rounds, trees.first(4).rounds) == (15, 4)
    trees.check(5)


def test_the_columns_are_powers_of_the_operator(graph: Graph) -> None:
    """The whole method, in NumPy and scikit-learn, without validation."""
    split = replace(graph.split, val=np.array([], dtype=np.int64))
    method = trained(graph.with_split(split), feature_scaling="none", order=2)
    operator = normalise(graph.adjacency).astype(np.float64)
    powers = [graph.features.astype(np.float64)]
    for _ in range(2):
        powers.append(operator @ powers[-1])
    columns = np.hstack(powers)
    model = HistGradientBoostingClassifier(
        max_iter=12, min_samples_leaf=5, early_stopping=False, random_state=0
    ).fit(columns[split.train], graph.labels[split.train])

    # Roundings in float32 can carry a value over a threshold between two labelled nodes.
    agrees = model.predict(columns) == method.logits().argmax(dim=1).numpy()
    assert agrees.mean() > 0.97
    assert agrees[split.train].all()


def test_validation_chooses_the_rounds_and_a_second_training_keeps_them(graph: Graph) -> None:
    method = trained(graph, rounds=30, learning_rate=0.5)
    trees = Trees(**{each.name: method.state()[each.name].numpy() for each in fields(Trees)})
    assert 0 < trees.rounds < 30
    rows, labels = graph.split.val, graph.labels[graph.split.val]
    bare = graph.with_split(replace(graph.split, val=[]))
    longest = trained(bare, rounds=30, learning_rate=0.5)
    every = Trees(**{each.name: longest.state()[each.name].numpy() for each in fields(Trees)})
    columns = longest._columns(longest.tensors)[rows]
    logs = torch.from_numpy(every.stages(columns)).log_softmax(dim=2).numpy()
    losses = -logs[:, np.arange(len(rows)), labels].mean(axis=1)
    assert trees.rounds == losses.argmin() + 1
    assert method.trained_as_long(None).rounds == trees.rounds


def test_wide_features_are_reduced_and_the_seed_decides_how(graph: Graph) -> None:
    few = [trained(graph, seed=seed, components=3).state()["projection"] for seed in (0, 0, 1)]
    assert few[0].shape == (12, 3)
    assert torch.equal(few[0], few[1])
    assert not torch.equal(few[0], few[2])
    assert "projection" not in trained(graph, components=12).state()
    # An orthonormal basis of the leading directions.
    np.testing.assert_allclose(few[0].T @ few[0], np.eye(3), atol=1e-5)
    model = trained(graph, components=3)
    held = model.tensors.features.numpy()
    kept = np.linalg.norm(held @ few[0].numpy()) ** 2
    best = (np.linalg.svd(held, compute_uv=False)[:3] ** 2).sum()
    assert kept == pytest.approx(best, rel=0.02)


@pytest.mark.parametrize("part", ["left", "column", "projection"])
def test_damaged_trees_are_refused(graph: Graph, tmp_path: Path, part: str) -> None:
    """A child that stands before its parent would be walked in circles."""
    method = trained(graph, components=3)
    state = method.state()
    if part == "projection":
        state["projection"] = state["projection"][:-1]
    else:
        inner = int((state["column"] >= 0).nonzero()[0])
        state[part] = state[part].clone()
        state[part][inner] = 0 if part == "left" else 99
    method.load_state = lambda state: None  # type: ignore[method-assign]
    method.state = lambda: state  # type: ignore[method-assign]
    save_model(tmp_path, method, graph)
    assert safetensors.numpy.load_file(tmp_path / "weights.safetensors")
    with pytest.raises(ModelError):
        load_model(tmp_path)
