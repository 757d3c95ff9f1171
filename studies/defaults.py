"""Compare methods and feature scalings with the preset default, on graphs nobody tuned it for.

Each class trains with 20 labels and validates with 30, or with the half of the rest of a small
class; all other nodes test. A line of the results has a graph, a method, a scaling and a split.
Tables are joined to their ten nearest rows. Graphs in a folder, such as ACM and BlogCatalog, are
``.npz`` files with the arrays of ``scipy.sparse`` matrices ``adj`` and ``attr``, or with
``node_features`` and ``edges``.

    python studies/defaults.py                                   # run again to go on
    python studies/defaults.py --scalings row,unit,standard,none --methods grand
    python studies/defaults.py --folder graphs/ --graphs acm,blogcatalog
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import defaultdict
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn import datasets
from sklearn.preprocessing import StandardScaler

from dropnode.data import load_dataset
from dropnode.graph import Graph, Split
from dropnode.graph.neighbours import nearest_neighbour_graph
from dropnode.methods.table import make_method
from dropnode.training import train

RESULTS = Path(__file__).parent / "results/defaults.jsonl"
GRAPHS = "wine,breast-cancer,digits,cora,citeseer,amazon-photo,coauthor-cs,pubmed"
METHODS = "grand,gcn,appnp,label-propagation,logistic"
TABLES = {"wine": datasets.load_wine, "breast-cancer": datasets.load_breast_cancer}
LABELS, VALIDATION = 20, 30


def main() -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=RESULTS, help="results, a JSON line each")
    parser.add_argument("--graphs", default=GRAPHS)
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--scalings", default="auto")
    parser.add_argument("--folder", type=Path, help="where graphs outside the catalogue are")
    parser.add_argument("--splits", type=int, default=10)
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    done = {key(line) for line in read(options.out)}
    for name in options.graphs.split(","):
        graph = None
        each = product(
            range(options.splits), options.methods.split(","), options.scalings.split(",")
        )
        for split, method, scaling in each:
            if (name, method, scaling, split) in done:
                continue
            graph = graph or load(name, options.folder)
            line = {"graph": name, "method": method, "scaling": scaling, "split": split}
            line |= run(graph, method, scaling, split)
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            told = f"{name} {method} {scaling} split {split}: {100 * line['accuracy']:.1f} %"
            print(told, file=sys.stderr, flush=True)
    print_table(read(options.out))


def load(name: str, folder: Path | None) -> Graph:
    """Return a graph of the catalogue, a table joined to its nearest rows, or one of a folder."""
    if name in TABLES:
        features, labels = TABLES[name](return_X_y=True)
        nearest = nearest_neighbour_graph(StandardScaler().fit_transform(features), 10)
        return Graph.from_scipy(nearest, features, labels)
    if folder is None or not (folder / f"{name}.npz").exists():
        return load_dataset(name)
    arrays = np.load(folder / f"{name}.npz", allow_pickle=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a builder repairs
        if "edges" in arrays:
            parts = (arrays[part] for part in ("edges", "node_features", "node_labels"))
            return Graph.from_edges(*parts)
        adjacency, features = (matrix(arrays, part) for part in ("adj", "attr"))
        return Graph.from_scipy(adjacency.maximum(adjacency.T), features, arrays["labels"])


def matrix(arrays: Any, name: str) -> sp.csr_array:
    """Return a sparse matrix from its arrays."""
    parts = tuple(arrays[f"{name}_{part}"] for part in ("data", "indices", "indptr"))
    return sp.csr_array(parts, shape=tuple(arrays[f"{name}_shape"]))


def divide(graph: Graph, seed: int) -> Split:
    """Return a random split: 20 labels per class train, 30 validate, the rest tests."""
    generator = np.random.default_rng(1000 + seed)
    parts: tuple[list[int], list[int], list[int]] = ([], [], [])
    for code in range(graph.num_classes):
        nodes = generator.permutation(np.flatnonzero(graph.labels == code))
        trained = min(LABELS, max(1, len(nodes) // 3))
        validated = trained + min(VALIDATION, (len(nodes) - trained) // 2)
        for part, chosen in zip(parts, np.split(nodes, [trained, validated]), strict=True):
            part.extend(chosen.tolist())
    train, val, test = (np.sort(np.array(part, dtype=np.int64)) for part in parts)
    return Split(train, val, test)


def run(graph: Graph, method: str, scaling: str, seed: int) -> dict[str, Any]:
    """Train a method on one split, and return its accuracies and the scaling that it had."""
    split = divide(graph, seed)
    changes = {} if method == "label-propagation" else {"feature_scaling": scaling}
    made = make_method(method, None, "default", changes).method
    train(made, graph, split, seed=seed)
    right = made.logits().numpy().argmax(axis=1) == graph.labels
    return {
        "used": made.scaling.kind,
        "accuracy": float(right[split.test].mean()),
        "validation": float(right[split.val].mean()),
    }


def key(line: dict[str, Any]) -> tuple[str, str, str, int]:
    """Return what identifies a result."""
    return line["graph"], line["method"], line["scaling"], line["split"]


def read(path: Path) -> list[dict[str, Any]]:
    """Return the results so far."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def print_table(lines: list[dict[str, Any]]) -> None:
    """Print mean test accuracies: a row per graph, a column per method and scaling."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for line in lines:
        found[line["graph"], f"{line['method']} {line['scaling']}"].append(100 * line["accuracy"])
    columns = sorted({column for _, column in found})
    print("| graph | " + " | ".join(columns) + " |\n|---|" + "---|" * len(columns))
    for graph in dict.fromkeys(graph for graph, _ in found):
        cells = [shown(found.get((graph, column), [])) for column in columns]
        print(f"| {graph} | " + " | ".join(cells) + " |")


def shown(scores: list[float]) -> str:
    """Return a cell: mean, spread and number of splits."""
    if not scores:
        return ""
    spread = f" ± {np.std(scores, ddof=1):.1f}" if len(scores) > 1 else ""
    return f"{np.mean(scores):.1f}{spread} ({len(scores)})"


if __name__ == "__main__":
    main()
