"""Engines: how a plain function is run over many trials, on several cores at once.

Processes of one thread each beat one process of many threads on this work, and a result then does
not depend on how many run side by side. The processes are our own rather than a pool's: where a
pool breaks as a whole when one of its workers dies, here only the trial that it had is lost.
"""

from __future__ import annotations

import gc
import math
import multiprocessing
import os
import pickle
import shutil
import signal
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeVar

from dropnode.engines.sharing import Parcel, pack, unpack

Trial = TypeVar("Trial")
Result = TypeVar("Result")

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
}
"""What numerical libraries read, when they are loaded, to know how many threads to use."""


@dataclass(frozen=True)
class Failure:
    """A trial that has no result, and why."""

    error: str


def cores() -> int:
    """Return how many cores this process may use, which can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def usable_jobs(asked: int | None, trials: int) -> int:
    """Return how many trials to run at a time: never more than there are trials or cores."""
    return min(trials if asked is None else asked, trials, cores())


def run_local(
    function: Callable[[Any, Trial], Result],
    trials: Iterable[Trial],
    jobs: int,
    *,
    shared: Any = None,
    timeout: float | None = None,
) -> Generator[tuple[Trial, Result | Failure], None, None]:
    """Call ``function(shared, trial)`` for every trial, in worker processes of one thread each.

    A trial that raises, whose worker dies, or that takes too long becomes a :class:`Failure`, and
    the others go on.
    Leaving the iteration early ends all workers; close it to do so at once.

    Parameters
    ----------
    function : callable
        Of a module that workers can import. One worker calls it for several trials.
    trials : iterable
        Small things that can be pickled, such as seeds.
    jobs : int
        How many workers there are at a time.
    shared : object, optional
        What all trials read. Its arrays lie in memory once, whatever the number of workers, and
        are read-only.
    timeout : float, optional
        Seconds after which a trial is ended.

    Yields
    ------
    trial, result or Failure
        As they are done, in whatever order that is.
    """
    if jobs < 1:
        raise ValueError(f"jobs is {jobs}; expected a whole number of at least 1")
    waiting = deque(trials)
    if not waiting:
        return
    with tempfile.TemporaryDirectory(prefix="dropnode-") as folder:
        parcel = pack((function, shared), Path(folder))
        workers: list[_Worker] = []
        try:
            while waiting or workers:
                while waiting and len(workers) < jobs:
                    workers.append(_Worker(parcel, folder, timeout))
                    workers[-1].give(waiting.popleft())
                answered = wait([worker.connection for worker in workers], _patience(workers))
                for worker in [one for one in workers if one.connection in answered or one.late]:
                    late = worker.connection not in answered
                    trial, outcome = worker.trial, worker.give_up() if late else worker.take()
                    # Before anything is yielded: a slow caller keeps no worker waiting.
                    if waiting and worker.alive:
                        worker.give(waiting.popleft())
                    else:
                        workers.remove(worker)
                        worker.end()
                    yield trial, outcome
        finally:
            for worker in workers:
                worker.end()


def _patience(workers: list[_Worker]) -> float | None:
    """Return the seconds until the first trial is late; None if none can be."""
    soonest = min(worker.deadline for worker in workers)
    return None if soonest == math.inf else max(0.0, soonest - time.monotonic())


class _Worker:
    """The parent's view of one worker process."""

    def __init__(self, parcel: Parcel, folder: str, timeout: float | None) -> None:
        self.timeout = timeout
        self.deadline = math.inf
        # Not forked: a fork of a process whose libraries run threads can hang.
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(
            target=_work, args=(theirs, parcel, folder), name="dropnode-worker", daemon=True
        )
        with _conditions_of_workers():
            self.process.start()
        # Now theirs alone: when the process ends, however it does, we read the end of the pipe.
        theirs.close()
        self.trial: Any = None
        self.alive = True

    def give(self, trial: Any) -> None:
        """Let the worker have a trial."""
        self.trial = trial
        if self.timeout is not None:
            self.deadline = time.monotonic() + self.timeout
        # A worker that has died in the meantime cannot be written to; take() will say so.
        with suppress(OSError):
            self.connection.send_bytes(pickle.dumps(trial))

    def take(self) -> Any:
        """Return the answer, or how the worker died of the question."""
        try:
            return pickle.loads(self.connection.recv_bytes())
        except (EOFError, OSError):
            self.alive = False
            self.process.join(timeout=10)
            return Failure(_cause_of_death(self.process.exitcode))

    @property
    def late(self) -> bool:
        """Whether the trial has had its time."""
        return time.monotonic() >= self.deadline

    def give_up(self) -> Failure:
        """Let nothing more come of the trial; the process is to be ended."""
        self.alive = False
        return Failure(f"no result within {self.timeout:g} seconds; it was ended")

    def end(self) -> None:
        """End the process at once: idle it has nothing to lose, busy it is not wanted any more."""
        self.process.kill()
        self.process.join()
        self.process.close()
        self.connection.close()


def _cause_of_death(code: int | None) -> str:
    if code is None:
        return "its worker process closed its pipe and went on; it was ended"
    if code >= 0:
        return f"its worker process ended by itself, with exit code {code}"
    return (
        f"its worker process was ended by signal {-code} ({signal.strsignal(-code)}); if memory "
        "ran out, run fewer at a time"
    )


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables for a while."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _conditions_of_workers() -> Iterator[None]:
    """Start processes that compute with one thread and leave Ctrl-C to their parent."""
    masks = hasattr(signal, "pthread_sigmask")
    if masks:
        # A terminal sends Ctrl-C to every process. A worker that is still starting cannot ignore
        # it, but inherits that it is blocked. Python's tracker, when it starts, would unblock it.
        resource_tracker.ensure_running()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with environment(ONE_THREAD):
            yield
    finally:
        if masks:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _work(connection: Connection, parcel: Parcel, folder: str) -> None:
    """Answer trials until there are no more: what a worker process does."""
    # For systems where a blocked signal is not inherited.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_follow_parent, args=(folder,), daemon=True).start()
    task: tuple[Callable[[Any, Any], Any], Any] | None = None
    # Pipes fail when the parent has no more trials for us, or is gone.
    with suppress(EOFError, OSError):
        while True:
            question = connection.recv_bytes()
            try:
                # Here rather than at the start: what cannot be imported is a failed trial too.
                task = task or unpack(parcel)
                function, shared = task
                answer = pickle.dumps(function(shared, pickle.loads(question)))
            except Exception as error:
                answer = pickle.dumps(Failure(f"{type(error).__name__}: {error}"))
            connection.send_bytes(answer)
            # Optimisers and autograd leave cycles, which would keep a trial's tensors in memory.
            gc.collect()


def _follow_parent(folder: str) -> None:
    """End this process as soon as the parent has, and clear up what it could not."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)
