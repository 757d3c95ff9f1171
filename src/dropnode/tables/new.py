"""New nodes: rows and edges that arrive after training, attached to the training graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from dropnode.errors import ConfigError
from dropnode.graph import Graph
from dropnode.graph.arrays import Matrix
from dropnode.graph.edges import attached_links
from dropnode.graph.neighbours import NeighbourIndex
from dropnode.tables.edges import EdgeColumns, EdgeTable, read_edges
from dropnode.tables.encoders import Encoders
from dropnode.tables.files import read_table
from dropnode.tables.ids import graph_ids, id_column, places_of, read_ids, texts_of
from dropnode.tables.problems import Problems


@dataclass(frozen=True, eq=False)
class NewNodes:
    """New nodes, encoded as the nodes of a training graph were.

    Attributes
    ----------
    ids : ndarray
        The id of every new node.
    features : ndarray or csr_array (new, features)
        As the training graph has them.
    links : csr_array (new, nodes)
        Weights of the edges between new nodes and nodes of the training graph.
    among : csr_array (new, new)
        Weights of the edges between new nodes, symmetric.
    notes : tuple of str
        What was chosen, repaired or left out.
    """

    ids: np.ndarray
    features: Matrix
    links: sp.csr_array
    among: sp.csr_array
    notes: tuple[str, ...]


def read_new_nodes(
    graph: Graph,
    encoders: Encoders,
    nodes: Any,
    edges: Any = None,
    *,
    id: str | None = None,
    features: Any = None,
    source: str | None = None,
    target: str | None = None,
    weight: str | None = None,
) -> NewNodes:
    """Read tables of new nodes and of their edges, to each other and to a training graph.

    Parameters
    ----------
    graph : Graph
        The training graph.
    encoders : Encoders
        What made its features.
    nodes, edges : path or data frame
        As in :func:`~dropnode.read_tables`. Edges between two nodes of the training graph are
        left out: it stays as it was.
    id, features, source, target, weight : optional
        As in :func:`~dropnode.read_tables`.

    Raises
    ------
    TableError
        With all problems of the files, each with its file, row and column.
    """
    if encoders.neighbours and edges is not None:
        raise ConfigError("the model was trained without edges; give nodes alone")
    if encoders.structure is not None and edges is None:
        raise ConfigError("the model knows nodes by their edges; give edges too")
    if encoders.structure is not None and features is not None:
        raise ConfigError("the model knows nodes by their edges; it has no use for features")
    if edges is None and any(each is not None for each in (source, target, weight)):
        raise ConfigError("source, target and weight are columns of edges, which is None")
    problems = Problems()
    table = read_table(nodes, "nodes", problems)
    name = None
    if table is not None:
        # Not the first column, if that of training is missing: other values would be taken for ids.
        name = id_column(table, encoders.id or None if id is None else id, problems)
    if table is not None and not table.num_rows:
        problems.add(table.name, "has no rows below its header; expected one per node")
    trained, columns = texts_of(graph.ids), EdgeColumns(source, target, weight)
    if table is None or name is None or not table.num_rows:
        if edges is not None:
            read_edges(edges, trained, columns, problems)
        problems.check()
        raise AssertionError("a table that cannot be used has a problem")
    ids = read_ids(table, name, problems)
    again = np.flatnonzero(places_of(ids, trained) >= 0)
    told = "{} is a node of the training graph, which has its prediction; remove the row"
    table.report(problems, name, again, told)
    matrix = encoders.encode(table, features, problems) if encoders.structure is None else None
    everyone = pa.chunked_array([*trained.chunks, *ids.chunks], pa.string())
    found, links = None, None
    if edges is not None:
        found = read_edges(edges, everyone, columns, problems)
    if found is not None:
        links = found.links(everyone, f"in {table.name} or in the training graph", problems)
    problems.check()
    attached, among, notes = _attached(graph.num_nodes, len(ids), found, links)
    if encoders.neighbours:
        attached = NeighbourIndex(graph.features, encoders.neighbours).links(matrix)
    if encoders.structure is not None:
        matrix = encoders.structure.transform(attached, among, graph.features)
    return NewNodes(graph_ids(ids), matrix, attached, among, (*table.notes, *notes))


def _attached(
    known: int, new: int, found: EdgeTable | None, links: Any
) -> tuple[sp.csr_array, sp.csr_array, list[str]]:
    """Return the edges from new to known nodes, those between new nodes, and notes."""
    if found is None:
        return sp.csr_array((new, known), dtype=np.float32), sp.csr_array((new, new)), []
    source, target, weights = links
    ours = (source < known) & (target < known)
    links = source[~ours], target[~ours], weights[~ours]
    to_known, among, repairs = attached_links(links, known, new)
    notes = [*found.notes, *(f"{found.table.name}: {note}" for note in repairs)]
    if ours.any():
        told = f"edges between nodes of the training graph left out: {int(ours.sum()):,}"
        notes.append(f"{found.table.name}: {told}")
    return to_known, among, notes
