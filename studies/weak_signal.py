"""Measure GRAND+, SGC and GRAND on block models whose edges or features tell little.

Each has its preset ``default``, 20 training and 30 validation nodes per class. A seed draws the
graph, the split and the training. The default of GRAND+ was chosen with the graphs of seed 0 in
view, their test accuracies too.

    python studies/weak_signal.py                                # run again to go on
    python studies/weak_signal.py --seeds 1 --out first.jsonl    # a first look
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from dropnode.data.generators import sbm
from dropnode.data.splits import per_class_split
from dropnode.methods.table import make_method
from dropnode.training import train

RESULTS = Path(__file__).parent / "results/weak_signal.jsonl"
METHODS = "grand-plus", "sgc", "grand"
SIZES = {"nodes": 20_000, "average_degree": 10, "features": 64}

GRAPHS: dict[str, tuple[float, dict[str, Any]]] = {
    "strong": (1.5, {"classes": 10, "homophily": 0.6}),
    "noisy features": (0.5, {"classes": 20, "homophily": 0.4}),
    "few edges within classes": (1.5, {"classes": 10, "homophily": 0.25}),
}
"""The distance of class centres from the origin, in units of the noise, and further options."""


def main() -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=RESULTS, help="results, a JSON line each")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    done = {(x["graph"], x["method"], x["seed"]) for x in read(options.out)}
    for seed, graph, method in product(range(options.seeds), GRAPHS, METHODS):
        if (graph, method, seed) not in done:
            line = {"graph": graph, "method": method, "seed": seed, **measured(graph, method, seed)}
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
    found = read(options.out)
    for graph, method in product(GRAPHS, METHODS):
        test = [100 * x["test"] for x in found if (x["graph"], x["method"]) == (graph, method)]
        print(f"{graph}, {method}: {np.mean(test):.1f} ± {np.std(test, ddof=1):.1f} ({len(test)})")


def measured(graph: str, method: str, seed: int) -> dict[str, Any]:
    """Train once, and read the test labels once."""
    sbm.CENTRE_SPREAD, options = GRAPHS[graph]
    nodes = sbm.make(**SIZES, **options, seed=seed)
    split = per_class_split(nodes.labels, 20, 30, seed=seed)
    made = make_method(method, None).method
    outcome = train(made, nodes, split, seed=seed)
    right = made.logits().argmax(dim=1).numpy() == nodes.labels
    return {"val": outcome.best["val_accuracy"], "test": float(right[split.test].mean())}


def read(path: Path) -> list[dict[str, Any]]:
    """Return what has been measured."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


if __name__ == "__main__":
    main()
