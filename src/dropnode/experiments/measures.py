"""Measures: the named numbers and small arrays that a trial stores about its training.

A measure is a function of (graph, method, outcome, probabilities) whose value can be written as
JSON. Every trial stores the standard ones; a spec can name further ones. Measures are not part of a
trial's identity: a stored trial without a requested measure is run again to add it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

import numpy as np

from dropnode.analysis import metrics, smoothing
from dropnode.errors import ConfigError
from dropnode.experiments import theory_measures
from dropnode.graph import Graph
from dropnode.graph.labels import UNKNOWN
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

    @cached_property
    def theory(self) -> Mapping[str, dict[str, Any] | None]:
        """The comparisons with the paper's theorems, by family; computed once for all measures."""
        return {
            setting: theory_measures.curves(self.graph, self.method, setting)
            for setting in theory_measures.SETTINGS
        }

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
        ``"fraction"`` (shown in percent), ``"number"``, ``"count"``, ``"matrix"``,
        ``"reliability"`` or ``"curves"``; decides how it is summarised and drawn.
    function : callable
        Returns the value for a :class:`Training`; None if it has none.
    repeats : bool
        Whether the same trial gives the same value every time, unlike the time it takes.
    more_is_better : bool
    x : str
        The name of the curve that is the horizontal axis. A curve whose name ends in ``±`` has
        the standard errors of another.
    log : bool
        Whether the axes of curves are logarithmic.
    """

    title: str
    kind: str
    function: Callable[[Training], Any]
    repeats: bool = True
    more_is_better: bool = True
    x: str = ""
    log: bool = False


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


def _loss_gap(epoch: dict[str, float]) -> float | None:
    """Return the validation loss minus the training loss of an epoch; None if one is unknown."""
    gap = epoch.get("val_loss", math.nan) - epoch.get("train_loss", math.nan)
    return None if math.isnan(gap) else gap


LAST_EPOCHS = 100
"""The number of epochs at the end of a training whose losses are compared with each other."""


def _fluctuation(training: Training, name: str) -> float | None:
    """Return the standard deviation of a loss's change per epoch; a steady trend does not count."""
    losses = [epoch.get(name, math.nan) for epoch in training.outcome.history[-LAST_EPOCHS:]]
    changes = np.diff(losses)
    return None if len(changes) < 2 or np.isnan(changes).any() else float(changes.std(ddof=1))


EPOCHS_APART = 10
"""Of loss curves, every tenth epoch is stored."""


def _loss_curves(training: Training) -> dict[str, list[float]] | None:
    history = training.outcome.history
    if _loss_gap(history[-1]) is None:
        return None
    shown = history[::EPOCHS_APART]
    return {
        "epoch": [1.0 + number * EPOCHS_APART for number in range(len(shown))],
        # Four decimals are more than a figure shows.
        "training": [round(epoch["train_loss"], 4) for epoch in shown],
        "validation": [round(epoch["val_loss"], 4) for epoch in shown],
    }


def _theory(setting: str) -> dict[str, Measure]:
    """Return the measures of one family: curves, fitted exponents, and errors at full size."""
    kind, rate = theory_measures.SETTINGS[setting]
    told = f"{kind}, δ = {rate:g}"

    def found(training: Training, theorem: str, key: str) -> float | None:
        curves = training.theory[setting]
        if curves is None:
            return None
        value = curves[theory_measures.THEOREMS[theorem]][key]
        # The paper's perturbation is the largest size.
        return value[-1] if isinstance(value, list) else value

    def curves(training: Training) -> dict[str, list[float]] | None:
        curves = training.theory[setting]
        return None if curves is None else theory_measures.drawn(curves)

    made = {
        f"theory_{setting}": Measure(
            f"relative error ({told})", "curves", curves, x=theory_measures.SIZE, log=True
        )
    }
    for theorem in theory_measures.THEOREMS:
        title = f"Theorem {theorem[-1]}"
        made[f"{theorem}_exponent_{setting}"] = Measure(
            f"{title}, fitted exponent ({told})",
            "number",
            partial(found, theorem=theorem, key="exponent"),
        )
        made[f"{theorem}_error_{setting}"] = Measure(
            f"{title}, relative error at the paper's size ({told})",
            "number",
            partial(found, theorem=theorem, key="relative_error"),
            more_is_better=False,
        )
    return made


def _seconds_per_epoch(training: Training) -> float:
    return training.outcome.seconds / max(training.outcome.epochs, 1)


STANDARD: Mapping[str, Measure] = MappingProxyType(
    {
        "test_accuracy": Measure(
            "test accuracy", "fraction", lambda training: metrics.accuracy(*training.tested)
        ),
        "val_accuracy": Measure("validation accuracy", "fraction", _of_best_epoch("val_accuracy")),
        "val_loss": Measure(
            "validation loss", "number", _of_best_epoch("val_loss"), more_is_better=False
        ),
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
        "loss_gap": Measure(
            "generalisation gap (validation − training loss)",
            "number",
            lambda training: _loss_gap(training.outcome.best),
            more_is_better=False,
        ),
        "final_loss_gap": Measure(
            "generalisation gap in the last epoch",
            "number",
            lambda training: _loss_gap(training.outcome.history[-1]),
            more_is_better=False,
        ),
        **{
            f"{part}_loss_fluctuation": Measure(
                f"fluctuation of the {title} loss per epoch (last {LAST_EPOCHS} epochs)",
                "number",
                partial(_fluctuation, name=f"{part}_loss"),
                more_is_better=False,
            )
            for part, title in (("train", "training"), ("val", "validation"))
        },
        "loss_curves": Measure("cross-entropy", "curves", _loss_curves, x="epoch"),
        "madgap_by_labels": Measure(
            "MADGap by labels",
            "number",
            lambda training: smoothing.madgap_by_labels(
                smoothing.last_layer(training.method), training.graph.labels
            ),
        ),
        "madgap_by_hops": Measure(
            "MADGap by hops",
            "number",
            lambda training: smoothing.madgap_by_hops(
                smoothing.last_layer(training.method), training.graph.adjacency
            ),
        ),
        **{
            name: measure
            for setting in theory_measures.SETTINGS
            for name, measure in _theory(setting).items()
        },
        "seconds_per_epoch": Measure(
            "seconds per epoch", "number", _seconds_per_epoch, repeats=False, more_is_better=False
        ),
    }
)
"""Every measure that a spec can name."""


def check_measures(names: Iterable[str]) -> None:
    """Raise :class:`~dropnode.errors.ConfigError` if a name is unknown or occurs twice."""
    names = list(names)
    for name in names:
        if name not in MEASURES:
            raise ConfigError(f"unknown measure {name!r}{suggestion(name, MEASURES)}")
        if names.count(name) > 1:
            raise ConfigError(f"the measure {name!r} is named twice; remove one")


def not_standard(names: Iterable[str]) -> tuple[str, ...]:
    """Return those of some measures that a trial does not store anyway."""
    return tuple(name for name in names if name not in STANDARD)


def measure(training: Training, further: Iterable[str] = ()) -> dict[str, Any]:
    """Return the standard measures of a training, and the requested further ones."""
    measured = {name: _finite(MEASURES[name].function(training)) for name in (*STANDARD, *further)}
    # What was requested and has no value is stored as None, so that it is not requested again. Of
    # the standard measures, those without a column of a number are left out.
    return {
        name: value
        for name, value in measured.items()
        if value is not None or name not in STANDARD or MEASURES[name].kind in NUMBERS
    }


def _finite(value: Any) -> Any:
    """Return a value without NaN and infinity, which JSON does not have; None if it has some."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return None
    return value
