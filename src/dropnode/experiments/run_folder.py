"""The folder of a run: its settings and all of its results.

::

    run.json                 the settings and the data of the run; written first
    checkpoint.safetensors   the state of the run; replaced regularly
    history.csv              losses and accuracies of every epoch
    model/                   the trained model, for GrandClassifier.load
    predictions.csv          predicted class and confidence of every node
    curves.png               the history as a figure
    result.json              the result; written last, so that it exists only in a complete folder
"""

from __future__ import annotations

import csv
import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dropnode.errors import ConfigError
from dropnode.experiments.measures import Training
from dropnode.files import atomic_write, remove_leftovers, write_json
from dropnode.methods.base import NodeClassifier
from dropnode.saving import save_model


@dataclass(frozen=True)
class RunRecord:
    """The settings and the data of a run: the content of ``run.json``.

    Attributes
    ----------
    id : str
        The id of the trial with these settings; the device is not part of it.
    dataset : str
        The reference that was asked for.
    dataset_sha256 : str
        The fingerprint of the graph that the reference starts from.
    recipe : str
        The transforms of the reference; empty for a graph as it is.
    split : str
        The name of the split.
    split_sha256 : str
        The hash of the split of a graph outside the catalogue; else empty.
    method : str
        The name of the method.
    preset : str
        The name of the preset.
    revision : int
        The revision of the method's code.
    config : dict
        Every key of the configuration.
    seed : int
        The seed of the run.
    device : str
        Where it was computed.
    versions : dict
        Of Python, torch, NumPy and this package.
    """

    id: str
    dataset: str
    dataset_sha256: str
    recipe: str
    split: str
    split_sha256: str
    method: str
    revision: int
    preset: str
    config: dict[str, Any]
    seed: int
    device: str
    versions: dict[str, str]


@dataclass(frozen=True)
class RunResult(RunRecord):
    """The result of a run: the content of ``result.json`` and the output of ``train --json``.

    Attributes
    ----------
    test_accuracy : float or None
        The share of test nodes that are classified correctly; null without test labels.
    val_accuracy, val_loss : float or None
        Of the validation nodes, in the epoch that was kept; null without validation nodes.
    best_epoch : int
        The epoch whose weights were kept.
    epochs : int
        Number of epochs run.
    seconds : float
        The duration of training.
    seconds_per_epoch : float
        The same, divided by the epochs.
    interrupted : bool
        Whether Ctrl-C ended the training.
    out : str or None
        The folder that keeps the run.
    """

    test_accuracy: float | None
    val_accuracy: float | None
    val_loss: float | None
    best_epoch: int
    epochs: int
    seconds: float
    seconds_per_epoch: float
    interrupted: bool
    out: str | None


def earlier_result(out: Path, record: RunRecord, resume: bool) -> RunResult | None:
    """Check that a folder is empty or has the same run; return the run's result if it finished.

    Raises
    ------
    ConfigError
        If the folder contains anything else, or contains a run and ``resume`` is false.
    """
    path = out / "run.json"
    if resume and out.is_dir():
        remove_leftovers(out)
    if not path.exists():
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ConfigError(
                f"{out} exists and is not the folder of a run; choose a new folder with --out"
            )
        return None
    if not resume:
        raise ConfigError(
            f"{out} already has a run; add --resume to continue it, or choose "
            "another folder with --out"
        )
    before, asked = _read_json(path), asdict(record)
    # Readable differences are reported first, hashes last.
    for key in sorted(asked, key=lambda name: (name == "id", "sha256" in name)):
        if key != "versions" and before.get(key) != asked[key]:
            raise ConfigError(
                f"{out} has a run with another {_difference(key, before.get(key), asked[key])}; "
                "repeat its command, or choose another folder with --out"
            )
    path = out / "result.json"
    if not path.exists():
        return None
    result = _read_result(path)
    return None if result.interrupted else result


def forget_unstarted(out: Path) -> None:
    """Remove ``run.json`` of a run that failed before its first checkpoint, with an empty folder.

    There is nothing to resume, and the corrected command may use the folder.
    """
    if not (out / "checkpoint.safetensors").exists():
        (out / "run.json").unlink(missing_ok=True)
        with suppress(OSError):
            out.rmdir()


def write_folder(out: Path, training: Training, result: RunResult) -> None:
    """Write history, predictions, model, curves and, last, the result of a run."""
    graph, outcome, probabilities = training.graph, training.outcome, training.probabilities
    assert graph.split is not None
    assert isinstance(training.method, NodeClassifier)
    columns = list(dict.fromkeys(name for line in outcome.history for name in line))
    with atomic_write(out / "history.csv", "w") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(line | {"epoch": int(line["epoch"])} for line in outcome.history)
    part = np.full(graph.num_nodes, "", dtype=object)
    for name in ("train", "val", "test"):
        part[getattr(graph.split, name)] = name
    names = np.array([*graph.class_names, ""], dtype=object)  # the last is for unknown, -1
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
    values = asdict(result)
    provenance = {key: values[key] for key in ("dataset", "split", "preset", "method", "seed")}
    extra = {
        "history": outcome.measured,
        "validation_history": outcome.measured if len(graph.split.val) else [],
        "best_epoch": outcome.best_epoch,
    }
    save_model(out / "model", training.method, graph, provenance=provenance, extra=extra)
    if outcome.epochs > 1:
        # Imported here, because matplotlib takes most of a second and only saved runs need it.
        from dropnode.experiments.curves import save_curves

        save_curves(
            out / "curves.png",
            outcome,
            f"{result.method} on {result.dataset}, preset {result.preset}, seed {result.seed}",
        )
    write_json(out / "result.json", values)


def _read_result(path: Path) -> RunResult:
    values = _read_json(path)
    try:
        return RunResult(**values)
    except TypeError as error:
        raise ConfigError(
            f"{path} is not a result of this version ({error}); choose another folder with --out"
        ) from error


def _difference(key: str, before: Any, now: Any) -> str:
    if isinstance(before, dict) and isinstance(now, dict):
        key = next(name for name in {**before, **now} if before.get(name) != now.get(name))
        before, now = before.get(key), now.get(key)
    return f"{key} ({before!r} there, {now!r} requested)"


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(value, dict):
            raise ValueError(f"expected a JSON object, found {type(value).__name__}")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} cannot be read ({error}); choose another folder with --out"
        ) from error
    return value
