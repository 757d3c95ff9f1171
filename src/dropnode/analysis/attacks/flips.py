"""Flips: pairs of nodes whose edge an attack adds or removes, kept from one run to the next.

An attack is a list of flips. It is stored in the cache under a hash of what determines it, as far
as it has got: a killed attack goes on where it was, and an attack that asks for more flips starts
with those there are.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from dropnode.data.sources import cache_folder
from dropnode.errors import ConfigError, GraphError, WorkError
from dropnode.files import write_json
from dropnode.graph import Graph
from dropnode.graph.labels import UNKNOWN
from dropnode.locks import FolderLock
from dropnode.settings import read_json

logger = logging.getLogger("dropnode.attacks")

Flip = tuple[int, int]
"""Two nodes, the smaller number first."""

Watch = Callable[[int, int], None]
"""Called with the number of flips found and the number wanted."""

SAVE_EVERY = 5.0
"""Seconds between two writes of an attack that is under way."""


def apply_flips(graph: Graph, flips: Sequence[Flip]) -> Graph:
    """Return the graph with the edges of these pairs added or removed.

    Examples
    --------
    >>> from dropnode import load_dataset
    >>> graph = load_dataset("sbm", nodes=300, classes=3)
    >>> apply_flips(graph, [(0, 1), (2, 3)]).num_edges in (1498, 1500, 1502)
    True
    """
    return graph.with_adjacency(flipped(graph.adjacency, flips))


def flipped(adjacency: sp.csr_array, flips: Sequence[Flip]) -> sp.csr_array:
    """Return an adjacency matrix of zeros and ones with some pairs changed."""
    if not flips:
        return adjacency
    low, high = np.array(flips, dtype=np.int64).T
    changes = 1.0 - 2.0 * adjacency[low, high]
    half = sp.csr_array((changes, (low, high)), shape=adjacency.shape)
    changed = sp.csr_array(adjacency + half + half.T, dtype=np.float32)
    changed.eliminate_zeros()
    return changed


def check_attackable(graph: Graph, attack: str) -> None:
    """Raise an error unless a graph has what an attack on edges needs."""
    if graph.split is None or not len(graph.split.train):
        raise GraphError(
            f"{attack} needs to know the training nodes; add a split with graph.with_split(...)"
        )
    bare = graph.split.train[graph.labels[graph.split.train] == UNKNOWN]
    if len(bare):
        raise GraphError(f"training node {graph.ids[bare[0]]!r} has no label; {attack} needs it")
    if len(np.unique(graph.labels[graph.split.train])) < 2:
        raise GraphError(
            f"all training nodes have one class; {attack} misleads a classifier, which needs two"
        )
    if (graph.adjacency.data != 1).any():
        raise GraphError(
            f"{attack} adds and removes whole edges, but this graph has edges of weight other than "
            "1; drop the weights: graph.with_adjacency(graph.adjacency != 0)"
        )


def budget(graph: Graph, rate: float) -> int:
    """Return the number of flips of a rate, a fraction of the graph's edges, rounded down."""
    # Down, as the published attacked graphs have it; 1e-9 for fractions such as 0.07 · 300.
    wanted = int(rate * graph.num_edges + 1e-9)
    if wanted < 1:
        raise ConfigError(
            f"a rate of {rate:g} of {graph.num_edges:,} edges is less than one; raise the rate"
        )
    pairs = graph.num_nodes * (graph.num_nodes - 1) // 2
    if wanted > pairs:
        raise ConfigError(
            f"a rate of {rate:g} of {graph.num_edges:,} edges is {wanted:,} flips, but there are "
            f"only {pairs:,} pairs of nodes; lower the rate"
        )
    return wanted


def fingerprint(
    graph: Graph,
    attack: str,
    revision: int,
    options: Mapping[str, Any],
    reads: Sequence[str] = ("train",),
) -> str:
    """Return a hash of what determines an attack: graph, nodes, their labels, options.

    Of the split, these are the nodes and labels of the parts that the attack ``reads``.
    """
    assert graph.split is not None
    told = {"attack": attack, "revision": revision, "options": dict(options)}
    shapes = (graph.features.shape, graph.num_classes)
    digest = hashlib.sha256(json.dumps([told, shapes], sort_keys=True).encode())
    adjacency, features = graph.adjacency, graph.features
    parts = [getattr(graph.split, name) for name in reads]
    known = [array for part in parts for array in (part, graph.labels[part])]
    stored = (features.indptr, features.indices, features.data) if sp.issparse(features) else ()
    arrays = (adjacency.indptr, adjacency.indices, *known)
    for array in (*arrays, *(stored or (features,))):
        kind = "<i8" if array.dtype.kind == "i" else "<f4"
        digest.update(len(array).to_bytes(8, "little") + array.astype(kind).tobytes())
    return digest.hexdigest()


def cached_flips(
    key: str,
    wanted: int,
    more: Callable[[list[Flip]], Iterable[Flip]],
    *,
    nodes: int,
    resumes: bool = True,
    watch: Watch | None = None,
) -> list[Flip]:
    """Return the flips of an attack: those in the cache, and what it finds beyond them.

    Parameters
    ----------
    key : str
        The :func:`fingerprint` of the attack.
    wanted : int
        The most flips to return.
    more : callable
        From the flips so far to those that follow, in order; it may end before ``wanted``.
    nodes : int
        Number of nodes of the graph, which bounds what a sound file holds.
    resumes : bool
        Whether ``more`` can go on from a part of the flips; if not, it is given none.
    watch : callable, optional
        Told about every flip.
    """
    with _opened(key, watch, wanted) as path:
        flips, over = _read(path, nodes) if path else ([], False)
        if not (resumes or over):
            flips = []
        if over or len(flips) >= wanted:
            return flips[:wanted]
        last = time.monotonic()
        try:
            for flip in more(list(flips)):
                flips.append(flip)
                if watch:
                    watch(len(flips), wanted)
                if len(flips) == wanted:
                    break
                if path and resumes and time.monotonic() - last >= SAVE_EVERY:
                    _write(path, flips, over=False)
                    last = time.monotonic()
            over = not resumes
        finally:
            # Also when the user interrupts: what was found is not lost.
            if path and (resumes or over):
                _write(path, flips, over)
    return flips


@contextmanager
def _opened(key: str, watch: Watch | None, wanted: int) -> Iterator[Path | None]:
    """Yield the file of an attack, for this process alone; None if there is no usable cache."""
    cache = cache_folder()
    if cache is None:
        logger.warning("the attack is not kept: there is no home folder; set DROPNODE_DATA")
        yield None
        return
    folder = cache / "attacks" / key
    lock = None
    waited = False
    while lock is None:
        try:
            lock = FolderLock(folder)
        except ConfigError:
            # Another process is at the same attack. It has the result sooner than we would.
            if not waited:
                logger.info("another process runs the same attack; waiting for it")
            waited = True
            if watch:
                watch(len(_read(folder / "flips.json")[0]), wanted)
            time.sleep(0.2)
        except (OSError, WorkError) as error:
            logger.warning("the attack is not kept: %s cannot be written (%s)", folder, error)
            yield None
            return
    with lock:
        yield folder / "flips.json"


def _read(path: Path, nodes: float = np.inf) -> tuple[list[Flip], bool]:
    """Return the flips in a file, and whether there will be no more; a damaged file has none."""
    try:
        record = read_json(path)
        flips = [(int(low), int(high)) for low, high in record["flips"]]
        sound = record["sha256"] == _checksum(flips, bool(record["over"]))
        if sound and all(0 <= low < high < nodes for low, high in flips):
            return flips, bool(record["over"])
    except FileNotFoundError:
        return [], False
    except (OSError, ConfigError, ValueError, KeyError, TypeError):
        pass
    logger.warning("%s is damaged and is not used; the attack starts again", path)
    return [], False


def _write(path: Path, flips: list[Flip], over: bool) -> None:
    try:
        write_json(path, {"flips": flips, "over": over, "sha256": _checksum(flips, over)})
    except OSError as error:
        logger.warning("%s cannot be written (%s); the attack goes on unsaved", path, error)


def _checksum(flips: list[Flip], over: bool) -> str:
    return hashlib.sha256(json.dumps([flips, over]).encode()).hexdigest()
