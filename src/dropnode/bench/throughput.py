"""The throughput of propagation, compared with the memory bandwidth of the machine.

Counted are the bytes that a hop has to touch at least: for every entry of Â the row of features
that it reads, its value and its column; and every row written once. Rows that are in cache are
read from there, so a fraction above 1 means that the working set fits into the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from dropnode.bench.timing import Announce, Spread, alternate, headed, quiet
from dropnode.data import load_dataset
from dropnode.graph import Graph
from dropnode.methods.grand.config import preset
from dropnode.ops.propagation import mixed_order, normalise
from dropnode.ops.sparse_matrix import SparseMatrix

ROUNDS = 7

SBM_NODES = 100_000

COPIED = 2**27
"""Number of floats copied to measure the bandwidth: 512 MiB, more than any cache holds."""


@dataclass(frozen=True)
class Product:
    """A product of Ā and a matrix: how to compute it, and the bytes that it has to touch."""

    graph: str
    nodes: int
    entries: int
    columns: int
    hops: int
    compute: Callable[[], object]

    @property
    def gigabytes(self) -> float:
        """The gigabytes that all hops have to touch at least."""
        read = self.entries * (4 * self.columns + 8)
        written = 4 * self.nodes * self.columns
        return self.hops * (read + written) / 1e9


def measure(announce: Announce = quiet) -> tuple[list[dict[str, Any]], Spread]:
    """Return one row per graph, and the gigabytes per second of a plain copy."""
    products = [
        product("pubmed", load_dataset("pubmed"), "fast"),
        product("sbm", load_dataset("sbm", nodes=SBM_NODES, features=1), "default"),
    ]
    source = torch.ones(COPIED)
    target = torch.empty_like(source)
    timings = alternate(
        {p.graph: p.compute for p in products} | {"copy": lambda: target.copy_(source)},
        rounds=ROUNDS,
        announce=headed(announce, "propagation"),
    )
    copied = 2 * 4 * COPIED / 1e9
    bandwidth = Spread.of(copied / seconds for seconds in timings.seconds["copy"])
    rows = []
    for p in products:
        speed = Spread.of(p.gigabytes / seconds for seconds in timings.seconds[p.graph])
        share = timings.speedup(p.graph, "copy").median * p.gigabytes / copied
        rows.append(
            {
                "graph": p.graph,
                "nodes": p.nodes,
                "entries": p.entries,
                "columns": p.columns,
                "hops": p.hops,
                "ms": 1000 * timings.time(p.graph).median,
                "gb_s": speed.median,
                "gb_s_iqr": speed.iqr,
                "fraction_of_bandwidth": share,
            }
        )
    return rows, bandwidth


def product(name: str, graph: Graph, preset_name: str) -> Product:
    """Return the propagation of one training step, all views side by side."""
    _, config = preset(preset_name, name)
    matrix = normalise(graph.adjacency)
    operator = SparseMatrix.from_scipy(matrix)
    columns = config.augmentations * config.hidden
    x = torch.ones(graph.num_nodes, columns)
    return Product(
        name,
        graph.num_nodes,
        matrix.nnz,
        columns,
        config.order,
        lambda: mixed_order(operator, x, config.order),
    )
