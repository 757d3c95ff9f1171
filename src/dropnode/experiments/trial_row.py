"""The row of an exported trial, and every check that an imported one has to pass.

An imported trial counts as if it had been run here. So a value of a wrong type or out of range, a
diagram that no training gives, or an id that does not belong to the other columns is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any

from dropnode.errors import ConfigError
from dropnode.experiments.measures import MEASURES, NUMBERS, STANDARD, check_measures
from dropnode.experiments.record import Record
from dropnode.experiments.trials import Trial
from dropnode.settings import choice, count, read_value, share, weight

LARGEST = 2**63 - 1
"""The largest whole number that a store can hold."""


def _whole(least: int = 0, **options: Any) -> Any:
    return count(least, most=LARGEST, **options)


@dataclass(frozen=True)
class ReliabilityRow:
    """The counts of a reliability diagram, bin by bin."""

    count: list[int]
    confidence: list[float]
    correct: list[int]


@dataclass(frozen=True, kw_only=True)
class TrialRow:
    """An exported trial; its fields are the columns of a file, and are read strictly."""

    id: str
    status: str = choice("done", "failed")
    dataset: str
    dataset_sha256: str
    split: str
    split_seed: int = _whole()
    method: str
    revision: int = _whole(1)
    preset: str
    config: Mapping[str, Any]
    seed: int = _whole()
    split_sha256: str = ""
    recipe: str = ""
    # The most important measures have their own columns.
    test_accuracy: float | None = share(default=None)
    val_accuracy: float | None = share(default=None)
    val_loss: float | None = weight(default=None)
    best_epoch: int | None = _whole(default=None)
    epochs: int | None = _whole(default=None)
    seconds: float | None = weight(default=None)
    finished: str
    error: str | None = None
    confusion: list[list[int]] | None = None
    reliability: ReliabilityRow | None = None
    measures: Mapping[str, Any] | None = None
    versions: Mapping[str, str] | None = None

    @classmethod
    def of(cls, record: Record) -> TrialRow:
        """Return the row of a stored trial."""
        trial, metrics = record.trial, record.metrics
        standard = {name: metrics[name] for name in STANDARD if metrics.get(name) is not None}
        if "reliability" in standard:
            standard["reliability"] = ReliabilityRow(**standard["reliability"])
        further = {name: value for name, value in metrics.items() if name not in STANDARD}
        ended = {name: getattr(record, name) for name in ENDED}
        known = {name: getattr(trial, name) for name in ("id", *IDENTIFYING)}
        return cls(**known, **standard, **ended, measures=further or None)

    def record(self) -> Record:
        """Return the trial; a row that no trial of ours can have is an error."""
        self._check_texts()
        trial = Trial(**{name: getattr(self, name) for name in IDENTIFYING})
        if trial.id != self.id:
            raise ConfigError(
                f"trial.id = {self.id!r}: the id is another than that of the dataset, split, "
                f"method, configuration and seed, {trial.id}; restore the row as it was exported"
            )
        self._check_end()
        values = asdict(self)
        standard = {
            name: values[name]
            for name in STANDARD
            if values[name] is not None or MEASURES[name].kind in NUMBERS
        }
        further = dict(self.measures or {})
        for name in further:
            if name in STANDARD:
                raise ConfigError(f"trial.measures[{name!r}]; it has a column of its own")
        try:
            check_measures(further)
        except ConfigError as error:
            raise ConfigError(f"trial.measures: {error}") from error
        for name, value in (standard | further).items():
            _check_measure(name, value)
        metrics = {**standard, **further} if self.status == "done" else {}
        ended = {name: values[name] for name in ENDED} | {"versions": dict(self.versions or {})}
        return Record(trial=trial, metrics=metrics, **ended)

    def _check_texts(self) -> None:
        for name in ("dataset", "split", "method", "preset"):
            _expect(getattr(self, name) != "", name, "", "some text")
        for name in TEXTS:
            text = getattr(self, name) or ""
            _expect(_is_unicode(text), name, text, "text in Unicode")
        for name, value, digits in (
            ("id", self.id, 16),
            ("dataset_sha256", self.dataset_sha256, 64),
            ("split_sha256", self.split_sha256 or "0" * 64, 64),
        ):
            hexadecimal = re.fullmatch(f"[0-9a-f]{{{digits}}}", value)
            _expect(hexadecimal is not None, name, value, f"{digits} hexadecimal digits")
        belongs = not self.recipe or self.dataset.endswith(f"@{self.recipe}")
        _expect(belongs, "recipe", self.recipe, f"the end of the dataset, {self.dataset!r}")
        _expect(_is_time(self.finished), "finished", self.finished, "a time in ISO 8601")

    def _check_end(self) -> None:
        if self.status == "failed":
            for name in (*STANDARD, "measures"):
                _expect(getattr(self, name) is None, name, getattr(self, name), "none: it failed")
            _expect(self.error is not None, "error", self.error, "an error: it failed")
            return
        _expect(self.error is None, "error", self.error, "none: it is done")
        for name in ("best_epoch", "epochs", "seconds"):
            _expect(getattr(self, name) is not None, name, None, "a number: it is done")
        assert self.best_epoch is not None
        assert self.epochs is not None
        latest = f"at most epochs, {self.epochs}"
        _expect(self.best_epoch <= self.epochs, "best_epoch", self.best_epoch, latest)


IDENTIFYING = tuple(each.name for each in fields(Trial))
"""The columns of :class:`~dropnode.experiments.trials.Trial`."""

ENDED = ("status", "seconds", "finished", "versions", "error")
"""The columns about the end of a trial, without its measures."""

COLUMNS = tuple(each.name for each in fields(TrialRow))
"""The columns of an exported trial."""

TEXTS = ("dataset", "split", "method", "preset", "recipe", "finished", "error")
"""The columns that can hold any text."""


def _check_measure(name: str, value: Any) -> None:
    """Raise an error unless a measure has a value of its kind, or none."""
    if value is None:
        return
    kind = MEASURES[name].kind
    where = name if name in STANDARD else f"measures[{name!r}]"
    if kind in NUMBERS:
        of_kind = {"fraction": share(), "count": _whole()}.get(kind)
        read_value(int if kind == "count" else float, value, f"trial.{where}", of_kind)
    elif kind == "matrix":
        square = bool(value) and all(len(row) == len(value) for row in value)
        counts = all(0 <= each <= LARGEST for row in value for each in row)
        _expect(square and counts, where, value, "a square matrix of counts")
    elif kind == "reliability":
        counted = [value[part] for part in ("count", "confidence", "correct")]
        _expect(len({*map(len, counted)}) == 1, where, value, "lists of one length")
        for bin_count, confidence, correct in zip(*counted, strict=True):
            # A sum of confidences is rounded.
            sound = 0 <= correct <= bin_count <= LARGEST and 0 <= confidence <= bin_count + 1e-6
            told = "no more correct predictions, and no more confidence, than predictions"
            _expect(sound, where, value, told)
    else:
        curves = read_value(Mapping[str, list[float]], value, f"trial.{where}")
        _expect(len({*map(len, curves.values())}) == 1, where, value, "curves of one length")
        axis = MEASURES[name].x
        _expect(axis in curves, where, value, f"a curve {axis!r}")


def _expect(sound: bool, name: str, value: Any, expected: str) -> None:
    if not sound:
        text = repr(value)
        shown = text if len(text) <= 60 else f"{text[:59]}…"
        raise ConfigError(f"trial.{name} = {shown}; expected {expected}")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
