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
    rows = {part: to_csr(load_pickle(parts[part]), parts[part].name) for part in ("tx", "allx")}
    labels = {part: _one_hot(parts[part]) for part in ("y", "ty", "ally")}
    edges, num_listed = _edges(parts["graph"])
    test = _test_nodes(parts["test.index"], num_listed)
    for part, codes_of in (("tx", "ty"), ("allx", "ally")):
        _check(
            rows[part].shape[0] == len(labels[codes_of]),
            parts[codes_of],
            f"{len(labels[codes_of]):,} labels for {rows[part].shape[0]:,} rows of {part}",
        )
    _check(
        len(test) == len(labels["ty"]) and rows["tx"].shape[1] == rows["allx"].shape[1],
        parts["tx"],
        f"rows of shape {rows['tx'].shape} for {len(test):,} test nodes",
    )
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
    codes[position] = np.concatenate([labels["ally"], labels["ty"]])
    return _build(entry, edges, features, codes, num_train=len(labels["y"]), test=test)


def _check(sound: bool, path: Path, found: str) -> None:
    if not sound:
        raise DataError(f"{path} holds {found}, not what Planetoid's files hold; fetch it again")


def _one_hot(path: Path) -> np.ndarray:
    """Return the class codes of one-hot labels."""
    values = load_pickle(path)
    _check(
        isinstance(values, np.ndarray) and values.dtype.kind in "iuf" and values.ndim == 2,
        path,
        f"{type(values).__name__} {getattr(values, 'shape', '')}",
    )
    _check(values.shape[1] > 0, path, "labels of no class")
    codes: np.ndarray = values.argmax(axis=1)
    return codes


def _edges(path: Path) -> tuple[np.ndarray, int]:
    """Return pairs of nodes, and how many nodes are listed: each has a list of neighbours."""
    neighbours = load_pickle(path)
    _check(isinstance(neighbours, dict), path, f"a {type(neighbours).__name__}")
    pairs = []
    for node, around in neighbours.items():
        _check(isinstance(around, list), path, f"a {type(around).__name__} for node {node!r}")
        pairs += [(node, other) for other in around]
    ends = [end for pair in pairs for end in pair]
    known = all(type(end) is int and 0 <= end < len(neighbours) for end in ends)
    _check(known and bool(pairs), path, "an edge to a node that it does not list, or no edge")
    return np.array(pairs, dtype=np.int64), len(neighbours)


def _test_nodes(path: Path, num_listed: int) -> np.ndarray:
    """Return the positions of the test nodes, in their order in the file."""
    words = path.read_text(encoding="utf-8", errors="replace").split()
    _check(
        bool(words)
        and all(word.isascii() and word.isdecimal() and len(word) < 19 for word in words),
        path,
        "words that are not node positions",
    )
    test = np.array([int(word) for word in words])
    _check(test.max() < num_listed, path, f"node {test.max()}, and {num_listed:,} are listed")
    _check(len(np.unique(test)) == len(test), path, "a node twice")
    return test


def _read_linqs(entry: Entry, content: Path, cites: Path) -> Graph:
    """Read ``cora.content`` and ``cora.cites``; nodes get the order of the Planetoid files."""
    order = json.loads(
        resources.files("dropnode.data.readers").joinpath("cora_ids.json").read_text()
    )
    position = {paper: i for i, paper in enumerate(order)}
    class_names = entry.class_names or ()
    papers = [line.split() for line in content.read_text(errors="replace").splitlines()]
    if len(papers) != len(order) or {paper[0] for paper in papers if paper} != set(position):
        raise DataError(f"{content} does not hold the {len(order):,} papers of Cora")
    papers.sort(key=lambda paper: position[paper[0]])
    for _, *words, field in papers:
        _check(
            len(words) == len(papers[0]) - 2 and {*words} <= {"0", "1"} and field in class_names,
            content,
            f"a paper of class {field!r} and {len(words):,} words",
        )
    features = sp.csr_array(np.array([paper[1:-1] for paper in papers], dtype=np.float32))
    codes = np.array([class_names.index(paper[-1]) for paper in papers])
    pairs = [line.split() for line in cites.read_text(errors="replace").splitlines()]
    for pair in pairs:
        _check(len(pair) == 2 and {*pair} <= {*position}, cites, f"the citation {pair!r}")
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
