"""The stored trials behind each row of the results, collected for tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dropnode.analysis.calibration import binned_error
from dropnode.experiments import measures
from dropnode.experiments.record import Record
from dropnode.experiments.results import RowResult
from dropnode.experiments.store import Store

CURVES = 5
"""The number of seeds per method whose training curves are drawn; more would hide each other."""

POINTS = 200
"""The number of points per training curve, about one per pixel of its panel."""

HISTORY = "history"
"""The key of training histories in :attr:`Evidence.lacking`."""

DRAWN = ("matrix", "reliability", "curves")
"""Kinds of measures that are drawn, rather than listed in a table."""


@dataclass(frozen=True)
class Curve:
    """Validation loss and accuracy of one training by epoch; accuracies in percent."""

    epoch: np.ndarray
    loss: np.ndarray
    accuracy: np.ndarray
    best_epoch: int


@dataclass(frozen=True)
class Reliability:
    """Counts of a reliability diagram, in bins of equal width from 0 to 1.

    ``confidence`` and ``correct`` are sums over the nodes of a bin.
    """

    count: np.ndarray
    confidence: np.ndarray
    correct: np.ndarray

    @classmethod
    def of(cls, counts: dict[str, list[float]]) -> Reliability:
        """Return the counts that a trial stored."""
        return cls(*(np.asarray(counts[name]) for name in ("count", "confidence", "correct")))

    def __add__(self, other: Reliability) -> Reliability:
        return Reliability(
            self.count + other.count,
            self.confidence + other.confidence,
            self.correct + other.correct,
        )

    @property
    def error(self) -> float:
        """The expected calibration error, see :mod:`dropnode.analysis.calibration`.

        Examples
        --------
        >>> counts = {"count": [0, 4], "confidence": [0.0, 3.6], "correct": [0, 3]}
        >>> round(Reliability.of(counts).error, 3)
        0.15
        """
        return binned_error(self.count, self.confidence, self.correct)


@dataclass
class Evidence:
    """One row of the results, and its trials.

    Attributes
    ----------
    row : RowResult
    accuracies : list of float
        Test accuracy of every finished trial, in percent.
    curves : list of Curve
        The training curves of the first trials with a history.
    drawn : dict
        The values of each measure that is drawn, by its name; one per trial that stored it.
    lacking : dict
        The finished trials without a history (key ``history``) or without such a measure, by name.
    failures : dict
        The failed trials, by error.
    absent : list of str
        Ids of trials that have not ended.
    """

    row: RowResult
    accuracies: list[float] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    drawn: dict[str, list[Any]] = field(default_factory=dict)
    lacking: dict[str, list[str]] = field(default_factory=dict)
    failures: dict[str, list[str]] = field(default_factory=dict)
    absent: list[str] = field(default_factory=list)

    @property
    def label(self) -> str:
        """The name of the method in tables and figures."""
        return self.row.label


def read_evidence(rows: Sequence[RowResult], store: Store) -> list[Evidence]:
    """Return the evidence for the rows, in their order."""
    return [_read(row, store) for row in rows]


def _read(row: RowResult, store: Store) -> Evidence:
    evidence = Evidence(row)
    for identifier in row.trials:
        record = store.get(identifier)
        if record is None:
            evidence.absent.append(identifier)
        elif record.status == "failed":
            error = " ".join((record.error or "no reason was stored").split())
            evidence.failures.setdefault(error, []).append(_name(record))
        else:
            _add(evidence, record, store.history(identifier))
    return evidence


def _add(evidence: Evidence, record: Record, history: dict[str, np.ndarray] | None) -> None:
    """Add a finished trial."""
    name = f"{_name(record)} ({record.trial.id})"
    metrics = record.metrics
    if metrics.get("test_accuracy") is not None:
        evidence.accuracies.append(100 * metrics["test_accuracy"])
    curve = None if history is None else curve_of(history, metrics["best_epoch"])
    if curve is None:
        evidence.lacking.setdefault(HISTORY, []).append(name)
    elif len(evidence.curves) < CURVES:
        evidence.curves.append(curve)
    for key, measure in measures.MEASURES.items():
        if measure.kind not in DRAWN:
            continue
        if metrics.get(key) is None:
            evidence.lacking.setdefault(key, []).append(name)
        else:
            evidence.drawn.setdefault(key, []).append(_READ[measure.kind](metrics[key]))


_READ: Mapping[str, Callable[[Any], Any]] = {
    "matrix": np.asarray,
    "reliability": Reliability.of,
    "curves": dict,
}
"""How a stored measure is read, by its kind."""


def _name(record: Record) -> str:
    trial = record.trial
    return f"seed {trial.seed}" + (f" of split {trial.split_seed}" if trial.split_seed else "")


def curve_of(history: dict[str, np.ndarray], best_epoch: int) -> Curve | None:
    """Return a curve with at most ``POINTS`` points; None without validation."""
    if not all(
        np.isfinite(history.get(name, np.nan)).any() for name in ("val_loss", "val_accuracy")
    ):
        return None
    # Counted over all phases, like the best epoch; the history restarts in each phase.
    epochs = len(history["epoch"])
    kept = np.unique(np.linspace(0, epochs - 1, min(epochs, POINTS)).round().astype(int))
    # The epoch whose weights were kept is marked on the line, so the line passes through it.
    kept = np.union1d(kept, [best_epoch - 1])
    return Curve(
        kept + 1,
        history["val_loss"][kept].astype(float),
        100 * history["val_accuracy"][kept].astype(float),
        best_epoch,
    )
