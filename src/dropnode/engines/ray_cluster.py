"""The same trials on many machines: the engine for a Ray cluster.

A Ray actor stands for each worker process of the local engine. Ray's plain tasks do not tell when
they start to run, which can be long after they were submitted where others use the cluster too.
An actor that has reported for work begins a trial as soon as it is given one, so that a time limit
counts the trial's own time; this holds through Ray's client (``ray://``) as well.
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
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from dropnode.engines.local import ONE_THREAD, Failure, Result, Trial, cores, environment

RUNS = 4
"""How often a trial is begun whose worker or node dies each time, before it counts as failed."""

PATIENCE = 5.0
"""Seconds that an address has to answer, and between looks at how many CPUs there are."""

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray prints, on stdout, which workers and nodes died. What matters of it are our failures.
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
}
"""What Ray reads, in part when it is imported, to keep to itself."""

OFFLINE = {"http_proxy": "http://127.0.0.1:9"}
"""A proxy that is not there, for a Ray that we start: even when told to report nothing, it asks the
network which cloud it is in. Trials get the caller's setting.
"""

BRIEF = {"RAY_gcs_server_port_wait_time_s": f"{PATIENCE:g}"}
"""How long Ray tries to be let in by a cluster that answers; else twenty seconds."""

CLIENT_PORT = 10001
"""Where Ray listens for ``ray://`` unless told otherwise."""


def run_ray(
    function: Callable[[Any, Trial], Result],
    trials: Iterable[Trial],
    *,
    address: str | None = None,
    jobs: int | None = None,
    shared: Any = None,
    timeout: float | None = None,
) -> Generator[tuple[Trial, Result | Failure], None, None]:
    """Call ``function(shared, trial)`` for every trial, in one-thread processes of a Ray cluster.

    As :func:`~dropnode.engines.local.run_local` does on one machine. A trial whose worker or
    node dies is run again, elsewhere if need be; one that dies each time becomes a failure.

    Parameters
    ----------
    function : callable
        Of a module that every node can import.
    trials : iterable
        Small things that can be pickled, such as seeds.
    address : str, optional
        A running cluster: ``auto`` on one of its machines, ``host:port``, or ``ray://host:port``
        from elsewhere. By default, Ray is started on this machine, and stopped in the end. A Ray
        that the caller has initialised is used, whatever the address, and left running.
    jobs : int, optional
        How many trials run at a time; by default as many as there are CPUs, which may change.
    shared : object, optional
        What all trials read. Its arrays lie in the memory of each machine once, and are read-only.
    timeout : float, optional
        Seconds that a trial may run before it is ended and becomes a failure.

    Yields
    ------
    trial, result or Failure
        As they are done, in whatever order that is.

    Raises
    ------
    ConfigError
        If Ray is not installed, no cluster answers, or its nodes cannot run workers.
    """
    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs is {jobs}; expected a whole number of at least 1")
    waiting = deque(_Attempt(trial) for trial in trials)
    if not waiting:
        return
    parcel = _pack((function, shared))
    ray, ours = _connect(address, jobs)
    variables = dict(ONE_THREAD)
    if ours and address is None:
        variables |= {name: os.environ.get(name, "") for name in OFFLINE}
    try:
        crew = _Crew(ray, parcel, jobs, timeout, variables)
        try:
            while waiting or crew.members:
                crew.hire(waiting)
                yield from crew.listen(waiting)
        finally:
            crew.dismiss()
    finally:
        if ours:
            ray.shutdown()


@dataclass(slots=True)
class _Attempt:
    """A trial, and how many workers have died of it."""

    trial: Any
    deaths: int = 0


@dataclass(slots=True)
class _Member:
    """The driver's view of a worker, which has a trial or has yet to report for work."""

    actor: Any
    attempt: _Attempt | None = None
    deadline: float = math.inf


class _Crew:
    """The workers, each by the reference of the answer that it owes."""

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
        self.stillborn = 0
        self.parcel = ray.put(parcel)
        options = {"num_cpus": 1, "max_restarts": 0, "runtime_env": {"env_vars": variables}}
        self.worker = ray.remote(**options)(_Worker)

    def hire(self, waiting: deque[_Attempt]) -> None:
        """Have as many workers as there are places, and trials that wait for one."""
        unready = [answer for answer, member in self.members.items() if member.attempt is None]
        for answer in unready[len(waiting) :]:
            self.ray.kill(self.members.pop(answer).actor)
        for _ in range(min(self.places() - len(self.members), len(waiting) - len(unready))):
            actor = self.worker.remote(self.parcel)
            self.members[actor.report.remote()] = _Member(actor)

    def places(self) -> int:
        """Return how many workers to have, counting those that wait for a CPU."""
        # Twice the CPUs, whose number may change: those that wait take a node that joins, and are
        # what a cluster that can grow by itself goes by. Few enough for any number of trials.
        return self.jobs or max(1, 2 * int(self.ray.cluster_resources().get("CPU", 0)))

    def listen(self, waiting: deque[_Attempt]) -> list[tuple[Any, Any]]:
        """Wait for answers, give who answered the next trial, and return what is done."""
        done: list[tuple[Any, Any]] = []
        due = min(member.deadline for member in self.members.values())
        pause = min(PATIENCE, max(0.0, due - time.monotonic()))
        self.ray.wait(list(self.members), timeout=pause)
        # Read before the answers are: one that came in time counts, however slow our caller is.
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
                    self.bury(error)
                elif attempt.deaths + 1 < RUNS:
                    waiting.appendleft(_Attempt(attempt.trial, attempt.deaths + 1))
                else:
                    done.append((attempt.trial, Failure(_lost(RUNS))))
                continue
            self.stillborn = 0
            if attempt is not None:
                done.append((attempt.trial, pickle.loads(outcome)))
            self.give(member, waiting)
        for answer, member in list(self.members.items()):
            if member.deadline < now and member.attempt is not None:
                self.ray.kill(self.members.pop(answer).actor)
                late = Failure(f"no result within {self.timeout:g} seconds; it was ended")
                done.append((member.attempt.trial, late))
        return done

    def give(self, member: _Member, waiting: deque[_Attempt]) -> None:
        """Let a worker have the next trial, or let it go."""
        if not waiting:
            self.ray.kill(member.actor)
            return
        member.attempt = waiting.popleft()
        if self.timeout is not None:
            member.deadline = time.monotonic() + self.timeout
        self.members[member.actor.run.remote(pickle.dumps(member.attempt.trial))] = member

    def bury(self, error: Exception) -> None:
        """Account for a worker that never came to work."""
        self.stillborn += 1
        # A node may die under all its workers; what fails in them will fail in the next ones too.
        if getattr(error, "actor_init_failed", True) or self.stillborn > RUNS * self.places():
            raise _refusal(
                f"the Ray cluster cannot run workers ({_reason(error)}); every node needs the "
                "same versions of Python, Ray and dropnode, and memory for as many workers as CPUs"
            ) from error

    def dismiss(self) -> None:
        """End all workers at once: what they still compute is not wanted any more."""
        for member in self.members.values():
            self.ray.kill(member.actor)
        self.members.clear()


class _Worker:
    """What runs on the cluster: a process that answers trials, one after the other."""

    def __init__(self, parcel: tuple[bytes, list[np.ndarray]]) -> None:
        self.parcel = parcel
        self.task: tuple[Callable[[Any, Any], Any], Any] | None = None

    def report(self) -> None:
        """Answer, as soon as there is a process to do so."""

    def run(self, question: bytes) -> bytes:
        """Answer one trial."""
        try:
            # Here rather than at the start: what cannot be imported is a failed trial too.
            if self.task is None:
                skeleton, arrays = self.parcel
                self.task = pickle.loads(skeleton, buffers=arrays)
            function, shared = self.task
            answer = pickle.dumps(function(shared, pickle.loads(question)))
        except Exception as error:
            answer = pickle.dumps(Failure(f"{type(error).__name__}: {error}"))
        # Optimisers and autograd leave cycles, which would keep a trial's tensors in memory.
        gc.collect()
        return answer


def _lost(times: int) -> str:
    return (
        f"its worker process, or the node that it was on, died {times} times; if memory ran out, "
        "run fewer at a time"
    )


def _pack(value: Any) -> tuple[bytes, list[np.ndarray]]:
    """Return a pickle without its arrays, and those, as Ray shares them between processes."""
    buffers: list[pickle.PickleBuffer] = []
    skeleton = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return skeleton, [np.frombuffer(buffer.raw(), dtype=np.uint8) for buffer in buffers]


def _connect(address: str | None, jobs: int | None) -> tuple[Any, bool]:
    """Return Ray, connected to a cluster, and whether it is ours to disconnect."""
    with environment(QUIET):
        try:
            import ray
        except ImportError as error:
            raise _refusal(
                f'the ray engine needs Ray ({error}): pip install "dropnode[ray]"'
            ) from error
        if ray.is_initialized():
            return ray, False
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        handler = signal.getsignal(signal.SIGTERM)
        try:
            if address is None:
                with environment(OFFLINE):
                    # Without "local", Ray would join a cluster that happens to run here.
                    ray.init("local", num_cpus=jobs or cores(), include_dashboard=False, **quiet)
            else:
                _check_answers(address)
                with environment(BRIEF):
                    ray.init(address, **quiet)
        # What Ray raises has no common type, and is for the person who configured it.
        except Exception as error:
            ray.shutdown()
            if address is None:
                raise _refusal(
                    f"Ray does not start on this machine ({_reason(error)}); the local engine "
                    "does without"
                ) from error
            raise _refusal(
                f"no Ray cluster can be reached at {address} ({_reason(error)}); start one with "
                '"ray start --head", correct the address, or leave it out to use this machine'
            ) from error
        finally:
            # Ray's own handler prints a stack trace; what the caller has arranged is to hold.
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, handler)
    return ray, True


def _check_answers(address: str) -> None:
    """Raise an error if nobody answers there, for which Ray would wait many minutes."""
    target = address
    if address == "auto":
        from ray._private.services import canonicalize_bootstrap_address

        target = os.environ.get("RAY_ADDRESS") or canonicalize_bootstrap_address(address)
    client = target.startswith("ray://")
    parts = urlsplit(target if client else f"//{target}")
    port = parts.port or (CLIENT_PORT if client else None)
    if not parts.hostname or port is None:
        raise ValueError("an address is auto, host:port or ray://host:port")
    with socket.create_connection((parts.hostname, port), timeout=PATIENCE) as connection:
        # An open port may be anyone's. Servers of Ray talk HTTP/2, where each side begins with a
        # frame of settings, which is type 4; unless Ray has been told to encrypt everything.
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
        if os.environ.get("RAY_USE_TLS") != "1" and connection.recv(9)[3:4] != b"\4":
            raise ConnectionError("what answers there is not Ray")


def _refusal(message: str) -> Exception:
    # Imported here because workers import this module, and need not wait for all that comes along.
    from dropnode.errors import ConfigError

    return ConfigError(message)


def _reason(error: BaseException) -> str:
    """Return the last line of the first error of a chain, which is where Ray gets specific."""
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error).strip().splitlines() or [type(error).__name__])[-1].strip()
