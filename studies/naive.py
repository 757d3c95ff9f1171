"""Is the exact path as accurate as the naive one? Twenty seeds of Citeseer, trained the naive way.

Trials run side by side, one thread each, and every finished one adds a line to the results file;
run again to go on after an interruption (hours in all). Then the accuracies are compared with those
of the same seeds in ``results/presets``.

    python studies/naive.py            # what is missing, then the comparison
    python studies/naive.py --table    # only the comparison
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from dropnode.bench.naive import NaiveGrand
from dropnode.data import load_dataset
from dropnode.engines.base import Failure, cores
from dropnode.engines.local import run_local
from dropnode.experiments.measures import measure
from dropnode.experiments.run import perform
from dropnode.experiments.statistics import compare, summarise
from dropnode.graph import Graph
from dropnode.methods.grand.config import preset

SEEDS = range(20)
ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "studies/results/naive.jsonl"
EXACT = ROOT / "results/presets/trials.csv.gz"


def main() -> None:
    """Run what is missing, then compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=cores())
    parser.add_argument("--table", action="store_true", help="only compare what is there")
    options = parser.parse_args()
    if not options.table:
        run_missing(options.jobs)
    naive = {("public", line["seed"]): 100 * line["test_accuracy"] for line in read()}
    with gzip.open(EXACT, "rt", encoding="utf-8", newline="") as file:
        exact = {
            ("public", int(row["seed"])): 100 * float(row["test_accuracy"])
            for row in csv.DictReader(file)
            if (row["dataset"], row["preset"]) == ("citeseer", "official")
            and int(row["seed"]) in SEEDS
        }
    for name, scores in (("naive", naive), ("exact", exact)):
        told = summarise(list(scores.values()))
        print(f"{name}: {told.mean:.2f} ± {told.std:.2f} ({told.n} seeds)")
    found = compare(exact, naive)
    print(
        f"exact minus naive: {found.difference:+.2f}, 95 % interval {found.low:+.2f} to "
        f"{found.high:+.2f}, Welch p {found.p:.2g}"
    )


def run_missing(jobs: int) -> None:
    """Train every seed that the results file lacks."""
    missing = [seed for seed in SEEDS if seed not in {line["seed"] for line in read()}]
    graph = load_dataset("citeseer")
    with closing(run_local(run_seed, missing, jobs, shared=graph)) as outcomes:
        for seed, line in outcomes:
            if isinstance(line, Failure):
                print(f"seed {seed}: {line.error}", file=sys.stderr)
                continue
            with RESULTS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            print(f"seed {seed}: {100 * line['test_accuracy']:.1f} %", file=sys.stderr, flush=True)


def run_seed(graph: Graph, seed: int) -> dict[str, Any]:
    """Train one seed."""
    torch.set_num_threads(1)
    _, config = preset("official", "citeseer")
    training = perform(NaiveGrand(config), graph, seed)
    return {"seed": seed, "seconds": training.outcome.seconds, **measure(training)}


def read() -> list[dict[str, Any]]:
    """Return the lines of the results file."""
    if not RESULTS.exists():
        return []
    return [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    main()
