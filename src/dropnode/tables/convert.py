"""``convert``: files of nodes, edges and features as the folder of a graph on disk.

Edges are sorted outside of memory. First every edge is written, in both directions, to one of some
files, by its first end. Then each of these files fits into memory, and becomes some rows of the
adjacency matrix.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dropnode.errors import ConfigError
from dropnode.files import explained, is_vacant, new_folder
from dropnode.graph.checks import MAX_NODES, Links, to_codes
from dropnode.graph.mapped import ArrayWriter, row_blocks, write_manifest
from dropnode.memory import check_memory
from dropnode.tables.edges import EdgeColumns, edge_blocks
from dropnode.tables.files import read_table
from dropnode.tables.ids import graph_ids, id_column, read_ids
from dropnode.tables.labels import read_labels
from dropnode.tables.problems import Problems
from dropnode.tables.table import Column, find_column

PARTS = 64
"""How many files the edges are written to before they are sorted."""

STEPS = 3
"""Copying features, reading edges, sorting them."""

Watch = Callable[[float], None]
"""Called with how many of the steps are done, and which share of the next."""


@dataclass(frozen=True)
class Converted:
    """What a conversion made."""

    nodes: int
    edges: int
    features: int
    classes: tuple[str, ...]
    labels: int
    notes: tuple[str, ...]
    out: str


def convert(
    nodes: Path,
    edges: Path,
    features: Path,
    out: Path,
    *,
    label: str | None = None,
    id: str | None = None,
    columns: EdgeColumns | None = None,
    half: bool = False,
    watch: Watch = lambda done: None,
) -> Converted:
    """Write the folder of a graph, whole or not at all.

    Parameters
    ----------
    nodes : Path
        A table with the ids of the nodes, and perhaps their labels.
    edges : Path
        A table of edges. CSV and Parquet files of any length are read in parts.
    features : Path
        An ``.npy`` file with one row per node, in the order of their table.
    out : Path
        The new folder.
    label, id : str, optional
        The columns of labels and of ids.
    columns : EdgeColumns, optional
        The columns of the table of edges.
    half : bool
        Whether features are kept as float16, in half the space.
    watch : callable
        Told about the progress.

    Raises
    ------
    TableError
        With the problems of the files.
    ConfigError
        If ``out`` exists and is not empty.
    """
    if not is_vacant(out):
        raise ConfigError(f"{out} exists and is not empty; choose a new folder with --out")
    problems = Problems()
    vectors = _features(features, problems)
    ids, classes, notes = _nodes(nodes, id, label, problems)
    if ids is not None and vectors is not None and len(ids) != len(vectors):
        told = f"has {len(vectors):,} rows; expected one for each of the {len(ids):,} rows of nodes"
        problems.add(str(features), told)
    problems.check()
    assert ids is not None
    assert vectors is not None
    _remove_killed(out)
    with new_folder(out) as folder:
        kind = np.float16 if half else np.float32
        arrays = {"features": _write_features(folder, vectors, kind, features, problems, watch)}
        problems.check()
        sorter = _Sorter(folder / "unsorted", len(ids))
        told = False
        for block, share in edge_blocks(edges, ids, columns or EdgeColumns(), problems):
            links = block.links(ids, f"in {nodes}", problems)
            problems.check()
            # Those of later parts say the same.
            notes += [] if told else block.notes
            told = True
            sorter.add(links)
            watch(1 + share)
        problems.check()
        arrays |= sorter.write(folder, watch)
        notes += [f"{edges}: {repair}" for repair in sorter.repairs()]
        codes, names = classes
        for name, values in (("labels", codes), ("ids", _fixed_width(graph_ids(ids)))):
            writer = ArrayWriter(folder, name, values.dtype.str)
            writer.append(values)
            arrays[name] = writer.finish()
        write_manifest(folder, out.name, names, notes, arrays)
    known, found = int((codes >= 0).sum()), arrays["neighbours"]["shape"][0] // 2
    width = arrays["features"]["shape"][1]
    return Converted(len(ids), found, width, names, known, tuple(notes), str(out))


class _Sorter:
    """Edges, sorted outside of memory into the rows of a symmetric matrix.

    Parallel edges and both directions are merged by maximum weight, and self-loops and edges of
    weight 0 are dropped, as :func:`dropnode.graph.checks.to_adjacency` does.
    """

    def __init__(self, folder: Path, nodes: int) -> None:
        folder.mkdir()
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

    def write(self, folder: Path, watch: Watch) -> dict[str, dict[str, Any]]:
        """Write the matrix, remove the unsorted edges, and return the entries of the manifest."""
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
            watch(2 + (number + 1) / PARTS)
        shutil.rmtree(self.folder)
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


def _nodes(
    path: Path, id: str | None, label: str | None, problems: Problems
) -> tuple[Column | None, tuple[np.ndarray, tuple[str, ...]], list[str]]:
    """Return the ids of a table of nodes, their classes, and what should be said about it."""
    nothing = to_codes(None, 0, None)
    table = read_table(path, "nodes", problems)
    if table is None:
        return None, nothing, []
    if not 0 < table.num_rows <= MAX_NODES:
        problems.add(table.name, f"has {table.num_rows:,} rows; expected 1 to {MAX_NODES:,}")
        return None, nothing, []
    name = id_column(table, id, problems)
    if name is None:
        return None, nothing, []
    classes: tuple[np.ndarray, tuple[str, ...]] | None = to_codes(None, table.num_rows, None)
    if label is not None and label == name:
        problems.add(table.name, "the column of ids cannot be that of labels", column=name)
    elif label is not None and find_column(table, label, "labels", problems):
        classes = read_labels(table, label, problems)
    notes = list(table.notes)
    unused = [column for column in table.columns if column not in (name, label)]
    if unused:
        told = ", ".join(map(repr, unused[:5])) + (", ..." if len(unused) > 5 else "")
        notes.append(f"{table.name}: not used, as features come from their own file: {told}")
    return read_ids(table, name, problems), classes or nothing, notes


def _features(path: Path, problems: Problems) -> np.ndarray | None:
    """Return the mapped matrix of an ``.npy`` file."""
    try:
        vectors = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(vectors, np.memmap):
            raise ValueError("it is no .npy file")
    except OSError as error:
        problems.add(str(path), f"cannot be read ({explained(error)})")
        return None
    except (ValueError, EOFError) as error:
        problems.add(str(path), f"holds no matrix ({error}); save one with numpy.save")
        return None
    if vectors.ndim != 2 or not vectors.shape[1] or vectors.dtype.kind not in "fiub":
        told = f"has shape {vectors.shape} and type {vectors.dtype}; expected a matrix of numbers"
        problems.add(str(path), told)
        return None
    return vectors


def _write_features(
    folder: Path, vectors: np.ndarray, kind: Any, path: Path, problems: Problems, watch: Watch
) -> dict[str, Any]:
    writer = ArrayWriter(folder, "features", np.dtype(kind).newbyteorder("<").str)
    told = f"a number is missing, infinite or too large for {np.dtype(kind)}; replace it"
    for block in row_blocks(vectors):
        with np.errstate(over="ignore"):
            values = vectors[block].astype(kind)
        wrong = np.flatnonzero(~np.isfinite(values).all(axis=1))
        problems.add_rows(str(path), "", block.start + 1 + wrong, lambda at: told)
        writer.append(values)
        watch(min(1.0, block.stop / len(vectors)))
    return writer.finish(vectors.shape[1])


def _fixed_width(ids: np.ndarray) -> np.ndarray:
    """Return ids as an array that can be mapped: text becomes as wide as the longest."""
    if ids.dtype == np.int64:
        return ids
    longest = max(map(len, ids))
    check_memory(4 * longest * len(ids), f"ids of up to {longest:,} characters", "use shorter ids")
    return ids.astype(f"<U{longest}")


def _remove_killed(out: Path) -> None:
    """Remove what conversions to this folder left that were killed."""
    for path in out.parent.glob(".dropnode-*.tmp"):
        found = re.fullmatch(r"\.dropnode-(\d+)-[0-9a-f]{8}\.tmp", path.name)
        if found and (path / "features.bin").exists() and not _runs(int(found[1])):
            shutil.rmtree(path, ignore_errors=True)


def _runs(process: int) -> bool:
    with suppress(PermissionError):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
    return True
