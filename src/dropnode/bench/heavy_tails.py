"""Block models with heavy-tailed degrees and weak features, of any size, written to a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dropnode.graph.mapped import ArrayWriter, write_manifest
from dropnode.tables.sorting import EdgeSorter

CLASSES, FEATURES, EDGES_PER_NODE = 18, 64, 10
"""Nearly those of AMiner, which has 18 classes, 100 features and 10.4 edges per node."""

HOMOPHILY = 0.5
"""The share of edges that are drawn within a class."""

SPREAD = 0.5
"""Typical distance of a class centre from the origin, in units of the noise of one feature."""

BLOCK = 2_000_000
"""How many edges, or nodes, are drawn at a time."""


def write_graph(folder: Path, nodes: int, seed: int = 0) -> None:
    """Write a graph to a folder that :func:`~dropnode.graph.mapped.open_mapped` opens.

    The expected degree of the node of rank r is in proportion to r^-½, so degrees have a tail with
    exponent 3. Ranks say nothing about classes.
    """
    rng = np.random.default_rng(seed)
    labels = rng.integers(CLASSES, size=nodes)
    folder.mkdir()
    unsorted = folder / "unsorted"
    unsorted.mkdir()
    sorter = EdgeSorter(unsorted, nodes)
    # Within a class, nodes stay in the order of their ranks.
    members = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[members], np.arange(CLASSES + 1))
    for first in range(0, EDGES_PER_NODE * nodes, BLOCK):
        count = min(BLOCK, EDGES_PER_NODE * nodes - first)
        source, target = (nodes * rng.random((2, count)) ** 2).astype(np.int64)
        within = np.flatnonzero(rng.random(count) < HOMOPHILY)
        own = labels[source[within]]
        sizes = starts[own + 1] - starts[own]
        places = (sizes * rng.random(len(within)) ** 2).astype(np.int64)
        target[within] = members[starts[own] + places]
        sorter.add((source, target, np.ones(count, np.float32)))
    arrays = sorter.write(folder, lambda share: None)
    for path in unsorted.iterdir():
        path.unlink()
    unsorted.rmdir()
    arrays["features"] = _features(folder, labels, rng)
    for name, values in (("labels", labels), ("ids", np.arange(nodes))):
        writer = ArrayWriter(folder, name, "<i8")
        writer.append(values)
        arrays[name] = writer.finish()
    names = [f"class {number}" for number in range(CLASSES)]
    write_manifest(folder, "heavy-tails", names, (), arrays)


def _features(folder: Path, labels: np.ndarray, rng: np.random.Generator) -> dict[str, Any]:
    centres = rng.standard_normal((CLASSES, FEATURES)) * SPREAD / np.sqrt(FEATURES)
    writer = ArrayWriter(folder, "features", "<f4")
    for first in range(0, len(labels), BLOCK):
        own = labels[first : first + BLOCK]
        noise = rng.standard_normal((len(own), FEATURES), dtype=np.float32)
        writer.append(noise + centres.astype(np.float32)[own])
    return writer.finish(FEATURES)
