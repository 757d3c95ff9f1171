"""Fixtures the tests share: one small graph with everything awkward in it, and a configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings

from dropnode.graph import Graph, Split
from dropnode.methods.grand.config import GrandConfig
from ray_nodes import (  # noqa: F401 (fixtures of the tests that use Ray)
    cluster,
    ray_disconnected,
    ray_environment,
    ray_folder,
)

# The same examples on every machine, and no deadline: a shared core is not a failure.
settings.register_profile("grand", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("grand")

CLASSES, MEMBERS, COLUMNS = 3, 8, 9


def _community() -> Graph:
    generator = np.random.default_rng(7)
    labels = np.repeat(np.arange(CLASSES), MEMBERS)
    nodes = len(labels)
    edges = [
        (i, j)
        for i in range(nodes)
        for j in range(i)
        if generator.random() < (0.4 if labels[i] == labels[j] else 0.04)
    ]
    weights = np.where(generator.random(len(edges)) < 0.5, 1.0, 2.5)
    prefers = np.repeat(np.eye(CLASSES), COLUMNS // CLASSES, axis=1)[labels]
    features = generator.poisson(0.3 + 2.0 * prefers).astype(float)
    features[5] = 0.0
    # Two nodes more, without a neighbour: the last has no features either.
    features = np.vstack([features, generator.poisson(1.0, COLUMNS) + 0.5, np.zeros(COLUMNS)])
    labels = np.append(labels, [0, 1])
    train = np.flatnonzero(np.arange(nodes) % MEMBERS < 2)
    val = np.flatnonzero((np.arange(nodes) % MEMBERS >= 2) & (np.arange(nodes) % MEMBERS < 4))
    test = np.setdiff1d(np.arange(nodes + 2), np.concatenate([train, val]))
    return Graph.from_edges(
        edges, features, labels, weights=weights, split=Split(train, val, test), name="community"
    )


@pytest.fixture(scope="session")
def community() -> Graph:
    """Three groups of eight nodes, weighted edges, two isolated nodes, two rows of zeros."""
    return _community()


@pytest.fixture
def features_as_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test choose whether a method holds features dense or sparse, not their density."""
    monkeypatch.setattr("dropnode.methods.base.lighter", lambda features: features)


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point the cache at an empty folder, which is returned."""
    monkeypatch.setenv("DROPNODE_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def homeless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without a home, as in a container; the working folder, which is empty, is returned."""
    pwd = pytest.importorskip("pwd", reason="Windows always has a home")

    def unknown(number: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("HOME", "XDG_CACHE_HOME", "DROPNODE_DATA", "DROPNODE_MIRROR"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope="session")
def configure() -> Callable[..., GrandConfig]:
    """A small configuration, with changes."""
    config = GrandConfig(
        feature_scaling="row",
        perturbation="dropnode",
        drop_rate=0.4,
        order=3,
        augmentations=3,
        consistency_weight=0.7,
        temperature=0.3,
        head="mlp",
        hidden=6,
        batch_norm=False,
        input_dropout=0.0,
        hidden_dropout=0.3,
        learning_rate=0.02,
        weight_decay=5e-4,
        patience=100,
        max_epochs=6,
        mask_scaling="training",
        initialisation="glorot",
        reduction="mean",
        stopping="loss-or-accuracy",
        attention_heads=2,
    )
    return config.replace


@pytest.fixture
def threads() -> Iterator[None]:
    """Put torch's number of threads back after a test that changes it."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
