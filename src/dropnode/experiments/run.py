"""A run: one method trained once on one graph, and the folder that keeps its story.

::

    run.json                 what was asked, of which data; written first
    checkpoint.safetensors   where the run stands; replaced as it goes
    history.csv              losses and accuracies of every epoch
    model/                   the trained model, for GrandClassifier.load
    predictions.csv          every node: predicted class and confidence
    curves.png               the history as a picture
    result.json              what came out; written last, so its presence means all is there
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dropnode.data import load_dataset
from dropnode.errors import ConfigError
from dropnode.files import atomic_write, remove_leftovers, write_json
from dropnode.graph import Graph
from dropnode.graph.checks import UNKNOWN
from dropnode.methods.table import Choice, make_method
from dropnode.saving import save_model, versions
from dropnode.training import Callback, Method, Outcome, train


@dataclass(frozen=True)
class Request:
    """What a run is asked to do."""

    dataset: str
    method: str = "grand"
    preset: str | None = None
    seed: int = 0
    split_seed: int = 0
    changes: Mapping[str, Any] = field(default_factory=dict)
    device: str = "cpu"


def run(
    request: Request,
    *,
    graph: Graph | None = None,
    out: Path | None = None,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    checkpoint_every: float = 5.0,
) -> dict[str, Any]:
    """Train as requested, keep everything in ``out`` if given, and return the result.

    With ``resume``, a run that was cut short in ``out`` goes on and ends with the same bits as one
    that was never interrupted; a finished one is not trained again. Who has the dataset's graph
    already, with the requested split, can pass it as ``graph``.
    """
    _check_device(request.device)
    if graph is None:
        graph = load(request)
    choice = _choose(request, graph)
    story = _story(request, graph, choice)
    if out is not None:
        finished = earlier_result(out, story, resume)
        if finished is not None:
            return finished
        if not (out / "run.json").exists():
            write_json(out / "run.json", story)
    outcome, probabilities = perform(
        choice.method,
        graph,
        request.seed,
        callbacks=callbacks,
        checkpoint=None if out is None else out / "checkpoint.safetensors",
        checkpoint_every=checkpoint_every,
    )
    result = {**story, **measure(graph, outcome, probabilities), "out": None}
    if out is not None:
        result["out"] = str(out)
        _fill_folder(out, graph, choice, outcome, probabilities, result)
    return result


def perform(method: Method, graph: Graph, seed: int, **options: Any) -> tuple[Outcome, np.ndarray]:
    """Train a method, and return how that went and the class probabilities of every node.

    ``options`` are those of :func:`dropnode.training.train`.
    """
    outcome = train(method, graph, seed=seed, **options)
    return outcome, method.logits().softmax(dim=1).cpu().numpy()


def measure(graph: Graph, outcome: Outcome, probabilities: np.ndarray) -> dict[str, Any]:
    """Return what training came to."""
    test = known_test_nodes(graph)
    correct = probabilities[test].argmax(axis=1) == graph.labels[test]
    return {
        "test_accuracy": float(correct.mean()) if len(test) else None,
        "val_accuracy": _number(outcome.best.get("val_accuracy")),
        "val_loss": _number(outcome.best.get("val_loss")),
        "best_epoch": outcome.best_epoch,
        "epochs": outcome.epochs,
        "seconds": outcome.seconds,
        "seconds_per_epoch": outcome.seconds / max(outcome.epochs, 1),
        "interrupted": outcome.interrupted,
    }


def known_test_nodes(graph: Graph) -> np.ndarray:
    """Return the nodes of the split that test, as far as their labels are known."""
    assert graph.split is not None
    test = graph.split.test
    return test[graph.labels[test] != UNKNOWN]


def load(request: Request) -> Graph:
    """Load the graph that a request is about."""
    return load_dataset(request.dataset, split_seed=request.split_seed)


def describe(request: Request, graph: Graph) -> dict[str, Any]:
    """Return what ``run.json`` will say of a request, once it has been checked."""
    _check_device(request.device)
    return _story(request, graph, _choose(request, graph))


def earlier_result(out: Path, story: dict[str, Any], resume: bool) -> dict[str, Any] | None:
    """Check that a folder is free for a run, or holds that same run; return its result if it ended.

    Raises
    ------
    ConfigError
        If the folder holds anything else, or there is a run and ``resume`` was not asked for.
    """
    record = out / "run.json"
    if resume and out.is_dir():
        remove_leftovers(out)
    if not record.exists():
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ConfigError(
                f"{out} exists and holds no run of ours; choose a new folder with --out"
            )
        return None
    if not resume:
        raise ConfigError(
            f"{out} already holds a run; add --resume to go on with it, or choose "
            "another folder with --out"
        )
    before = _read_json(record)
    for key, value in story.items():
        if key != "versions" and before.get(key) != value:
            raise ConfigError(
                f"{out} holds a run with another {_difference(key, before.get(key), value)}; "
                "repeat its command, or choose another folder with --out"
            )
    result = out / "result.json"
    if not result.exists():
        return None
    finished = _read_json(result)
    return None if finished["interrupted"] else finished


def _choose(request: Request, graph: Graph) -> Choice:
    return make_method(request.method, graph.name, request.preset, request.changes, request.device)


def _story(request: Request, graph: Graph, choice: Choice) -> dict[str, Any]:
    assert graph.split is not None
    return {
        "dataset": request.dataset,
        "dataset_sha256": graph.fingerprint(),
        "split": graph.split.name,
        "method": request.method,
        "preset": choice.preset,
        "config": choice.config,
        "seed": request.seed,
        "device": request.device,
        "versions": versions(),
    }


def _number(value: float | None) -> float | None:
    """Return None for NaN, which JSON does not know."""
    return None if value is None or value != value else value


def _difference(key: str, before: Any, now: Any) -> str:
    if isinstance(before, dict) and isinstance(now, dict):
        key = next(name for name in {**before, **now} if before.get(name) != now.get(name))
        before, now = before.get(key), now.get(key)
    return f"{key} ({before!r} there, {now!r} asked for)"


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} cannot be read ({error}); choose another folder with --out"
        ) from error
    return value


def _fill_folder(
    out: Path,
    graph: Graph,
    choice: Choice,
    outcome: Outcome,
    probabilities: np.ndarray,
    result: dict[str, Any],
) -> None:
    assert graph.split is not None
    columns = list(dict.fromkeys(name for line in outcome.history for name in line))
    with atomic_write(out / "history.csv", "w") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(line | {"epoch": int(line["epoch"])} for line in outcome.history)
    part = np.full(graph.num_nodes, "", dtype=object)
    for name in ("train", "val", "test"):
        part[getattr(graph.split, name)] = name
    names = np.array([*graph.class_names, ""], dtype=object)  # the last is that of unknown, -1
    with atomic_write(out / "predictions.csv", "w") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["id", "part", "label", "predicted", "confidence"])
        table.writerows(
            zip(
                graph.ids.tolist(),
                part,
                names[graph.labels],
                names[probabilities.argmax(axis=1)],
                (f"{value:.6f}" for value in probabilities.max(axis=1)),
                strict=True,
            )
        )
    story = {key: result[key] for key in ("dataset", "split", "preset", "method", "seed")}
    extra = {
        "history": outcome.measured,
        "validation_history": outcome.measured if len(graph.split.val) else [],
        "best_epoch": outcome.best_epoch,
    }
    save_model(out / "model", choice.method, graph, provenance=story, extra=extra)
    if outcome.epochs > 1:
        # matplotlib takes most of a second to import, and only a run that is kept needs it.
        from dropnode.experiments.curves import save_curves

        save_curves(
            out / "curves.png",
            outcome,
            f"{result['method']} on {result['dataset']}, preset {result['preset']}, "
            f"seed {result['seed']}",
        )
    write_json(out / "result.json", result)


def _check_device(device: str) -> None:
    try:
        torch.empty(1, device=device)
    # A name torch does not know, a build without the device, and a backend without the operation.
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ConfigError(
            f"device {device!r} cannot be used here ({str(error).splitlines()[0]}); use 'cpu'"
        ) from error
