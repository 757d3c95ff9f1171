"""Growth of time and memory with the graph: block models of growing size.

Each size is measured in its own process, which has its own peak of memory.
``python -m dropnode.bench.growth NODES`` measures one size and prints a row as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from dropnode.bench.epochs import ENDLESS, LoopTraining
from dropnode.bench.memory import forget_peak, peak_mb, resident_mb
from dropnode.bench.processes import measured_apart
from dropnode.bench.timing import Announce, alternate, quiet
from dropnode.data import load_dataset
from dropnode.graph import Graph
from dropnode.methods.grand.config import preset
from dropnode.methods.grand.model import Grand

SIZES: tuple[int, ...] = (10_000, 30_000, 100_000)

LARGE_SIZES: tuple[int, ...] = (300_000, 1_000_000)

AVERAGE_DEGREE = 10
FEATURES = 100
ROUNDS = 5


def measure(
    sizes: Sequence[int], announce: Announce = quiet
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Return one row per size, and the exponents of time and memory in the number of nodes."""
    rows = []
    for nodes in sizes:
        announce(f"scaling: {nodes:,} nodes")
        rows.append(measured_apart("dropnode.bench.growth", nodes, what=f"{nodes:,} nodes"))
    exponents = {
        name: exponent(sizes, [row[key] for row in rows])
        for name, key in (("epoch", "epoch_ms"), ("peak", "peak_mb"), ("working", "working_mb"))
    }
    return rows, exponents


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Fit values ∝ sizes^e by least squares of the logarithms, and return e.

    Examples
    --------
    >>> round(exponent([10, 100, 1000], [3, 300, 30000]), 6)
    2.0
    """
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def measure_here(nodes: int) -> dict[str, Any]:
    """Measure one size in this process.

    ``peak_mb`` is the peak of the whole process, with interpreter and torch; ``working_mb`` is the
    peak without the memory that was in use before there was a graph.
    """
    # A small training first, so that imports and compilation do not count.
    _training(_graph(300)).epoch()
    held = resident_mb()
    forget_peak()
    graph = _graph(nodes)
    timings = alternate({"epoch": _training(graph).epoch}, rounds=ROUNDS, burst=0.3)
    epoch, peak = timings.time("epoch"), peak_mb()
    return {
        "nodes": nodes,
        "edges": graph.num_edges,
        "epoch_ms": 1000 * epoch.median,
        "epoch_iqr_ms": 1000 * epoch.iqr,
        "peak_mb": peak,
        "working_mb": peak - held,
    }


def _graph(nodes: int) -> Graph:
    return load_dataset("sbm", nodes=nodes, average_degree=AVERAGE_DEGREE, features=FEATURES)


def _training(graph: Graph) -> LoopTraining:
    _, config = preset("default", "sbm")
    return LoopTraining(Grand(config.replace(**ENDLESS)), graph)


if __name__ == "__main__":
    print(json.dumps(measure_here(int(sys.argv[1]))))
