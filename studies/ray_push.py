"""How much faster do two Ray workers push than one?

A graph with heavy-tailed degrees, drawn here. One worker and two push the same rows, one after the
other on the same Ray. The time of a worker's start is part of it. All results are compared bit by
bit with a push by this process, on one thread. The default size takes minutes on idle cores; a
push that takes less than a minute on one worker says little.

    python studies/ray_push.py
    python studies/ray_push.py --nodes 20000 --sources 2000    # only to see that it works
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial

import numpy as np
import scipy.sparse as sp

from dropnode.engines.ray_cluster import connected, run_ray
from dropnode.ops.kernels.threads import Threads, at_most
from dropnode.ops.push import pushed_rows, walk_shares

ORDER, THRESHOLD, TOP = 8, 1e-5, 64


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--sources", type=int, default=100_000)
    options = parser.parse_args()
    adjacency = heavy_tailed(options.nodes)
    degrees = np.asarray(adjacency.sum(axis=1), np.float64).ravel() + 1.0
    sources = np.random.default_rng(1).choice(options.nodes, options.sources, replace=False)
    push = partial(
        pushed_rows, adjacency, degrees, sources, walk_shares("average", ORDER), THRESHOLD, TOP
    )
    with at_most(Threads(torch=1, kernels=1)):
        expected, here = timed(push)
    seconds = {}
    with connected(None, 2):
        for workers in (1, 2):
            found, seconds[workers] = timed(partial(push, run=partial(run_ray, jobs=workers)))
            for name in ("data", "indices", "indptr"):
                assert np.array_equal(getattr(found, name), getattr(expected, name)), name
    told = {
        "nodes": options.nodes,
        "edges": adjacency.nnz // 2,
        "rows": options.sources,
        "seconds_of_one_thread_here": round(here, 2),
        "seconds_of_one_worker": round(seconds[1], 2),
        "seconds_of_two_workers": round(seconds[2], 2),
        "ratio": round(seconds[1] / seconds[2], 2),
    }
    print(json.dumps(told))


def timed(work: partial[sp.csr_array]) -> tuple[sp.csr_array, float]:
    """Return what some work returns, and how long it took."""
    started = time.perf_counter()
    return work(), time.perf_counter() - started


def heavy_tailed(nodes: int) -> sp.csr_array:
    """Return the adjacency matrix of a graph with ten edges per node, one end of each popular."""
    rng = np.random.default_rng(0)
    source = (nodes * rng.random(10 * nodes) ** 2).astype(np.int64)
    target = rng.integers(nodes, size=10 * nodes)
    ones = np.ones(len(source), dtype=np.float32)
    edges = sp.csr_array((ones, (source, target)), shape=(nodes, nodes))
    both = sp.csr_array(edges + edges.T)
    both.setdiag(0)
    both.eliminate_zeros()
    both.data[:] = 1.0
    return both


if __name__ == "__main__":
    main()
