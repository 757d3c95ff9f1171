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

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dropnode.csv_text import ROWS, write_csv
from dropnode.errors import ConfigError, WorkError
from dropnode.experiments.measures import Training
from dropnode.files import is_vacant, remove_leftovers, seal, write_json
from dropnode.graph import Graph
from dropnode.graph.split import PARTS
from dropnode.methods.base import NodeClassifier
from dropnode.saving import save_model
from dropnode.settings import read_record, read_sealed

RECORD, RESULT = "run.json", "result.json"


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
    workers : int
        How many processes trained together. Sums of another number are rounded in another way.
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
    # A record that was written without it is one of a single process.
    workers: int = field(default=1, kw_only=True)


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
    path = out / RECORD
    if not path.exists():
        if not is_vacant(out):
            raise ConfigError(
                f"{out} exists and is not the folder of a run; choose a new folder with --out"
            )
        return None
    if not resume:
        raise ConfigError(
            f"{out} already has a run; add --resume to continue it, or choose "
            "another folder with --out"
        )
    before = asdict(_read(RunRecord, path, "choose another folder with --out"))
    asked = asdict(record)
    # Readable differences are reported first, hashes last.
    for key in sorted(asked, key=lambda name: (name == "id", "sha256" in name)):
        if key != "versions" and before[key] != asked[key]:
            raise ConfigError(
                f"{out} has a run with another {_difference(key, before[key], asked[key])}; "
                "repeat its command, or choose another folder with --out"
            )
    result = _result(out)
    return None if result is None or result.interrupted else result


def begin_folder(out: Path, record: RunRecord) -> None:
    """Write the settings of a run into its folder, unless it has them; remove leftovers there."""
    remove_leftovers(out)
    if not (out / RECORD).exists():
        write_json(out / RECORD, seal(asdict(record)))


def check_folder(out: Path) -> None:
    """Raise :class:`WorkError` if the folder of a run was deleted while it was running."""
    if not (out / RECORD).exists():
        raise WorkError(
            f"{out} was deleted while the run was writing to it; run the same command again"
        )


def better_result(out: Path, result: RunResult) -> RunResult | None:
    """Return the result that a folder has, if replacing it by this one would lose epochs.

    A run is deterministic, so one that was interrupted later has seen all that this one has.
    """
    earlier = _result(out)
    if earlier is None or not result.interrupted or earlier.epochs <= result.epochs:
        return None
    return earlier


def forget_unstarted(out: Path) -> None:
    """Remove ``run.json`` of a run that failed before its first checkpoint, with an empty folder.

    There is nothing to resume, and the corrected command may use the folder.
    """
    if not any((out / name).exists() for name in ("checkpoint.safetensors", RESULT)):
        (out / RECORD).unlink(missing_ok=True)
        with suppress(OSError):
            out.rmdir()


def write_folder(out: Path, training: Training, result: RunResult) -> None:
    """Write history, predictions, model, curves and, last, the result of a run."""
    graph, outcome, probabilities = training.graph, training.outcome, training.probabilities
    assert graph.split is not None
    assert isinstance(training.method, NodeClassifier)
    columns = list(dict.fromkeys(name for line in outcome.history for name in line))
    check_folder(out)
    lines = [line | {"epoch": int(line["epoch"])} for line in outcome.history]
    write_csv(
        out / "history.csv", [columns, *([line.get(k, "") for k in columns] for line in lines)]
    )
    write_csv(out / "predictions.csv", _predictions(graph, probabilities))
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
    write_json(out / RESULT, seal(values))
    check_folder(out)


def _predictions(graph: Graph, probabilities: np.ndarray) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of ``predictions.csv``, made for some nodes at a time."""
    yield "id", "part", "label", "predicted", "confidence"
    part = np.zeros(graph.num_nodes, dtype=np.int8)
    for code, name in enumerate(PARTS, 1):
        part[getattr(graph.split, name)] = code
    parts = np.array(["", *PARTS], dtype=object)
    names = np.array([*graph.class_names, ""], dtype=object)  # the last is for unknown, -1
    for first in range(0, graph.num_nodes, ROWS):
        own = slice(first, first + ROWS)
        yield from zip(
            graph.ids[own].tolist(),
            parts[part[own]],
            names[graph.labels[own]],
            names[probabilities[own].argmax(axis=1)],
            (f"{value:.6f}" for value in probabilities[own].max(axis=1)),
            strict=True,
        )


def _result(out: Path) -> RunResult | None:
    path = out / RESULT
    # The checkpoint has all that is needed to write it again.
    cure = "delete it and run the same command with --resume"
    return _read(RunResult, path, cure) if path.exists() else None


T = TypeVar("T")


def _read(kind: type[T], path: Path, cure: str) -> T:
    try:
        return read_record(kind, read_sealed(path, cure), path.stem)
    except ConfigError as error:
        if str(path) in str(error):
            raise
        raise ConfigError(f"{path} is not one of this version ({error}); {cure}") from error


def _difference(key: str, before: Any, now: Any) -> str:
    if isinstance(before, dict) and isinstance(now, dict):
        key = next(name for name in {**before, **now} if before.get(name) != now.get(name))
        before, now = before.get(key), now.get(key)
    return f"{key} ({before!r} there, {now!r} requested)"
