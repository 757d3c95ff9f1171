"""Searches in stages: each stage is planned from what the earlier ones chose."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dropnode.errors import WorkError
from dropnode.experiments.record import Record
from dropnode.experiments.results import Stage
from dropnode.experiments.run import Job
from dropnode.experiments.runner import Cell, Engine, TrialObserver, run_cells, stage_cells
from dropnode.experiments.spec import Spec
from dropnode.experiments.store import Store
from dropnode.experiments.summary import summarise_stage
from dropnode.experiments.trials import Data


def planned_stages(
    spec: Spec, data: Data, found: Mapping[str, Record]
) -> list[tuple[list[Cell], list[Stage]]]:
    """Return the cells and the results of every stage that can be planned.

    A stage can be planned when every trial of the earlier stages has ended. The last stage returned
    is the one to run.
    """
    assert spec.search is not None
    chosen: dict[str, dict[str, Any]] = {dataset: {} for dataset in spec.datasets}
    planned = []
    for number in range(len(spec.search.stages)):
        cells = stage_cells(spec.search, data, number, chosen)
        stages = summarise_stage(number + 1, cells, found.get)
        planned.append((cells, stages))
        ended = all(trial.id in found for cell in cells for trial in cell.trials)
        best = {stage.dataset: row.changes for stage in stages for row in stage.rows if row.chosen}
        if not ended or set(best) != set(spec.datasets):
            break
        for dataset, changes in best.items():
            chosen[dataset] |= changes
    return planned


def run_stages(
    spec: Spec,
    job: Job,
    store: Store,
    engine: Engine,
    again: Collection[str],
    observers: Sequence[TrialObserver],
) -> None:
    """Run the missing trials of every stage, one stage after the other."""
    assert spec.search is not None
    for number in range(len(spec.search.stages)):
        found = {record.trial.id: record for record in store.records()}
        planned = planned_stages(spec, job.data, found)
        if len(planned) <= number:
            raise WorkError(
                f"all trials of stage {number} failed on a dataset, so no setting can be chosen; "
                "list the errors with dropnode trials, then run again with --retry"
            )
        cells, _ = planned[number]
        run_cells(cells, store, job, engine, again=again, observers=observers)
