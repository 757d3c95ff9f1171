"""What the store knows of each row of results: the evidence behind its mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dropnode.experiments.store import Record, Store

CURVES = 5
"""Seeds of a method whose curves are drawn: more would hide one another."""

POINTS = 200
"""Points that a curve is thinned out to: about as many as its panel has pixels."""


@dataclass(frozen=True)
class Curve:
    """The validation of one training, epoch by epoch; accuracies in percent."""

    epoch: np.ndarray
    loss: np.ndarray
    accuracy: np.ndarray
    best_epoch: int


@dataclass(frozen=True)
class Reliability:
    """How often a confidence was right, in bins of equal width from 0 to 1.

    ``confidence`` and ``correct`` are sums over the nodes of a bin.
    """

    count: np.ndarray
    confidence: np.ndarray
    correct: np.ndarray

    @classmethod
    def of(cls, counts: dict[str, list[float]]) -> Reliability:
        """Return what a trial stored."""
        return cls(*(np.asarray(counts[name]) for name in ("count", "confidence", "correct")))

    def __add__(self, other: Reliability) -> Reliability:
        return Reliability(
            self.count + other.count,
            self.confidence + other.confidence,
            self.correct + other.correct,
        )

    @property
    def error(self) -> float:
        """The expected calibration error: the mean gap between confidence and accuracy.

        Examples
        --------
        >>> counts = {"count": [0, 4], "confidence": [0.0, 3.6], "correct": [0, 3]}
        >>> round(Reliability.of(counts).error, 3)
        0.15
        """
        return float(np.abs(self.confidence - self.correct).sum() / max(self.count.sum(), 1))


@dataclass
class Cell:
    """One row of results, and its trials.

    Attributes
    ----------
    row : dict
        Of ``results.json``.
    accuracies : list of float
        Of the test nodes, in percent, one a trial that is done.
    curves : list of Curve
        Of the first trials that have one.
    confusions : list of ndarray
        Test nodes by true class (rows) and predicted class.
    reliabilities : list of Reliability
    lacking : dict
        For ``history``, ``confusion`` and ``reliability``, the trials that are done but have none.
    failures : dict
        From an error to the trials that ended in it.
    absent : list of str
        Trials that never ended.
    """

    row: dict[str, Any]
    accuracies: list[float] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    confusions: list[np.ndarray] = field(default_factory=list)
    reliabilities: list[Reliability] = field(default_factory=list)
    lacking: dict[str, list[str]] = field(
        default_factory=lambda: {"history": [], "confusion": [], "reliability": []}
    )
    failures: dict[str, list[str]] = field(default_factory=dict)
    absent: list[str] = field(default_factory=list)

    @property
    def label(self) -> str:
        """What the method is called."""
        return str(self.row["label"])

    @property
    def complete(self) -> bool:
        """Whether every seed asked for has a result."""
        return not self.row["failed"] and bool(self.row["n"] >= self.row["asked"])


def read_cells(rows: Sequence[dict[str, Any]], store: Store) -> list[Cell]:
    """Return the cells of the rows, in their order."""
    return [_read_cell(row, store) for row in rows]


def _read_cell(row: dict[str, Any], store: Store) -> Cell:
    cell = Cell(row)
    for identifier in row["trials"]:
        record = store.get(identifier)
        if record is None:
            cell.absent.append(identifier)
        elif record.status == "failed":
            error = " ".join((record.error or "no reason was stored").split())
            cell.failures.setdefault(error, []).append(_name(record))
        else:
            _add(cell, record, store.history(identifier))
    return cell


def _add(cell: Cell, record: Record, history: dict[str, np.ndarray] | None) -> None:
    """Add a trial that is done."""
    name = f"{_name(record)} ({record.trial.id})"
    metrics = record.metrics
    if metrics.get("test_accuracy") is not None:
        cell.accuracies.append(100 * metrics["test_accuracy"])
    curve = None if history is None else curve_of(history, metrics["best_epoch"])
    if curve is None:
        cell.lacking["history"].append(name)
    elif len(cell.curves) < CURVES:
        cell.curves.append(curve)
    if metrics.get("confusion") is None:
        cell.lacking["confusion"].append(name)
    else:
        cell.confusions.append(np.asarray(metrics["confusion"]))
    if metrics.get("reliability") is None:
        cell.lacking["reliability"].append(name)
    else:
        cell.reliabilities.append(Reliability.of(metrics["reliability"]))


def _name(record: Record) -> str:
    trial = record.trial
    return f"seed {trial.seed}" + (f" of split {trial.split_seed}" if trial.split_seed else "")


def curve_of(history: dict[str, np.ndarray], best_epoch: int) -> Curve | None:
    """Return a thinned curve; None where nothing was validated."""
    if not all(
        np.isfinite(history.get(name, np.nan)).any() for name in ("val_loss", "val_accuracy")
    ):
        return None
    # Counted over all phases, as the best one is; the history counts anew in each.
    epochs = len(history["epoch"])
    kept = np.unique(np.linspace(0, epochs - 1, min(epochs, POINTS)).round().astype(int))
    # The epoch whose weights were kept is marked on the line, so the line has to pass through it.
    kept = np.union1d(kept, [best_epoch - 1])
    return Curve(
        kept + 1,
        history["val_loss"][kept].astype(float),
        100 * history["val_accuracy"][kept].astype(float),
        best_epoch,
    )
