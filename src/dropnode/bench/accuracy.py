"""The accuracy part of the benchmark: the time of whole trainings, and their test accuracy.

Trainings stop by validation, as always; the test accuracy is measured after they have ended.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from dropnode.bench.epochs import DATASETS, PRESETS
from dropnode.bench.timing import Announce, quiet
from dropnode.data import load_dataset
from dropnode.graph import Graph
from dropnode.methods.grand.config import preset
from dropnode.methods.grand.model import Grand
from dropnode.training import Outcome, train

PAPER = {"cora": 85.4, "citeseer": 75.4, "pubmed": 82.7}
"""Test accuracies (%) of GRAND in the paper, means over 100 seeds."""

SEEDS = (0, 1, 2)


def measure(announce: Announce = quiet) -> list[dict[str, Any]]:
    """Return one row per dataset and path: seconds of training and test accuracy (%)."""
    graphs = {name: load_dataset(name) for name in DATASETS}
    rows = []
    for dataset, graph in graphs.items():
        for path in ("exact", "fast"):
            outcomes, accuracies = [], []
            for seed in SEEDS:
                announce(f"accuracy: {dataset}, {path}, seed {seed}")
                _, config = preset(PRESETS[path], dataset)
                method = Grand(config)
                outcomes.append(_trained(method, graph, seed))
                accuracies.append(100 * _test_accuracy(method, graph))
            seconds = [outcome.seconds for outcome in outcomes]
            rows.append(
                {
                    "dataset": dataset,
                    "path": path,
                    "preset": PRESETS[path],
                    "seeds": list(SEEDS),
                    "epochs": [outcome.epochs for outcome in outcomes],
                    "seconds": seconds,
                    "median_seconds": float(np.median(seconds)),
                    "test_accuracy": accuracies,
                    "mean_accuracy": float(np.mean(accuracies)),
                    "paper": PAPER[dataset],
                }
            )
    return rows


def _trained(method: Grand, graph: Graph, seed: int) -> Outcome:
    outcome = train(method, graph, seed=seed)
    if outcome.interrupted:
        # The loop keeps the model of an interrupted training; here only complete ones count.
        raise KeyboardInterrupt
    return outcome


def _test_accuracy(method: Grand, graph: Graph) -> float:
    assert graph.split is not None
    test = graph.split.test
    right = method.logits(rows=test).argmax(dim=1).cpu() == torch.tensor(graph.labels[test])
    return right.double().mean().item()
