"""Measure calibration, conformal sets and uncertainty of GRAND on digits and Cora.

Nodes outside of training and validation are divided at random: 200 for calibration, the others for
testing. They are divided anew a hundred times for the coverage of 90 % sets. The probabilities of
the sets are those of the model, without a temperature. An AUROC is that of finding wrong test
predictions by a measure of doubt.

    python studies/trust.py                                # run again to go on
    python studies/trust.py --seeds 1 --out first.jsonl    # a first look
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from dropnode.analysis.calibration import (
    apply_temperature,
    expected_calibration_error,
    expected_calibration_error_by_chance,
    fit_temperature,
    negative_log_likelihood,
)
from dropnode.analysis.conformal import (
    adaptive_scores,
    coverage_band,
    diffused_scores,
    plain_scores,
    prediction_sets,
)
from dropnode.analysis.uncertainty import sample_uncertainty
from dropnode.data import load_dataset
from dropnode.graph import Graph
from dropnode.methods.base import NodeClassifier
from dropnode.methods.table import make_method
from dropnode.training import train

RESULTS = Path(__file__).parent / "results/trust.jsonl"
PRESETS = {"digits": "default", "cora": "fast"}
CALIBRATION = 200
DIVISIONS = 100
ALPHA = 0.1


def main() -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=RESULTS, help="results, a JSON line each")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    done = {(line["dataset"], line["seed"]) for line in read(options.out)}
    for seed, dataset in product(range(options.seeds), PRESETS):
        if (dataset, seed) not in done:
            graph = load_dataset(dataset)
            method = make_method("grand", dataset, PRESETS[dataset]).method
            train(method, graph, seed=seed)
            line = {"dataset": dataset, "seed": seed} | measured(method, graph, seed)
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            print(line, file=sys.stderr, flush=True)
    print_table(read(options.out))


def measured(method: NodeClassifier, graph: Graph, seed: int) -> dict[str, float]:
    """Return every figure of one trained model."""
    assert graph.split is not None
    labels, logits = graph.labels, method.logits().double().numpy()
    used = np.concatenate([graph.split.train, graph.split.val])
    others = np.setdiff1d(np.arange(graph.num_nodes), used)
    generator = np.random.default_rng(seed)
    drawn = generator.permutation(others)
    calibration, test = drawn[:CALIBRATION], drawn[CALIBRATION:]
    temperature = fit_temperature(logits[calibration], labels[calibration])
    raw, calibrated = (apply_temperature(logits, each) for each in (1.0, temperature))
    wrong = raw[test].argmax(axis=1) != labels[test]
    figures = {"accuracy": 1.0 - wrong.mean(), "temperature": temperature}
    for name, rows in (("before", raw[test]), ("after", calibrated[test])):
        figures[f"ece_{name}"] = expected_calibration_error(labels[test], rows)
        figures[f"chance_{name}"] = expected_calibration_error_by_chance(rows).quantile
        figures[f"nll_{name}"] = negative_log_likelihood(labels[test], rows)
    doubt = sample_uncertainty(method, 30, seed=seed)
    for name, amounts in (
        ("confidence", 1.0 - raw.max(axis=1)),
        ("entropy", doubt.entropy),
        ("information", doubt.mutual_information),
    ):
        figures[f"auroc_{name}"] = roc_auc_score(wrong, amounts[test])
    adaptive = adaptive_scores(raw, seed=seed)
    every = {
        "plain": plain_scores(raw),
        "adaptive": adaptive,
        "diffused": diffused_scores(adaptive, graph.adjacency),
    }
    low, high = coverage_band(CALIBRATION, len(test), ALPHA)
    for name, scores in every.items():
        coverages, sizes = [], []
        for _ in range(DIVISIONS):
            drawn = generator.permutation(others)
            asked = drawn[CALIBRATION:]
            sets = prediction_sets(scores, labels, drawn[:CALIBRATION], ALPHA)[asked]
            coverages.append(sets[np.arange(len(asked)), labels[asked]].mean())
            sizes.append(sets.sum(axis=1).mean())
        inside = (np.array(coverages) >= low) & (np.array(coverages) <= high)
        figures[f"coverage_{name}"] = np.mean(coverages)
        figures[f"size_{name}"] = np.mean(sizes)
        figures[f"in_band_{name}"] = inside.mean()
    return {name: round(float(value), 6) for name, value in figures.items()}


def read(path: Path) -> list[dict[str, Any]]:
    """Return the finished results."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def print_table(lines: list[dict[str, Any]]) -> None:
    """Print the mean ± standard deviation of every figure."""
    print("| figure |", " | ".join(PRESETS), "|")
    print("|---|" + "---|" * len(PRESETS))
    for figure in [key for key in lines[0] if key not in ("dataset", "seed")]:
        cells = []
        for dataset in PRESETS:
            values = np.array([line[figure] for line in lines if line["dataset"] == dataset])
            spread = f" ± {values.std(ddof=1):.3f}" if len(values) > 1 else ""
            cells.append(f"{values.mean():.3f}{spread}")
        print(f"| {figure} |", " | ".join(cells), "|")


if __name__ == "__main__":
    main()
