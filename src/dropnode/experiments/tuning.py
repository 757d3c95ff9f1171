"""Tuning: settings of a method that the validation nodes of one graph choose.

The labels of all other nodes are removed before anything is trained, so no search can read them.
The trials are those of experiments: planned, run by either engine and stored in the same way. A
search keeps no other state. After a kill, the same call proposes the same settings again, and what
the store has is not trained again::

    tuning.json      the request; written first
    trials.sqlite    every trial that ended, with its history
    best.yaml        the best settings, for ``--set @best.yaml``
    tuned.json       the same with its validation accuracy, and how many settings were looked at

GraphNAS's search for an architecture has files of its own, see
:mod:`dropnode.experiments.architectures`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from dropnode.errors import ConfigError, WorkError
from dropnode.experiments.owners import TUNING, check_owner
from dropnode.experiments.references import Reference
from dropnode.experiments.run import Job
from dropnode.experiments.runner import (
    Cell,
    Engine,
    TrialObserver,
    run_cells,
    setting_cell,
    stage_cells,
    validation,
)
from dropnode.experiments.spec import Search
from dropnode.experiments.spec_file import load_spec
from dropnode.experiments.store import FILE, Store
from dropnode.experiments.trials import Data
from dropnode.files import atomic_write, remove_leftovers, seal, write_json
from dropnode.graph import Split
from dropnode.graph.labels import UNKNOWN
from dropnode.locks import FolderLock
from dropnode.methods.grand.model import Grand
from dropnode.methods.table import GRAND_VARIANTS, configuration, method_type
from dropnode.settings import read_sealed

BEST, TUNED = "best.yaml", "tuned.json"

PAPER = "tune-large"
"""The experiment whose stages a search of GRAND has: those of the paper."""

USUAL: tuple[Mapping[str, tuple[Any, ...]], ...] = (
    {"feature_scaling": ("none", "row", "standard")},
    {"learning_rate": (0.003, 0.01, 0.03), "dropout": (0.2, 0.5, 0.8)},
    {"weight_decay": (5e-5, 5e-4, 5e-3)},
    {
        "order": (2, 4, 8),
        "walk": ("fitted", "ppr", "average"),
        "steps": (2, 10, 50),
        "least_leaf": (5, 20),
        "components": (32, 64),
    },
    {"consistency_weight": (0.5, 1.0, 1.5)},
)
"""The stages of other methods, of which each tries the keys that it has."""

BATCH = 4
"""Settings that Optuna proposes at a time, on any engine, so that a search can be repeated."""


@dataclass(frozen=True)
class Tuning:
    """A request.

    Attributes
    ----------
    dataset : str
        A reference; see :mod:`dropnode.experiments.references`.
    search : Search
        The method, its preset, the changes to it that all settings have, the seeds per setting,
        and the values to try, in stages.
    sampler : str
        ``"staged"``: every combination of a stage, with the best of the stages before.
        ``"optuna"``: proposals from all combinations of all stages, of which those that fall
        behind the median of the others after a seed are given up.
    seed : int
        The seed of the proposals.
    split_seed : int
    """

    dataset: str
    search: Search
    sampler: str = "staged"
    seed: int = 0
    split_seed: int = 0


@dataclass(frozen=True)
class Tuned:
    """What a search found.

    Attributes
    ----------
    setting : dict
        The keys that were tried, with the values that validation chose.
    val_accuracy : float
        The mean over the seeds of this setting.
    settings : int
        How many different settings were looked at.
    trials : int
        How many trainings that took.
    interrupted : bool
    """

    setting: dict[str, Any]
    val_accuracy: float
    settings: int
    trials: int
    interrupted: bool = False


def stages_of(method: str) -> tuple[Mapping[str, tuple[Any, ...]], ...]:
    """Return the stages of a method: the paper's for GRAND, the usual ones for others.

    Examples
    --------
    >>> [list(stage) for stage in stages_of("gcn")]
    [['feature_scaling'], ['learning_rate', 'dropout'], ['weight_decay']]
    """
    kind = method_type(method)
    stages = _papers_stages() if kind is Grand else USUAL
    # What makes a variant is not for a search to undo.
    known = set(kind.config_type.names()) - set(GRAND_VARIANTS.get(method, {}))
    own = ({key: values for key, values in stage.items() if key in known} for stage in stages)
    return tuple(stage for stage in own if stage)


@cache
def _papers_stages() -> tuple[Mapping[str, tuple[Any, ...]], ...]:
    search = load_spec(PAPER).search
    assert search is not None
    return search.stages


def validation_data(dataset: str, split_seed: int = 0) -> Data:
    """Load a graph with the labels of its training and validation nodes, and no others."""
    data = Data.load([dataset], [split_seed])
    data.check_validation(dataset)
    source = Reference.parse(dataset).source
    graph, split = data.graphs[source], data.splits[dataset, split_seed]
    labels = np.full(graph.num_nodes, UNKNOWN, dtype=np.int64)
    for part in (split.train, split.val):
        labels[part] = graph.labels[part]
    seen = replace(
        graph.with_split(None).with_labels(labels, graph.class_names),
        catalogue_name=graph.catalogue_name,
    )
    empty = np.array([], dtype=np.int64)
    kept = Split(split.train, split.val, empty, f"{split.name}, without test nodes")
    return Data({source: seen}, {(dataset, split_seed): kept}, {source: seen.fingerprint()})


def tune(
    tuning: Tuning,
    out: Path,
    engine: Engine,
    *,
    trials: int = 50,
    observers: Sequence[TrialObserver] = (),
) -> Tuned:
    """Search, or continue a search, and write what it found to ``out``.

    ``trials`` is how many settings Optuna proposes, counting repetitions. Ctrl-C stops the search;
    the best of what has ended is kept. A setting with more finished seeds comes before one with
    fewer. Trials that failed in an earlier call are run again.
    """
    check_owner(out, TUNING, (FILE,))
    data = validation_data(tuning.dataset, tuning.split_seed)
    for number in range(len(tuning.search.stages)):
        # Planned before anything is run, so that an invalid value is an error at once.
        stage_cells(tuning.search, data, number, {tuning.dataset: {}})
    with FolderLock(out), Store(out) as store:
        remove_leftovers(out)
        _check_request(out / TUNING, tuning, data, store)
        run = _Run(tuning, data, store, engine, observers, store.failed())
        interrupted = False
        try:
            if tuning.sampler == "optuna":
                _propose(run, trials)
            else:
                _climb(run)
        except KeyboardInterrupt:
            interrupted = True
        found = run.found(interrupted)
    write_found(out, found, tuning.search.changes, {"request": _described(tuning)})
    return found


def write_found(
    out: Path, found: Tuned, changes: Mapping[str, Any], more: Mapping[str, Any]
) -> None:
    """Write the best settings for ``--set @best.yaml``, and the whole result."""
    accuracy = f"{100 * found.val_accuracy:.2f} %"
    with atomic_write(out / BEST, "w") as file:
        file.write(f"# Validation accuracy {accuracy}, the best of {found.settings} settings.\n")
        yaml.safe_dump({**changes, **found.setting}, file, sort_keys=False)
    write_json(out / TUNED, seal({**asdict(found), **more}))


@dataclass
class _Run:
    """The state of one call of :func:`tune`, all of which the store can give again."""

    tuning: Tuning
    data: Data
    store: Store
    engine: Engine
    observers: Sequence[TrialObserver]
    again: set[str]
    cells: list[Cell] = field(default_factory=list)
    training: Sequence[Cell] = ()

    def train(self, cells: Sequence[Cell]) -> None:
        """Run the trials of cells that are not stored, or that failed in an earlier call."""
        self.training = cells
        job = Job(self.data)
        run_cells(cells, self.store, job, self.engine, again=self.again, observers=self.observers)
        # Those that failed once more would do so in the next stage, too.
        self.again -= {trial.id for cell in cells for trial in cell.trials}

    def value(self, cell: Cell) -> float:
        """Return the mean validation accuracy of a cell, -1 if none of its trials succeeded."""
        return validation(cell, self.store.get)

    def best(self, cells: Sequence[Cell]) -> Cell:
        """Return the best of the cells with the most finished trials; the first of equals."""

        def rank(cell: Cell) -> tuple[bool, int, float]:
            value = self.value(cell)
            records = [self.store.get(trial.id) for trial in cell.trials]
            done = sum(record is not None and record.status == "done" for record in records)
            return value >= 0, done, value

        best = max(cells, key=rank, default=None)
        if best is None or self.value(best) < 0:
            raise WorkError(
                "no setting was trained to its end, so none can be chosen; list the errors with "
                "dropnode trials, or run the same command again"
            )
        return best

    def found(self, interrupted: bool) -> Tuned:
        # Trials of the cells in training may have ended before Ctrl-C, some even all of a cell.
        best = self.best([*self.cells, *self.training] if interrupted else self.cells)
        records = list(self.store.records())
        looked = {json.dumps(dict(record.trial.config), sort_keys=True) for record in records}
        return Tuned(dict(best.setting), self.value(best), len(looked), len(records), interrupted)


def _climb(run: _Run) -> None:
    """Try every combination of a stage with the best of the stages before."""
    search, dataset = run.tuning.search, run.tuning.dataset
    chosen: dict[str, Any] = {}
    for number in range(len(search.stages)):
        tried = stage_cells(search, run.data, number, {dataset: chosen})
        cells = [replace(cell, setting={**chosen, **cell.setting}) for cell in tried]
        run.train(cells)
        best = run.best(cells)
        chosen = dict(best.setting)
        run.cells = [best]


def _propose(run: _Run, trials: int) -> None:
    """Ask Optuna for settings, and give up those that fall behind."""
    optuna = _optuna()
    search, dataset = run.tuning.search, run.tuning.dataset
    grid = {key: values for stage in search.stages for key, values in stage.items()}
    study = optuna.create_study(
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=run.tuning.seed),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=BATCH),
    )
    states = optuna.trial.TrialState
    for start in range(0, trials, BATCH):
        asked = [study.ask() for _ in range(min(BATCH, trials - start))]
        settings = [
            {key: proposal.suggest_categorical(key, values) for key, values in grid.items()}
            for proposal in asked
        ]
        running = list(zip(asked, settings, strict=True))
        for seeds in range(1, search.seeds + 1):
            part = replace(search, seeds=seeds)
            cells = [setting_cell(part, run.data, dataset, setting) for _, setting in running]
            run.train(cells)
            left = []
            for (proposal, setting), cell in zip(running, cells, strict=True):
                value = run.value(cell)
                if value < 0:
                    study.tell(proposal, state=states.FAIL)
                    continue
                proposal.report(value, seeds)
                if seeds == search.seeds:
                    study.tell(proposal, value)
                    run.cells.append(cell)
                elif proposal.should_prune():
                    study.tell(proposal, state=states.PRUNED)
                else:
                    left.append((proposal, setting))
            running = left


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ConfigError(
            "the search by Optuna needs the extra tune; install it with: "
            "pip install 'dropnode[tune]', or leave --search out"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _check_request(path: Path, tuning: Tuning, data: Data, store: Store) -> None:
    """Write the request of a new search; raise an error if the folder has another one."""
    story = json.loads(json.dumps(_described(tuning) | {"data": list(data.fingerprints.values())}))
    if not path.exists():
        if store.statuses():
            raise ConfigError(
                f"{path.parent} has trials that are not those of a search; choose a new folder "
                "with --out"
            )
        write_json(path, seal(story))
        return
    before = read_sealed(path, "choose another folder for this search")
    for key in {**before, **story}:
        if before.get(key) != story.get(key):
            raise ConfigError(
                f"{path.parent} has a search with another {key} ({before.get(key)!r} there, "
                f"{story.get(key)!r} requested); choose another folder with --out"
            )


def _described(tuning: Tuning) -> dict[str, Any]:
    """Return what determines a search, besides the data."""
    search = tuning.search
    _, config = configuration(
        search.method, Reference.parse(tuning.dataset).catalogue_name, search.preset
    )
    return {
        "dataset": tuning.dataset,
        "split_seed": tuning.split_seed,
        "method": search.method,
        "config": config.replace(**dict(search.changes)).identity(),
        "stages": [{key: list(values) for key, values in stage.items()} for stage in search.stages],
        "seeds": search.seeds,
        "sampler": tuning.sampler,
        "seed": tuning.seed,
    }
