"""References: the name of the graph of a run, as one line of text.

A reference is a dataset of the catalogue (``cora``), a file (``graphs/mine.npz``), or one of these
changed by transforms (``cora@random-edges:rate=0.1,seed=3``). The recipe of the transforms, the
text after the ``@``, identifies them, so that a run can be planned without computing its graph.
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
    """A function that makes a graph from another.

    Attributes
    ----------
    options : type
        The class of its options.
    edges : callable, optional
        Returns the graph with other edges, given a graph and the options.
    split : callable, optional
        Returns another split, given a graph, the options and a split seed. It must be fast, because
        planning calls it.
    revision : int
        Increased when a change of code changes the result of a recipe.
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
"""Every transform by its name in a reference."""


@dataclass(frozen=True)
class Step:
    """One transform of a reference, with its options."""

    name: str
    options: Config

    @property
    def transform(self) -> Transform:
        """The transform of this step."""
        return TRANSFORMS[self.name]

    def __str__(self) -> str:
        options = ",".join(f"{key}={value}" for key, value in self.options.identity().items())
        revision = self.transform.revision
        name = self.name if revision == 1 else f"{self.name}#{revision}"
        return f"{name}:{options}" if options else name


@dataclass(frozen=True)
class Reference:
    """A graph, given by its source and its transforms.

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
        """Read a reference; an unknown dataset, transform or option is an error."""
        # A path may contain any character, also an @.
        source, *steps = [text] if Path(text).exists() else text.split("@")
        if source not in dataset_names() and not is_path(source):
            raise ConfigError(
                f"unknown dataset {source!r}{suggestion(source, dataset_names())}; or give the "
                "path of an .npz file"
            )
        return cls(source, tuple(_step(step, text) for step in steps))

    @property
    def catalogue_name(self) -> str | None:
        """The catalogue entry whose presets apply; None for a file."""
        return self.source if self.source in dataset_names() else None

    @cached_property
    def recipe(self) -> str:
        """The transforms as text; empty for an unchanged graph."""
        return "@".join(map(str, self.steps))

    def __str__(self) -> str:
        return "@".join((self.source, *map(str, self.steps)))

    def split(self, graph: Graph, seed: int) -> Split:
        """Return the split of this reference for a split seed, given the source's graph."""
        split = draw_split(self.source, graph, seed)
        for step in self.steps:
            if step.transform.split is not None:
                split = step.transform.split(graph, step.options, seed)
        return split

    def transformed(self, graph: Graph) -> Graph:
        """Return the source's graph with its edges changed by the transforms."""
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
