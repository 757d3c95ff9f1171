"""A trial: one training, and the identity that determines its result.

The identity consists of the data (its hash, and the recipe of its transforms), the split, the
method with its revision, the configuration and the seed. It is the same for a run of ``dropnode
train``, a trial of an experiment and a step of a search. Trials with the same identity give the
same numbers on every engine.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np

from dropnode.data import load_dataset
from dropnode.errors import GraphError
from dropnode.experiments.references import Reference
from dropnode.graph import Graph, Split
from dropnode.methods.table import Choice, make_method

IDENTITY = ("dataset_sha256", "split", "method", "revision", "config", "seed")
"""The parts that every identity has."""

LATER = ("split_sha256", "recipe")
"""The parts that an identity has only if they are not empty, to keep the ids of older trials."""


@dataclass(frozen=True)
class Trial:
    """A training to run.

    Attributes
    ----------
    dataset : str
        A reference; see :mod:`dropnode.experiments.references`.
    dataset_sha256 : str
        The fingerprint of the reference's source graph.
    split : str
        The split's name.
    split_seed : int
    method : str
    revision : int
        The revision of the method.
    preset : str
    config : mapping
        The keys that differ from their default.
    seed : int
    split_sha256 : str
        The hash of the split, for a graph outside the catalogue, whose split names are not unique.
    recipe : str
        The transforms of the reference.
    """

    dataset: str
    dataset_sha256: str
    split: str
    split_seed: int
    method: str
    revision: int
    preset: str
    config: Mapping[str, Any]
    seed: int
    split_sha256: str = ""
    recipe: str = ""

    @cached_property
    def id(self) -> str:
        """The first sixteen hexadecimal digits of the hash of the identity."""
        text = json.dumps(self.identity(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def identity(self) -> dict[str, Any]:
        """Return everything that determines the result."""
        identity = {name: getattr(self, name) for name in IDENTITY}
        identity["config"] = dict(self.config)
        return identity | {name: getattr(self, name) for name in LATER if getattr(self, name)}


@dataclass(frozen=True)
class Finished:
    """The result of a trial.

    Attributes
    ----------
    metrics : dict
        The measures, by name; see :mod:`dropnode.experiments.measures`.
    seconds : float
    finished : str
        The time, as ISO 8601.
    versions : dict
    history : bytes
        The measurements of every epoch; see :func:`read_history`.
    """

    metrics: dict[str, Any]
    seconds: float
    finished: str
    versions: dict[str, str] = field(default_factory=dict)
    history: bytes | None = None


@dataclass(frozen=True)
class Data:
    """The graphs of an experiment, and the splits that its trials use.

    Attributes
    ----------
    graphs : dict
        The source graphs of the references, by source.
    splits : dict
        By reference and split seed.
    fingerprints : dict
        The hashes of the graphs, by source.
    """

    graphs: dict[str, Graph]
    splits: dict[tuple[str, int], Split]
    fingerprints: dict[str, str]

    @classmethod
    def load(cls, datasets: Iterable[str], split_seeds: Sequence[int] = (0,)) -> Data:
        """Load the source graphs of references, and draw splits; a published split occurs once."""
        references = {dataset: Reference.parse(dataset) for dataset in datasets}
        sources = dict.fromkeys(reference.source for reference in references.values())
        graphs = {source: load_dataset(source) for source in sources}
        drawn: dict[tuple[str, int], Split] = {}
        for dataset, reference in references.items():
            for seed in split_seeds:
                split = reference.split(graphs[reference.source], seed)
                if seed == split_seeds[0] or split.name != drawn[dataset, split_seeds[0]].name:
                    drawn[dataset, seed] = split
            source = graphs[reference.source]
            reference.check(source.with_split(drawn[dataset, split_seeds[0]]))
        return cls(graphs, drawn, {name: graph.fingerprint() for name, graph in graphs.items()})

    def check_validation(self, dataset: str) -> None:
        """Raise :class:`GraphError` if settings cannot be compared: validation nodes lack."""
        for (name, _), split in self.splits.items():
            if name == dataset and not len(split.val):
                raise GraphError(
                    f"split {split.name!r} of {dataset} has no validation nodes, which a search "
                    "needs to compare settings; add some"
                )

    def graph(self, dataset: str, split_seed: int) -> Graph:
        """Return the graph of a reference, with one of its splits."""
        reference = Reference.parse(dataset)
        split = self.splits[dataset, split_seed]
        return reference.transformed(self.graphs[reference.source].with_split(split))


def plan(
    data: Data,
    dataset: str,
    split_seed: int,
    method: str,
    preset: str | None,
    changes: Mapping[str, Any],
    seed: int,
) -> Trial:
    """Return the trial of a request; an invalid request fails here and not in a worker."""
    return plan_with_choice(data, dataset, split_seed, method, preset, changes, seed)[0]


def plan_with_choice(
    data: Data,
    dataset: str,
    split_seed: int,
    method: str,
    preset: str | None,
    changes: Mapping[str, Any],
    seed: int,
    device: str = "cpu",
) -> tuple[Trial, Choice]:
    """Return the trial of a request, and its method, ready to train on a device."""
    reference, split = Reference.parse(dataset), data.splits[dataset, split_seed]
    choice = make_method(method, reference.catalogue_name, preset, changes, device)
    trial = Trial(
        dataset=dataset,
        dataset_sha256=data.fingerprints[reference.source],
        split=split.name,
        split_seed=split_seed,
        method=method,
        revision=choice.method.revision,
        preset=choice.preset,
        config=choice.identity,
        seed=seed,
        split_sha256="" if reference.catalogue_name else split.fingerprint(),
        recipe=reference.recipe,
    )
    return trial, choice


def now() -> str:
    """Return the current time in the stored format."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def write_history(history: list[dict[str, float]]) -> bytes:
    """Return a history as bytes: float32 columns, compressed."""
    names = list(dict.fromkeys(name for line in history for name in line))
    columns = {
        name: np.array([line.get(name, np.nan) for line in history], dtype=np.float32)
        for name in names
    }
    target = io.BytesIO()
    np.savez_compressed(target, **columns)  # type: ignore[arg-type]
    return target.getvalue()


def read_history(content: bytes) -> dict[str, np.ndarray]:
    """Return the columns of :func:`write_history`.

    Examples
    --------
    >>> read_history(write_history([{"epoch": 1.0, "loss": 0.5}]))["loss"].tolist()
    [0.5]
    """
    with np.load(io.BytesIO(content), allow_pickle=False) as columns:
        return {name: columns[name] for name in columns.files}
