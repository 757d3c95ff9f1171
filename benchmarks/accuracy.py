"""Measure the README's accuracies on Cora, Citeseer and Pubmed.

Trials run side by side, one thread each, and every finished one adds a line to the results file;
run again to go on after an interruption. The tables are printed from the file.

    python benchmarks/accuracy.py            # all trials of the README
    python benchmarks/accuracy.py --table    # only the tables, of what is there
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from scipy import stats

from grand.data import load_dataset
from grand.experiments.engines import Failure, cores, run_local
from grand.graph import Graph
from grand.runs import Request, run

# (dataset, preset): seeds. The cheap ones first, so that a look at the file soon shows something.
TRIALS = {
    ("citeseer", "official"): range(20),
    ("citeseer", "paper"): range(2),
    ("cora", "paper"): range(2),
    ("pubmed", "paper"): range(2),
    ("cora", "fast"): range(100),
    ("pubmed", "fast"): range(20),
    ("pubmed", "official"): range(20),
    ("cora", "official"): range(100),
}
PUBLISHED = {"cora": "85.4 ± 0.4", "citeseer": "75.4 ± 0.4", "pubmed": "82.7 ± 0.6"}

Trial = tuple[str, str, int]


def main() -> None:
    """Run what is missing, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--results", type=Path, default=Path(__file__).parent / "results/accuracy.jsonl"
    )
    parser.add_argument("--jobs", type=int, default=cores())
    parser.add_argument("--table", action="store_true", help="print the tables and stop")
    options = parser.parse_args()
    if not options.table:
        run_missing(options.results, options.jobs)
    lines = read(options.results)
    print_table(lines)
    print_comparison(lines)


def run_missing(results: Path, jobs: int) -> None:
    """Run every trial that the results file lacks."""
    done = {(line["dataset"], line["preset"], line["seed"]) for line in read(results)}
    trials = [(*key, seed) for key, seeds in TRIALS.items() for seed in seeds]
    missing = [trial for trial in trials if trial not in done]
    results.parent.mkdir(parents=True, exist_ok=True)
    graphs = {dataset: load_dataset(dataset) for dataset in PUBLISHED}
    with closing(run_local(run_trial, missing, jobs, shared=graphs)) as outcomes:
        for count, (trial, line) in enumerate(outcomes, start=1):
            if isinstance(line, Failure):
                print(f"[{count}/{len(missing)}] {trial}: {line.error}", file=sys.stderr)
                continue
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            print(
                f"[{count}/{len(missing)}] {line['dataset']} {line['preset']} seed {line['seed']}: "
                f"{100 * line['test_accuracy']:.1f} after {line['epochs']} epochs",
                file=sys.stderr,
                flush=True,
            )


def run_trial(graphs: dict[str, Graph], trial: Trial) -> dict[str, Any]:
    """Run one trial."""
    dataset, preset, seed = trial
    result = run(Request(dataset, preset=preset, seed=seed), graph=graphs[dataset])
    return {key: value for key, value in result.items() if key != "out"}


def read(results: Path) -> list[dict[str, Any]]:
    """Return the lines of the results file."""
    if not results.exists():
        return []
    return [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]


def cells(lines: list[dict[str, Any]]) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    """Return what there is of every dataset and preset."""
    for dataset, preset in TRIALS:
        chosen = [x for x in lines if (x["dataset"], x["preset"]) == (dataset, preset)]
        if chosen:
            yield dataset, preset, chosen


def print_table(lines: list[dict[str, Any]]) -> None:
    """Print mean, spread and number of seeds of every dataset and preset as Markdown."""
    print("| dataset | preset | test accuracy (%) | seeds | validation (%) | epochs | paper |")
    print("|---|---|---|---|---|---|---|")
    for dataset, preset, chosen in cells(lines):
        test = [100 * x["test_accuracy"] for x in chosen]
        val = mean(100 * x["val_accuracy"] for x in chosen)
        spread = f" ± {stdev(test):.2f}" if len(test) > 1 else ""
        epochs = mean(x["epochs"] for x in chosen)
        print(
            f"| {dataset} | {preset} | {mean(test):.2f}{spread} | {len(test)} | {val:.2f} "
            f"| {epochs:,.0f} | {PUBLISHED[dataset]} |"
        )


def print_comparison(lines: list[dict[str, Any]]) -> None:
    """Print what preset fast costs against official: difference, interval, Welch's test."""
    test = {
        (dataset, preset): [100 * x["test_accuracy"] for x in chosen]
        for dataset, preset, chosen in cells(lines)
    }
    print("\n| dataset | fast minus official | 95 % interval | Welch p |")
    print("|---|---|---|---|")
    for dataset in ("cora", "pubmed"):
        pair = test.get((dataset, "fast"), []), test.get((dataset, "official"), [])
        if min(map(len, pair)) < 2:
            continue
        welch = stats.ttest_ind(*pair, equal_var=False)
        low, high = welch.confidence_interval(0.95)
        difference = mean(pair[0]) - mean(pair[1])
        print(f"| {dataset} | {difference:+.2f} | {low:+.2f} to {high:+.2f} | {welch.pvalue:.2g} |")


if __name__ == "__main__":
    main()
