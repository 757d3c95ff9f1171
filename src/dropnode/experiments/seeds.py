"""One request trained with several seeds, for the mean and the spread of its results.

::

    seed-0/ seed-1/ ...      one run folder per seed
    seeds.json               all results and their summary; written last
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Protocol

import torch

from dropnode.engines.base import Failure, usable_jobs
from dropnode.engines.local import run_local
from dropnode.errors import ConfigError
from dropnode.experiments.run import Request, load, prepare, run
from dropnode.experiments.run_folder import (
    RunRecord,
    RunResult,
    check_folder,
    earlier_result,
)
from dropnode.experiments.statistics import summarise
from dropnode.experiments.trials import Data
from dropnode.files import is_vacant, remove_leftovers, write_json
from dropnode.settings import MOST_SEED

SUMMARY = "seeds.json"

_SEED = re.compile(r"seed-\d+")
"""The name of the folder of a seed."""

MOST_SEEDS = 10_000
"""The most seeds of one command."""

INTERRUPTED = "interrupted"
"""The error of seeds without a result after Ctrl-C."""


class SeedObserver(Protocol):
    """Receives every seed as soon as it has ended."""

    def on_result(self, result: RunResult) -> None:
        """Receive the result of a seed."""
        ...

    def on_failure(self, seed: int, error: str) -> None:
        """Receive the error of a seed that failed."""
        ...


@dataclass(frozen=True)
class FailedSeed:
    """A seed without a result, and why."""

    seed: int
    error: str


@dataclass(frozen=True)
class SeedsResult:
    """The results of all seeds, and their summary: the content of ``seeds.json``.

    Attributes
    ----------
    dataset, method, preset, split : str
        As in every run.
    seeds : list of int
        The requested seeds.
    jobs : int
        How many ran at a time.
    mean, std : float or None
        Mean and standard deviation (n - 1) of the test accuracy, as fractions.
    ci95 : float or None
        Half the width of the 95 % interval of the mean (Student's t), a fraction.
    n : int
        Number of seeds with a test accuracy.
    runs : list of RunResult
        The result of each seed that ended.
    failed : list of FailedSeed
        Seeds without a result, and why.
    seconds : float
        The duration of all of it.
    """

    dataset: str
    method: str
    preset: str
    split: str
    seeds: list[int]
    jobs: int
    mean: float | None
    std: float | None
    ci95: float | None
    n: int
    runs: list[RunResult]
    failed: list[FailedSeed]
    seconds: float


def run_seeds(
    request: Request,
    count: int,
    *,
    jobs: int | None = None,
    out: Path | None = None,
    resume: bool = False,
    observers: Sequence[SeedObserver] = (),
    checkpoint_every: float = 5.0,
) -> SeedsResult:
    """Train ``count`` seeds, starting at ``request.seed``, in parallel, and summarise them.

    The results do not depend on ``jobs``. A seed that fails is listed and does not affect the
    others. After Ctrl-C, the finished seeds are summarised.

    Parameters
    ----------
    request : Request
    count : int
        Number of seeds.
    jobs : int, optional
        Number of seeds to train at a time, each on its own core; by default, and at most, the
        number of cores.
    out : Path, optional
        A folder for the runs and the summary.
    resume : bool
        Continue the runs in ``out``; finished ones are not trained again.
    observers : sequence of SeedObserver
    checkpoint_every : float
        Seconds between checkpoints of a run.

    Returns
    -------
    SeedsResult
    """
    if count < 1 or (jobs is not None and jobs < 1):
        raise ConfigError(f"{count} seeds, {jobs} at a time; expected at least 1 of each")
    if count > MOST_SEEDS or request.seed + count - 1 > MOST_SEED:
        raise ConfigError(
            f"{count:,} seeds from {request.seed} on; expected at most {MOST_SEEDS:,} seeds, and "
            f"none above {MOST_SEED}"
        )
    started = time.monotonic()
    seeds = range(request.seed, request.seed + count)
    jobs = usable_jobs(jobs, count)
    data = load(request)
    records = {seed: prepare(replace(request, seed=seed), data)[0] for seed in seeds}
    earlier = {} if out is None else _earlier_results(out, records, resume)
    results: dict[int, RunResult] = {}
    failed: dict[int, str] = {}

    def take(seed: int, outcome: RunResult | Failure) -> None:
        if isinstance(outcome, Failure):
            failed[seed] = outcome.error
            for observer in observers:
                observer.on_failure(seed, outcome.error)
        else:
            results[seed] = outcome
            for observer in observers:
                observer.on_result(outcome)

    missing = [seed for seed in seeds if seed not in earlier]
    assignment = _Assignment(request, data, out, resume, checkpoint_every)
    try:
        for seed, result in earlier.items():
            take(seed, result)
        with closing(run_local(_train, missing, jobs, shared=assignment)) as outcomes:
            for seed, outcome in outcomes:
                take(seed, outcome)
    except KeyboardInterrupt:
        failed |= {seed: INTERRUPTED for seed in seeds if seed not in results | failed}
    runs = [results[seed] for seed in seeds if seed in results]
    first = records[request.seed]
    accuracies = [run.test_accuracy for run in runs if run.test_accuracy is not None]
    summary = SeedsResult(
        first.dataset,
        first.method,
        first.preset,
        first.split,
        seeds=list(seeds),
        jobs=jobs,
        **asdict(summarise(accuracies)),
        runs=runs,
        failed=[FailedSeed(seed, failed[seed]) for seed in seeds if seed in failed],
        seconds=time.monotonic() - started,
    )
    if out is not None:
        for seed in results:
            check_folder(_folder(out, seed))
        write_json(out / SUMMARY, asdict(summary))
    return summary


@dataclass(frozen=True)
class _Assignment:
    """The common input of all seeds."""

    request: Request
    data: Data
    out: Path | None
    resume: bool
    checkpoint_every: float


def _train(assignment: _Assignment, seed: int) -> RunResult:
    """Train one seed, in a worker process."""
    # In case another module has set a different number of threads.
    torch.set_num_threads(1)
    return run(
        replace(assignment.request, seed=seed),
        data=assignment.data,
        out=None if assignment.out is None else _folder(assignment.out, seed),
        resume=assignment.resume,
        checkpoint_every=assignment.checkpoint_every,
    )


def _folder(out: Path, seed: int) -> Path:
    return out / f"seed-{seed}"


def _earlier_results(
    out: Path, records: Mapping[int, RunRecord], resume: bool
) -> dict[int, RunResult]:
    """Return the finished seeds in a folder; a folder with other contents is an error."""
    names = [path.name for path in out.iterdir()] if out.is_dir() else []
    ours = [name for name in names if _SEED.fullmatch(name) or name == SUMMARY]
    if not ours and not is_vacant(out):
        raise ConfigError(
            f"{out} exists and is not the folder of several seeds; choose a new folder with --out"
        )
    if ours and not resume:
        raise ConfigError(
            f"{out} already has seeds; add --resume to continue them, or choose another "
            "folder with --out"
        )
    finished = {}
    for seed, record in records.items():
        result = earlier_result(_folder(out, seed), record, resume)
        if result is not None:
            finished[seed] = result
    out.mkdir(parents=True, exist_ok=True)
    remove_leftovers(out)
    return finished
