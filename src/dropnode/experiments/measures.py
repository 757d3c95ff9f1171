"""Measures: what a trial can store about a trained method, by name.

The kind of a measure says how summaries and reports show it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class Measure:
    """A named function of a trained method.

    Attributes
    ----------
    title : str
        Its name in tables and figures.
    kind : str
        ``"fraction"`` (shown in percent), ``"number"`` or ``"count"``: a value per trial, or None;
        ``"matrix"``: counts by row and column; ``"reliability"``: counts of a reliability diagram;
        ``"curve"``: a short list of numbers.
    function : callable
        Returns the value for a finished training.
    """

    title: str
    kind: str
    function: Callable[[Any], Any]


def _stored(name: str) -> Callable[[Any], Any]:
    return lambda training: training[name]


MEASURES: Mapping[str, Measure] = MappingProxyType(
    {
        name: Measure(title, kind, _stored(name))
        for name, (title, kind) in {
            "test_accuracy": ("test accuracy", "fraction"),
            "val_accuracy": ("validation accuracy", "fraction"),
            "val_loss": ("validation loss", "number"),
            "best_epoch": ("epoch kept", "count"),
            "epochs": ("epochs", "count"),
            "confusion": ("confusion matrix", "matrix"),
            "reliability": ("reliability", "reliability"),
        }.items()
    }
)
"""Every measure by its name."""
