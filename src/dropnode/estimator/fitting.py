"""The trainings of an estimator: one or two in this process, or several members in others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from rich.console import Console

from dropnode.data.splits import every_label_split
from dropnode.engines.base import Failure, usable_jobs
from dropnode.engines.local import run_local
from dropnode.errors import WorkError
from dropnode.estimator.labels import class_weights
from dropnode.graph import Graph, Split
from dropnode.methods.base import NodeClassifier
from dropnode.methods.table import restore_method
from dropnode.ops.scaling import FeatureScaling
from dropnode.settings import Config
from dropnode.training import Outcome, train
from dropnode.training.progress import ProgressBar


@dataclass(frozen=True)
class Job:
    """What is trained, but for the seed.

    Attributes
    ----------
    method : str
    config : Config
    graph : Graph
        If it has no split, a model that was validated is trained again, on all labels.
    split : Split
    classes, class_weight, weights
        The classes, and the weights of classes and nodes, as the estimator was given them.
    device : str
    """

    method: str
    config: Config
    graph: Graph
    split: Split
    classes: np.ndarray
    class_weight: Any
    weights: np.ndarray | None
    device: str


@dataclass(frozen=True)
class Fitted:
    """A trained method: the split that it was trained with, its training, and the validated one."""

    method: NodeClassifier
    split: Split
    outcome: Outcome
    validated: Outcome


def fitted(job: Job, seed: int, *, verbose: bool = False) -> Fitted:
    """Train; if labels were held out to validate, train as long again on all labels."""
    split = job.split
    method, validated = _trained(job, job.config, split, seed, verbose)
    outcome = validated
    if job.graph.split is None and len(split.val):
        split = every_label_split(job.graph.labels)
        config = method.trained_as_long(validated)
        method, outcome = _trained(job, config, split, seed, verbose)
    return Fitted(method, split, outcome, validated)


def fitted_members(
    job: Job, seeds: Sequence[int], watch: Callable[[int, int], None] = lambda done, total: None
) -> list[Fitted]:
    """Train once per seed, in processes of one thread, and return the results in that order.

    ``watch`` is called with how many of them are done, and with their number.

    Raises
    ------
    WorkError
        If one of them fails.
    """
    watch(0, len(seeds))
    done: dict[int, Fitted] = {}
    jobs = usable_jobs(None, len(seeds))
    for seed, answer in run_local(_member, seeds, jobs, shared=job):
        if isinstance(answer, Failure):
            raise WorkError(f"the member of the ensemble with seed {seed} failed: {answer.error}")
        done[seed] = answer.restored(job)
        watch(len(done), len(seeds))
    return [done[seed] for seed in seeds]


@dataclass(frozen=True)
class _Sent:
    """A trained method as it is sent from a process to another."""

    config: Config
    scaling: FeatureScaling
    state: dict[str, np.ndarray]
    split: Split
    outcome: Outcome
    validated: Outcome

    def restored(self, job: Job) -> Fitted:
        method = restore_method(job.method, self.config.identity(), job.device)
        state = {name: torch.from_numpy(value.copy()) for name, value in self.state.items()}
        method.restore(job.graph, self.scaling, state)
        return Fitted(method, self.split, self.outcome, self.validated)


def _member(job: Job, seed: int) -> _Sent:
    made = fitted(job, seed)
    state = {name: value.cpu().numpy() for name, value in made.method.state().items()}
    scaling, config = made.method.scaling, made.method.config
    return _Sent(config, scaling, state, made.split, made.outcome, made.validated)


def _trained(
    job: Job, config: Config, split: Split, seed: int, verbose: bool
) -> tuple[NodeClassifier, Outcome]:
    codes = job.graph.labels[split.train]
    given = None if job.weights is None else job.weights[split.train]
    of_classes = class_weights(job.class_weight, job.classes, codes, given)
    method = restore_method(job.method, config.identity(), job.device, of_classes, job.weights)
    shown = (
        ProgressBar(job.method, Console(stderr=True), closing=True) if verbose else nullcontext()
    )
    with shown as bar:
        outcome = train(method, job.graph, split, seed=seed, callbacks=[bar] if bar else [])
    if outcome.interrupted:
        raise KeyboardInterrupt
    return method, outcome
