"""``read_tables``: files of nodes and edges as a graph, with the encoders of its features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dropnode.errors import ConfigError
from dropnode.graph import Graph
from dropnode.graph.arrays import Matrix
from dropnode.graph.edges import Links, matrix_links, to_adjacency
from dropnode.graph.labels import to_codes
from dropnode.graph.neighbours import NeighbourIndex
from dropnode.graph.nodes import to_nodes
from dropnode.settings import count, read_value, shown
from dropnode.settings import seed as seed_field
from dropnode.tables.column_encoders import Encoder
from dropnode.tables.columns import ColumnReport, Roles, fit_columns
from dropnode.tables.edges import EdgeColumns, EdgeTable, one_way, read_edges
from dropnode.tables.encoders import Encoders, are_sparse, joined
from dropnode.tables.files import read_table
from dropnode.tables.ids import graph_ids, id_column, read_ids
from dropnode.tables.labels import read_labels
from dropnode.tables.problems import Problems
from dropnode.tables.structure import Structure
from dropnode.tables.table import Column, find_column
from dropnode.tables.vectors import read_vectors, vectors_name

NEIGHBOURS = 10
"""How many nodes a node is joined to if there are no edges and nobody says."""


@dataclass(frozen=True, eq=False)
class Tables:
    """What files of nodes and edges hold.

    Attributes
    ----------
    graph : Graph
        The nodes in the order of their table; labels are unknown where their cell is empty.
    encoders : Encoders
        What makes features of the columns, to encode new rows alike.
    columns : tuple of ColumnReport
        What every column became.
    notes : tuple of str
        What was chosen or repaired.
    """

    graph: Graph
    encoders: Encoders
    columns: tuple[ColumnReport, ...]
    notes: tuple[str, ...]

    @property
    def ids(self) -> np.ndarray:
        """The id of every node, as a graph keeps it."""
        return self.graph.ids


def read_tables(
    nodes: Any = None,
    edges: Any = None,
    *,
    label: str | None = None,
    id: str | None = None,
    features: Any = None,
    text: str | Sequence[str] | None = None,
    categories: str | Sequence[str] | None = None,
    lists: str | Sequence[str] | None = None,
    drop: str | Sequence[str] | None = None,
    source: str | None = None,
    target: str | None = None,
    weight: str | None = None,
    n_neighbors: int | None = None,
    seed: int = 0,
) -> Tables:
    """Read a graph from a table of nodes and a table of edges.

    Tables are CSV, TSV, JSON lines or Parquet files, by their ending, or data frames of pandas,
    Polars or pyarrow. The guide says what each kind of column becomes.

    Parameters
    ----------
    nodes : path or data frame, optional
        One row per node. Without it, the nodes are the ends of the edges.
    edges : path or data frame, optional
        One row per edge. Without it, every node is joined to its nearest nodes.
    label : str, optional
        The column with the class of some nodes; it is empty for those to classify.
    id : str, optional
        The column with the ids. By default the one called id, node or node_id, or the first.
    features : path or array, optional
        Vectors of the nodes, in the order of their table: an ``.npy`` or ``.npz`` file.
    text : str or list of str, optional
        Columns of text, of which the words become features.
    categories : str or list of str, optional
        Columns of which every value is a category, also numbers and many different texts.
    lists : str or list of str, optional
        Columns of lists; in text, a vertical bar separates their items.
    drop : str or list of str, optional
        Columns to leave out.
    source, target, weight : str, optional
        The columns of the table of edges, if they have unusual names.
    n_neighbors : int, optional
        How many nodes a node is joined to if there are no edges; by default 10.
    seed : int
        Seed of the features of nodes that have none: their degree and their place in the graph.

    Returns
    -------
    Tables

    Raises
    ------
    TableError
        With all problems of the files, each with its file, row and column.

    Examples
    --------
    >>> import pyarrow as pa
    >>> people = pa.table({"id": ["ann", "bob", "cy"], "age": [31, 25, 40],
    ...                    "drinks": ["tea", None, "mate"]})
    >>> knows = pa.table({"source": ["ann", "bob"], "target": ["bob", "cy"]})
    >>> tables = read_tables(people, knows, label="drinks")
    >>> tables.graph.num_edges, tables.graph.class_names, tables.graph.labels.tolist()
    (2, ('mate', 'tea'), [1, -1, 0])
    >>> {each.column: each.became for each in tables.columns if each.features}
    {'age': 'numbers, standardised'}
    """
    if nodes is None and edges is None:
        raise ConfigError("read_tables needs nodes, edges or both; both are None")
    of_nodes = (label, id, features, text, categories, lists, drop)
    if nodes is None and any(each is not None for each in of_nodes):
        raise ConfigError("label, id, features and columns belong to nodes, which is None")
    if edges is None and any(each is not None for each in (source, target, weight)):
        raise ConfigError("source, target and weight are columns of edges, which is None")
    if edges is not None and n_neighbors is not None:
        raise ConfigError(
            f"n_neighbors = {shown(n_neighbors)} joins nodes that have no edges, but there are "
            "edges; leave one of the two out"
        )
    neighbours = read_value(
        int, NEIGHBOURS if n_neighbors is None else n_neighbors, "n_neighbors", count()
    )
    read_value(int, seed, "seed", seed_field())
    roles = Roles.of(text=text, categories=categories, lists=lists, drop=drop)
    problems = Problems()
    read = None if nodes is None else _read_nodes(nodes, id, label, features, roles, problems)
    found = None
    if edges is not None:
        ids = None if read is None else read.ids
        found = read_edges(edges, ids, EdgeColumns(source, target, weight), problems)
    if nodes is None and found is not None:
        read = _Nodes(found.table.name, _ends(found))
    if read is not None and found is not None:
        links = found.links(read.ids, f"in {read.name}", problems)
    elif edges is None and read is not None and not read.blocks and not len(problems):
        problems.add(read.name, "has no column that becomes features, and there are no edges")
    problems.check()
    assert read is not None
    if found is None:
        return _joined_by_nearness(read, neighbours)
    return _joined_by_edges(read, found, links, seed)


@dataclass(frozen=True)
class _Nodes:
    """A table of nodes that has been read."""

    name: str
    ids: Column
    id: str = ""
    classes: tuple[np.ndarray, tuple[str, ...]] | None = None
    columns: tuple[Encoder, ...] = ()
    blocks: tuple[Matrix, ...] = ()
    reports: tuple[ColumnReport, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def vector_size(self) -> int:
        """How many features are those of a file."""
        return self.blocks[-1].shape[1] if len(self.blocks) > len(self.columns) else 0

    def graph(self, features: Matrix, links: Links, source: str) -> Graph:
        """Return the graph of the nodes; warnings about edges name the ``source`` of these."""
        ids = graph_ids(self.ids)
        classes = self.classes or to_codes(None, len(ids), None)
        nodes = (to_nodes(features)[0], ids)
        graph = Graph.from_parts(nodes, links, classes, name=Path(source).name)
        return replace(graph, name=Path(self.name).name)


def _read_nodes(
    source: Any,
    id: str | None,
    label: str | None,
    features: Any,
    roles: Roles,
    problems: Problems,
) -> _Nodes | None:
    """Read a table of nodes; None if it has no ids to go on with."""
    table = read_table(source, "nodes", problems)
    if table is None:
        return None
    if not table.num_rows:
        problems.add(table.name, "has no rows below its header; expected one per node")
        return None
    name = id_column(table, id, problems)
    roles.check(table, {"ids": name, "labels": label}, problems)
    has_label = label is not None and find_column(table, label, "labels", problems)
    if name is None:
        return None
    taken = [name]
    reports = [ColumnReport(name, "id")]
    classes = None
    if label is not None and label == name:
        told = "the column of ids cannot be that of labels; name another with id or label"
        problems.add(table.name, told, column=name)
    elif label is not None and has_label:
        taken.append(label)
        classes = read_labels(table, label, problems)
        if classes is not None:
            known = np.count_nonzero(classes[0] >= 0)
            told = f"label, {len(classes[1]):,} classes, known for {known:,} of {len(classes[0]):,}"
            reports.append(ColumnReport(label, told))
    ids = read_ids(table, name, problems)
    encoders, others = fit_columns(table, taken, roles, problems)
    blocks = [encoder.transform(table, problems) for encoder in encoders]
    if features is not None:
        vectors = read_vectors(features, table.num_rows, problems)
        if vectors is not None:
            blocks.append(vectors)
            told = f"vectors of {vectors.shape[1]:,} numbers, as they are"
            others.append(ColumnReport(vectors_name(features), told, vectors.shape[1]))
    return _Nodes(
        table.name,
        ids,
        name,
        classes,
        tuple(encoders),
        tuple(blocks),
        (*reports, *others),
        table.notes,
    )


def _joined_by_edges(read: _Nodes, found: EdgeTable, links: Links, seed: int) -> Tables:
    nodes = len(read.ids)
    pairs, once = one_way(links, nodes)
    notes = [*read.notes, *found.notes]
    if pairs and once == pairs:
        notes.append(
            f"{found.table.name}: every edge is listed once, and counts in both directions"
        )
    elif once:
        told = f"{once:,} of {pairs:,} edges are listed in one direction only"
        notes.append(f"{found.table.name}: {told}, and count in both")
    reports, structure = read.reports, None
    if read.blocks:
        sparse = are_sparse(read.blocks)
        features = joined(read.blocks, sparse)
    else:
        adjacency, _ = to_adjacency(links, graph_ids(read.ids))
        sparse = False
        structure, features = Structure.fit(adjacency, seed)
        reports = (*reports, ColumnReport("the edges", structure.told(), structure.width))
    graph = read.graph(features, links, found.table.name)
    encoders = Encoders(read.id, read.columns, read.vector_size, structure, 0, sparse)
    repairs = (f"{found.table.name}: {note}" for note in graph.notes)
    return Tables(graph, encoders, reports, (*notes, *repairs))


def _joined_by_nearness(read: _Nodes, n_neighbors: int) -> Tables:
    sparse = are_sparse(read.blocks)
    features = joined(read.blocks, sparse)
    adjacency = NeighbourIndex(features, n_neighbors).graph()
    links = matrix_links(adjacency, np.arange(len(read.ids)))
    graph = read.graph(features, links, read.name)
    encoders = Encoders(read.id, read.columns, read.vector_size, None, n_neighbors, sparse)
    nearest = min(n_neighbors, len(read.ids) - 1)
    told = f"without edges, every node is joined to its {nearest} nearest nodes"
    return Tables(graph, encoders, read.reports, (*read.notes, told))


def _ends(edges: EdgeTable) -> Column:
    """Return the ids of all ends of edges, in the order in which they first occur."""
    both = pa.chunked_array([*edges.source.chunks, *edges.target.chunks], pa.string())
    return pa.chunked_array([pc.unique(both.drop_null())])
