"""An experiment in a folder: run what is missing, sum up what is there, write it all down.

::

    trials.sqlite     every trial that ended, with its history
    trials.csv        the same without histories; what another machine can go on from
    experiment.json   the spec, and the part of it that was asked for
    results.*         tables as JSON, CSV, Markdown and LaTeX
    report.html       everything to look at; figures/ has its pictures as files
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dropnode.errors import ConfigError, WorkError
from dropnode.experiments.exchange import export_trials, import_trials
from dropnode.experiments.report import write_report
from dropnode.experiments.run import Job
from dropnode.experiments.runner import (
    Cell,
    Engine,
    TrialObserver,
    chosen_cells,
    row_cells,
    run_cells,
    stage_cells,
)
from dropnode.experiments.spec import Spec, parse_spec
from dropnode.experiments.store import Record, Store
from dropnode.experiments.summary import summarise_experiment, summarise_stage
from dropnode.experiments.trials import Data
from dropnode.experiments.writers import write_results
from dropnode.files import FolderLock, remove_leftovers, write_json

EXPORT_EVERY = 60.0
"""Seconds between exports of the trials while an experiment runs."""


@dataclass(frozen=True)
class Part:
    """Which part of a spec was asked for; None for all of it."""

    datasets: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    seeds: int | None = None

    def of(self, spec: Spec) -> Spec:
        """Return that part."""
        return spec.only(self.datasets, self.methods, self.seeds)


ALL = Part()


def reproduce(
    spec: Spec,
    out: Path,
    engine: Engine,
    *,
    part: Part = ALL,
    retry: bool = False,
    observers: Sequence[TrialObserver] = (),
    command: str = "",
) -> dict[str, Any]:
    """Run what ``out`` lacks of an experiment, and write its results and report there.

    A ``trials.csv`` that lies in the folder, such as one that came with the repository, is taken
    over first. Ctrl-C ends the trials that are running, and what is done is summed up.

    Returns
    -------
    dict
        What ``results.json`` says; beside it, whether it was ``interrupted``, and how many of the
        trials that were planned have ``failed`` or are ``missing``.
    """
    chosen = part.of(spec)
    with FolderLock(out), Store(out) as store:
        remove_leftovers(out)
        _adopt(store, out)
        data = Data.load(chosen.datasets, range(chosen.splits))
        job = Job(data, chosen.measures)
        # Asked for before anything is run: a spec that cannot be run is an error at once.
        cells = row_cells(chosen, data)
        story = {"name": spec.name, "spec": spec.text, "part": asdict(part), "command": command}
        write_json(out / "experiment.json", story)
        interrupted = False
        try:
            observing = [*observers, _Exports(store, out)]
            if chosen.search is None:
                run_cells(cells, store, job, engine, retry=retry, observers=observing)
            else:
                _search(chosen, job, store, engine, retry, observing)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            export_trials(store.records(), out / "trials.csv")
        results = _sum_up(chosen, data, store, command)
        write_results(out, results)
        done = {
            record.trial.id: record.status
            for record in store.records()
            if not record.lacks(chosen.measures) or record.status == "failed"
        }
    write_report(out)
    stages = [row for stage in results["search"] or [] for row in stage["rows"]]
    planned = {key for row in [*results["rows"], *stages] for key in row["trials"]}
    return results | {
        "interrupted": interrupted,
        "failed": sum(done.get(key) == "failed" for key in planned),
        "missing": len(planned - done.keys()),
    }


def report(out: Path) -> Path:
    """Sum up an experiment's folder anew and write its report; nothing is run."""
    try:
        story = json.loads((out / "experiment.json").read_text(encoding="utf-8"))
        spec = parse_spec(story["name"], story["spec"])
        asked = story["part"]
        datasets, methods = (
            None if asked[key] is None else tuple(asked[key]) for key in ("datasets", "methods")
        )
        part = Part(datasets, methods, asked["seeds"])
    except (OSError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise ConfigError(
            f"{out} holds no experiment ({type(error).__name__}: {error}); run dropnode reproduce "
            f"EXPERIMENT --out {out} first"
        ) from error
    chosen = part.of(spec)
    with Store(out) as store:
        data = Data.load(chosen.datasets, range(chosen.splits))
        write_results(out, _sum_up(chosen, data, store, story["command"]))
    return write_report(out)


def _adopt(store: Store, out: Path) -> None:
    exported = out / "trials.csv"
    if exported.exists():
        import_trials(store, exported)


class _Exports:
    """Writes the trials down every now and then, for who copies them while the experiment runs."""

    def __init__(self, store: Store, out: Path) -> None:
        self.store, self.path = store, out / "trials.csv"
        self.written = time.monotonic()

    def on_plan(self, cells: Sequence[Cell], ended: Mapping[str, Record]) -> None:
        """Look at what is to be done."""

    def on_end(self, record: Record) -> None:
        """Write all trials if it is time."""
        if time.monotonic() - self.written >= EXPORT_EVERY:
            export_trials(self.store.records(), self.path)
            self.written = time.monotonic()


def _sum_up(spec: Spec, data: Data, store: Store, command: str) -> dict[str, Any]:
    found = {record.trial.id: record for record in store.records()}
    cells = chosen_cells(row_cells(spec, data), found.get)
    results = summarise_experiment(spec, data, cells, found.get, command)
    if spec.search is not None:
        results["search"] = [stage for _, stages in _stages(spec, data, found) for stage in stages]
    return results


def _stages(
    spec: Spec, data: Data, found: Mapping[str, Record]
) -> list[tuple[list[tuple[Cell, dict[str, Any]]], list[dict[str, Any]]]]:
    """Return the cells and the summary of every stage that can be planned.

    A stage can be when every trial of the ones before it has ended; the last is the one to run.
    """
    assert spec.search is not None
    chosen: dict[str, dict[str, Any]] = {dataset: {} for dataset in spec.datasets}
    planned = []
    for number in range(len(spec.search.stages)):
        tried = stage_cells(spec.search, data, number, chosen)
        stages = summarise_stage(number + 1, tried, found.get)
        planned.append((tried, stages))
        ended = all(trial.id in found for cell, _ in tried for trial in cell.trials)
        best = {
            stage["dataset"]: row["changes"]
            for stage in stages
            for row in stage["rows"]
            if row["chosen"]
        }
        if not ended or set(best) != set(spec.datasets):
            break
        for dataset, changes in best.items():
            chosen[dataset] |= changes
    return planned


def _search(
    spec: Spec,
    job: Job,
    store: Store,
    engine: Engine,
    retry: bool,
    observers: Sequence[TrialObserver],
) -> None:
    assert spec.search is not None
    for number in range(len(spec.search.stages)):
        found = {record.trial.id: record for record in store.records()}
        planned = _stages(spec, job.data, found)
        if len(planned) <= number:
            raise WorkError(
                f"stage {number} of the search has a dataset without one trial that is done, so "
                "nothing can be chosen; see dropnode trials for the errors, and use --retry"
            )
        cells = [cell for cell, _ in planned[number][0]]
        run_cells(cells, store, job, engine, retry=retry, observers=observers)
