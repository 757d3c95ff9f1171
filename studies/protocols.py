"""What other people's rules for picking an epoch would add to a baseline's accuracy.

Some published figures were chosen with test labels in view. This trains the same baselines, with
their `official` settings on the public splits, looks at the test accuracy of every epoch, and says
what each rule would have reported. Nothing here is a result of ours: the column `validation` is
what `dropnode reproduce table1` reports, the others show how much of a gap is the rule's doing.

    python studies/protocols.py                          # run again to go on
    python studies/protocols.py --methods graphnas gat --seeds 3 --out first.jsonl
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from dropnode.data import load_dataset
from dropnode.graph import Graph
from dropnode.methods.baselines import BASELINES, baseline
from dropnode.methods.baselines.closed_form import ClosedForm
from dropnode.methods.table import make_method
from dropnode.training import Method, Outcome, Phase, train

RESULTS = Path(__file__).parent / "results/protocols.jsonl"
METHODS = [name for name in BASELINES if not issubclass(baseline(name), ClosedForm)]
"""What has epochs to pick from."""

DATASETS = ("cora", "citeseer", "pubmed")
RULES = ("validation", "tied", "improving", "any")


class TestWatch:
    """Notes the test accuracy of every epoch, which no honest training may look at."""

    def __init__(self, method: Method, graph: Graph) -> None:
        assert graph.split is not None
        self.method, self.nodes = method, graph.split.test
        self.targets = graph.labels[self.nodes]
        self.accuracies: list[float] = []

    def on_epoch(self, phase: Phase, outcome: Outcome) -> None:
        """Test the weights that the epoch has left."""
        with torch.no_grad():
            predicted = self.method.logits(rows=self.nodes).argmax(dim=1).cpu().numpy()
        self.accuracies.append(float((predicted == self.targets).mean()))


def judged(name: str, graph: Graph, seed: int) -> dict[str, float]:
    """Train once and return the test accuracy that each rule would report.

    ``validation`` is that of the epoch the loop keeps; ``tied``, the highest among epochs with
    that epoch's validation accuracy; ``improving``, the highest among epochs that lowered the
    validation loss; ``any``, the highest there was.
    """
    method = make_method(name, graph.name).method
    watch = TestWatch(method, graph)
    outcome = train(method, graph, seed=seed, callbacks=[watch])
    test = np.array(watch.accuracies)
    losses, accuracies = (
        np.array([line[kind] for line in outcome.history]) for kind in ("val_loss", "val_accuracy")
    )
    improving = losses == np.minimum.accumulate(losses)
    kept = outcome.best_epoch - 1
    return {
        "validation": float(test[kept]),
        "tied": float(test[accuracies == accuracies[kept]].max()),
        "improving": float(test[improving].max()),
        "any": float(test.max()),
    }


def table(lines: Sequence[dict[str, float | str]]) -> str:
    """Return means ± standard deviations, in per cent."""
    cells: dict[tuple[str, str], list[list[float]]] = {}
    for line in lines:
        key = (str(line["method"]), str(line["dataset"]))
        cells.setdefault(key, []).append([100 * float(line[rule]) for rule in RULES])
    rows = ["| | " + " | ".join(RULES) + " | seeds |", "|---|" + "---|" * (len(RULES) + 1)]
    for (method, dataset), values in cells.items():
        spread = np.std(values, axis=0, ddof=1) if len(values) > 1 else np.zeros(len(RULES))
        shown = [f"{m:.1f} ± {s:.1f}" for m, s in zip(np.mean(values, axis=0), spread, strict=True)]
        rows.append(f"| {method}, {dataset} | {' | '.join(shown)} | {len(values)} |")
    return "\n".join(rows)


def main() -> None:
    """Train what is missing, one line of JSON each, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=["graphnas", "graphunet"])
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=["cora", "citeseer"])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    stored = options.out.read_text() if options.out.exists() else ""
    done = [json.loads(line) for line in stored.splitlines()]
    known = {(line["method"], line["dataset"], line["seed"]) for line in done}
    for dataset in options.datasets:
        graph = load_dataset(dataset)
        for seed in range(options.seeds):
            for name in options.methods:
                if (name, dataset, seed) in known:
                    continue
                line = {"method": name, "dataset": dataset, "seed": seed}
                done.append(line | judged(name, graph, seed))
                with options.out.open("a") as file:
                    file.write(json.dumps(done[-1]) + "\n")
                print(done[-1], flush=True)
    print(table(done))


if __name__ == "__main__":
    main()
