"""What do the analyses cost? MADGap on Pubmed by both definitions, and Metattack of 5 % on Cora.

Each part runs in a process of its own. Memory is the most that the process ever had, minus what it
had with the graph loaded and everything imported. Representations are random: the time of MADGap
does not depend on them. Nothing is read from the cache of attacks or written to it.

    python studies/analyses.py
    python studies/analyses.py --part metattack
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np

from dropnode import load_dataset
from dropnode.analysis.attacks.metattack import Metattack, checked_budget, find_flips
from dropnode.analysis.smoothing import madgap_by_hops, madgap_by_labels
from dropnode.bench.memory import forget_peak, peak_mb, resident_mb
from dropnode.graph import Graph


def by_labels(graph: Graph) -> None:
    """MADGap where neighbours are nodes of the same label."""
    madgap_by_labels(representations(graph), graph.labels)


def by_hops(graph: Graph) -> None:
    """MADGap where neighbours are nodes within three hops."""
    madgap_by_hops(representations(graph), graph.adjacency)


def metattack(graph: Graph) -> None:
    """All flips of 5 % of the edges, with the degree test."""
    options = Metattack(rate=0.05)
    flips = list(islice(find_flips(graph, options), checked_budget(graph, options)))
    assert len(set(flips)) == len(flips)


def representations(graph: Graph) -> np.ndarray:
    """Return rows as wide as logits."""
    return np.random.default_rng(0).standard_normal((graph.num_nodes, graph.num_classes))


PARTS: dict[str, tuple[str, Callable[[Graph], None]]] = {
    "madgap-by-labels": ("pubmed", by_labels),
    "madgap-by-hops": ("pubmed", by_hops),
    "metattack": ("cora-lcc", metattack),
}
"""The dataset and the work of each part."""


def measured(part: str) -> dict[str, Any]:
    """Return the seconds and the megabytes of a part; the first call compiles kernels."""
    dataset, work = PARTS[part]
    if part == "metattack":
        small = load_dataset("sbm", nodes=400, classes=3)
        next(find_flips(small, Metattack(rate=0.1, steps=2)))
    graph = load_dataset(dataset)
    forget_peak()
    before, start = resident_mb(), time.perf_counter()
    work(graph)
    seconds = time.perf_counter() - start
    return {
        "part": part,
        "dataset": dataset,
        "seconds": round(seconds, 2),
        "mb_above_start": round(peak_mb() - before),
    }


def main() -> None:
    """Measure one part, or each in a process of its own; print a line of JSON per part."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--part", choices=PARTS)
    part = parser.parse_args().part
    if part is not None:
        print(json.dumps(measured(part)))
        return
    for name in PARTS:
        subprocess.run([sys.executable, __file__, "--part", name], check=True)


if __name__ == "__main__":
    main()
