"""Measure calibration, conformal sets and uncertainty on the citation graphs and digits.

A model is trained and validated on the public split. The other nodes are divided at random: 500 for
calibration, the rest for testing; no calibration node has trained the model or chosen its epoch.
They fit a temperature, and their scores make 90 % sets. The probabilities of the sets are those of
the model, without a temperature, so that no label is used twice. For the coverage, nodes are also
divided anew a hundred times. An AUROC is that of finding wrong test predictions by a measure of
doubt.

The coverage of one division should be inside the 99 % band of the beta-binomial distribution; over
20 seeds and three graphs, 0.6 of 60 coverages would be outside by chance.

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
from scipy import stats
from sklearn.metrics import roc_auc_score

from dropnode.analysis.calibration import (
    apply_temperature,
    brier_score,
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
from dropnode.graph.labels import UNKNOWN
from dropnode.methods.base import NodeClassifier
from dropnode.methods.table import make_method
from dropnode.training import train

RESULTS = Path(__file__).parent / "results/trust.jsonl"
PRESETS = {"cora": "fast", "citeseer": "fast", "pubmed": "fast", "digits": "default"}
CALIBRATION = 500
DIVISIONS = 100
ALPHA = 0.1


def main() -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=RESULTS, help="results, a JSON line each")
    parser.add_argument("--seeds", type=int, default=20)
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    done = {(line["dataset"], line["seed"]) for line in read(options.out)}
    for dataset, seed in product(PRESETS, range(options.seeds)):
        if (dataset, seed) not in done:
            graph = load_dataset(dataset)
            method = make_method("grand", dataset, PRESETS[dataset]).method
            train(method, graph, seed=seed)
            line = {"dataset": dataset, "seed": seed, "preset": PRESETS[dataset]}
            line |= measured(method, graph, seed)
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            print(line, file=sys.stderr, flush=True)
    print_table(read(options.out))


def measured(method: NodeClassifier, graph: Graph, seed: int) -> dict[str, float]:
    """Return every figure of one trained model."""
    assert graph.split is not None
    labels, logits = graph.labels, method.logits().double().numpy()
    used = np.concatenate([graph.split.train, graph.split.val])
    others = np.setdiff1d(np.flatnonzero(labels != UNKNOWN), used)
    generator = np.random.default_rng(seed)
    drawn = generator.permutation(others)
    calibration, test = drawn[:CALIBRATION], drawn[CALIBRATION:]
    temperature = fit_temperature(logits[calibration], labels[calibration])
    raw, calibrated = (apply_temperature(logits, each) for each in (1.0, temperature))
    wrong = raw[test].argmax(axis=1) != labels[test]
    figures = {"accuracy": 1.0 - wrong.mean(), "temperature": temperature}
    for name, rows in (("before", raw[test]), ("after", calibrated[test])):
        figures[f"ece_{name}"] = expected_calibration_error(labels[test], rows)
        chance = expected_calibration_error_by_chance(rows)
        figures[f"chance_{name}"], figures[f"chance_95_{name}"] = chance
        figures[f"brier_{name}"] = brier_score(labels[test], rows)
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
    figures |= {"band_low": low, "band_high": high}
    divisions = [drawn, *(generator.permutation(others) for _ in range(DIVISIONS - 1))]
    for name, scores in every.items():
        coverages, sizes = np.transpose([coverage_and_size(scores, labels, d) for d in divisions])
        figures[f"coverage_{name}"], figures[f"size_{name}"] = coverages[0], sizes[0]
        figures[f"mean_coverage_{name}"] = coverages.mean()
        figures[f"mean_size_{name}"] = sizes.mean()
        figures[f"in_band_{name}"] = ((coverages >= low) & (coverages <= high)).mean()
    return {name: round(float(value), 6) for name, value in figures.items()}


def coverage_and_size(
    scores: np.ndarray, labels: np.ndarray, drawn: np.ndarray
) -> tuple[float, float]:
    """Calibrate on the first nodes; return how many sets of the others are right, and how large."""
    test = drawn[CALIBRATION:]
    sets = prediction_sets(scores, labels, drawn[:CALIBRATION], ALPHA)[test]
    return sets[np.arange(len(test)), labels[test]].mean(), sets.sum(axis=1).mean()


def read(path: Path) -> list[dict[str, Any]]:
    """Return the finished results."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def print_table(lines: list[dict[str, Any]]) -> None:
    """Print the mean of every figure with its 95 % interval, and how many seeds are as promised."""
    by_dataset = {d: [line for line in lines if line["dataset"] == d] for d in PRESETS}
    by_dataset = {dataset: some for dataset, some in by_dataset.items() if some}
    print(
        "| figure |", " | ".join(f"{d}, {len(some)} seeds" for d, some in by_dataset.items()), "|"
    )
    print("|---|" + "---|" * len(by_dataset))
    for figure in [key for key in lines[0] if key not in ("dataset", "seed", "preset")]:
        cells = [shown(np.array([line[figure] for line in some])) for some in by_dataset.values()]
        print(f"| {figure} |", " | ".join(cells), "|")
    for name in ("plain", "adaptive", "diffused"):
        inside = [
            sum(line["band_low"] <= line[f"coverage_{name}"] <= line["band_high"] for line in some)
            for some in by_dataset.values()
        ]
        print(f"| seeds with coverage_{name} in the band |", " | ".join(map(str, inside)), "|")
    excess = [
        max(line["ece_after"] - line["chance_after"] for line in some)
        for some in by_dataset.values()
    ]
    print("| most of ece_after above chance |", " | ".join(f"{e:.3f}" for e in excess), "|")


def shown(values: np.ndarray) -> str:
    """Return a cell: the mean, and half of its 95 % interval."""
    if len(values) < 2 or not values.std():
        return f"{values.mean():.3f}"
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():.3f} ± {half:.3f}"


if __name__ == "__main__":
    main()
