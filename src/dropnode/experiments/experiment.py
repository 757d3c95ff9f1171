"""An experiment in a folder: run the missing trials, summarise all of them, write the results.

::

    trials.sqlite     every trial that ended, with its history
    trials.csv.gz     the same without histories; another machine can continue from it
    experiment.json   the spec, and the requested part of it
    results.*         tables as JSON, CSV, Markdown and LaTeX
    report.html       tables and figures on one page; figures/ has the figures as files
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dropnode.data import fetch
from dropnode.errors import ConfigError, DataError, WorkError
from dropnode.experiments.exchange import add_missing, export_trials, read_trials
from dropnode.experiments.measures import not_standard
from dropnode.experiments.owners import EXPERIMENT, check_owner
from dropnode.experiments.record import Record
from dropnode.experiments.references import Reference
from dropnode.experiments.report import write_report
from dropnode.experiments.results import Results, Stage
from dropnode.experiments.run import Job
from dropnode.experiments.runner import (
    Cell,
    Engine,
    TrialObserver,
    chosen_cells,
    row_cells,
    run_cells,
)
from dropnode.experiments.spec import Spec
from dropnode.experiments.spec_file import parse_spec
from dropnode.experiments.stages import planned_stages, run_stages
from dropnode.experiments.store import EXPORT, FILE, Store
from dropnode.experiments.summary import summarise_experiment
from dropnode.experiments.trials import Data
from dropnode.experiments.writers import write_results
from dropnode.files import exists, remove_leftovers, seal, write_json
from dropnode.locks import FolderLock
from dropnode.settings import read_record, read_sealed

OLD_EXPORT = "trials.csv"
"""The exported trials of an earlier version, which did not compress them."""

EXPORT_EVERY = 60.0
"""Seconds between exports of the trials while an experiment runs."""


@dataclass(frozen=True)
class Part:
    """The requested part of a spec; None for everything."""

    datasets: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    seeds: int | None = None
    splits: int | None = None

    def of(self, spec: Spec) -> Spec:
        """Return this part of a spec."""
        return spec.only(self.datasets, self.methods, self.seeds, self.splits)


ALL = Part()


@dataclass(frozen=True)
class Story:
    """The content of ``experiment.json``: the spec, the requested part of it, and the command."""

    name: str
    spec: str
    part: Part
    command: str


@dataclass(frozen=True)
class Reproduction:
    """The outcome of :func:`reproduce`.

    Attributes
    ----------
    results : Results
    interrupted : bool
        Whether it was stopped by Ctrl-C.
    failed, missing : int
        Number of planned trials that failed, and of those that have not ended.
    not_completed : tuple of Record
        Stored trials that were run again for a measure that they lack, and whose second run failed
        or gave other numbers. They count as failed here; their stored results have not changed.
    """

    results: Results
    interrupted: bool
    failed: int
    missing: int
    not_completed: tuple[Record, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the values of ``results.json``, and how the experiment ended."""
        return self.results.as_json() | {
            "interrupted": self.interrupted,
            "failed": self.failed,
            "missing": self.missing,
        }


def reproduce(
    spec: Spec,
    out: Path,
    engine: Engine,
    *,
    part: Part = ALL,
    retry: bool = False,
    observers: Sequence[TrialObserver] = (),
    command: str = "",
) -> Reproduction:
    """Run the missing trials of an experiment, and write its results and report to ``out``.

    Exported trials in the folder, such as those that come with the repository, are imported first.
    Ctrl-C stops the running trials; the finished ones are summarised.
    """
    asked = part.of(spec)
    check_folder(out, spec.name)
    # Planned before anything is run or made, so that a call that is refused leaves nothing behind.
    chosen, absent = _available(asked)
    data = Data.load(chosen.datasets, chosen.split_seeds)
    job = Job(data, not_standard(chosen.measures))
    cells = row_cells(chosen, data)
    exported = _exported(out)
    with FolderLock(out), Store(out) as store:
        remove_leftovers(out)
        _add(store, exported)
        story = Story(spec.name, spec.text, part, command)
        write_json(out / EXPERIMENT, seal(asdict(story)))
        interrupted, failures = False, _Failures()
        again = store.failed() if retry else ()
        try:
            observing = [*observers, _Exports(store, out), failures]
            if chosen.search is None:
                run_cells(cells, store, job, engine, again=again, observers=observing)
            else:
                run_stages(chosen, job, store, engine, again, observing)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            _export(store, out)
        results = _sum_up(chosen, data, store, command, absent)
        write_results(out, results)
        stored = {record.trial.id: record for record in store.records()}
    not_completed = {
        identifier: record
        for identifier, record in failures.records.items()
        if stored[identifier].status == "done"
    }
    failed = {identifier for identifier, record in stored.items() if record.status == "failed"}
    ended = {identifier for identifier, record in stored.items() if not record.lacks(job.measures)}
    write_report(out)
    # The results have only the chosen trials of a row that chooses a setting.
    planned = results.trials | {trial.id for cell in cells for trial in cell.trials}
    return Reproduction(
        results,
        interrupted,
        failed=len(planned & (failed | not_completed.keys())),
        missing=len(planned - ended - failed - not_completed.keys()),
        not_completed=tuple(not_completed.values()),
    )


def report(out: Path) -> Path:
    """Summarise the trials in an experiment's folder and write its report; nothing is run."""
    if not (out / EXPERIMENT).is_file():
        raise ConfigError(f"{out} has no experiment; {_first(out)}")
    story = read_story(out)
    chosen, absent = _available(story.part.of(parse_spec(story.name, story.spec)))
    exported = _exported(out)
    with Store(out) as store:
        _add(store, exported)
        if not store.statuses():
            raise ConfigError(f"{out} has no trials; {_first(out)}")
        data = Data.load(chosen.datasets, chosen.split_seeds)
        write_results(out, _sum_up(chosen, data, store, story.command, absent))
    return write_report(out)


def open_trials(out: Path) -> Store:
    """Open the store of a folder; an empty one gets the exported trials, as in a clone."""
    made = (out / FILE).exists()
    exported = [] if made else _exported(out)
    if not made and not exported:
        raise ConfigError(f"{out} has no trials; {_first(out)}")
    store = Store(out)
    try:
        if not store.statuses():
            _add(store, exported or _exported(out))
    except BaseException:
        store.close()
        raise
    return store


def read_story(out: Path) -> Story:
    """Return the experiment of a folder; a damaged record is an error."""
    path = out / EXPERIMENT
    cure = f"write it again with: dropnode reproduce EXPERIMENT --out {out}"
    try:
        story = read_record(Story, read_sealed(path, cure), "experiment")
        parse_spec(story.name, story.spec)
    except ConfigError as error:
        if str(path) in str(error):
            raise
        raise ConfigError(f"{path} is invalid ({error}); {cure}") from error
    return story


def check_folder(out: Path, name: str | None = None) -> None:
    """Raise :class:`ConfigError` unless a folder is new or has an experiment of this name."""
    check_owner(out, EXPERIMENT, (FILE, EXPORT, OLD_EXPORT))
    if name is None or not (out / EXPERIMENT).is_file():
        return
    try:
        there = read_story(out).name
    except ConfigError:
        # Damaged, or of another version. It is written again, and the trials do not depend on it.
        return
    if there != name:
        raise ConfigError(
            f"{out} has the experiment {there!r}; choose another folder for {name!r} with --out"
        )


def _first(out: Path) -> str:
    return f"first run: dropnode reproduce EXPERIMENT --out {out}"


def _exported(out: Path) -> list[dict[str, Record]]:
    """Return the trials of each exported file of a folder."""
    return [read_trials(out / name) for name in (EXPORT, OLD_EXPORT) if (out / name).exists()]


def _add(store: Store, exported: Sequence[Mapping[str, Record]]) -> None:
    """Add exported trials that a store lacks."""
    for records in exported:
        add_missing(store, records)


def _export(store: Store, out: Path) -> None:
    """Export all trials of a folder, unless it was deleted under us."""
    if not store.path.exists():
        raise WorkError(
            f"{out} was deleted while the experiment was writing to it; run the same command again"
        )
    export_trials(store.records(), out / EXPORT)


class _Exports:
    """Exports the trials regularly, so that they can be copied while the experiment runs."""

    def __init__(self, store: Store, out: Path) -> None:
        self.store, self.out = store, out
        self.written = time.monotonic()

    def on_plan(self, cells: Sequence[Cell], ended: Mapping[str, Record]) -> None:
        """Ignore the plan."""

    def on_end(self, record: Record) -> None:
        """Export all trials if the last export is old."""
        if time.monotonic() - self.written >= EXPORT_EVERY:
            _export(self.store, self.out)
            self.written = time.monotonic()


class _Failures:
    """Collects the trials that fail; the store keeps the earlier result of those that it has."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}

    def on_plan(self, cells: Sequence[Cell], ended: Mapping[str, Record]) -> None:
        """Ignore the plan."""

    def on_end(self, record: Record) -> None:
        """Add a trial that failed."""
        if record.status == "failed":
            self.records[record.trial.id] = record


def _available(spec: Spec) -> tuple[Spec, tuple[str, ...]]:
    """Return a spec without the optional datasets that cannot be had, and their names.

    What is wrong with the contents of files is not looked at here, and is an error later.
    """
    absent = []
    for name in spec.optional:
        if name in spec.datasets:
            try:
                _obtain(Reference.parse(name))
            except DataError:
                absent.append(name)
                if len(absent) == len(spec.datasets):
                    raise
    if not absent:
        return spec, ()
    return spec.only([name for name in spec.datasets if name not in absent]), tuple(absent)


def _obtain(reference: Reference) -> None:
    """Fetch the files of a reference, or raise :class:`DataError` if they cannot be had."""
    if reference.catalogue_name is not None:
        fetch(reference.catalogue_name)
    elif not exists(reference.source):
        raise DataError(f"{reference.source} does not exist; expected the file of a graph there")


def _sum_up(spec: Spec, data: Data, store: Store, command: str, absent: tuple[str, ...]) -> Results:
    found = {record.trial.id: record for record in store.records()}
    cells = chosen_cells(row_cells(spec, data), found.get)
    stages: list[Stage] = []
    if spec.search is not None:
        stages = [stage for _, planned in planned_stages(spec, data, found) for stage in planned]
    return summarise_experiment(spec, data, cells, found.get, command, stages, absent)
