"""A run: one method trained once on one graph, by a user (`run`) or by an engine (`run_trial`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from dropnode.environment import versions
from dropnode.experiments.measures import Training, measure
from dropnode.experiments.references import Reference
from dropnode.experiments.run_folder import (
    RunRecord,
    RunResult,
    begin_folder,
    better_result,
    earlier_result,
    forget_unstarted,
    write_folder,
)
from dropnode.experiments.trials import Data, Finished, Trial, now, plan_with_choice, write_history
from dropnode.graph import Graph
from dropnode.methods.table import Choice, restore_method
from dropnode.settings import read_value
from dropnode.settings import seed as seed_field
from dropnode.training import Callback, Method, Outcome, train


@dataclass(frozen=True)
class Request:
    """The arguments of a run; ``dataset`` is a reference."""

    dataset: str
    method: str = "grand"
    preset: str | None = None
    seed: int = 0
    split_seed: int = 0
    changes: Mapping[str, Any] = field(default_factory=dict)
    device: str = "cpu"
    workers: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "dataset", str(Reference.parse(self.dataset)))
        for name in ("seed", "split_seed"):
            read_value(int, getattr(self, name), name, seed_field())


@dataclass(frozen=True)
class Job:
    """The input of all trials of an experiment: the data, and the names of further measures."""

    data: Data
    measures: tuple[str, ...] = ()


def run(
    request: Request,
    *,
    data: Data | None = None,
    out: Path | None = None,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    checkpoint_every: float = 5.0,
    train: Callable[..., Outcome] = train,
) -> RunResult:
    """Train as requested, write everything to ``out`` if given, and return the result.

    With ``resume``, an interrupted run in ``out`` continues, and its result is bit-identical to
    that of an uninterrupted one; a finished run is not trained again. A run that is interrupted
    earlier than the one in ``out`` changes nothing there. ``data`` is loaded unless the caller
    gives it. ``train`` is the function that trains, here or on a cluster.
    """
    data = load(request) if data is None else data
    record, choice = prepare(request, data)
    graph = data.graph(request.dataset, request.split_seed)
    if out is not None:
        finished = earlier_result(out, record, resume)
        if finished is not None:
            return finished
        begin_folder(out, record)
    try:
        training = perform(
            choice.method,
            graph,
            request.seed,
            train,
            callbacks=callbacks,
            checkpoint=None if out is None else out / "checkpoint.safetensors",
            checkpoint_every=checkpoint_every,
        )
    except BaseException:
        if out is not None:
            forget_unstarted(out)
        raise
    result = _result(record, training, out)
    if out is not None:
        better = better_result(out, result)
        if better is not None:
            return better
        write_folder(out, training, result)
    return result


def run_trial(job: Job, trial: Trial) -> Finished:
    """Train a trial; engines call this function in their workers."""
    # In case another module has set a different number of threads.
    torch.set_num_threads(1)
    graph = job.data.graph(trial.dataset, trial.split_seed)
    training = perform(restore_method(trial.method, trial.config), graph, trial.seed)
    return Finished(
        measure(training, job.measures),
        training.outcome.seconds,
        now(),
        versions(),
        write_history(training.outcome.history),
    )


def perform(
    method: Method,
    graph: Graph,
    seed: int,
    train: Callable[..., Outcome] = train,
    **options: Any,
) -> Training:
    """Train a method and predict all nodes; ``options`` are those of ``train``."""
    outcome = train(method, graph, seed=seed, **options)
    return Training(graph, method, outcome, method.logits().softmax(dim=1).cpu().numpy())


def load(request: Request) -> Data:
    """Load the data of a request."""
    return Data.load([request.dataset], [request.split_seed])


def prepare(request: Request, data: Data) -> tuple[RunRecord, Choice]:
    """Check a request; return its record for ``run.json``, and its method, ready to train."""
    trial, choice = plan_with_choice(
        data,
        request.dataset,
        request.split_seed,
        request.method,
        request.preset,
        request.changes,
        request.seed,
        request.device,
    )
    record = RunRecord(
        id=trial.id,
        dataset=trial.dataset,
        dataset_sha256=trial.dataset_sha256,
        recipe=trial.recipe,
        split=trial.split,
        split_sha256=trial.split_sha256,
        method=trial.method,
        revision=trial.revision,
        preset=trial.preset,
        config=choice.config,
        seed=trial.seed,
        device=request.device,
        workers=request.workers,
        versions=versions(),
    )
    return record, choice


def _result(record: RunRecord, training: Training, out: Path | None) -> RunResult:
    outcome, measured = training.outcome, measure(training)
    return RunResult(
        **asdict(record),
        **{name: measured[name] for name in ("test_accuracy", "val_accuracy", "val_loss")},
        best_epoch=outcome.best_epoch,
        epochs=outcome.epochs,
        seconds=outcome.seconds,
        seconds_per_epoch=outcome.seconds / max(outcome.epochs, 1),
        interrupted=outcome.interrupted,
        out=None if out is None else str(out),
    )
