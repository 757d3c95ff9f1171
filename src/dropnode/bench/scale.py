"""Growth of a whole job with the graph, and other methods at the size of AMiner.

The job is to open a graph on disk, train, and predict all nodes, each in its own process.
``python -m dropnode.bench.scale METHOD FOLDER`` measures one and prints a row as JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dropnode.bench.growth import exponent
from dropnode.bench.heavy_tails import write_graph
from dropnode.bench.memory import forget_peak, peak_mb, resident_mb
from dropnode.bench.processes import measured_apart
from dropnode.bench.sign import SIGN, sign_predictions
from dropnode.bench.timing import Announce, quiet
from dropnode.data.splits import per_class_split
from dropnode.graph import Graph, Split
from dropnode.graph.mapped import open_mapped
from dropnode.methods.table import make_method
from dropnode.training import train

SIZES: tuple[int, ...] = (100_000, 300_000, 1_000_000)

LARGE_SIZES: tuple[int, ...] = (3_000_000, 10_000_000)

AMINER = 593_486
"""The nodes of AMiner."""

METHOD = "grand-plus"

OTHERS = ("sgc", SIGN, "appnp", "label-propagation")
"""What a user would take instead."""

WARM = 2_000
"""The nodes of a graph that is trained on first, so that imports and compilation do not count."""


def measure(
    sizes: Sequence[int], others_at: int = AMINER, announce: Announce = quiet
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Return a row per size and per other method, and the exponents of time and memory.

    Parameters
    ----------
    sizes : sequence of int
        The numbers of nodes.
    others_at : int
        That at which other methods are measured too.
    """
    rows = []
    for nodes in sorted({*sizes, others_at}):
        methods = (METHOD, *OTHERS) if nodes == others_at else (METHOD,)
        with tempfile.TemporaryDirectory(prefix="dropnode-") as temporary:
            folder = Path(temporary) / "graph"
            announce(f"scale: drawing {nodes:,} nodes")
            write_graph(folder, nodes)
            for method in methods:
                announce(f"scale: {method}, {nodes:,} nodes")
                what = f"{method} on {nodes:,} nodes"
                rows.append(measured_apart("dropnode.bench.scale", method, folder, what=what))
    own = [row for row in rows if row["method"] == METHOD]
    exponents = {
        key: exponent([row["nodes"] for row in own], [row[key] for row in own])
        for key in ("seconds", "cpu_seconds", "working_mb")
    }
    return rows, exponents


def measure_here(method: str, folder: Path) -> dict[str, Any]:
    """Measure a method on the graph of a folder in this process.

    ``working_mb`` is the peak without the memory that was in use before the graph was opened.
    """
    with tempfile.TemporaryDirectory(prefix="dropnode-") as temporary:
        small = Path(temporary) / "graph"
        write_graph(small, WARM)
        _predicted(method, *_opened(small))
    held = resident_mb()
    forget_peak()
    started, started_cpu = time.perf_counter(), time.process_time()
    graph, split = _opened(folder)
    predicted = _predicted(method, graph, split)
    seconds, cpu = time.perf_counter() - started, time.process_time() - started_cpu
    peak = peak_mb()
    right = predicted[split.test] == graph.labels[split.test]
    return {
        "method": method,
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "seconds": seconds,
        "cpu_seconds": cpu,
        "peak_mb": peak,
        "working_mb": peak - held,
        "test_accuracy": 100 * float(right.mean()),
    }


def _opened(folder: Path) -> tuple[Graph, Split]:
    graph = open_mapped(folder)
    return graph, per_class_split(graph.labels, 20, 30, seed=0)


def _predicted(name: str, graph: Graph, split: Split) -> np.ndarray:
    """Return the predicted class of every node, after a training with the preset ``default``."""
    if name == SIGN:
        return sign_predictions(graph, split)
    method = make_method(name, None).method
    outcome = train(method, graph, split, seed=0)
    if outcome.interrupted:
        raise KeyboardInterrupt
    return np.asarray(method.logits().argmax(dim=1).cpu())


if __name__ == "__main__":
    print(json.dumps(measure_here(sys.argv[1], Path(sys.argv[2]))))
