"""The runner: plans the trials of a spec, and runs those that the store does not have."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from statistics import fmean
from types import MappingProxyType
from typing import Any, Protocol

from dropnode.engines.base import Failure
from dropnode.experiments.record import Record
from dropnode.experiments.run import Job
from dropnode.experiments.spec import Search, Spec, combinations
from dropnode.experiments.store import Store
from dropnode.experiments.trials import Data, Finished, Trial, plan

Engine = Callable[[Sequence[Trial], Job], Generator[tuple[Trial, Finished | Failure], None, None]]
"""Runs trials, on this machine or elsewhere, and yields each as it ends."""


@dataclass(frozen=True)
class Cell:
    """The trials of one row of a table on one dataset, with one setting.

    ``setting`` has the changes that a stage of a search, or a row with ``choose``, tries here.
    """

    dataset: str
    name: str
    label: str
    trials: tuple[Trial, ...]
    setting: Mapping[str, Any] = field(default_factory=dict)


class TrialObserver(Protocol):
    """Receives the plan of an experiment, and every trial as it ends."""

    def on_plan(self, cells: Sequence[Cell], ended: Mapping[str, Record]) -> None:
        """Receive the planned cells, and the trials that ended before, by id."""
        ...

    def on_end(self, record: Record) -> None:
        """Receive a trial that has just ended."""
        ...


def row_cells(spec: Spec, data: Data) -> list[Cell]:
    """Return the cells of a spec with rows; several per dataset if a row chooses a setting.

    Without validation nodes, nothing could be chosen: that is an error before anything is run.
    """
    choosing = [*spec.datasets] if spec.search else []
    for row in spec.rows:
        choosing += row.seeds if row.choose else ()
    for dataset in dict.fromkeys(choosing):
        data.check_validation(dataset)
    return [
        Cell(
            dataset,
            row.name,
            row.label,
            _trials(
                data,
                dataset,
                row.method,
                row.presets[dataset],
                {**row.changes, **setting},
                row.seeds[dataset],
            ),
            setting,
        )
        for row in spec.rows
        for dataset in row.seeds
        for setting in row.candidates()
    ]


def chosen_cells(cells: Sequence[Cell], find: Callable[[str], Record | None]) -> list[Cell]:
    """Return the cell with the best validation accuracy for each row and dataset.

    Among equals, it is the first. A cell without finished trials is chosen only if all are so.
    """
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.name, cell.dataset), []).append(cell)
    return [max(group, key=lambda cell: validation(cell, find)) for group in groups.values()]


def validation(cell: Cell, find: Callable[[str], Record | None]) -> float:
    """Return the mean validation accuracy of a cell's finished trials; -1 if there is none."""
    records = [find(trial.id) for trial in cell.trials]
    values = [record.metrics.get("val_accuracy") for record in records if record is not None]
    known = [value for value in values if value is not None]
    # Rounded, so that the order of summation cannot decide between equals.
    return round(fmean(known), 11) if known else -1.0


def stage_cells(
    search: Search, data: Data, stage: int, chosen: Mapping[str, Mapping[str, Any]]
) -> list[Cell]:
    """Return the cells of one stage, given the earlier stages' choices."""
    return [
        setting_cell(search, data, dataset, tried, chosen[dataset])
        for dataset in chosen
        for tried in combinations(search.stages[stage])
    ]


def setting_cell(
    search: Search,
    data: Data,
    dataset: str,
    tried: Mapping[str, Any],
    chosen: Mapping[str, Any] = MappingProxyType({}),
) -> Cell:
    """Return the cell that tries a setting, besides those that were chosen before."""
    changes = {**search.changes, **chosen, **tried}
    name = ", ".join(f"{key}={value}" for key, value in tried.items())
    trials = _trials(data, dataset, search.method, search.preset, changes, search.seeds)
    return Cell(dataset, name, name, trials, tried)


def _trials(
    data: Data,
    dataset: str,
    method: str,
    preset: str | None,
    changes: Mapping[str, Any],
    seeds: int,
) -> tuple[Trial, ...]:
    splits = [seed for name, seed in data.splits if name == dataset]
    firsts = [plan(data, dataset, split, method, preset, changes, seed=0) for split in splits]
    return tuple(replace(first, seed=seed) for first in firsts for seed in range(seeds))


def run_cells(
    cells: Sequence[Cell],
    store: Store,
    job: Job,
    engine: Engine,
    *,
    again: Collection[str] = (),
    observers: Sequence[TrialObserver] = (),
) -> None:
    """Run those trials of some cells that are not stored, and store each as it ends.

    A finished trial is run again only if a requested measure is missing. It must then give the same
    numbers as before, and the measure is added. Failed trials are run again if ``again`` has their
    ids.
    """
    stored = {record.trial.id: record for record in store.records()}
    ended = {
        identifier: record
        for identifier, record in stored.items()
        if (not record.lacks(job.measures) if record.status == "done" else identifier not in again)
    }
    for observer in observers:
        observer.on_plan(cells, ended)
    waiting = [trial for trial in in_turn(cells) if trial.id not in ended]
    with closing(engine(waiting, job)) as outcomes:
        for trial, outcome in outcomes:
            record = Record.of(trial, outcome)
            before = stored.get(trial.id)
            if before is not None and before.status == "done":
                record = before.completed(record)
                store.complete(record)
            else:
                store.add([(record, None if isinstance(outcome, Failure) else outcome.history)])
            for observer in observers:
                observer.on_end(record)


def in_turn(cells: Iterable[Cell]) -> Iterator[Trial]:
    """Yield each trial of all cells once: first the first trial of every cell, and so on."""
    seen = set()
    for round_of_trials in itertools.zip_longest(*(cell.trials for cell in cells)):
        for trial in round_of_trials:
            if trial is not None and trial.id not in seen:
                seen.add(trial.id)
                yield trial
