"""The architecture search of GraphNAS, and a random search to compare it with.

A controller proposes an architecture, which is trained as a "child". The controller learns from the
child's validation accuracy; no label of a test node is used. The result of a child depends only on
the seed and its architecture, so that no architecture is trained twice.

The files of a search::

    search.json      the settings and the data of the search; written first
    children.jsonl   every trained child, in order

A killed search continues from there. No other state is stored: the finished children are replayed
to the controller, which takes milliseconds each and restores its state.

Deviations from the authors: the width of the last layer, which they sample and then overwrite, is
not sampled. Layers wider than ``max_width`` are not proposed. Advantages are not divided by the
largest of the last ten, which changes their sign if all ten are negative. The result is the best
child; the authors train the five best twenty more times, and take the best mean.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dropnode.errors import ConfigError, GraphError, TrainingError
from dropnode.experiments.owners import ARCHITECTURES, check_owner
from dropnode.experiments.trials import Trial
from dropnode.files import SEAL, atomic_write, remove_leftovers, seal, unseal, write_json
from dropnode.graph import Graph, Split
from dropnode.locks import FolderLock
from dropnode.methods.baselines.graphnas import GraphNAS, GraphNASConfig
from dropnode.methods.baselines.graphnas_controller import (
    Controller,
    ControllerConfig,
    RandomSampler,
    Sampler,
)
from dropnode.methods.baselines.graphnas_space import SPACE, WIDEST, spell
from dropnode.ops.randomness import Stream
from dropnode.settings import check_keys, parse_json, read_record, read_sealed
from dropnode.training import train

CHILDREN = "children.jsonl"


@dataclass(frozen=True)
class SearchSettings:
    """Settings of a search.

    Attributes
    ----------
    child : GraphNASConfig
        The training of a child, such as its epochs; its architecture is ignored.
    samples : int
        Number of architectures to propose, counting repetitions. A search can be continued with
        more.
    max_width : int
        The largest width of a hidden layer, all heads together. 512, the largest in a published
        architecture, keeps the cost of a child low; the whole space goes up to 4096.
    controller : ControllerConfig
    """

    child: GraphNASConfig
    samples: int = 100
    max_width: int = 512
    controller: ControllerConfig = field(default_factory=ControllerConfig)

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ConfigError(f"samples = {self.samples!r}; expected a whole number of at least 1")
        least = SPACE["hidden"][0]
        if not int(least) <= self.max_width <= WIDEST:
            raise ConfigError(
                f"max_width = {self.max_width!r}; expected a whole number from {least} to {WIDEST}"
            )


@dataclass(frozen=True)
class Child:
    """A trained architecture.

    Attributes
    ----------
    architecture : str
    val_accuracy : float
        The reward, from the epoch whose weights were kept; 0 if training diverged.
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
        The proposed architectures in order, including repetitions.
    """

    samples: tuple[Child, ...]

    @property
    def children(self) -> tuple[Child, ...]:
        """Every trained child once, in order."""
        return tuple(dict.fromkeys(self.samples))

    @property
    def best(self) -> Child:
        """The child with the highest validation accuracy; among equals, with the lowest loss."""

        def rank(child: Child) -> tuple[float, float]:
            loss = float("inf") if child.val_loss is None else child.val_loss
            return -child.val_accuracy, loss

        return min(self.samples, key=rank)


SampleObserver = Callable[[int, Child], None]
"""Called with the number of every sample, from 1, and its child."""


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

    After an interruption, a call with the same arguments continues the search, and the result is
    the same as without the interruption.

    Parameters
    ----------
    graph : Graph
    split : Split
        Its validation accuracy is the reward.
    settings : SearchSettings
    seed : int
        The seed of all randomness.
    folder : Path
        The folder for the files of the search, created if it does not exist.
    on_sample : callable, optional
        Called as ``on_sample(number, child)``, also for children that were trained earlier.

    Raises
    ------
    ConfigError
        If the folder contains another search.
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
    """Search by random proposals; arguments and cost are those of :func:`controlled_search`."""
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
            f"split {split.name!r} has no validation nodes, which a search needs to compare "
            "architectures; add some"
        )
    check_owner(folder, ARCHITECTURES)
    with FolderLock(folder):
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
        # The search avoids an architecture that cannot be trained, and continues.
        return Child(word, val_accuracy=0.0, val_loss=None, epochs=0)
    if outcome.interrupted:
        # The accuracy of an interrupted training is no measure of the architecture.
        raise KeyboardInterrupt
    best = outcome.best
    return Child(word, best["val_accuracy"], best["val_loss"], outcome.epochs)


def _identity(graph: Graph, split: Split, settings: SearchSettings, seed: int) -> dict[str, Any]:
    """Return the identity of a search, which does not depend on the number of samples.

    It is the identity of a child's training, without its architecture.
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
    """Return the children in the folder of this search, after writing what it is about."""
    record, path = folder / ARCHITECTURES, folder / CHILDREN
    if not record.exists():
        remove_leftovers(folder)
        write_json(record, seal(story))
        return []
    before = read_sealed(record, _CURE)
    for key in {**before, **story}:
        if before.get(key) != story.get(key):
            raise ConfigError(
                f"{folder} has a search with another {key} ({before.get(key)!r} there, "
                f"{story.get(key)!r} requested); {_CURE}"
            )
    remove_leftovers(folder)
    if not path.exists():
        return []
    try:
        # Text after the last line end is a child that was written only in part.
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    except ValueError as error:
        raise ConfigError(f"{path} cannot be read ({error}); {_CURE}") from error
    return [_child(line, f"line {number} of {path}") for number, line in enumerate(lines, start=1)]


_CURE = "choose another folder for this search"


def _child(line: str, where: str) -> Child:
    try:
        values = parse_json(line)
        check_keys(values, [field.name for field in dataclasses.fields(Child)], [SEAL], where)
        return read_record(Child, unseal(values), where)
    except (ConfigError, ValueError) as error:
        raise ConfigError(
            f"{where} is not a child of a search ({error}); delete it and everything after it"
        ) from error


def _write(folder: Path, children: list[Child]) -> None:
    with atomic_write(folder / CHILDREN, "w") as file:
        for child in children:
            file.write(json.dumps(seal(dataclasses.asdict(child)), allow_nan=False) + "\n")


def _expected(child: Child, word: str, folder: Path) -> Child:
    if child.architecture != word:
        raise ConfigError(
            f"{folder / CHILDREN} has {child.architecture} where this search proposes {word}: it "
            "was written with other versions of the libraries; choose another folder for this "
            "search"
        )
    return child
