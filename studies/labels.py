"""Measure what suspicious_labels and label_next of dropnode.analysis.labels are worth.

Errors: of 100 labels per class, 5 % are replaced by other classes at random. The precision is the
share of replaced labels among as many labels at the top of the ranking.

Next: a model is trained on two labels per class, then on as many more as there were. These are
chosen by label_next, by the smallest margin between the two most probable classes, or at random.
The accuracy is that on all other nodes. On digits the model is GRAND, on Cora a GCN: with 28 labels
that are not equally many per class, GRAND needs more epochs there than are trained without
validation. The settings of label_next were chosen on digits with seeds 0 to 9 and then tried on
Cora with seeds 0 to 5, none of which are used here.

    python studies/labels.py                                # run again to go on
    python studies/labels.py --seeds 3 --out first.jsonl    # a first look
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

from dropnode.analysis.labels import label_next, suspicious_labels
from dropnode.data import load_dataset
from dropnode.graph import Graph, Split
from dropnode.methods.table import make_method
from dropnode.training import train

RESULTS = Path(__file__).parent / "results/labels.jsonl"
EPOCHS = 200
"""As many as the estimator trains without validation."""

FIRST_SEED = 100
PER_CLASS = {"errors": (100,), "next": (2,)}
DATASETS = {"errors": ("digits", "cora"), "next": ("digits", "cora")}
METHODS = {"digits": "grand", "cora": "gcn"}
ERRORS = 0.05


def main() -> None:
    """Run what is missing, then print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=RESULTS, help="results, a JSON line each")
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    done = {(x["part"], x["dataset"], x["per_class"], x["seed"]) for x in read(options.out)}
    for offset, part in product(range(options.seeds), PER_CLASS):
        for dataset, per_class in product(DATASETS[part], PER_CLASS[part]):
            key = (part, dataset, per_class, FIRST_SEED + offset)
            if key in done:
                continue
            graph = load_dataset(dataset).with_split(None)
            scores = PARTS[part](graph, per_class, FIRST_SEED + offset)
            line = dict(zip(("part", "dataset", "per_class", "seed"), key, strict=True)) | scores
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            print(line, file=sys.stderr, flush=True)
    print_tables(read(options.out))


def find_errors(graph: Graph, per_class: int, seed: int) -> dict[str, float]:
    """Plant errors and return the precision at the top of the ranking."""
    generator = np.random.default_rng(seed)
    given = draw(graph, per_class, generator)
    wrong = generator.choice(given, round(ERRORS * len(given)), replace=False)
    labels = np.full(graph.num_nodes, -1)
    labels[given] = graph.labels[given]
    labels[wrong] += generator.integers(1, graph.num_classes, len(wrong))
    labels[wrong] %= graph.num_classes
    changed = graph.with_labels(labels, graph.class_names)
    ranked = suspicious_labels(
        labels, lambda mask: probabilities(changed, np.flatnonzero(mask), seed), seed=seed
    )
    top = ranked.nodes[: len(wrong)]
    return {"precision": float(np.isin(top, wrong).mean()), "chance": len(wrong) / len(given)}


def choose_next(graph: Graph, per_class: int, seed: int) -> dict[str, float]:
    """Return the accuracy before and after labelling as many nodes more, by every choice."""
    generator = np.random.default_rng(seed)
    given = draw(graph, per_class, generator)
    before = probabilities(graph, given, seed)
    unlabelled = np.setdiff1d(np.arange(graph.num_nodes), given)
    ordered = np.sort(before[unlabelled], axis=1)
    margin = ordered[:, -1] - ordered[:, -2]
    chosen = {
        "random": generator.choice(unlabelled, len(given), replace=False),
        "margin": unlabelled[np.argsort(margin, kind="stable")[: len(given)]],
        "label_next": label_next(before, graph.adjacency, given, len(given)),
    }
    scores = {"before": accuracy(graph, before, given)}
    for name, nodes in chosen.items():
        known = np.concatenate([given, nodes])
        scores[name] = accuracy(graph, probabilities(graph, known, seed), known)
    return scores


PARTS: dict[str, Callable[[Graph, int, int], dict[str, float]]] = {
    "errors": find_errors,
    "next": choose_next,
}


def draw(graph: Graph, per_class: int, generator: np.random.Generator) -> np.ndarray:
    """Draw the same number of nodes from every class."""
    members = (np.flatnonzero(graph.labels == code) for code in range(graph.num_classes))
    return np.concatenate([generator.choice(each, per_class, replace=False) for each in members])


def probabilities(graph: Graph, known: np.ndarray, seed: int) -> np.ndarray:
    """Train on some labels and return the probabilities of all nodes."""
    method = make_method(METHODS[graph.name], None, changes={"max_epochs": EPOCHS}).method
    train(method, graph, Split(np.sort(known), *np.empty((2, 0), dtype=np.int64)), seed=seed)
    return torch.softmax(method.logits().double(), dim=1).numpy()


def accuracy(graph: Graph, predicted: np.ndarray, known: np.ndarray) -> float:
    """Return the share of correct predictions among the nodes whose label was not known."""
    others = np.setdiff1d(np.arange(graph.num_nodes), known)
    return float((predicted.argmax(axis=1) == graph.labels)[others].mean())


def read(path: Path) -> list[dict[str, Any]]:
    """Return the finished results."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def print_tables(lines: list[dict[str, Any]]) -> None:
    """Print means and standard deviations, and 95 % intervals of differences from random."""
    print("| dataset | labels per class | seeds | wrong labels at the top | by chance |")
    print("|---|---|---|---|---|")
    for dataset, per_class in product(DATASETS["errors"], PER_CLASS["errors"]):
        some = select(lines, "errors", dataset, per_class)
        if some:
            found = 100 * np.array([line["precision"] for line in some])
            told = f"{found.mean():.0f} ± {found.std(ddof=1):.0f} %" if len(some) > 1 else found
            print(f"| {dataset} | {per_class} | {len(some)} | {told} | {100 * ERRORS:.0f} % |")
    print("\n| dataset | choice | seeds | accuracy (%) | minus random (95 %) |")
    print("|---|---|---|---|---|")
    for dataset, choice in product(DATASETS["next"], ("before", "random", "margin", "label_next")):
        some = select(lines, "next", dataset, PER_CLASS["next"][0])
        if len(some) < 2:
            continue
        scores = 100 * np.array([line[choice] for line in some])
        told = f"{scores.mean():.1f} ± {scores.std(ddof=1):.1f}"
        row = f"| {dataset} | {choice} | {len(some)} | {told} |"
        if choice in ("margin", "label_next"):
            difference = scores - 100 * np.array([line["random"] for line in some])
            low, high = stats.ttest_1samp(difference, 0).confidence_interval(0.95)
            row += f" {difference.mean():+.1f} [{low:+.1f}, {high:+.1f}]"
        print(f"{row} |")


def select(
    lines: list[dict[str, Any]], part: str, dataset: str, per_class: int
) -> list[dict[str, Any]]:
    """Return the results of one setting."""
    key = (part, dataset, per_class)
    return [line for line in lines if (line["part"], line["dataset"], line["per_class"]) == key]


if __name__ == "__main__":
    main()
