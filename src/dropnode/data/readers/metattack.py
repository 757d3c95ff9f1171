"""Reader of Cora's largest component as attacked by Metattack, and of the clean graph beside it.

The clean graph is an ``npz`` file as :mod:`dropnode.data.readers.npz` reads them. An attacked
adjacency matrix is one that SciPy has saved, its rows being the nodes of the largest component in
order. The split is a JSON file of node positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from dropnode.data.catalogue import Entry
from dropnode.data.readers import npz
from dropnode.errors import ConfigError, DataError
from dropnode.graph import Graph, Split
from dropnode.graph.split import PARTS
from dropnode.settings import read_json


def read(entry: Entry, files: Mapping[str, Path]) -> Graph:
    """Read the clean graph of an entry, and give it the attacked edges, if any, and the split."""
    by_ending: dict[str, list[Path]] = {".npz": [], ".json": []}
    for path in files.values():
        by_ending[path.suffix].append(path)
    clean, *attacked = sorted(
        by_ending[".npz"], key=lambda path: "adj_indptr" not in npz.member_names(path)
    )
    graph = npz.read(entry, {clean.name: clean}).with_split(_split(*by_ending[".json"]))
    if entry.class_names:
        graph = replace(graph, class_names=entry.class_names)
    return graph.with_adjacency(_adjacency(*attacked)) if attacked else graph


def _adjacency(path: Path) -> sp.csr_array:
    arrays = {f"saved_{name}": array for name, array in npz.load_npz(path, objects=False).items()}
    return npz.csr(arrays, "saved", path)


def _split(path: Path) -> Split:
    try:
        positions = read_json(path)
        train, val, test = (np.sort(positions[f"idx_{part}"]) for part in PARTS)
    except (ConfigError, KeyError, TypeError) as error:
        raise DataError(f"{path} holds no split ({error}); fetch it again") from error
    return Split(train, val, test, name="Pro-GNN")
