"""From stored trials to ``results.json``: one row a cell, comparisons, and the paper's claims."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dropnode.experiments.runner import Cell
from dropnode.experiments.spec import Spec
from dropnode.experiments.statistics import compare, holm, summarise
from dropnode.experiments.store import Record
from dropnode.experiments.trials import Data, now
from dropnode.saving import versions

ENOUGH = 20
"""Seeds of either side from which a difference that is not found counts as not confirmed."""

LEVEL = 0.05

Find = Callable[[str], Record | None]
"""Returns what is stored of a trial."""


def summarise_experiment(
    spec: Spec, data: Data, cells: Sequence[Cell], find: Find, command: str
) -> dict[str, Any]:
    """Return everything that ``results.json`` says, apart from a search."""
    scores = {(cell.name, cell.dataset): _scores(cell, find) for cell in cells}
    rows = [_row(spec, cell, find) for cell in cells]
    return {
        "experiment": spec.name,
        "title": spec.title,
        "description": spec.description,
        "command": command,
        "finished": now(),
        "environment": environment(),
        "datasets": [_dataset(data, name) for name in spec.datasets],
        "rows": rows,
        "comparisons": _comparisons(spec, scores),
        "claims": _claims(spec, scores),
        "search": None,
    }


def summarise_stage(
    number: int, tried: Sequence[tuple[Cell, dict[str, Any]]], find: Find
) -> list[dict[str, Any]]:
    """Return what one stage of a search came to, for every dataset; the best is marked chosen.

    The mean validation accuracy decides, and of equal ones the first.
    """
    stages = []
    for dataset in dict.fromkeys(cell.dataset for cell, _ in tried):
        rows: list[dict[str, Any]] = []
        for cell, changes in tried:
            if cell.dataset != dataset:
                continue
            val, test = (
                summarise(list(_scores(cell, find, metric).values()))
                for metric in ("val_accuracy", "test_accuracy")
            )
            rows.append(
                {
                    "changes": changes,
                    "val_mean": val["mean"],
                    "val_std": val["std"],
                    "test_mean": test["mean"],
                    "test_std": test["std"],
                    "n": val["n"],
                    "asked": len(cell.trials),
                    "chosen": False,
                    "trials": [trial.id for trial in cell.trials],
                }
            )
        measured = [row for row in rows if row["val_mean"] is not None]
        if measured:
            max(measured, key=lambda row: round(row["val_mean"], 9))["chosen"] = True
        varied = list(rows[0]["changes"])
        stages.append({"dataset": dataset, "stage": number, "varied": varied, "rows": rows})
    return stages


def environment() -> dict[str, Any]:
    """Return what this machine and its software are."""
    return {
        "platform": platform.platform(terse=True),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": versions(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _scores(cell: Cell, find: Find, metric: str = "test_accuracy") -> dict[Hashable, float]:
    """Return a metric in percent of every trial that is done, by its split and seed."""
    scores: dict[Hashable, float] = {}
    for trial in cell.trials:
        record = find(trial.id)
        if record is not None and record.metrics.get(metric) is not None:
            scores[trial.split, trial.seed] = 100 * record.metrics[metric]
    return scores


def _row(spec: Spec, cell: Cell, find: Find) -> dict[str, Any]:
    values = list(_scores(cell, find).values())
    records = [record for trial in cell.trials if (record := find(trial.id)) is not None]
    seconds = [record.seconds for record in records if record.seconds is not None]
    row = next(row for row in spec.rows if row.name == cell.name)
    paper, deviation = row.paper.get(cell.dataset, (None, None))
    summary = summarise(values)
    mean = summary["mean"]
    return {
        "dataset": cell.dataset,
        "method": cell.name,
        "label": cell.label,
        "preset": cell.trials[0].preset,
        "config": dict(cell.trials[0].config),
        **summary,
        "median": float(np.median(values)) if values else None,
        "asked": len(cell.trials),
        "failed": sum(record.status == "failed" for record in records),
        "paper": paper,
        "paper_std": deviation,
        "difference": None if mean is None or paper is None else mean - paper,
        "seconds": float(np.median(seconds)) if seconds else None,
        "trials": [trial.id for trial in cell.trials],
    }


def _dataset(data: Data, name: str) -> dict[str, Any]:
    split = data.splits[name, 0]
    graph = data.graphs[name]
    count = sum(dataset == name for dataset, _ in data.splits)
    return {
        "name": name,
        "sha256": data.fingerprints[name],
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "features": graph.num_features,
        "classes": graph.num_classes,
        "class_names": [str(label) for label in graph.class_names],
        "split": split.name if count == 1 else f"{split.name}, and {count - 1} more",
        **{part: len(getattr(split, part)) for part in ("train", "val", "test")},
    }


Scores = Mapping[tuple[str, str], Mapping[Hashable, float]]


def _comparisons(spec: Spec, scores: Scores) -> list[dict[str, Any]]:
    """Compare the reference with every other row, corrected over all of these comparisons."""
    if spec.reference is None:
        return []
    compared = [
        {
            "dataset": dataset,
            "first": spec.reference,
            "second": row.name,
            **compare(scores[spec.reference, dataset], scores[row.name, dataset]),
        }
        for dataset in spec.datasets
        for row in spec.rows
        if row.name != spec.reference
        and {(row.name, dataset), (spec.reference, dataset)} <= scores.keys()
    ]
    for test in ("welch", "wilcoxon"):
        corrected = holm([one[f"{test}_p"] for one in compared])
        for one, value in zip(compared, corrected, strict=True):
            one[f"{test}_holm"] = value
    return compared


def _claims(spec: Spec, scores: Scores) -> list[dict[str, Any]]:
    """Judge what the paper says of its rows, by Welch's test, corrected over all claims."""
    judged: list[dict[str, Any]] = []
    for claim in spec.claims:
        for dataset in spec.datasets:
            if not {(claim.better, dataset), (claim.than, dataset)} <= scores.keys():
                continue
            compared = compare(scores[claim.better, dataset], scores[claim.than, dataset])
            judged.append(
                {
                    "claim": claim.claim,
                    "dataset": dataset,
                    "better": claim.better,
                    "than": claim.than,
                    "difference": compared["difference"],
                    "p": compared["welch_p"],
                    "n_better": compared["n_first"],
                    "n_than": compared["n_second"],
                }
            )
    for one, corrected in zip(judged, holm([one["p"] for one in judged]), strict=True):
        one["p_holm"] = corrected
        one["verdict"] = _verdict(one)
    return judged


def _verdict(claim: dict[str, Any]) -> str:
    if claim["p_holm"] is not None and claim["p_holm"] < LEVEL:
        return "confirmed" if claim["difference"] > 0 else "contradicted"
    if min(claim["n_better"], claim["n_than"]) < ENOUGH:
        return "too few seeds"
    return "not confirmed"
