"""The time of one epoch, with validation, of every path on the paper's datasets."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from dropnode.bench.naive import NaiveGrand
from dropnode.bench.pyg import PygTraining
from dropnode.bench.timing import Announce, Timings, alternate, headed, quiet
from dropnode.data import load_dataset
from dropnode.graph import Graph
from dropnode.methods.grand.config import preset
from dropnode.methods.grand.model import Grand
from dropnode.training import Method, epochs

DATASETS = ("cora", "citeseer", "pubmed")

PATHS = ("naive", "exact", "fast", "pyg-gcn", "pyg-gat")

PRESETS: Mapping[str, str] = {"naive": "official", "exact": "official", "fast": "fast"}
"""The preset that each path of GRAND trains with."""

ROUNDS = 7

ENDLESS = {"max_epochs": 10**9, "patience": 10**9}
"""Settings that keep a training from stopping while it is measured, and change nothing else."""


class Training(Protocol):
    """A training that can be continued by one epoch at a time."""

    def epoch(self) -> object:
        """Train for one epoch and validate."""
        ...


class LoopTraining:
    """A method in the package's own training loop."""

    def __init__(self, method: Method, graph: Graph) -> None:
        self.epochs = epochs(method, graph, seed=0)

    def epoch(self) -> dict[str, float]:
        """Train for one epoch and validate."""
        return next(self.epochs)


def training(path: str, dataset: str, graph: Graph) -> Training:
    """Return the training of a path of :data:`PATHS` on a dataset."""
    if path not in PRESETS:
        return PygTraining(path, graph)
    _, config = preset(PRESETS[path], dataset)
    method = NaiveGrand if path == "naive" else Grand
    return LoopTraining(method(config.replace(**ENDLESS)), graph)


def time_epochs(
    dataset: str,
    graph: Graph,
    paths: Sequence[str] = PATHS,
    *,
    rounds: int = ROUNDS,
    burst: float = 0.5,
    clock: Callable[[], float] = time.perf_counter,
    announce: Announce = quiet,
) -> Timings:
    """Time one epoch of each path on one dataset, in turns."""
    trainings = {path: training(path, dataset, graph) for path in paths}
    actions = {path: trained.epoch for path, trained in trainings.items()}
    return alternate(actions, rounds=rounds, burst=burst, clock=clock, announce=announce)


def measure(announce: Announce = quiet) -> list[dict[str, Any]]:
    """Return one row per dataset and path: milliseconds per epoch, and speed-ups."""
    # All datasets are loaded first, so that a missing one is reported before anything is measured.
    graphs = {name: load_dataset(name) for name in DATASETS}
    rows = []
    for dataset, graph in graphs.items():
        timings = time_epochs(dataset, graph, announce=headed(announce, f"epoch: {dataset}"))
        rows += [_row(dataset, path, timings) for path in PATHS]
    return rows


def _row(dataset: str, path: str, timings: Timings) -> dict[str, Any]:
    own = timings.time(path)
    to_naive, to_gcn = timings.speedup(path, "naive"), timings.speedup(path, "pyg-gcn")
    return {
        "dataset": dataset,
        "path": path,
        "preset": PRESETS.get(path),
        "median_ms": 1000 * own.median,
        "iqr_ms": 1000 * own.iqr,
        "ratio_to_naive": to_naive.median,
        "ratio_iqr": to_naive.iqr,
        "ratio_to_pyg_gcn": to_gcn.median,
        "ratio_to_pyg_gcn_iqr": to_gcn.iqr,
        "rounds": len(timings.seconds[path]),
        "epochs_a_round": timings.bursts[path],
    }
