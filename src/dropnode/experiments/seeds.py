"""One request trained from several seeds: what the method does, rather than one draw of it.

::

    seed-0/ seed-1/ ...      one run folder a seed
    seeds.json               all results and their summary; written last
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from dropnode.engines.local import Failure, run_local, usable_jobs
from dropnode.errors import ConfigError
from dropnode.experiments.run import Request, describe, earlier_result, load, run
from dropnode.experiments.statistics import summarise
from dropnode.files import remove_leftovers, write_json
from dropnode.graph import Graph

INTERRUPTED = "interrupted"
"""The error of seeds that Ctrl-C left without a result."""


class Watcher(Protocol):
    """Told of every seed as soon as it is done."""

    def on_result(self, seed: int, result: dict[str, Any]) -> None:
        """Look at what a seed came to."""
        ...

    def on_failure(self, seed: int, error: str) -> None:
        """Look at why a seed came to nothing."""
        ...


def run_seeds(
    request: Request,
    count: int,
    *,
    jobs: int | None = None,
    out: Path | None = None,
    resume: bool = False,
    watchers: Sequence[Watcher] = (),
    checkpoint_every: float = 5.0,
) -> dict[str, Any]:
    """Train ``count`` seeds from ``request.seed`` on, side by side, and sum them up.

    The results do not depend on ``jobs``. A seed that fails is listed as such and stops no other;
    neither does Ctrl-C lose what is finished.

    Parameters
    ----------
    request : Request
    count : int
        Number of seeds.
    jobs : int, optional
        Seeds at a time, each on a core of its own; by default, and at most, as many as there are
        cores.
    out : Path, optional
        A folder to keep each run in, and the summary.
    resume : bool
        Go on with the runs in ``out``: finished ones are not trained again.
    watchers : sequence of Watcher
    checkpoint_every : float
        Seconds between checkpoints of a run.

    Returns
    -------
    dict
        ``mean``, ``std`` (n - 1) and ``ci95`` (half the width of the 95 % t-interval of the mean)
        of the test accuracy over ``n`` seeds, the ``runs`` and the ``failed`` ones.
    """
    if count < 1 or (jobs is not None and jobs < 1):
        raise ConfigError(f"{count} seeds, {jobs} at a time; expected at least 1 of either")
    started = time.monotonic()
    seeds = range(request.seed, request.seed + count)
    jobs = usable_jobs(jobs, count)
    graph = load(request)
    story = describe(request, graph)
    earlier = {} if out is None else _earlier_results(out, seeds, story, resume)
    results: dict[int, dict[str, Any]] = {}
    failed: dict[int, str] = {}

    def record(seed: int, outcome: dict[str, Any] | Failure) -> None:
        if isinstance(outcome, Failure):
            failed[seed] = outcome.error
            for watcher in watchers:
                watcher.on_failure(seed, outcome.error)
        else:
            results[seed] = outcome
            for watcher in watchers:
                watcher.on_result(seed, outcome)

    missing = [seed for seed in seeds if seed not in earlier]
    assignment = _Assignment(request, graph, out, resume, checkpoint_every)
    try:
        for seed, result in earlier.items():
            record(seed, result)
        with closing(run_local(_train, missing, jobs, shared=assignment)) as outcomes:
            for seed, outcome in outcomes:
                record(seed, outcome)
    except KeyboardInterrupt:
        failed |= {seed: INTERRUPTED for seed in seeds if seed not in results | failed}
    runs = [results[seed] for seed in seeds if seed in results]
    accuracies = [line["test_accuracy"] for line in runs if line["test_accuracy"] is not None]
    summary = {
        **{key: story[key] for key in ("dataset", "method", "preset", "split")},
        "seeds": list(seeds),
        "jobs": jobs,
        **asdict(summarise(accuracies)),
        "runs": runs,
        "failed": [{"seed": seed, "error": failed[seed]} for seed in seeds if seed in failed],
        "seconds": time.monotonic() - started,
    }
    if out is not None:
        write_json(out / "seeds.json", summary)
    return summary


@dataclass(frozen=True)
class _Assignment:
    """What the runs of all seeds have in common."""

    request: Request
    graph: Graph
    out: Path | None
    resume: bool
    checkpoint_every: float


def _train(assignment: _Assignment, seed: int) -> dict[str, Any]:
    """Train one seed, in a worker process."""
    # Should torch have been told otherwise by something imported before us.
    torch.set_num_threads(1)
    return run(
        replace(assignment.request, seed=seed),
        graph=assignment.graph,
        out=None if assignment.out is None else _folder(assignment.out, seed),
        resume=assignment.resume,
        checkpoint_every=assignment.checkpoint_every,
    )


def _folder(out: Path, seed: int) -> Path:
    return out / f"seed-{seed}"


def _earlier_results(
    out: Path, seeds: Iterable[int], story: dict[str, Any], resume: bool
) -> dict[int, dict[str, Any]]:
    """Return what is finished in a folder; refuse one that holds anything but these seeds."""
    if resume and out.is_dir():
        remove_leftovers(out)
    names = [path.name for path in out.iterdir()] if out.exists() else []
    ours = [name for name in names if name.startswith("seed-") or name == "seeds.json"]
    if names and not ours:
        raise ConfigError(
            f"{out} exists and holds no seeds of ours; choose a new folder with --out"
        )
    if ours and not resume:
        raise ConfigError(
            f"{out} already holds seeds; add --resume to go on with them, or choose another "
            "folder with --out"
        )
    finished = {}
    for seed in seeds:
        result = earlier_result(_folder(out, seed), story | {"seed": seed}, resume)
        if result is not None:
            finished[seed] = result
    return finished
