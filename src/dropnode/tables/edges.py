"""Tables of edges: two columns of ids, perhaps one of weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dropnode.graph.edges import Links
from dropnode.tables.files import read_table
from dropnode.tables.ids import id_texts, places_of
from dropnode.tables.numbers import NUMBER, read_numbers
from dropnode.tables.problems import Problems
from dropnode.tables.streams import table_blocks
from dropnode.tables.table import Column, Table, find_column, first_named, positions

PAIRS = (
    ("source", "target"),
    ("src", "dst"),
    ("from", "to"),
    ("source_id", "target_id"),
    ("node1", "node2"),
    ("node_1", "node_2"),
    ("id1", "id2"),
    ("id_1", "id_2"),
    ("head", "tail"),
    ("start", "end"),
    ("citing", "cited"),
    ("u", "v"),
)
"""What the two columns of an edge are called, if nobody says."""

WEIGHTS = ("weight", "weights", "edge_weight", "w")
"""What a column of weights is called, if nobody says."""


@dataclass(frozen=True)
class EdgeColumns:
    """The names of the columns of a table of edges, where the caller has given them."""

    source: str | None = None
    target: str | None = None
    weight: str | None = None


@dataclass(frozen=True)
class EdgeTable:
    """A table of edges that has been read: both ends of every edge as text, and their weights."""

    table: Table
    ends: tuple[str, str]
    source: Column
    target: Column
    weights: np.ndarray
    notes: tuple[str, ...]

    def links(self, ids: Column, among: str, problems: Problems) -> Links:
        """Return the edges between positions of ids; edges to other nodes are problems.

        ``among`` says what has the ids, in messages.
        """
        # Both ends at once: most of the time goes into a table of the ids.
        both = pa.chunked_array([*self.source.chunks, *self.target.chunks], ids.type)
        all_places = places_of(both, ids)
        found = []
        for name, texts, places in zip(
            self.ends, (self.source, self.target), np.split(all_places, 2), strict=True
        ):
            unknown = np.flatnonzero((places < 0) & texts.is_valid().to_numpy())
            told = f"{{}} is no id {among}; correct it, add the node, or remove the edge"
            self.table.report(problems, name, unknown, told)
            found.append(places)
        return found[0], found[1], self.weights


def read_edges(
    source: Any, ids: Column | None, columns: EdgeColumns, problems: Problems
) -> EdgeTable | None:
    """Read a table of edges; None if it cannot be used, which is then among the problems.

    Parameters
    ----------
    source : path or data frame
    ids : Column or None
        The ids of the nodes. If the first row of a CSV file has two of them, or two numbers, it
        is no header.
    columns : EdgeColumns
    problems : Problems
    """

    table = read_table(source, "edges", problems, _first_is_data(ids))
    return None if table is None else _edge_table(table, columns, problems)


def edge_blocks(
    path: Path, ids: Column, columns: EdgeColumns, problems: Problems
) -> Iterator[tuple[EdgeTable, float]]:
    """Yield parts of a file of edges that may be of any length, and the share that is read.

    The last part may have problems, which the caller checks.
    """
    for table, share in table_blocks(path, problems, _first_is_data(ids)):
        edges = _edge_table(table, columns, problems)
        if edges is None:
            return
        yield edges, share


def _first_is_data(ids: Column | None) -> Callable[[list[str]], bool]:
    """Return a function that tells whether the first row of a file has ids, and no names."""

    def is_data(names: list[str]) -> bool:
        if len(names) < 2:
            return False
        ends = pa.chunked_array([names[:2]], pa.string())
        known = ids is not None and bool((places_of(ends, ids) >= 0).all())
        return known or pc.all(pc.match_substring_regex(ends, NUMBER)).as_py()

    return is_data


def _edge_table(table: Table, columns: EdgeColumns, problems: Problems) -> EdgeTable | None:
    chosen = _columns(table, columns, problems)
    if not table.num_rows:
        problems.add(table.name, "has no rows below its header; expected one per edge, or no file")
    if chosen is None or not table.num_rows:
        return None
    (first, second, weight), notes = chosen
    ends = []
    for name in (first, second):
        texts = id_texts(table, name, problems)
        absent = positions(texts.is_null())
        table.report(problems, name, absent, "there is no id; fill the cell, or remove the edge")
        ends.append(texts)
    weights = _weights(table, weight, problems)
    return EdgeTable(table, (first, second), ends[0], ends[1], weights, (*table.notes, *notes))


def _columns(
    table: Table, given: EdgeColumns, problems: Problems
) -> tuple[tuple[str, str, str | None], list[str]] | None:
    """Return the columns of both ends and of the weight, and what should be said about them."""
    before = len(problems)
    for what, name in vars(given).items():
        if name is not None:
            find_column(table, name, what, problems)
    if len(problems) > before:
        return None
    if len(table.columns) < 2:
        told = f"has one column, {next(iter(table.columns))!r}; expected the two ends of an edge"
        problems.add(table.name, f"{told}, separated by commas, semicolons or tabs")
        return None
    pair = next((p for p in PAIRS if all(first_named(table, [name]) for name in p)), None)
    if pair is not None:
        first, second = (first_named(table, [name]) or "" for name in pair)
    else:
        first, second = list(table.columns)[:2]
    # Where one end alone is given, it may be the other one of the usual two.
    source = given.source or (second if given.target == first else first)
    ends = (source, given.target or (first if given.source == second else second))
    notes = []
    if ends[0] == ends[1]:
        told = "is given as both ends of the edges; give another column as source or as target"
        problems.add(table.name, told, column=ends[0])
        return None
    if given.weight in ends:
        told = "is an end of the edges, and is given as the weight; give another column as one"
        problems.add(table.name, f"{told} of the two", column=given.weight or "")
        return None
    if pair is None and not (given.source and given.target):
        notes.append(f"{table.name}: edges join the columns {ends[0]!r} and {ends[1]!r}")
    weight = given.weight or first_named(table, WEIGHTS)
    weight = None if weight in ends else weight
    unused = [name for name in table.columns if name not in (*ends, weight)]
    if unused:
        names = ", ".join(map(repr, unused[:5])) + (", ..." if len(unused) > 5 else "")
        notes.append(f"{table.name}: not used: {names}")
    return (*ends, weight), notes


def _weights(table: Table, name: str | None, problems: Problems) -> np.ndarray:
    if name is None:
        return np.ones(table.num_rows, dtype=np.float32)
    before = len(problems)
    values = read_numbers(table, name, problems)
    if len(problems) > before:
        return np.ones(table.num_rows, dtype=np.float32)
    with np.errstate(over="ignore"):
        weights = values.astype(np.float32)
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    told = "the weight {} is no number from 0 on; propagation averages over neighbours"
    table.report(problems, name, wrong, told)
    return weights


def one_way(links: Links, num_nodes: int) -> tuple[int, int]:
    """Return how many different edges there are, without direction, and how many of them one way.

    Self-loops and edges of weight 0 are no edges.
    """
    source, target, weights = links
    keep = (source != target) & (weights > 0)
    source, target = source[keep], target[keep]
    pairs = np.minimum(source, target) * num_nodes + np.maximum(source, target)
    # Sorted, both directions of a pair are side by side. (NumPy's unique is slower by far.)
    directed = np.sort(2 * pairs + (source > target))
    directed = directed[np.diff(directed, prepend=-1) != 0]
    different = int(np.count_nonzero(np.diff(directed // 2, prepend=-1)))
    return different, 2 * different - len(directed)
