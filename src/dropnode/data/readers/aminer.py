"""Reader of AMiner CS, in the form in which its authors distribute it.

There are three pickles, which the user puts in place: ``aminer.adj.sp.pkl``, a sparse adjacency
matrix; ``aminer.features.pkl``, a dense matrix of averaged word vectors; ``aminer.labels.pkl``,
one-hot labels. Features are returned raw; standardising them is left to the method.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from dropnode.data.catalogue import Entry
from dropnode.data.readers.npz import undirected
from dropnode.data.readers.unpickle import load_pickle, to_csr
from dropnode.errors import DataError
from dropnode.graph import Graph


def read(entry: Entry, files: Mapping[str, Path]) -> Graph:
    """Read the three pickles."""
    adjacency, loops = undirected(
        to_csr(load_pickle(files["aminer.adj.sp.pkl"]), "aminer.adj.sp.pkl")
    )
    features = load_pickle(files["aminer.features.pkl"])
    labels = load_pickle(files["aminer.labels.pkl"])
    expected = (adjacency.shape[0], entry.expected.classes)
    if not isinstance(labels, np.ndarray) or labels.shape != expected:
        raise DataError(
            f"aminer.labels.pkl holds {getattr(labels, 'shape', type(labels).__name__)}, "
            f"expected one-hot labels of shape {expected}"
        )
    graph = Graph.from_scipy(
        adjacency, features, labels.argmax(axis=1), class_names=entry.class_names, name=entry.name
    )
    notes = (f"self-loops of the published graph left out: {loops:,}",) if loops else ()
    return replace(graph, notes=notes)
