"""A trial that ended: its result, or its error."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from dropnode.engines.base import Failure
from dropnode.experiments.measures import MEASURES
from dropnode.experiments.trials import Finished, Trial, now


@dataclass(frozen=True)
class Record:
    """A trial that ended, with its result or its error.

    Attributes
    ----------
    trial : Trial
    status : str
        ``done`` or ``failed``.
    metrics : dict
        As in :class:`~dropnode.experiments.trials.Finished`; empty for a failed trial.
    seconds : float or None
    finished : str
    versions : dict
    error : str or None
        Why it failed.
    """

    trial: Trial
    status: str
    metrics: dict[str, Any]
    seconds: float | None
    finished: str
    versions: dict[str, str]
    error: str | None = None

    @classmethod
    def of(cls, trial: Trial, outcome: Finished | Failure) -> Record:
        """Return the record of a trial, given the outcome from an engine."""
        if isinstance(outcome, Failure):
            # An error can contain anything, also characters that cannot be encoded.
            error = outcome.error.encode(errors="backslashreplace").decode()
            return cls(trial, "failed", {}, None, now(), {}, error)
        return cls(
            trial, "done", outcome.metrics, outcome.seconds, outcome.finished, outcome.versions
        )

    def lacks(self, measures: Iterable[str]) -> bool:
        """Return whether any of some measures is missing."""
        return any(name not in self.metrics for name in measures)

    def completed(self, again: Record) -> Record:
        """Return this finished trial with the additional measures of another run of it.

        If the other run failed, or gave different numbers, the result is a failure that says so.
        """
        if again.status == "failed":
            return again
        for name, value in self.metrics.items():
            if MEASURES[name].repeats and not _agree(value, again.metrics.get(name)):
                error = (
                    f"a second run, for another measure, gave {name} = "
                    f"{again.metrics.get(name)!r}, but {value!r} is stored: the stored trial comes "
                    "from another machine or other versions, and was not changed; run the "
                    "experiment in a new folder to get all measures"
                )
                return replace(again, status="failed", metrics={}, seconds=None, error=error)
        return replace(self, metrics={**again.metrics, **self.metrics})


def _agree(stored: Any, measured: Any) -> bool:
    # Equal up to the rounding of an exported file.
    if isinstance(stored, float) and isinstance(measured, float):
        return math.isclose(stored, measured, rel_tol=1e-9)
    if isinstance(stored, dict) and isinstance(measured, dict):
        return stored.keys() == measured.keys() and all(
            _agree(value, measured[key]) for key, value in stored.items()
        )
    if isinstance(stored, list) and isinstance(measured, list):
        return len(stored) == len(measured) and all(map(_agree, stored, measured))
    return bool(stored == measured)
