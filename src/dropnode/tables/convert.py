"""``convert``: files of nodes, edges and features as the folder of a graph on disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dropnode.errors import ConfigError
from dropnode.files import explained
from dropnode.folders import check_place, new_folder
from dropnode.graph.labels import to_codes
from dropnode.graph.mapped import ArrayWriter, row_blocks, write_manifest
from dropnode.graph.nodes import MAX_NODES
from dropnode.locks import FolderLock
from dropnode.memory import check_memory
from dropnode.tables.edges import EdgeColumns, edge_blocks
from dropnode.tables.files import read_table
from dropnode.tables.ids import graph_ids, id_column, read_ids
from dropnode.tables.labels import read_labels
from dropnode.tables.problems import Problems
from dropnode.tables.sorting import EdgeSorter
from dropnode.tables.table import Column, find_column

UNSORTED = "unsorted"
"""The folder of edges that are not sorted yet; a conversion that runs has it locked."""

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
    check_place(out)
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
        # Locked as long as the folder is not whole, by which the next conversion knows that this
        # one runs or was killed.
        with FolderLock(folder / UNSORTED):
            kind = np.float16 if half else np.float32
            arrays = {"features": _write_features(folder, vectors, kind, features, problems, watch)}
            problems.check()
            sorter = EdgeSorter(folder / UNSORTED, len(ids))
            said: tuple[str, ...] | None = None
            for block, share in edge_blocks(edges, ids, columns or EdgeColumns(), problems):
                links = block.links(ids, f"in {nodes}", problems)
                problems.check()
                # Those of later parts say the same.
                said = block.notes if said is None else said
                sorter.add(links)
                watch(1 + share)
            problems.check()
            arrays |= sorter.write(folder, lambda share: watch(2 + share))
            notes += [*(said or ()), *(f"{edges}: {repair}" for repair in sorter.repairs())]
            codes, names = classes
            for name, values in (("labels", codes), ("ids", _fixed_width(graph_ids(ids)))):
                writer = ArrayWriter(folder, name, values.dtype.str)
                writer.append(values)
                arrays[name] = writer.finish()
            write_manifest(folder, Path(os.path.realpath(out)).name, names, notes, arrays)
        shutil.rmtree(folder / UNSORTED)
    known, found = int((codes >= 0).sum()), arrays["neighbours"]["shape"][0] // 2
    width = arrays["features"]["shape"][1]
    return Converted(len(ids), found, width, names, known, tuple(notes), str(out))


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
    """Remove what conversions to or beside this folder left that were killed."""
    place = Path(os.path.realpath(out))
    for above in (place.parent, place):
        for path in above.glob(f".dropnode-*.tmp/{UNSORTED}"):
            # One that still runs holds the lock.
            with suppress(ConfigError, OSError), FolderLock(path):
                shutil.rmtree(path.parent, ignore_errors=True)
