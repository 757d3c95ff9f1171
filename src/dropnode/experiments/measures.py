"""Measures: the named numbers and small arrays that a trial stores about its training.

A measure is a function of (graph, method, outcome, probabilities) whose value can be written as
JSON. Every trial stores the standard ones; a spec can name further ones. Measures are not part of a
trial's identity: a stored trial without a requested measure is run again to add it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from dropnode.analysis import metrics
from dropnode.errors import ConfigError
from dropnode.graph import Graph
from dropnode.graph.checks import UNKNOWN
from dropnode.settings import suggestion
from dropnode.training import Method, Outcome


@dataclass(frozen=True)
class Training:
    """A finished training, from which measures are computed.

    Attributes
    ----------
    graph : Graph
        The graph with the split that was trained on.
    method : Method
    outcome : Outcome
    probabilities : ndarray
        The probability of every class for every node.
    """

    graph: Graph
    method: Method
    outcome: Outcome
    probabilities: np.ndarray

    @property
    def tested(self) -> tuple[np.ndarray, np.ndarray]:
        """Labels and probabilities of the test nodes whose label is known."""
        assert self.graph.split is not None
        test = self.graph.split.test
        test = test[self.graph.labels[test] != UNKNOWN]
        return self.graph.labels[test], self.probabilities[test]


@dataclass(frozen=True)
class Measure:
    """A measure.

    Attributes
    ----------
    title : str
        Its name in tables and figures.
    kind : str
        ``"fraction"`` (shown in percent), ``"number"``, ``"count"``, ``"matrix"`` or
        ``"reliability"``; decides how it is summarised and drawn.
    function : callable
        Returns the value for a :class:`Training`; None if it has none.
    repeats : bool
        Whether the same trial gives the same value every time, unlike the time it takes.
    """

    title: str
    kind: str
    function: Callable[[Training], Any]
    repeats: bool = True


NUMBERS = ("fraction", "number", "count")
"""The kinds of measures that are one number."""


def _confusion(training: Training) -> list[list[int]] | None:
    labels, probabilities = training.tested
    return metrics.confusion(labels, probabilities).tolist() if len(labels) else None


def _reliability(training: Training) -> dict[str, Any] | None:
    labels, probabilities = training.tested
    return metrics.reliability(labels, probabilities) if len(labels) else None


def _of_best_epoch(name: str) -> Callable[[Training], float | None]:
    def measured(training: Training) -> float | None:
        value = training.outcome.best.get(name)
        # NaN without validation nodes, and JSON has no NaN.
        return None if value is None or value != value else value

    return measured


def _loss_gap(training: Training) -> float | None:
    val, train = (_of_best_epoch(name)(training) for name in ("val_loss", "train_loss"))
    return None if val is None or train is None else val - train


def _seconds_per_epoch(training: Training) -> float:
    return training.outcome.seconds / max(training.outcome.epochs, 1)


STANDARD: Mapping[str, Measure] = MappingProxyType(
    {
        "test_accuracy": Measure(
            "test accuracy", "fraction", lambda training: metrics.accuracy(*training.tested)
        ),
        "val_accuracy": Measure("validation accuracy", "fraction", _of_best_epoch("val_accuracy")),
        "val_loss": Measure("validation loss", "number", _of_best_epoch("val_loss")),
        "best_epoch": Measure("epoch kept", "count", lambda training: training.outcome.best_epoch),
        "epochs": Measure("epochs", "count", lambda training: training.outcome.epochs),
        "confusion": Measure("confusion matrix", "matrix", _confusion),
        "reliability": Measure("reliability", "reliability", _reliability),
    }
)
"""The measures that every trial stores."""

MEASURES: Mapping[str, Measure] = MappingProxyType(
    {
        **STANDARD,
        "loss_gap": Measure("generalisation gap (validation − training loss)", "number", _loss_gap),
        "seconds_per_epoch": Measure(
            "seconds per epoch", "number", _seconds_per_epoch, repeats=False
        ),
    }
)
"""Every measure that a spec can name."""


def check_measures(names: Iterable[str]) -> tuple[str, ...]:
    """Return the given measures that are not standard, each once; an unknown one is an error."""
    chosen = tuple(dict.fromkeys(names))
    for name in chosen:
        if name not in MEASURES:
            raise ConfigError(f"unknown measure {name!r}{suggestion(name, MEASURES)}")
    return tuple(name for name in chosen if name not in STANDARD)


def measure(training: Training, further: Iterable[str] = ()) -> dict[str, Any]:
    """Return the standard measures of a training, and the requested further ones."""
    measured = {name: MEASURES[name].function(training) for name in (*STANDARD, *further)}
    # A number that is missing is stored as None; a matrix or diagram that is missing is left out.
    return {
        name: value
        for name, value in measured.items()
        if value is not None or MEASURES[name].kind in NUMBERS
    }
