"""The Ray engine: runs a plain function over many items, in worker processes of a Ray cluster.

Each worker is a Ray actor. Ray's plain tasks do not report when they start to run, which can be
long after they were submitted on a busy cluster. An actor that has reported ready starts an item as
soon as it gets one, so that a time limit counts only the item's own time. This also holds with
Ray's client (``ray://``).
"""

from __future__ import annotations

import gc
import logging
import math
import os
import pickle
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from dropnode.engines.base import (
    ONE_THREAD,
    Failure,
    Item,
    Result,
    check_jobs,
    cores,
    late,
    set_variables,
)
from dropnode.engines.own_ray import is_on_loopback, make_private_token, on_loopback
from dropnode.engines.sharing import separate
from dropnode.errors import ConfigError

RUNS = 4
"""How often an item is started, if its worker or node dies each time, before it fails."""

PATIENCE = 5.0
"""Seconds that an address may take to answer, and between two counts of the CPUs."""

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray prints on stdout which workers and nodes died; our failures report that.
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
}
"""Variables that silence Ray; some are read when it is imported."""

OFFLINE = {"http_proxy": "http://127.0.0.1:9"}
"""A proxy that does not exist, for a Ray that we start: even with its reports disabled, it asks the
network which cloud it is in. Items get the caller's own setting.
"""

BRIEF = {"RAY_gcs_server_port_wait_time_s": f"{PATIENCE:g}"}
"""How long Ray tries to join a cluster that answers; its own default is twenty seconds."""

CLIENT_PORT = 10001
"""The default port of ``ray://`` addresses."""


def run_ray(
    function: Callable[[Any, Item], Result],
    items: Iterable[Item],
    *,
    address: str | None = None,
    jobs: int | None = None,
    shared: Any = None,
    timeout: float | None = None,
) -> Generator[tuple[Item, Result | Failure], None, None]:
    """Call ``function(shared, item)`` for every item, in one-thread processes of a Ray cluster.

    The counterpart of :func:`~dropnode.engines.local.run_local`. An item whose worker or node dies
    is run again, on another node if necessary; after :data:`RUNS` deaths it becomes a failure.

    Parameters
    ----------
    function : callable
        A function of a module that every node can import.
    items : iterable
        Small objects that can be pickled, such as seeds.
    address : str, optional
        A running cluster: ``auto`` on one of its machines, ``host:port``, or ``ray://host:port``
        from another machine. By default, Ray is started on this machine and stopped at the end. A
        Ray that the caller has initialised is used, whatever the address, and left running.
    jobs : int, optional
        How many items run at a time; by default as many as the cluster has CPUs at any moment.
    shared : object, optional
        Data that every item reads. Its arrays are in the memory of each machine once, and are
        read-only.
    timeout : float, optional
        Seconds after which an item is stopped and becomes a failure.

    Yields
    ------
    item, result or Failure
        In the order in which they finish.

    Raises
    ------
    ConfigError
        If ``jobs`` is less than 1, Ray is not installed, no cluster answers, or its nodes cannot
        run workers.
    """
    check_jobs(1 if jobs is None else jobs, timeout)
    waiting = deque(_Attempt(item) for item in items)
    if not waiting:
        return
    # Ray shares the arrays among the processes of a machine.
    parcel = separate((function, shared))
    with connected(address, jobs) as (ray, variables):
        crew = _Crew(ray, parcel, jobs, timeout, variables)
        try:
            while waiting or crew.members:
                crew.hire(waiting)
                yield from crew.listen(waiting)
        finally:
            crew.dismiss()


@contextmanager
def connected(address: str | None, cpus: int | None) -> Iterator[tuple[Any, dict[str, str]]]:
    """Connect to Ray, or start it with some CPUs, for the duration of a ``with`` block.

    The block gets Ray, and the environment variables that its workers need. A Ray that the caller
    has initialised, perhaps by an enclosing block, is used and left running.
    """
    ray, ours = _connect(address, cpus)
    variables = dict(ONE_THREAD)
    # An enclosing block may have started Ray, or the caller may have joined a cluster.
    if is_on_loopback(ray):
        variables |= {name: os.environ.get(name, "") for name in OFFLINE}
    try:
        yield ray, variables
    finally:
        if ours:
            ray.shutdown()


@dataclass(slots=True)
class _Attempt:
    """An item, and how many workers have died while running it."""

    item: Any
    deaths: int = 0


@dataclass(slots=True)
class _Member:
    """The driver's view of a worker; without an attempt, it has not reported ready yet."""

    actor: Any
    attempt: _Attempt | None = None
    deadline: float = math.inf


class _Crew:
    """The workers, by the reference of their pending answer."""

    def __init__(
        self,
        ray: Any,
        parcel: Any,
        jobs: int | None,
        timeout: float | None,
        variables: dict[str, str],
    ) -> None:
        self.ray = ray
        self.jobs = jobs
        self.timeout = timeout
        self.members: dict[Any, _Member] = {}
        self.failed_starts = 0
        self.parcel = ray.put(parcel)
        options = {"num_cpus": 1, "max_restarts": 0, "runtime_env": {"env_vars": variables}}
        self.worker = ray.remote(**options)(_Worker)

    def hire(self, waiting: deque[_Attempt]) -> None:
        """Start or stop workers, so that there is one per waiting item as far as places allow."""
        unready = [answer for answer, member in self.members.items() if member.attempt is None]
        for answer in unready[len(waiting) :]:
            self.ray.kill(self.members.pop(answer).actor)
        for _ in range(min(self.places() - len(self.members), len(waiting) - len(unready))):
            actor = self.worker.remote(self.parcel)
            self.members[actor.report.remote()] = _Member(actor)

    def places(self) -> int:
        """Return the number of workers to keep, counting those that wait for a CPU."""
        # Twice the CPUs, whose number may change: waiting workers start on a node that joins, and
        # make an autoscaling cluster grow. The number does not depend on that of the items.
        return self.jobs or max(1, 2 * int(self.ray.cluster_resources().get("CPU", 0)))

    def listen(self, waiting: deque[_Attempt]) -> list[tuple[Any, Any]]:
        """Wait for answers, hand out the next items, and return the finished ones."""
        done: list[tuple[Any, Any]] = []
        due = min(member.deadline for member in self.members.values())
        pause = min(PATIENCE, max(0.0, due - time.monotonic()))
        self.ray.wait(list(self.members), timeout=pause)
        # Read before the answers, so that an answer in time counts however slow our caller is.
        now = time.monotonic()
        answers, _ = self.ray.wait(list(self.members), num_returns=len(self.members), timeout=0)
        for answer in answers:
            member = self.members.pop(answer)
            attempt = member.attempt
            try:
                outcome = self.ray.get(answer)
            except self.ray.exceptions.RayError as error:
                self.ray.kill(member.actor)
                if attempt is None:
                    self.count_failed_start(error)
                elif attempt.deaths + 1 < RUNS:
                    waiting.appendleft(_Attempt(attempt.item, attempt.deaths + 1))
                else:
                    done.append((attempt.item, Failure(_lost(RUNS))))
                continue
            self.failed_starts = 0
            if attempt is not None:
                done.append((attempt.item, pickle.loads(outcome)))
            self.give(member, waiting)
        for answer, member in list(self.members.items()):
            if member.deadline < now and member.attempt is not None:
                self.ray.kill(self.members.pop(answer).actor)
                done.append((member.attempt.item, late(self.timeout)))
        return done

    def give(self, member: _Member, waiting: deque[_Attempt]) -> None:
        """Hand a worker the next item; end it if there is none."""
        if not waiting:
            self.ray.kill(member.actor)
            return
        member.attempt = waiting.popleft()
        if self.timeout is not None:
            member.deadline = time.monotonic() + self.timeout
        self.members[member.actor.run.remote(pickle.dumps(member.attempt.item))] = member

    def count_failed_start(self, error: Exception) -> None:
        """Count a worker that died before it reported ready; too many are an error."""
        self.failed_starts += 1
        # Workers also die with their node, which may pass; a worker that cannot start never will.
        if getattr(error, "actor_init_failed", True) or self.failed_starts > RUNS * self.places():
            raise ConfigError(
                f"the Ray cluster cannot run workers ({reason(error)}); every node needs the "
                "same versions of Python, Ray and dropnode, and memory for as many workers as CPUs"
            ) from error

    def dismiss(self) -> None:
        """Stop all workers at once; their current work is not needed."""
        for member in self.members.values():
            self.ray.kill(member.actor)
        self.members.clear()


class _Worker:
    """The actor that runs on the cluster and processes one item after the other."""

    def __init__(self, parcel: tuple[bytes, list[np.ndarray]]) -> None:
        self.parcel = parcel
        self.task: tuple[Callable[[Any, Any], Any], Any] | None = None

    def report(self) -> None:
        """Return as soon as the process has started."""

    def run(self, question: bytes) -> bytes:
        """Process one item and return its pickled result."""
        try:
            # Here rather than at the start, so that a failed import is the failure of an item.
            if self.task is None:
                skeleton, arrays = self.parcel
                self.task = pickle.loads(skeleton, buffers=arrays)
            function, shared = self.task
            answer = pickle.dumps(function(shared, pickle.loads(question)))
        except Exception as error:
            answer = pickle.dumps(Failure(f"{type(error).__name__}: {error}"))
        # Optimisers and autograd leave reference cycles, which keep tensors in memory.
        gc.collect()
        return answer


def _lost(times: int) -> str:
    return (
        f"its worker process, or the node that it was on, died {times} times; if memory ran out, "
        "run fewer at a time"
    )


def _connect(address: str | None, cpus: int | None) -> tuple[Any, bool]:
    """Return Ray, connected to a cluster, and whether we have to disconnect it."""
    with set_variables(QUIET):
        try:
            import ray
        except ImportError as error:
            raise ConfigError(
                f'the ray engine needs Ray ({error}): pip install "dropnode[ray]"'
            ) from error
        if ray.is_initialized():
            return ray, False
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        handler = signal.getsignal(signal.SIGTERM)
        try:
            if address is None:
                make_private_token()
                with set_variables(OFFLINE), on_loopback(ray):
                    # Without "local", Ray would join a cluster that happens to run here.
                    ray.init("local", num_cpus=cpus or cores(), include_dashboard=False, **quiet)
            else:
                _check_answers(address)
                with set_variables(BRIEF):
                    ray.init(address, **quiet)
        # Ray's errors have no common type.
        except Exception as error:
            ray.shutdown()
            if address is None:
                raise ConfigError(
                    f"Ray cannot be started on this machine ({reason(error)}); use the local "
                    "engine instead"
                ) from error
            raise ConfigError(
                f"no Ray cluster can be reached at {address} ({reason(error)}); start one with "
                '"ray start --head", correct the address, or leave it out to use this machine'
            ) from error
        finally:
            # Ray installs a handler that prints a stack trace; the caller's own is restored.
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, handler)
    return ray, True


def _check_answers(address: str) -> None:
    """Raise an error if nothing answers at the address; Ray itself would wait many minutes."""
    target = address
    if address == "auto":
        from ray._private.services import canonicalize_bootstrap_address

        target = os.environ.get("RAY_ADDRESS") or canonicalize_bootstrap_address(address)
    client = target.startswith("ray://")
    parts = urlsplit(target if client else f"//{target}")
    port = parts.port or (CLIENT_PORT if client else None)
    if not parts.hostname or port is None:
        raise ConfigError("expected auto, host:port or ray://host:port")
    with socket.create_connection((parts.hostname, port), timeout=PATIENCE) as connection:
        # Another program may listen on the port. Ray's servers speak HTTP/2, where each side begins
        # with a frame of settings, which is of type 4, unless Ray encrypts everything.
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
        if os.environ.get("RAY_USE_TLS") != "1" and connection.recv(9)[3:4] != b"\4":
            raise ConnectionError("the server there is not Ray")


def reason(error: BaseException) -> str:
    """Return the last line of the first error of a chain, Ray's most specific message."""
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error).strip().splitlines() or [type(error).__name__])[-1].strip()
