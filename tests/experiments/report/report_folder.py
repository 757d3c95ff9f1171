"""Folders of experiments that were never run: invented trials in a real store, summed up."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np

from dropnode.experiments.record import Record
from dropnode.experiments.results import Results, Stage
from dropnode.experiments.runner import row_cells, stage_cells
from dropnode.experiments.spec import Spec
from dropnode.experiments.spec_file import load_spec
from dropnode.experiments.store import Store
from dropnode.experiments.summary import summarise_experiment, summarise_stage
from dropnode.experiments.trials import Data, Trial, write_history
from dropnode.files import write_json

CLASSES = {
    "cora": (
        "Case_Based Genetic_Algorithms Neural_Networks Probabilistic_Methods "
        "Reinforcement_Learning Rule_Learning Theory"
    ).split(),
    "citeseer": "Agents AI DB IR ML HCI".split(),
    "pubmed": [
        "Diabetes Mellitus, Experimental",
        "Diabetes Mellitus Type 1",
        "Diabetes Mellitus Type 2",
    ],
}
SIZES = {"cora": (2708, 5278, 1433), "citeseer": (3327, 4552, 3703), "pubmed": (19717, 44324, 500)}
BINS = 15
ERROR = "ValueError: the loss of epoch 31 is nan; lower learning_rate"
COMMAND = "dropnode reproduce table1-grand --out runs/table1"
FINISHED = "2026-11-16T02:10:00+00:00"


def data_of(names: Iterable[str], classes: dict[str, list[str]] | None = None) -> Data:
    """Return datasets that have sizes and names, and nothing else."""
    graphs, splits = {}, {}
    for name in names:
        nodes, edges, features = SIZES[name]
        labels = (classes or CLASSES)[name]
        graphs[name] = SimpleNamespace(
            num_nodes=nodes,
            num_edges=edges,
            num_features=features,
            num_classes=len(labels),
            class_names=tuple(labels),
        )
        splits[name, 0] = SimpleNamespace(
            name="public",
            train=range(20 * len(labels)),
            val=range(500),
            test=range(1000),
        )
    prints = {name: f"{zlib.crc32(name.encode()):08x}" * 8 for name in graphs}
    return Data(graphs, splits, prints)  # type: ignore[arg-type]


def write_folder(
    folder: Path,
    *,
    spec: Spec | None = None,
    data: Data | None = None,
    broken: dict[tuple[str, str], Sequence[int]] | None = None,
    absent: Iterable[tuple[str, str]] = (),
    bare: Iterable[tuple[str, str]] = (),
    shift: dict[tuple[str, str], float] | None = None,
    further: Callable[[Trial], dict[str, Any]] = lambda trial: {},
) -> Results:
    """Write the store and ``results.json`` of Table 1, or of a part of it; return the latter.

    Cells are named by method and dataset: ``broken`` ones have seeds that failed, ``absent`` ones
    were never run, and ``bare`` ones were imported, without histories or anything but accuracies;
    ``shift`` moves a cell away from the paper's figure, and ``further`` invents more measures.
    """
    spec = spec or load_spec("table1-grand")
    data = data or data_of(spec.datasets)
    cells = row_cells(spec, data)
    published = {row.name: row.paper for row in spec.rows}
    with Store(folder) as store:
        for cell in cells:
            key = (cell.name, cell.dataset)
            if key in absent:
                continue
            level = published[cell.name].get(cell.dataset, (80.0, None))[0]
            level += (shift or {}).get(key, 0.0)
            classes = data.graphs[cell.dataset].num_classes
            store.add(
                _failed(trial)
                if trial.seed in (broken or {}).get(key, ())
                else _done(trial, level, classes, whole=key not in bare, further=further(trial))
                for trial in cell.trials
            )
        results = summarise_experiment(spec, data, cells, store.get, COMMAND)
    return write_results_json(folder, replace(results, finished=FINISHED))


def write_results_json(folder: Path, results: Results) -> Results:
    write_json(folder / "results.json", results.as_json())
    return results


def write_search(folder: Path) -> Results:
    """Write the store and ``results.json`` of a search in three stages."""
    spec = load_spec("hyperparameters")
    assert spec.search is not None
    data = data_of(spec.datasets)
    chosen: dict[str, dict[str, Any]] = {"citeseer": {}}
    stages: list[Stage] = []
    with Store(folder) as store:
        for number in range(len(spec.search.stages)):
            cells = stage_cells(spec.search, data, number, chosen)
            for place, cell in enumerate(cells):
                level = 75.4 - 0.5 * abs(place - 1)
                store.add(_done(trial, level, 6) for trial in cell.trials)
            (stage,) = summarise_stage(number + 1, cells, store.get)
            stages.append(stage)
            chosen["citeseer"] |= next(row.changes for row in stage.rows if row.chosen)
        results = summarise_experiment(spec, data, [], store.get, COMMAND, stages)
    return write_results_json(folder, replace(results, finished=FINISHED))


def part_of_table(
    *,
    seeds: int,
    datasets: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
) -> Spec:
    """Return some of Table 1, with so many seeds in every cell."""
    return load_spec("table1-grand").only(datasets, methods, seeds)


def _failed(trial: Trial) -> tuple[Record, None]:
    return Record(trial, "failed", {}, None, FINISHED, {}, ERROR), None


def _done(
    trial: Trial,
    level: float,
    classes: int,
    whole: bool = True,
    further: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[Record, bytes | None]:
    generator = np.random.default_rng(int(trial.id, 16))
    accuracy = round(float(generator.normal(level, 0.55)) / 100, 3)
    epochs = int(generator.integers(500, 900))
    best = epochs - 200
    metrics: dict[str, Any] = {
        "test_accuracy": accuracy,
        "val_accuracy": round(accuracy - 0.03, 3),
        "val_loss": 0.8,
        "best_epoch": best,
        "epochs": epochs,
    }
    history = None
    if whole:
        metrics |= {**_judged(generator, accuracy, classes), **further}
        history = write_history(_history(generator, epochs, best, accuracy, classes))
    return Record(trial, "done", metrics, 12.0, FINISHED, {"torch": "2.13.0"}), history


def _judged(generator: np.random.Generator, accuracy: float, classes: int) -> dict[str, Any]:
    labels = generator.integers(classes, size=1000)
    neighbour = (labels + generator.choice([1, 1, 2], size=1000)) % classes
    # Surer than they should be of the hard nodes, and not sure enough of the easy ones.
    sure = np.clip(generator.beta(4, 1.6, size=1000), 1 / classes, 0.999)
    chance = np.clip(sure**0.5 + accuracy - np.mean(sure**0.5), 0, 1)
    predicted = np.where(generator.random(1000) < chance, labels, neighbour)
    bins = (sure * BINS).astype(int)
    correct = predicted == labels
    return {
        "confusion": np.bincount(labels * classes + predicted, minlength=classes**2)
        .reshape(classes, classes)
        .tolist(),
        "reliability": {
            "count": np.bincount(bins, minlength=BINS).tolist(),
            "confidence": np.bincount(bins, sure, minlength=BINS).tolist(),
            "correct": np.bincount(bins, correct, minlength=BINS).astype(int).tolist(),
        },
    }


def _history(
    generator: np.random.Generator, epochs: int, best: int, accuracy: float, classes: int
) -> list[dict[str, float]]:
    epoch = np.arange(1, epochs + 1)
    noise = generator.normal(size=(2, epochs))
    fall = np.exp(-epoch / 120)
    loss = 0.7 + (np.log(classes) - 0.7) * fall + 1e-4 * abs(epoch - best) + 0.006 * noise[0]
    right = (accuracy - 0.03) * (1 - 0.6 * fall**3) + 0.006 * noise[1]
    return [
        {
            "epoch": float(one),
            "loss": float(two),
            "val_loss": float(two),
            "val_accuracy": float(three),
        }
        for one, two, three in zip(epoch, loss, right, strict=True)
    ]
