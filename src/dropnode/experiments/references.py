"""References: the name of the graph of a run, as one line of text.

A reference is a dataset of the catalogue (``cora``), a file (``graphs/mine.npz``), or one of these
changed by transforms (``cora@random-edges:rate=0.1,seed=3``). The recipe of the transforms, the
text after the ``@``, identifies them, so that a run can be planned without computing its graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy.sparse.csgraph import connected_components

from dropnode.analysis.attacks.flips import Watch
from dropnode.analysis.attacks.metattack import Metattack, checked_budget, metattack
from dropnode.analysis.attacks.prbcd import Prbcd, checked_block, prbcd
from dropnode.analysis.attacks.random_edges import DEFINITIONS, add_random_edges, checked_number
from dropnode.data import dataset_names, draw_split, label_rate_split, load_dataset
from dropnode.data.catalogue import PerClass, find
from dropnode.data.graph_file import is_path
from dropnode.data.splits import SHARES
from dropnode.errors import ConfigError
from dropnode.files import exists, is_text
from dropnode.graph import Graph, Split
from dropnode.graph.labels import UNKNOWN
from dropnode.settings import (
    MOST_REPEATS,
    Config,
    choice,
    continued,
    count,
    positive,
    read_changes,
    seed,
    share,
    shown,
    suggestion,
)

MOST_STEPS = 10
"""The most transforms of a reference."""


@dataclass(frozen=True)
class RandomEdges(Config):
    """Options of the random attack.

    Attributes
    ----------
    rate : number of fake edges as a fraction of the graph's edges
    seed : which edges are drawn
    definition : ``"clean"``, or ``"cumulative"`` as in the authors' first script, where a rate of
        10 % adds 1 + 2 + ... + 10 = 55 %
    """

    rate: float = positive(most=MOST_REPEATS)
    seed: int = seed(default=0)
    definition: str = choice(*DEFINITIONS, default="clean")


@dataclass(frozen=True)
class LabelRate(Config):
    """Options of a split by label rate.

    Attributes
    ----------
    rate : training nodes as a fraction of all nodes
    classes : ``"proportional"``: classes have their share of the graph; ``"equal"``: all have the
        same number of training nodes
    component : ``"all"``: nodes of the split come from the whole graph; ``"largest"``: from its
        largest connected component
    """

    rate: float = share()
    classes: str = choice(*SHARES, default="proportional")
    component: str = choice("all", "largest", default="all")


@dataclass(frozen=True)
class OneClass(Config):
    """Options of a graph with two classes: one class, and all others.

    Attributes
    ----------
    code : the number of the class, counted from 0
    """

    code: int = count(least=0)


@dataclass(frozen=True)
class Transform:
    """A function that makes a graph from another.

    Attributes
    ----------
    options : type
        The class of its options.
    graph : callable, optional
        Returns the graph with other edges or labels, given a graph with its split, the options, and
        a function that is called with the progress.
    check : callable, optional
        Raises an error if a graph with its split cannot be changed so. It must be fast, because
        planning calls it, so that an impossible rate is an error before hours of work.
    split : callable, optional
        Returns another split, given a graph, the options and a split seed. It must be fast, because
        planning calls it.
    class_names : callable, optional
        Returns the names of the classes, given those of before and the options; needed by a
        transform that changes labels.
    revision : int
        Increased when a change of code changes the result of a recipe. The recipe then has it, as
        in ``random-edges#2:rate=0.1``.
    """

    options: type[Config]
    graph: Callable[[Graph, Any, Watch | None], Graph] | None = None
    check: Callable[[Graph, Any], object] | None = None
    split: Callable[[Graph, Any, int], Split] | None = None
    class_names: Callable[[tuple[str, ...], Any], tuple[str, ...]] | None = None
    revision: int = 1


TRANSFORMS: Mapping[str, Transform] = MappingProxyType(
    {
        "random-edges": Transform(
            RandomEdges,
            graph=lambda graph, options, watch: add_random_edges(
                graph, options.rate, options.seed, options.definition
            ),
            check=lambda graph, options: checked_number(graph, options.rate, options.definition),
        ),
        "metattack": Transform(Metattack, graph=metattack, check=checked_budget),
        "prbcd": Transform(Prbcd, graph=prbcd, check=checked_block),
        "label-rate": Transform(
            LabelRate,
            split=lambda graph, options, seed: label_rate_split(
                _labels_within(graph, options.component),
                options.rate,
                seed,
                classes=options.classes,
            ),
        ),
        "one-class": Transform(
            OneClass,
            graph=lambda graph, options, watch: one_class(graph, options.code),
            check=lambda graph, options: check_class(graph, options.code),
            class_names=lambda names, options: one_class_names(names, options.code),
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
        if not isinstance(text, str) or not is_text(text):
            raise ConfigError(f"dataset {shown(text)}; expected a name or the path of an .npz file")
        # A path may contain any character, also an @.
        source, *steps = [text] if exists(text) else text.split("@")
        if len(steps) > MOST_STEPS:
            raise ConfigError(f"{len(steps):,} transforms; expected at most {MOST_STEPS}")
        if source not in dataset_names() and not is_path(source):
            unknown = f"unknown dataset {shown(source)}{suggestion(source, dataset_names())}"
            raise ConfigError(continued(unknown, "or give the path of an .npz file"))
        return cls(source, tuple(_step(step, text) for step in steps))

    @property
    def catalogue_name(self) -> str | None:
        """The catalogue entry whose presets apply; None for a file."""
        return self.source if self.source in dataset_names() else None

    @property
    def draws_splits(self) -> bool:
        """Whether every split seed draws another split; a published split is the same for all."""
        if any(step.transform.split is not None for step in self.steps):
            return True
        name = self.catalogue_name
        return name is not None and isinstance(find(name).split, PerClass)

    @property
    def changes_graph(self) -> bool:
        """Whether edges or labels differ from the source's; a split changes neither."""
        return any(step.transform.graph is not None for step in self.steps)

    @cached_property
    def recipe(self) -> str:
        """The transforms as text; empty for an unchanged graph."""
        return "@".join(map(str, self.steps))

    def __str__(self) -> str:
        return "@".join((self.source, *map(str, self.steps)))

    def along(self, axis: str) -> tuple[str, str | None, float | None]:
        """Return where the graph lies on an axis: an option of a transform, ``metattack.rate``.

        Returns
        -------
        str
            The reference without that transform.
        str or None
            The other options of the transform; None if the reference does not have it.
        float or None
            The value of the option. Without the transform, 0 if the transform changes the graph,
            and None if it draws a split: the source's own split is nowhere on the axis.
        """
        name, _, option = axis.partition(".")
        others = tuple(step for step in self.steps if step.name != name)
        base = str(replace(self, steps=others))
        for step in self.steps:
            if step.name == name and option in step.options.names():
                rest = {k: v for k, v in step.options.identity().items() if k != option}
                told = ", ".join(f"{key}={value}" for key, value in rest.items())
                return base, told, float(getattr(step.options, option))
        return base, None, None if TRANSFORMS[name].graph is None else 0.0

    def then(self, name: str, options: Mapping[str, Any]) -> Reference:
        """Return the reference with one more transform."""
        return Reference(self.source, (*self.steps, _made_step(name, options)))

    @property
    def last(self) -> Reference:
        """The reference with its last transform alone."""
        return Reference(self.source, self.steps[-1:])

    def split(self, graph: Graph, seed: int) -> Split:
        """Return the split of this reference for a split seed, given the source's graph."""
        split = draw_split(self.source, graph, seed)
        for step in self.steps:
            if step.transform.split is not None:
                split = step.transform.split(graph, step.options, seed)
        return split

    def check(self, graph: Graph) -> None:
        """Raise an error if the first transform of the source's graph, with its split, cannot be.

        What comes after depends on the transformed graph, and is checked when it is there.
        """
        for step in self.steps:
            if step.transform.graph is not None:
                if step.transform.check is not None:
                    step.transform.check(graph, step.options)
                return

    def transformed(self, graph: Graph, watch: Watch | None = None) -> Graph:
        """Return the source's graph, with its split, changed by the transforms.

        An attack may depend on the training nodes, so the split has to be the final one.
        """
        for step in self.steps:
            if step.transform.graph is not None:
                graph = step.transform.graph(graph, step.options, watch)
        return graph

    def class_names(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the classes, given those of the source's graph."""
        for step in self.steps:
            if step.transform.class_names is not None:
                names = step.transform.class_names(names, step.options)
        return names

    def load(self, split_seed: int = 0, watch: Watch | None = None) -> Graph:
        """Load the graph with its split; ``watch`` is told about the progress of an attack."""
        graph = load_dataset(self.source, split_seed=split_seed)
        return self.transformed(graph.with_split(self.split(graph, split_seed)), watch)


def one_class(graph: Graph, code: int) -> Graph:
    """Return a graph whose labels tell one class from all others.

    Examples
    --------
    >>> one_class(load_dataset("sbm", nodes=300, classes=3), 2).class_names
    ('others', '2')
    """
    check_class(graph, code)
    labels = np.where(graph.labels == UNKNOWN, UNKNOWN, graph.labels == code)
    return graph.with_labels(labels, one_class_names(graph.class_names, code))


def one_class_names(names: tuple[str, ...], code: int) -> tuple[str, str]:
    """Return the names of the two classes of :func:`one_class`, in the order of their codes."""
    return "others", names[code]


def check_class(graph: Graph, code: int) -> None:
    """Raise :class:`ConfigError` unless a graph has this class."""
    if code >= graph.num_classes:
        raise ConfigError(f"class {code} of a graph with the classes 0 to {graph.num_classes - 1}")


def _labels_within(graph: Graph, component: str) -> np.ndarray:
    """Return the labels, unknown outside the largest component if that is asked for."""
    if component == "all":
        return graph.labels
    _, components = connected_components(graph.adjacency, directed=False)
    largest = np.bincount(components).argmax()
    return np.where(components == largest, graph.labels, UNKNOWN)


def _step(text: str, whole: str) -> Step:
    written, _, given = text.partition(":")
    name, _, revision = written.partition("#")
    if name not in TRANSFORMS:
        raise ConfigError(
            f"unknown transform {shown(name)} in {shown(whole)}{suggestion(name, TRANSFORMS)}"
        )
    if written != name and revision != str(TRANSFORMS[name].revision):
        raise ConfigError(
            f"{shown(written)} in {shown(whole)}; this version has revision "
            f"{TRANSFORMS[name].revision} of {name}, which is meant without a number"
        )
    pairs = given.split(",") if given else []
    keys: list[str] = []
    for pair in pairs:
        if not all(part.strip() for part in pair.partition("=")):
            raise ConfigError(
                f"{shown(pair)} in {shown(whole)}; expected KEY=VALUE, such as rate=0.1"
            )
        keys.append(pair.partition("=")[0].strip())
        if keys.count(keys[-1]) > 1:
            raise ConfigError(f"{shown(whole)} gives {shown(keys[-1])} twice; leave one out")
    try:
        return _made_step(name, read_changes(pairs))
    except ConfigError as error:
        raise ConfigError(f"{shown(whole)}: {error}") from error


def _made_step(name: str, options: Mapping[str, Any]) -> Step:
    try:
        return Step(name, TRANSFORMS[name].options.from_dict(options))
    except ConfigError as error:
        raise ConfigError(f"transform {name}: {error}") from error
