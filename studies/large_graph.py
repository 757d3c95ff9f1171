"""Write the files of a large graph, to convert and to train on.

A block model with 20 classes and 64 features: one end of an edge is popular, degrees have a heavy
tail, 60 % of the edges are drawn within a class, and ids are numbers that are no positions. 20,000
nodes have a label.

    python studies/large_graph.py files --nodes 1000000
    dropnode convert --nodes files/nodes.csv --edges files/edges.csv --features files/features.npy \
        --label label --out graph
    dropnode train graph --method grand-plus --out run
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv

CLASSES, FEATURES, LABELS, EDGES_PER_NODE = 20, 64, 20_000, 10
HOMOPHILY, SPREAD = 0.6, 0.75
BLOCK = 5_000_000
"""How many edges are drawn at a time."""


def main() -> None:
    """Draw the graph, and write its files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    labels = rng.integers(CLASSES, size=options.nodes)
    write_edges(options.folder / "edges.csv", labels, rng)
    write_features(options.folder / "features.npy", labels, rng)
    shown = np.full(len(labels), "", dtype=object)
    known = rng.choice(len(labels), LABELS, replace=False)
    shown[known] = [f"c{label}" for label in labels[known]]
    nodes = pa.table({"id": ids(np.arange(len(labels))), "label": pa.array(shown, pa.string())})
    arrow_csv.write_csv(nodes, options.folder / "nodes.csv")


def ids(positions: np.ndarray) -> np.ndarray:
    """Return the ids of nodes."""
    return positions * 7 + 3


def write_edges(path: Path, labels: np.ndarray, rng: np.random.Generator) -> None:
    """Write a table of edges, a block at a time."""
    nodes, total = len(labels), EDGES_PER_NODE * len(labels)
    members = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[members], np.arange(CLASSES + 1))
    schema = pa.schema([("source", pa.int64()), ("target", pa.int64())])
    with arrow_csv.CSVWriter(path, schema) as writer:
        for first in range(0, total, BLOCK):
            count = min(BLOCK, total - first)
            source = (nodes * rng.random(count) ** 2).astype(np.int64)
            target = (nodes * rng.random(count)).astype(np.int64)
            within = rng.random(count) < HOMOPHILY
            own = labels[source[within]]
            sizes = starts[own + 1] - starts[own]
            target[within] = members[starts[own] + (rng.random(len(own)) * sizes).astype(np.int64)]
            writer.write(pa.table({"source": ids(source), "target": ids(target)}))


def write_features(path: Path, labels: np.ndarray, rng: np.random.Generator) -> None:
    """Write Gaussian features around class centres."""
    centres = rng.standard_normal((CLASSES, FEATURES)) * SPREAD / np.sqrt(FEATURES)
    features = np.lib.format.open_memmap(path, "w+", np.float32, (len(labels), FEATURES))
    for first in range(0, len(labels), BLOCK // 10):
        own = slice(first, first + BLOCK // 10)
        noise = rng.standard_normal((len(labels[own]), FEATURES), dtype=np.float32)
        features[own] = noise + centres[labels[own]]
    features.flush()


if __name__ == "__main__":
    main()
