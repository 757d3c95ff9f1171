"""A trial: one training of an experiment, which its identity determines to the last bit.

The identity is the data (by hash), the split, the method with its revision, the configuration and
the seed. Whoever runs a trial of the same identity, on whatever engine, gets the same numbers.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np
import torch

from dropnode.data import draw_split, load_dataset
from dropnode.experiments.run import known_test_nodes, measure, perform
from dropnode.graph import Graph, Split
from dropnode.methods.table import make_method, restore_method
from dropnode.saving import versions

BINS = 15
"""Bins of equal width in which confidences are counted."""

IDENTITY = ("dataset_sha256", "split", "method", "revision", "config", "seed")


@dataclass(frozen=True)
class Trial:
    """What is to be trained. ``config`` holds the keys that are not at their default."""

    dataset: str
    dataset_sha256: str
    split: str
    split_seed: int
    method: str
    revision: int
    preset: str
    config: Mapping[str, Any]
    seed: int

    @cached_property
    def id(self) -> str:
        """Sixteen hexadecimal digits that stand for the identity."""
        identity = {name: getattr(self, name) for name in IDENTITY}
        identity["config"] = dict(self.config)
        text = json.dumps(identity, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Finished:
    """What a trial came to.

    Attributes
    ----------
    metrics : dict
        Accuracies as fractions, and of the test nodes the confusion matrix and the counts of a
        reliability diagram.
    seconds : float
    finished : str
        When, as ISO 8601.
    versions : dict
    history : bytes
        Every epoch; see :func:`read_history`.
    """

    metrics: dict[str, Any]
    seconds: float
    finished: str
    versions: dict[str, str] = field(default_factory=dict)
    history: bytes | None = None


@dataclass(frozen=True)
class Data:
    """The graphs of an experiment, and the splits that its trials use."""

    graphs: dict[str, Graph]
    splits: dict[tuple[str, int], Split]
    fingerprints: dict[str, str]

    @classmethod
    def load(cls, datasets: Iterable[str], splits: int = 1) -> Data:
        """Load every dataset, and draw so many splits; a published one counts once."""
        graphs = {name: load_dataset(name) for name in datasets}
        drawn: dict[tuple[str, int], Split] = {}
        for name, graph in graphs.items():
            for seed in range(splits):
                split = draw_split(name, graph, seed)
                if seed == 0 or split.name != drawn[name, 0].name:
                    drawn[name, seed] = split
        return cls(graphs, drawn, {name: graph.fingerprint() for name, graph in graphs.items()})

    def graph(self, dataset: str, split_seed: int) -> Graph:
        """Return a graph with one of its splits."""
        return self.graphs[dataset].with_split(self.splits[dataset, split_seed])


def plan(
    data: Data,
    dataset: str,
    split_seed: int,
    method: str,
    preset: str | None,
    changes: Mapping[str, Any],
    seed: int,
) -> Trial:
    """Return the trial of a request; what cannot be asked for is an error here, not in a worker."""
    choice = make_method(method, dataset, preset, changes)
    return Trial(
        dataset=dataset,
        dataset_sha256=data.fingerprints[dataset],
        split=data.splits[dataset, split_seed].name,
        split_seed=split_seed,
        method=method,
        revision=choice.method.revision,
        preset=choice.preset,
        config=choice.identity,
        seed=seed,
    )


def run_trial(data: Data, trial: Trial) -> Finished:
    """Train a trial: what engines call."""
    # Should torch have been told otherwise by something imported before us.
    torch.set_num_threads(1)
    graph = data.graph(trial.dataset, trial.split_seed)
    method = restore_method(trial.method, trial.config)
    outcome, probabilities = perform(method, graph, trial.seed)
    metrics = measure(graph, outcome, probabilities)
    seconds = metrics.pop("seconds")
    for name in ("seconds_per_epoch", "interrupted"):
        del metrics[name]
    metrics |= judge(graph, probabilities)
    return Finished(metrics, seconds, now(), versions(), write_history(outcome.history))


def judge(graph: Graph, probabilities: np.ndarray) -> dict[str, Any]:
    """Return the confusion matrix of the test nodes, and how often a confidence was right.

    ``reliability`` has, for each bin, the number of test nodes, and the sums of their confidences
    and of their correct predictions.
    """
    test = known_test_nodes(graph)
    if not len(test):
        return {}
    labels, chances = graph.labels[test], probabilities[test]
    predicted, confidence = chances.argmax(axis=1), chances.max(axis=1).astype(np.float64)
    classes = graph.num_classes
    confusion = np.bincount(labels * classes + predicted, minlength=classes**2)
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    correct = predicted == labels
    return {
        "confusion": confusion.reshape(classes, classes).tolist(),
        "reliability": {
            "count": np.bincount(bins, minlength=BINS).tolist(),
            "confidence": np.bincount(bins, confidence, minlength=BINS).tolist(),
            "correct": np.bincount(bins, correct, minlength=BINS).astype(int).tolist(),
        },
    }


def now() -> str:
    """Return the time, as stored."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def write_history(history: list[dict[str, float]]) -> bytes:
    """Return a history as bytes: float32 columns, compressed."""
    names = list(dict.fromkeys(name for line in history for name in line))
    columns = {
        name: np.array([line.get(name, np.nan) for line in history], dtype=np.float32)
        for name in names
    }
    target = io.BytesIO()
    np.savez_compressed(target, **columns)  # type: ignore[arg-type]
    return target.getvalue()


def read_history(content: bytes) -> dict[str, np.ndarray]:
    """Return the columns of :func:`write_history`.

    Examples
    --------
    >>> read_history(write_history([{"epoch": 1.0, "loss": 0.5}]))["loss"].tolist()
    [0.5]
    """
    with np.load(io.BytesIO(content), allow_pickle=False) as columns:
        return {name: columns[name] for name in columns.files}
