"""References: which graph a run is about, as one line of text.

A reference is a dataset of the catalogue (``cora``), a file (``graphs/mine.npz``), or either of
them changed by transforms (``cora@random-edges:rate=0.1,seed=3``). A transform is known by its
recipe, the text behind the ``@``, so that a run can be planned without making its graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dropnode.analysis.attacks.random_edges import add_random_edges
from dropnode.data import dataset_names, draw_split, label_rate_split, load_dataset
from dropnode.data.graph_file import is_path
from dropnode.errors import ConfigError
from dropnode.graph import Graph, Split
from dropnode.settings import Config, count, positive, read_changes, share, suggestion


@dataclass(frozen=True)
class RandomEdges(Config):
    """Options of the random attack.

    Attributes
    ----------
    rate : number of fake edges as a fraction of the graph's edges
    seed : which edges are drawn
    """

    rate: float = positive()
    seed: int = count(least=0, default=0)


@dataclass(frozen=True)
class LabelRate(Config):
    """Options of a split by label rate.

    Attributes
    ----------
    rate : training nodes as a fraction of all nodes
    """

    rate: float = share()


@dataclass(frozen=True)
class Transform:
    """A way to make a graph from another.

    Attributes
    ----------
    options : type
        Its settings, a strict configuration.
    edges : callable, optional
        From a graph and the options to the graph with other edges.
    split : callable, optional
        From a graph, the options and a split seed to another split. It has to be cheap: planning
        calls it.
    revision : int
        Raised when a change of code changes what the same recipe makes.
    """

    options: type[Config]
    edges: Callable[[Graph, Any], Graph] | None = None
    split: Callable[[Graph, Any, int], Split] | None = None
    revision: int = 1


TRANSFORMS: Mapping[str, Transform] = MappingProxyType(
    {
        "random-edges": Transform(
            RandomEdges,
            edges=lambda graph, options: add_random_edges(graph, options.rate, options.seed),
        ),
        "label-rate": Transform(
            LabelRate,
            split=lambda graph, options, seed: label_rate_split(graph.labels, options.rate, seed),
        ),
    }
)
"""Every transform by the name that a reference gives it."""


@dataclass(frozen=True)
class Step:
    """One transform of a reference, with its options."""

    name: str
    options: Config

    @property
    def transform(self) -> Transform:
        """What it does."""
        return TRANSFORMS[self.name]

    def __str__(self) -> str:
        told = ",".join(f"{key}={value}" for key, value in self.options.identity().items())
        revision = self.transform.revision
        name = self.name if revision == 1 else f"{self.name}#{revision}"
        return f"{name}:{told}" if told else name


@dataclass(frozen=True)
class Reference:
    """A graph by what it is made from.

    Attributes
    ----------
    source : str
        A name of the catalogue, or the path of a file.
    steps : tuple of Step
        Transforms, in the order in which they are applied.

    Examples
    --------
    >>> reference = Reference.parse("cora@random-edges:seed=0,rate=0.10")
    >>> str(reference), reference.catalogue_name, reference.recipe
    ('cora@random-edges:rate=0.1', 'cora', 'random-edges:rate=0.1')
    """

    source: str
    steps: tuple[Step, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Read a reference; what it cannot be is an error that says what it could."""
        # A path may hold any character, an @ too.
        source, *steps = [text] if Path(text).exists() else text.split("@")
        if source not in dataset_names() and not is_path(source):
            raise ConfigError(
                f"unknown dataset {source!r}{suggestion(source, dataset_names())}; or the path of "
                "an .npz file"
            )
        return cls(source, tuple(_step(step, text) for step in steps))

    @property
    def catalogue_name(self) -> str | None:
        """The catalogue entry whose presets apply; None for a file."""
        return self.source if self.source in dataset_names() else None

    @cached_property
    def recipe(self) -> str:
        """What the transforms are; empty for a graph as it is."""
        return "@".join(map(str, self.steps))

    def __str__(self) -> str:
        return "@".join((self.source, *map(str, self.steps)))

    def split(self, graph: Graph, seed: int) -> Split:
        """Return the split of the source's graph that this reference has with a split seed."""
        split = draw_split(self.source, graph, seed)
        for step in self.steps:
            if step.transform.split is not None:
                split = step.transform.split(graph, step.options, seed)
        return split

    def transformed(self, graph: Graph) -> Graph:
        """Return the source's graph with the edges that the transforms give it."""
        for step in self.steps:
            if step.transform.edges is not None:
                graph = step.transform.edges(graph, step.options)
        return graph

    def load(self, split_seed: int = 0) -> Graph:
        """Load the graph with its split."""
        graph = load_dataset(self.source, split_seed=split_seed)
        return self.transformed(graph).with_split(self.split(graph, split_seed))


def _step(text: str, whole: str) -> Step:
    name, _, given = text.partition(":")
    if name not in TRANSFORMS:
        raise ConfigError(f"unknown transform {name!r} in {whole!r}{suggestion(name, TRANSFORMS)}")
    pairs = given.split(",") if given else []
    for pair in pairs:
        if not all(part.strip() for part in pair.partition("=")):
            raise ConfigError(f"{pair!r} in {whole!r}; expected KEY=VALUE, such as rate=0.1")
    try:
        return Step(name, TRANSFORMS[name].options.from_dict(read_changes(pairs)))
    except ConfigError as error:
        raise ConfigError(f"transform {name} in {whole!r}: {error}") from error
