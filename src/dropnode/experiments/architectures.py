"""The search of GraphNAS for an architecture, and a random one to compare it with.

A controller proposes an architecture, the architecture is trained as a child, and the child's
validation accuracy is what the controller learns from; no label of a test node is looked at. The
result of a child is a function of the seed and its architecture, so that none is trained twice.

A folder keeps the search::

    search.json      what was asked, of which data; written first
    children.jsonl   every trained child, in order

A search that was killed goes on from there. Nothing else has to be kept: the finished children are
replayed to the controller, which takes milliseconds each, and it is where it was.

Deviations from the authors: the width of the last layer, which they sample and then overwrite, is
not sampled; layers wider than ``max_width`` are not proposed; advantages are not rescaled by the
largest of the last ten, which turns their sign where all ten are negative. The result is the best
child; the authors train the five best twenty times more, and take the best mean.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dropnode.errors import ConfigError, GraphError, TrainingError
from dropnode.experiments.trials import Trial
from dropnode.files import atomic_write, remove_leftovers, write_json
from dropnode.graph import Graph, Split
from dropnode.methods.baselines.graphnas import GraphNAS, GraphNASConfig
from dropnode.methods.baselines.graphnas_controller import (
    Controller,
    ControllerConfig,
    RandomSampler,
    Sampler,
)
from dropnode.methods.baselines.graphnas_space import SPACE, WIDEST, spell
from dropnode.ops.randomness import Stream
from dropnode.training import train

STORY, CHILDREN = "search.json", "children.jsonl"


@dataclass(frozen=True)
class SearchSettings:
    """How to search.

    Attributes
    ----------
    child : GraphNASConfig
        How a child is trained, its epochs above all; its architecture is what is searched for.
    samples : int
        Architectures proposed, counting repetitions. A search can be continued with more.
    max_width : int
        The most columns of a hidden layer, all heads together. 512, the most that a published
        architecture has, keeps children affordable; the whole space goes up to 4096.
    controller : ControllerConfig
    """

    child: GraphNASConfig
    samples: int = 100
    max_width: int = 512
    controller: ControllerConfig = field(default_factory=ControllerConfig)

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ConfigError(f"samples = {self.samples!r}; expected a number of at least 1")
        least = SPACE["hidden"][0]
        if not int(least) <= self.max_width <= WIDEST:
            raise ConfigError(
                f"max_width = {self.max_width!r}; expected a number from {least} to {WIDEST}"
            )


@dataclass(frozen=True)
class Child:
    """A trained architecture.

    Attributes
    ----------
    architecture : str
    val_accuracy : float
        The reward: of the epoch whose weights were kept. 0 if training diverged.
    val_loss : float or None
        None if training diverged.
    epochs : int
    """

    architecture: str
    val_accuracy: float
    val_loss: float | None
    epochs: int


@dataclass(frozen=True)
class SearchResult:
    """The result of a search.

    Attributes
    ----------
    samples : tuple of Child
        What was proposed, in order, repetitions included.
    """

    samples: tuple[Child, ...]

    @property
    def children(self) -> tuple[Child, ...]:
        """Every trained child once, in order."""
        return tuple(dict.fromkeys(self.samples))

    @property
    def best(self) -> Child:
        """The child of the highest validation accuracy; of several, that of the lowest loss."""

        def rank(child: Child) -> tuple[float, float]:
            loss = float("inf") if child.val_loss is None else child.val_loss
            return -child.val_accuracy, loss

        return min(self.samples, key=rank)


SampleObserver = Callable[[int, Child], None]
"""Told the number of every sample, from 1, and its child."""


def controlled_search(
    graph: Graph,
    split: Split,
    settings: SearchSettings,
    seed: int,
    folder: Path,
    *,
    on_sample: SampleObserver | None = None,
) -> SearchResult:
    """Search with a controller that learns.

    Called again after it was cut short, with the same arguments, it goes on and ends with the same
    result as if it had not been.

    Parameters
    ----------
    graph : Graph
    split : Split
        Its validation nodes give the reward.
    settings : SearchSettings
    seed : int
        Everything random is a function of it.
    folder : Path
        Where children are kept; made if need be.
    on_sample : callable, optional
        Watches: ``on_sample(number, child)``, also for children that were there already.

    Raises
    ------
    ConfigError
        If the folder holds another search.
    """
    sampler = Controller(
        settings.controller, settings.max_width, Stream(seed).at("controller", "initialisation")
    )
    learns = {"strategy": "controller", "controller": settings.controller.as_dict()}
    return _explore(sampler, learns, graph, split, settings, seed, folder, on_sample)


def random_search(
    graph: Graph,
    split: Split,
    settings: SearchSettings,
    seed: int,
    folder: Path,
    *,
    on_sample: SampleObserver | None = None,
) -> SearchResult:
    """Search without learning, at the same cost and in the same way as a controlled one."""
    sampler = RandomSampler(settings.max_width)
    return _explore(
        sampler, {"strategy": "random"}, graph, split, settings, seed, folder, on_sample
    )


def _explore(
    sampler: Sampler,
    strategy: dict[str, Any],
    graph: Graph,
    split: Split,
    settings: SearchSettings,
    seed: int,
    folder: Path,
    on_sample: SampleObserver | None,
) -> SearchResult:
    graph.check_trainable(split)
    if not len(split.val):
        raise GraphError(
            f"split {split.name!r} has no validation nodes, by which a search judges; add some"
        )
    earlier = _open(folder, {**strategy, **_identity(graph, split, settings, seed)})
    stream = Stream(seed)
    trained: dict[str, Child] = {}
    samples = []
    for number in range(settings.samples):
        decided = sampler.propose(stream.at("sample", number))
        word = spell(decided, graph.num_classes)
        if word not in trained:
            if len(trained) == len(earlier):
                own_seed = stream.at("child", word).integer()
                earlier.append(_train(graph, split, settings.child, word, own_seed))
                _write(folder, earlier)
            trained[word] = _expected(earlier[len(trained)], word, folder)
        sampler.learn(decided, trained[word].val_accuracy)
        samples.append(trained[word])
        if on_sample is not None:
            on_sample(number + 1, trained[word])
    return SearchResult(tuple(samples))


def _train(graph: Graph, split: Split, config: GraphNASConfig, word: str, seed: int) -> Child:
    method = GraphNAS(config.replace(architecture=word))
    try:
        outcome = train(method, graph, split, seed=seed)
    except TrainingError:
        # An architecture that cannot be trained is one to avoid, not the end of the search.
        return Child(word, val_accuracy=0.0, val_loss=None, epochs=0)
    if outcome.interrupted:
        # Half a training says nothing of the architecture.
        raise KeyboardInterrupt
    best = outcome.best
    return Child(word, best["val_accuracy"], best["val_loss"], outcome.epochs)


def _identity(graph: Graph, split: Split, settings: SearchSettings, seed: int) -> dict[str, Any]:
    """Return what makes two searches the same, but for how long they are.

    It is the identity of a child's training, without the architecture that is searched for.
    """
    config = settings.child.identity()
    del config["architecture"]
    child = Trial(
        dataset=graph.name,
        dataset_sha256=graph.fingerprint(),
        split=split.name,
        split_seed=0,
        method=GraphNAS.name,
        revision=GraphNAS.revision,
        preset="",
        config=config,
        seed=seed,
        split_sha256=split.fingerprint(),
    )
    return child.identity() | {"max_width": settings.max_width}


def _open(folder: Path, story: dict[str, Any]) -> list[Child]:
    """Return the children that a folder holds, or make it the folder of this search."""
    record, path = folder / STORY, folder / CHILDREN
    if not record.exists():
        if path.exists():
            raise ConfigError(f"{path} is there, but no {STORY}; give this search another folder")
        write_json(record, story)
        return []
    remove_leftovers(folder)
    before = _parse(record.read_text(encoding="utf-8"), record)
    for key in {**before, **story}:
        if before.get(key) != story.get(key):
            raise ConfigError(
                f"{folder} holds a search with another {key} ({before.get(key)!r} there, "
                f"{story.get(key)!r} asked for); give this one a folder of its own"
            )
    if not path.exists():
        return []
    # What comes after the last end of a line is a child that was not written to its end.
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [_child(line, f"line {number} of {path}") for number, line in enumerate(lines, start=1)]


def _child(line: str, where: str) -> Child:
    values = _parse(line, where)
    if values.keys() != {field.name for field in dataclasses.fields(Child)}:
        raise ConfigError(f"{where} is no child of a search; give this one a folder of its own")
    return Child(**values)


def _parse(text: str, where: str | Path) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except ValueError as error:
        raise ConfigError(
            f"{where} cannot be read ({error}); delete it and all after it"
        ) from error
    return values if isinstance(values, dict) else {}


def _write(folder: Path, children: list[Child]) -> None:
    with atomic_write(folder / CHILDREN, "w") as file:
        for child in children:
            file.write(json.dumps(dataclasses.asdict(child), allow_nan=False) + "\n")


def _expected(child: Child, word: str, folder: Path) -> Child:
    if child.architecture != word:
        raise ConfigError(
            f"{folder / CHILDREN} has {child.architecture} where this search comes to {word}: it "
            "was written by other versions of the libraries; give this search a folder of its own"
        )
    return child
