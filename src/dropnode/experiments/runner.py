"""The runner: from a spec to trials, and from trials to what the store lacks of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

from dropnode.engines.local import Failure
from dropnode.experiments.spec import Row, Search, Spec
from dropnode.experiments.store import Record, Store
from dropnode.experiments.trials import Data, Finished, Trial, plan

Engine = Callable[[Sequence[Trial], Data], Generator[tuple[Trial, Finished | Failure], None, None]]
"""Runs trials wherever it does, and yields each as it ends."""


@dataclass(frozen=True)
class Cell:
    """The trials of one line of a table on one dataset."""

    dataset: str
    name: str
    label: str
    trials: tuple[Trial, ...]


class TrialObserver(Protocol):
    """Receives the plan of an experiment, and every trial as it ends."""

    def on_plan(self, cells: Sequence[Cell], ended: Mapping[str, Record]) -> None:
        """Look at what is to be done, and at what had ended before, by the trial's id."""
        ...

    def on_end(self, record: Record) -> None:
        """Look at a trial that just ended."""
        ...


def row_cells(spec: Spec, data: Data) -> list[Cell]:
    """Return the cells of a spec that compares rows."""
    return [
        Cell(
            dataset,
            row.name,
            row.label,
            _trials(data, dataset, row, row.changes, row.seeds[dataset]),
        )
        for row in spec.rows
        for dataset in row.seeds
    ]


def stage_cells(
    search: Search, data: Data, stage: int, chosen: Mapping[str, Mapping[str, Any]]
) -> list[tuple[Cell, dict[str, Any]]]:
    """Return the cells of one stage, and what each changes, given what was chosen before."""
    grid = search.stages[stage]
    cells = []
    for dataset in data.graphs:
        for values in itertools.product(*grid.values()):
            tried = dict(zip(grid, values, strict=True))
            changes = {**search.changes, **chosen[dataset], **tried}
            name = ", ".join(f"{key}={value}" for key, value in tried.items())
            trials = _trials(data, dataset, search, changes, search.seeds)
            cells.append((Cell(dataset, name, name, trials), tried))
    return cells


def _trials(
    data: Data, dataset: str, of: Row | Search, changes: Mapping[str, Any], seeds: int
) -> tuple[Trial, ...]:
    splits = [seed for name, seed in data.splits if name == dataset]
    return tuple(
        plan(data, dataset, split, of.method, of.preset, changes, seed)
        for split in splits
        for seed in range(seeds)
    )


def run_cells(
    cells: Sequence[Cell],
    store: Store,
    data: Data,
    engine: Engine,
    *,
    retry: bool = False,
    observers: Sequence[TrialObserver] = (),
) -> None:
    """Run what the store lacks of some cells, and store each trial as it ends.

    Trials that are done are never run again; failed ones only with ``retry``.
    """
    ended = {
        record.trial.id: record
        for record in store.records()
        if record.status == "done" or not retry
    }
    for observer in observers:
        observer.on_plan(cells, ended)
    waiting = [trial for trial in in_turn(cells) if trial.id not in ended]
    with closing(engine(waiting, data)) as outcomes:
        for trial, outcome in outcomes:
            record = Record.of(trial, outcome)
            history = None if isinstance(outcome, Failure) else outcome.history
            store.add([(record, history)])
            for observer in observers:
                observer.on_end(record)


def in_turn(cells: Iterable[Cell]) -> Iterator[Trial]:
    """Return the trials of all cells, each once, the first of every cell before the second."""
    seen = set()
    for round_of_trials in itertools.zip_longest(*(cell.trials for cell in cells)):
        for trial in round_of_trials:
            if trial is not None and trial.id not in seen:
                seen.add(trial.id)
                yield trial
