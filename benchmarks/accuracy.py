"""Measure the README's accuracies on Cora, Citeseer and Pubmed.

Trials run side by side, one thread each, and every finished one adds a line to the results file;
run again to go on after an interruption. The table is printed from the file.

    python benchmarks/accuracy.py            # all trials of the README
    python benchmarks/accuracy.py --table    # only the table, of what is there
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from statistics import mean, stdev
from typing import Any

# (dataset, preset): seeds. The cheap ones first, so that a look at the file soon shows something.
TRIALS = {
    ("citeseer", "official"): range(5),
    ("citeseer", "paper"): range(2),
    ("cora", "official"): range(5),
    ("cora", "paper"): range(2),
    ("pubmed", "official"): range(3),
    ("pubmed", "paper"): range(2),
}
PUBLISHED = {"cora": "85.4 ± 0.4", "citeseer": "75.4 ± 0.4", "pubmed": "82.7 ± 0.6"}


def main() -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--results", type=Path, default=Path(__file__).parent / "results/accuracy.jsonl"
    )
    parser.add_argument("--runs", type=Path, default=Path("runs/accuracy"), help="run folders")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--table", action="store_true", help="print the table and stop")
    options = parser.parse_args()
    if not options.table:
        run_missing(options.results, options.runs, options.jobs)
    print_table(read(options.results))


def run_missing(results: Path, runs: Path, jobs: int) -> None:
    """Run every trial that the results file lacks."""
    done = {(line["dataset"], line["preset"], line["seed"]) for line in read(results)}
    trials = [(*key, seed) for key, seeds in TRIALS.items() for seed in seeds]
    missing = [trial for trial in trials if trial not in done]
    results.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(jobs, initializer=one_thread) as pool:
        futures = [pool.submit(run_trial, *trial, runs) for trial in missing]
        for count, future in enumerate(as_completed(futures), start=1):
            line = future.result()
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            print(
                f"[{count}/{len(missing)}] {line['dataset']} {line['preset']} seed {line['seed']}: "
                f"{100 * line['test_accuracy']:.1f} after {line['epochs']} epochs",
                file=sys.stderr,
                flush=True,
            )


def one_thread() -> None:
    """Keep trials from fighting over cores."""
    import torch

    torch.set_num_threads(1)


def run_trial(dataset: str, preset: str, seed: int, runs: Path) -> dict[str, Any]:
    """Run one trial, going on where it was cut off."""
    from grand.runs import Request, run

    folder = runs / f"{dataset}-{preset}-{seed}"
    result = run(Request(dataset, preset=preset, seed=seed), out=folder, resume=True)
    return {key: value for key, value in result.items() if key != "out"}


def read(results: Path) -> list[dict[str, Any]]:
    """Return the lines of the results file."""
    if not results.exists():
        return []
    return [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]


def print_table(lines: list[dict[str, Any]]) -> None:
    """Print mean, spread and seeds of every dataset and preset as Markdown."""
    print("| dataset | preset | test accuracy (%) | seeds | validation (%) | epochs | paper |")
    print("|---|---|---|---|---|---|---|")
    for dataset, preset in TRIALS:
        chosen = [x for x in lines if (x["dataset"], x["preset"]) == (dataset, preset)]
        if not chosen:
            continue
        test = [100 * x["test_accuracy"] for x in chosen]
        val = mean(100 * x["val_accuracy"] for x in chosen)
        spread = f" ± {stdev(test):.1f}" if len(test) > 1 else ""
        seeds = ", ".join(str(x["seed"]) for x in sorted(chosen, key=lambda x: x["seed"]))
        epochs = mean(x["epochs"] for x in chosen)
        print(
            f"| {dataset} | {preset} | {mean(test):.1f}{spread} | {seeds} | {val:.1f} "
            f"| {epochs:,.0f} | {PUBLISHED[dataset]} |"
        )


if __name__ == "__main__":
    main()
