"""EdgeSorter: edges that do not fit into memory, sorted into the rows of a matrix.

First every edge is written, in both directions, to one of some files, by its first end. Then each
of these files fits into memory, and becomes some rows of the adjacency matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dropnode.graph.edges import Links
from dropnode.graph.mapped import ArrayWriter

PARTS = 64
"""How many files the edges are written to before they are sorted."""


class EdgeSorter:
    """Edges, sorted outside of memory into the rows of a symmetric matrix.

    Parallel edges and both directions are merged by maximum weight, and self-loops and edges of
    weight 0 are dropped, as :func:`dropnode.graph.edges.to_adjacency` does.

    Parameters
    ----------
    folder : Path
        For the unsorted edges. The caller removes it.
    nodes : int
        How many there are.
    """

    def __init__(self, folder: Path, nodes: int) -> None:
        self.folder, self.nodes = folder, nodes
        self.rows = -(-nodes // PARTS)
        self.weightless = self.loops = self.parallel = 0

    def add(self, links: Links) -> None:
        """Write edges to the file of their first end, in both directions."""
        source, target, weights = links
        weightless = weights == 0
        loops = ~weightless & (source == target)
        self.weightless += int(weightless.sum())
        self.loops += int(loops.sum())
        if (weightless | loops).any():
            keep = ~(weightless | loops)
            source, target, weights = source[keep], target[keep], weights[keep]
        listed = (source > target).astype(np.int64)
        for first, second in ((source, target), (target, source)):
            # By the ends, and at last by the direction in which the edge was listed.
            keys = 2 * (first * self.nodes + second) + listed
            part = (first // self.rows).astype(np.uint8)
            order = np.argsort(part, kind="stable")
            cuts = np.searchsorted(part[order], np.arange(PARTS + 1))
            keys, values = keys[order], weights[order]
            for number in range(PARTS):
                own = slice(cuts[number], cuts[number + 1])
                if own.start < own.stop:
                    self._append(f"{number}.keys", keys[own])
                    self._append(f"{number}.weights", values[own])

    def _append(self, name: str, values: np.ndarray) -> None:
        with (self.folder / name).open("ab") as file:
            file.write(values.data)

    def write(self, folder: Path, watch: Callable[[float], None]) -> dict[str, dict[str, Any]]:
        """Write the matrix to a folder, and return the entries of its arrays in the manifest.

        ``watch`` is called with the share that is done.
        """
        size = sum(path.stat().st_size for path in self.folder.glob("*.keys"))
        wide = "<i8" if size // 8 >= 2**31 else "<i4"
        writers = {name: ArrayWriter(folder, name, wide) for name in ("starts", "neighbours")}
        writers["weights"] = ArrayWriter(folder, "weights", "<f4")
        writers["starts"].append(np.zeros(1, np.int64))
        for number in range(PARTS):
            first = number * self.rows
            rows = max(0, min(self.rows, self.nodes - first))
            keys = self._read(f"{number}.keys", np.int64)
            weights = self._read(f"{number}.weights", np.float32)
            # An edge of weight 1 is the usual one, and sorting keys alone is far faster.
            if (weights == 1).all():
                keys.sort()
                weights = np.ones(len(keys), np.float32)
            else:
                order = np.argsort(keys)
                keys, weights = keys[order], weights[order]
            pairs = keys >> 1
            row, column = np.divmod(pairs, self.nodes)
            # Every edge is here once with its lower end first.
            self.parallel += int(((keys[1:] == keys[:-1]) & (row < column)[1:]).sum())
            places = np.flatnonzero(np.diff(pairs, prepend=-1))
            counts = np.bincount(row[places] - first, minlength=rows)
            before = writers["neighbours"].length
            writers["starts"].append(before + np.cumsum(counts[:rows]))
            writers["neighbours"].append(column[places])
            heaviest = np.maximum.reduceat(weights, places) if len(places) else weights
            writers["weights"].append(heaviest)
            watch((number + 1) / PARTS)
        return {name: writer.finish() for name, writer in writers.items()}

    def _read(self, name: str, dtype: Any) -> np.ndarray:
        path = self.folder / name
        return np.fromfile(path, dtype) if path.exists() else np.empty(0, dtype)

    def repairs(self) -> list[str]:
        """Return what was repaired, one sentence each."""
        found = {
            "edges of weight 0 dropped": self.weightless,
            "self-loops removed, as propagation adds its own": self.loops,
            "parallel edges merged, keeping the largest weight": self.parallel,
        }
        return [f"{what}: {count:,}" for what, count in found.items() if count]
