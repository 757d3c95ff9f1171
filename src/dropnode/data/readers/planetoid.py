"""Reader of the Planetoid files: Cora, Citeseer and Pubmed with their public split.

The files of a dataset hold the nodes in two parts. ``allx`` and ``ally`` are the features and
one-hot labels of the first nodes; ``tx`` and ``ty`` are those of the test nodes, in the order of
``test.index``. ``graph`` lists the neighbours of every node.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from dropnode.data.catalogue import Entry
from dropnode.data.readers.unpickle import load_pickle, to_csr
from dropnode.data.splits import public_split
from dropnode.errors import DataError
from dropnode.graph import Graph


def read(entry: Entry, files: Mapping[str, Path]) -> Graph:
    """Read Planetoid files, or Cora as LINQS published it, whichever ``files`` are."""
    if "cora.content" in files:
        return _read_linqs(entry, files["cora.content"], files["cora.cites"])
    parts = {name.removeprefix(f"ind.{entry.name}."): path for name, path in files.items()}
    labels = {part: load_pickle(parts[part]) for part in ("y", "ty", "ally")}
    rows = {part: to_csr(load_pickle(parts[part]), parts[part].name) for part in ("tx", "allx")}
    test = np.loadtxt(parts["test.index"], dtype=np.int64)
    num_known = rows["allx"].shape[0]
    num_nodes = max(num_known, int(test.max()) + 1)

    # Citeseer's test nodes have gaps: nodes of which only edges were published. They have no label;
    # other readers give them the first class.
    position = np.concatenate([np.arange(num_known), test])
    place = sp.csr_array(
        (np.ones(len(position), np.float32), (position, np.arange(len(position)))),
        shape=(num_nodes, len(position)),
    )
    features = place @ sp.vstack([rows["allx"], rows["tx"]], format="csr")
    codes = np.full(num_nodes, -1, dtype=np.int64)
    codes[position] = np.concatenate([labels["ally"], labels["ty"]]).argmax(axis=1)

    neighbours = load_pickle(parts["graph"])
    edges = np.array([(u, v) for u, around in neighbours.items() for v in around], dtype=np.int64)
    return _build(entry, edges, features, codes, num_train=len(labels["y"]), test=test)


def _read_linqs(entry: Entry, content: Path, cites: Path) -> Graph:
    """Read ``cora.content`` and ``cora.cites``; nodes get the order of the Planetoid files."""
    order = json.loads(
        resources.files("dropnode.data.readers").joinpath("cora_ids.json").read_text()
    )
    position = {paper: i for i, paper in enumerate(order)}
    class_names = entry.class_names or ()
    papers = [line.split() for line in content.read_text().splitlines()]
    if len(papers) != len(order) or {paper[0] for paper in papers} != set(position):
        raise DataError(f"{content} does not hold the {len(order):,} papers of Cora")
    papers.sort(key=lambda paper: position[paper[0]])
    features = sp.csr_array(np.array([paper[1:-1] for paper in papers], dtype=np.float32))
    codes = np.array([class_names.index(paper[-1]) for paper in papers])
    pairs = [line.split() for line in cites.read_text().splitlines()]
    edges = np.array([[position[u], position[v]] for u, v in pairs], dtype=np.int64)
    num_train = 20 * len(class_names)
    test = np.arange(len(order) - 1000, len(order))
    return _build(entry, edges, features, codes, num_train=num_train, test=test)


def _build(
    entry: Entry,
    edges: np.ndarray,
    features: sp.csr_array,
    labels: np.ndarray,
    *,
    num_train: int,
    test: np.ndarray,
) -> Graph:
    distinct = np.unique(np.sort(edges, axis=1), axis=0)
    loops = distinct[:, 0] == distinct[:, 1]
    graph = Graph.from_edges(
        distinct[~loops],
        features,
        labels,
        class_names=entry.class_names,
        split=public_split(num_train, test),
        name=entry.name,
    )
    notes = (f"self-loops of the published graph left out: {loops.sum():,}",) if loops.any() else ()
    return replace(graph, notes=notes)
