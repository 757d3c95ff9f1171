"""A dataset by name or by path: obtained, read, checked against its catalogue entry, and split."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from dropnode.data.catalogue import Entry, PerClass, catalogue, find
from dropnode.data.generators import digits, sbm
from dropnode.data.graph_file import has_split, is_path, read_graph
from dropnode.data.readers import aminer, metattack, npz, planetoid
from dropnode.data.sources import obtain, whereabouts
from dropnode.data.splits import per_class_split
from dropnode.errors import ConfigError, DataError, GraphError
from dropnode.graph import Graph, Split
from dropnode.graph.labels import UNKNOWN
from dropnode.graph.mapped import is_mapped_folder
from dropnode.settings import read_value, seed

READERS: Mapping[str, Callable[[Entry, Mapping[str, Path]], Graph]] = {
    "planetoid": planetoid.read,
    "npz": npz.read,
    "aminer": aminer.read,
    "metattack": metattack.read,
}
"""The reader of each format."""

GENERATORS: Mapping[str, Callable[..., Graph]] = {"digits": digits.make, "sbm": sbm.make}
"""The generator of each dataset without files."""

OWN_SPLIT = PerClass(train=20, val=30)
"""The split of a file that comes without one; also that of most datasets of the catalogue."""


def load_dataset(name: str | os.PathLike[str], *, split_seed: int = 0, **options: Any) -> Graph:
    """Load a dataset with a split; a published one is fetched if it is not on this machine.

    Parameters
    ----------
    name : str or path
        One of :func:`dataset_names`, or the path of an ``npz`` file such as
        :func:`~dropnode.data.save_graph` writes. A text that ends in ``.npz`` or contains a slash
        is a path.
    split_seed : int
        Seed of the split, for datasets that come without one. In a file of your own, 20 nodes per
        class are drawn for training and 30 for validation.
    **options
        Parameters of a generated dataset, such as ``nodes=5000`` for ``sbm``.

    Returns
    -------
    Graph
        With raw features and a split.

    Raises
    ------
    ConfigError
        If there is no such dataset, file or option.
    DataError
        If the files cannot be obtained, or are not what they should be.
    GraphError
        If a file of your own makes no graph, or has neither a split nor enough labels to draw one.

    Examples
    --------
    >>> load_dataset("sbm", nodes=300, classes=3).num_edges
    1500
    """
    read_value(int, split_seed, "split_seed", seed())
    if is_path(name):
        if options:
            raise ConfigError(f"{name} is a file and has no option {next(iter(options))!r}")
        graph = read_graph(name)
        return graph.with_split(draw_split(name, graph, split_seed))
    entry = find(str(name))
    options = _checked_options(entry, options)
    if entry.format in GENERATORS:
        graph = GENERATORS[entry.format](**options)
    else:
        graph = READERS[entry.format](entry, obtain(entry))
    check_sizes(entry, graph)
    # From here on, and only from here, a graph is one of the catalogue's.
    return replace(
        graph, split=draw_split(entry.name, graph, split_seed), catalogue_name=entry.name
    )


def draw_split(name: str | os.PathLike[str], graph: Graph, seed: int) -> Split:
    """Return the split that :func:`load_dataset` gives the graph of a dataset with this seed.

    A split that comes with the dataset is returned whatever the seed.
    """
    if is_path(name):
        if not has_split(name):
            return _split_of_file(name, graph, seed)
    elif isinstance(rule := find(str(name)).split, PerClass):
        return per_class_split(graph.labels, rule.train, rule.val, seed)
    assert graph.split is not None
    return graph.split


def dataset_names() -> tuple[str, ...]:
    """Return the names that :func:`load_dataset` knows."""
    return tuple(catalogue())


def describe(name: str) -> dict[str, Any]:
    """Return the catalogue entry of a dataset and where it is now, as plain JSON values.

    ``available`` is ``cached``, ``mirror``, ``embedded``, ``download`` or ``by hand``; for the
    first two, ``location`` is a folder.
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
        "urls": dict(entry.urls),
        "package": None if entry.package is None else entry.package.requirement,
        "by_hand": entry.by_hand,
        "files": dict(entry.files),
        "options": _options(entry),
    }


def fetch(name: str) -> dict[str, Any]:
    """Fetch and verify the files of a dataset, and describe it."""
    entry = find(name)
    if entry.files:
        obtain(entry)
    return describe(name)


def check_sizes(entry: Entry, graph: Graph) -> None:
    """Raise :class:`DataError` unless a graph has the sizes that its entry expects."""
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


def _split_of_file(path: str | os.PathLike[str], graph: Graph, seed: int) -> Split:
    needed = OWN_SPLIT.train + OWN_SPLIT.val
    sizes = np.bincount(graph.labels[graph.labels != UNKNOWN], minlength=graph.num_classes)
    small = np.flatnonzero(sizes < needed)
    if len(small) or not len(sizes):
        found = (
            f"class {graph.class_names[small[0]]!r} has {sizes[small[0]]:,}"
            if len(small)
            else "no node has one"
        )
        cure = (
            "label more nodes and convert again, or train in Python on all labels that there are: "
            f"GrandClassifier(method='grand-plus').fit(dropnode.data.graph_file.read_graph({str(path)!r}))"
            if is_mapped_folder(path)
            else "save the graph with a split of your own: "
            "save_graph(graph.with_split(Split(...)), path)"
        )
        raise GraphError(
            f"{path} has no split, and drawing one takes {needed} labelled nodes per class "
            f"({OWN_SPLIT.train} to train, {OWN_SPLIT.val} to validate), but {found}; {cure}"
        )
    return per_class_split(graph.labels, OWN_SPLIT.train, OWN_SPLIT.val, seed)


def _options(entry: Entry) -> dict[str, Any]:
    """Return the options a dataset takes and their defaults."""
    make = GENERATORS.get(entry.format)
    parameters = inspect.signature(make).parameters if make else {}
    return {name: parameter.default for name, parameter in parameters.items()}


def _checked_options(entry: Entry, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options in the types of their defaults."""
    known, checked = _options(entry), {}
    for option, value in options.items():
        if option not in known:
            takes = ", ".join(known) or "none"
            raise ConfigError(
                f"dataset {entry.name!r} has no option {option!r}; its options: {takes}"
            )
        limits = seed() if option == "seed" else None
        where = f"{option} of {entry.name}"
        checked[option] = read_value(type(known[option]), value, where, limits)
    return checked
