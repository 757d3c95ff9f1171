"""The local engine: runs a plain function over many items, in worker processes on this machine.

Several processes with one thread each are faster on this work than one process with many threads,
and a result then does not depend on how many run at the same time. The processes are started here,
because a pool of the standard library fails as a whole when a worker dies; here only one item does.
"""

from __future__ import annotations

import gc
import math
import multiprocessing
import os
import pickle
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from dropnode.engines.base import (
    ONE_THREAD,
    Failure,
    Item,
    Result,
    check_jobs,
    late,
    set_variables,
)
from dropnode.engines.sharing import Parcel, pack, unpack


def run_local(
    function: Callable[[Any, Item], Result],
    items: Iterable[Item],
    jobs: int,
    *,
    shared: Any = None,
    timeout: float | None = None,
) -> Generator[tuple[Item, Result | Failure], None, None]:
    """Call ``function(shared, item)`` for every item, in worker processes of one thread each.

    An item that raises an error, whose worker dies, or that takes too long becomes a
    :class:`Failure`; the other items continue. Closing the generator stops all workers at once.

    Parameters
    ----------
    function : callable
        A function of a module that workers can import. One worker calls it for several items.
    items : iterable
        Small objects that can be pickled, such as seeds.
    jobs : int
        The number of workers at a time.
    shared : object, optional
        Data that every item reads. Its arrays are in memory once, for all workers together, and
        are read-only.
    timeout : float, optional
        Seconds after which an item is stopped.

    Yields
    ------
    item, result or Failure
        In the order in which they finish.

    Raises
    ------
    ConfigError
        If ``jobs`` is less than 1.
    """
    check_jobs(jobs, timeout)
    waiting = deque(items)
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
                    item = worker.item
                    outcome = worker.take() if worker.connection in answered else worker.give_up()
                    # Before the yield, so that no worker waits for a slow caller.
                    if waiting and worker.alive:
                        worker.give(waiting.popleft())
                    else:
                        workers.remove(worker)
                        worker.end()
                    yield item, outcome
        finally:
            for worker in workers:
                worker.end()


def _patience(workers: list[_Worker]) -> float | None:
    """Return the seconds until the first item is late; None without a time limit."""
    soonest = min(worker.deadline for worker in workers)
    return None if soonest == math.inf else max(0.0, soonest - time.monotonic())


class _Worker:
    """The parent's view of one worker process."""

    def __init__(self, parcel: Parcel, folder: str, timeout: float | None) -> None:
        self.timeout = timeout
        self.deadline = math.inf
        # Not forked, because a fork of a process that runs threads can hang.
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(
            target=_work, args=(theirs, parcel, folder), name="dropnode-worker", daemon=True
        )
        with _conditions_of_workers():
            self.process.start()
        # Now only the process has its end of the pipe, so that we notice when it ends.
        theirs.close()
        self.item: Any = None
        self.alive = True

    def give(self, item: Any) -> None:
        """Hand the worker an item."""
        self.item = item
        if self.timeout is not None:
            self.deadline = time.monotonic() + self.timeout
        # Writing to a worker that has died fails; take() reports it.
        with suppress(OSError):
            self.connection.send_bytes(pickle.dumps(item))

    def take(self) -> Any:
        """Return the result of the item, or a failure if the worker died."""
        try:
            return pickle.loads(self.connection.recv_bytes())
        except (EOFError, OSError):
            self.alive = False
            self.process.join(timeout=10)
            return Failure(_cause_of_death(self.process.exitcode))

    @property
    def late(self) -> bool:
        """Whether the item has run out of time."""
        return time.monotonic() >= self.deadline

    def give_up(self) -> Failure:
        """Return the failure of a late item; the caller ends the process."""
        self.alive = False
        return late(self.timeout)

    def end(self) -> None:
        """Kill the process at once; its current work is not needed."""
        self.process.kill()
        self.process.join()
        self.process.close()
        self.connection.close()


def _cause_of_death(code: int | None) -> str:
    if code is None:
        return "its worker process closed its pipe without a result and was stopped"
    if code >= 0:
        return f"its worker process exited by itself, with exit code {code}"
    return (
        f"its worker process was killed by signal {-code} ({signal.strsignal(-code)}); if memory "
        "ran out, run fewer at a time"
    )


@contextmanager
def _conditions_of_workers() -> Iterator[None]:
    """Start processes that compute with one thread, and leave Ctrl-C and the script to the parent.

    Python would run the caller's script in every process it starts, to find functions of it, of
    which there are none here. A script that trains at its top level would then start processes
    without end; Python stops that with an error.
    """
    main = sys.modules["__main__"]
    known: dict[str, Any] = {
        name: vars(main)[name] for name in ("__spec__", "__file__") if name in vars(main)
    }
    masks = hasattr(signal, "pthread_sigmask")
    if masks:
        # A terminal sends Ctrl-C to every process. A worker that is still starting cannot ignore
        # it, but it inherits the block. Python's resource tracker would lift the block when it
        # starts, so it is started first.
        resource_tracker.ensure_running()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        vars(main).update(dict.fromkeys(known))
        with set_variables(ONE_THREAD):
            yield
    finally:
        vars(main).update(known)
        if masks:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _work(connection: Connection, parcel: Parcel, folder: str) -> None:
    """Process items until there are no more; this runs in the worker process."""
    # For systems where blocked signals are not inherited.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_follow_parent, args=(folder,), daemon=True).start()
    task: tuple[Callable[[Any, Any], Any], Any] | None = None
    # The pipe fails when the parent has no more items for us, or has ended.
    with suppress(EOFError, OSError):
        while True:
            question = connection.recv_bytes()
            try:
                # Here rather than at the start, so that a failed import is the failure of an item.
                task = task or unpack(parcel)
                function, shared = task
                answer = pickle.dumps(function(shared, pickle.loads(question)))
            except Exception as error:
                answer = pickle.dumps(Failure(f"{type(error).__name__}: {error}"))
            connection.send_bytes(answer)
            # Optimisers and autograd leave reference cycles, which keep tensors in memory.
            gc.collect()


def _follow_parent(folder: str) -> None:
    """End this process as soon as the parent has ended, and remove its temporary folder."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)
