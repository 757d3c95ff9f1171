"""The results of an experiment: the contents of ``results.json`` as dataclasses.

``summary.py`` creates them, and the writers, the report and the command line read them. Accuracies
and other fractions are in percent. Reading is strict: an unknown or missing key, or a value of
another type, is an error that names it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from dropnode.errors import ConfigError
from dropnode.experiments.spec import Plot
from dropnode.experiments.statistics import Difference, Summary
from dropnode.settings import key_of, read_json, read_record

_FLAT = {"flat": True}
"""Metadata of a field whose own fields are not nested in JSON."""

_MAY_BE_EMPTY: dict[str, Any] = {"empty": []}
"""Metadata of a list that is always written and can be empty."""


@dataclass(frozen=True)
class Machine:
    """The machine and the software that summarised the results."""

    platform: str
    processor: str
    cores: int | None
    python: str
    versions: Mapping[str, str]


@dataclass(frozen=True)
class DatasetFacts:
    """The size of a dataset and of its split; ``sha256`` is the hash of the graph.

    If transforms change edges or labels, sizes and hash are those of the graph before that, which
    ``sizes_of`` names: only trials compute the changed graph.
    """

    name: str
    sha256: str
    nodes: int
    edges: int
    features: int
    classes: int
    class_names: tuple[str, ...]
    split: str
    train: int
    val: int
    test: int
    sizes_of: str = ""


@dataclass(frozen=True)
class RowResult:
    """One method on one dataset.

    Attributes
    ----------
    dataset, method, label, preset : str
    config : dict
        Settings that differ from their default.
    accuracy : Summary
        The summary of the test accuracies.
    median : float or None
        Median test accuracy.
    asked, failed : int
        Number of requested trials, and of those that failed.
    paper, paper_std : float or None
        The published mean and standard deviation.
    difference : float or None
        Our mean minus the published one.
    seconds : float or None
        Median time of a trial.
    trials : tuple of str
        Ids of the requested trials.
    measures : dict
        The summary of each measure that the spec names and that is a number, by name.
    chosen : dict
        The settings that were chosen by validation accuracy, if any.
    series : str
        The name of the series of rows that this one belongs to, if a setting is varied.
    at : dict
        The value of that setting.
    """

    dataset: str
    method: str
    label: str
    preset: str
    config: Mapping[str, Any]
    accuracy: Summary = field(metadata=_FLAT)
    median: float | None
    asked: int
    failed: int
    paper: float | None
    paper_std: float | None
    difference: float | None
    seconds: float | None
    trials: tuple[str, ...]
    measures: Mapping[str, Summary] = field(default_factory=dict)
    chosen: Mapping[str, Any] = field(default_factory=dict)
    series: str = ""
    at: Mapping[str, Any] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every requested trial has a test accuracy."""
        return not self.failed and self.accuracy.n >= self.asked


@dataclass(frozen=True)
class Comparison:
    """A comparison of the reference row with another; p-values are corrected by Holm's method."""

    dataset: str
    first: str
    second: str
    test: Difference = field(metadata=_FLAT)
    p_holm: float | None
    wilcoxon_holm: float | None


class Verdict(StrEnum):
    """The outcome of testing a claim."""

    CONFIRMED = "confirmed"
    CONTRADICTED = "contradicted"
    NOT_CONFIRMED = "not confirmed"
    TOO_FEW_SEEDS = "too few seeds"


@dataclass(frozen=True)
class ClaimResult:
    """A claim of the paper, tested on one dataset; by test accuracy if no measure is named.

    ``low`` and ``high`` are the 95 % interval of the difference, ``against`` is the dataset of the
    other row if it is another one, and ``paper`` the difference that the paper states. With
    ``wider_than``, the difference is the one on ``dataset`` minus the one on that dataset.
    ``splits`` is the number of splits whose means were compared in pairs, if they were, and
    ``unpaired_splits`` that of the means which were compared without pairs.
    """

    claim: str
    dataset: str
    better: str
    than: str
    difference: float | None
    p: float | None
    n_better: int
    n_than: int
    p_holm: float | None
    verdict: Verdict
    measure: str = ""
    low: float | None = None
    high: float | None = None
    against: str = ""
    wider_than: str = ""
    paper: float | None = None
    splits: int | None = None
    unpaired_splits: int | None = None


@dataclass(frozen=True)
class StageRow:
    """One setting of a stage, with its validation and test accuracies."""

    changes: Mapping[str, Any]
    val_mean: float | None
    val_std: float | None
    test_mean: float | None
    test_std: float | None
    n: int
    asked: int
    chosen: bool
    trials: tuple[str, ...]


@dataclass(frozen=True)
class Stage:
    """The settings that one stage of a search tried on one dataset."""

    dataset: str
    stage: int
    varied: tuple[str, ...]
    rows: tuple[StageRow, ...]


@dataclass(frozen=True)
class Results:
    """The contents of ``results.json``.

    An experiment has either ``rows``, with their comparisons and claims, or ``stages``. In JSON the
    stages are called ``search``, which is null if there are none. ``absent`` are the optional
    datasets whose files could not be had.
    """

    experiment: str
    title: str
    description: str
    command: str
    finished: str
    environment: Machine
    datasets: tuple[DatasetFacts, ...]
    rows: tuple[RowResult, ...] = field(metadata=_MAY_BE_EMPTY)
    comparisons: tuple[Comparison, ...] = field(metadata=_MAY_BE_EMPTY)
    claims: tuple[ClaimResult, ...] = field(metadata=_MAY_BE_EMPTY)
    stages: tuple[Stage, ...] = field(metadata={"key": "search", "empty": None})
    plots: tuple[Plot, ...] = ()
    absent: tuple[str, ...] = ()

    @property
    def trials(self) -> set[str]:
        """Ids of all trials in the results."""
        settings = [row for stage in self.stages for row in stage.rows]
        lines: list[RowResult | StageRow] = [*self.rows, *settings]
        return {identifier for line in lines for identifier in line.trials}

    def by_label(self) -> list[tuple[str, list[RowResult | None]]]:
        """Return each method's label, and its row on every dataset."""
        rows = {(row.method, row.dataset): row for row in self.rows}
        labels = {row.method: row.label for row in self.rows}
        return [
            (label, [rows.get((method, dataset.name)) for dataset in self.datasets])
            for method, label in labels.items()
        ]

    def measure_names(self) -> list[str]:
        """Return the names of the measures beside the test accuracy."""
        return list(dict.fromkeys(name for row in self.rows for name in row.measures))

    def as_json(self) -> dict[str, Any]:
        """Return the results as the plain values of ``results.json``."""
        return cast(dict[str, Any], _plain(self))

    @classmethod
    def from_json(cls, values: Any) -> Results:
        """Return the results from the values of :meth:`as_json`, or raise :class:`ConfigError`."""
        return read_record(cls, values, "results")


def read_results(path: Path) -> Results:
    """Read a ``results.json`` file."""
    cure = f"write it again with: dropnode report {path.parent}"
    values = read_json(path, cure)
    try:
        return Results.from_json(values)
    except ConfigError as error:
        raise ConfigError(f"{path} is invalid ({error}); {cure}") from error


def _plain(value: Any) -> Any:
    """Return a value in the types of JSON."""
    if dataclasses.is_dataclass(value):
        values: dict[str, Any] = {}
        for one in dataclasses.fields(value):
            part = getattr(value, one.name)
            if one.metadata.get("flat"):
                values |= _plain(part)
            elif part or part == 0.0 or _required(one):
                values[key_of(one)] = one.metadata.get("empty", []) if part == () else _plain(part)
        return values
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return str(value) if isinstance(value, StrEnum) else value


def _required(one: dataclasses.Field[Any]) -> bool:
    return one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
