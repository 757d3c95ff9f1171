"""Compare GRAND with scikit-learn's semi-supervised classifiers on digits, ten labels a class.

Every method gets the same 100 labels of 1,797 images, raw pixels, and is scored on all others.
GrandClassifier runs with its defaults. The others are tuned twice: by cross-validation on the 100
labels (held-out labels stay in the data as unlabelled rows), and, as the most that any tuning on
this grid could reach, by the test labels themselves ("oracle").

    python studies/digits.py                               # 20 splits; run again to go on
    python studies/digits.py --splits 3 --out first.jsonl  # a first look
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from sklearn.svm import SVC

RESULTS = Path(__file__).parent / "results/digits.jsonl"
LABELS_PER_CLASS = 10
FOLDS = 5
IMAGES, DIGITS = load_digits(return_X_y=True)

Candidate = tuple[dict[str, Any], Any]
"""A setting, and the estimator that has it."""


def label_spreading() -> Iterator[Candidate]:
    """Yield LabelSpreading over k or γ, and α."""
    scales: list[dict[str, Any]]
    scales = [{"kernel": "knn", "n_neighbors": k} for k in (3, 5, 7, 10, 15, 20, 30)]
    # The median squared distance to the nearest image is 260: from nearly flat to nearest only.
    scales += [{"kernel": "rbf", "gamma": g} for g in (0.001, 0.003, 0.01, 0.03, 0.1, 0.25)]
    for scale, alpha in product(scales, (0.2, 0.8, 0.99)):
        setting = scale | {"alpha": alpha, "max_iter": 300}
        yield setting, LabelSpreading(**setting)


def self_training() -> Iterator[Candidate]:
    """Yield SelfTrainingClassifier around SVC over γ and C, and around k-NN over k."""
    for gamma, cost, threshold in product((0.0003, 0.001, 0.003), (1, 10), (0.75, 0.9)):
        base = CalibratedClassifierCV(SVC(gamma=gamma, C=cost), ensemble=False, cv=3)
        setting = {"base": "svc", "gamma": gamma, "C": cost, "threshold": threshold}
        yield setting, SelfTrainingClassifier(base, threshold=threshold)
    for k, threshold in product((1, 3, 5, 7, 10), (0.6, 0.75, 0.9)):
        setting = {"base": "knn", "n_neighbors": k, "threshold": threshold}
        yield setting, SelfTrainingClassifier(KNeighborsClassifier(k), threshold=threshold)


GRIDS = {"LabelSpreading": label_spreading, "SelfTrainingClassifier": self_training}


def main() -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=RESULTS, help="results, a JSON line each")
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()

    done = {(line["split"], line["method"]) for line in read(options.out)}
    trials = list(product(range(options.splits), ["GRAND", *GRIDS]))
    missing = [(s, m) for s, m in trials if (s, m) not in done and (s, f"{m}, oracle") not in done]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(options.jobs, initializer=one_thread) as pool:
        futures = [pool.submit(run, split, method) for split, method in missing]
        for count, future in enumerate(as_completed(futures), start=1):
            lines = future.result()
            with options.out.open("a", encoding="utf-8") as file:
                file.write("".join(json.dumps(line) + "\n" for line in lines))
            told = "; ".join(f"{x['method']} {100 * x['accuracy']:.2f}" for x in lines)
            where = f"split {lines[0]['split']}, {lines[0]['seconds']:.0f} s"
            print(f"[{count}/{len(missing)}] {where}: {told}", file=sys.stderr, flush=True)
    print_table([line for line in read(options.out) if line["split"] < options.splits])


def one_thread() -> None:
    """Keep processes from fighting over cores, and hush what tuning over a grid provokes."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ConvergenceWarning)
    # Some neighbourhood graphs leave rows out of reach of any label, and 0/0 behind.
    warnings.filterwarnings("ignore", "invalid value encountered in divide", RuntimeWarning)
    warnings.filterwarnings("ignore", "y contains no unlabeled samples", UserWarning)


def run(split: int, method: str) -> list[dict[str, Any]]:
    """Run one method on one split; a tuned one gives two results."""
    from dropnode import GrandClassifier
    from dropnode.data import per_class_split

    started = time.perf_counter()
    results: list[tuple[str, float, dict[str, Any]]] = []
    parts = per_class_split(DIGITS, LABELS_PER_CLASS, 0, seed=split)
    if method == "GRAND":
        predicted = GrandClassifier(random_state=split).fit(IMAGES, hide(parts.train)).predict()
        results.append((method, accuracy(predicted, parts.test), {}))
    else:
        candidates = list(GRIDS[method]())
        tested, validated = [], []
        for _, model in candidates:
            tested.append(accuracy(transduce(model, hide(parts.train)), parts.test))
            validated.append(cross_validate(model, parts.train))
        chosen, best = int(np.argmax(validated)), int(np.argmax(tested))
        results.append((f"{method}, cross-validated", tested[chosen], candidates[chosen][0]))
        results.append((f"{method}, oracle", tested[best], candidates[best][0]))
    seconds = time.perf_counter() - started
    return [
        {"split": split, "method": name, "accuracy": score, "setting": setting, "seconds": seconds}
        for name, score, setting in results
    ]


def cross_validate(model: Any, given: np.ndarray) -> float:
    """Return the accuracy on given labels that are hidden, fold by fold."""
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(given, DIGITS[given])
    hits = [
        DIGITS[given[held]] == transduce(model, hide(given[kept]))[given[held]]
        for kept, held in folds
    ]
    return float(np.concatenate(hits).mean())


def transduce(model: Any, labels: np.ndarray) -> np.ndarray:
    """Fit a copy of the model on all images, and return a digit for each."""
    model = clone(model).fit(IMAGES, labels)
    if isinstance(model, LabelSpreading):
        return np.asarray(model.transduction_)
    return np.asarray(model.predict(IMAGES))


def hide(given: np.ndarray) -> np.ndarray:
    """Return the labels with all but the given ones unknown."""
    labels = np.full(len(DIGITS), -1)
    labels[given] = DIGITS[given]
    return labels


def accuracy(predicted: np.ndarray, rows: np.ndarray) -> float:
    """Return the share of right predictions among some rows."""
    return float((predicted[rows] == DIGITS[rows]).mean())


def read(path: Path) -> list[dict[str, Any]]:
    """Return the finished results."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def print_table(lines: list[dict[str, Any]]) -> None:
    """Print every method's accuracy, and how far GRAND is from it on the same splits."""
    scores: dict[str, dict[int, float]] = {}
    for line in lines:
        scores.setdefault(line["method"], {})[line["split"]] = 100 * line["accuracy"]
    print("| method | accuracy (%) | splits | GRAND minus method (95 %) | t-test p | Wilcoxon p |")
    print("|---|---|---|---|---|---|")
    for method, by_split in sorted(scores.items()):
        values = np.array(list(by_split.values()))
        spread = f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else ""
        row = f"| {method} | {values.mean():.2f}{spread} | {len(values)} |"
        common = sorted(set(by_split) & set(scores.get("GRAND", {})))
        difference = np.array([scores["GRAND"][s] - by_split[s] for s in common])
        if method == "GRAND" or len(common) < 2 or not difference.any():
            print(row + " | | |")
            continue
        test = stats.ttest_1samp(difference, 0)
        low, high = test.confidence_interval(0.95)
        print(
            f"{row} {difference.mean():+.2f} [{low:+.2f}, {high:+.2f}] | {test.pvalue:.2g} | "
            f"{stats.wilcoxon(difference).pvalue:.2g} |"
        )


if __name__ == "__main__":
    main()
