"""Common parts of both engines: failures, the number of workers, and their environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from dropnode.errors import ConfigError

Item = TypeVar("Item")
Result = TypeVar("Result")

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
}
"""Variables that limit numerical libraries to one thread, read when a library is loaded."""


MOST_JOBS = 100_000
"""The most workers at a time."""

LONGEST = 100_000_000
"""The longest time limit of an item, in seconds: some years."""


@dataclass(frozen=True)
class Failure:
    """Replaces the result of an item that failed, and says why."""

    error: str


class Run(Protocol):
    """An engine whose options are set, such as ``functools.partial(run_local, jobs=2)``."""

    def __call__(
        self, function: Callable[[Any, Item], Result], items: Iterable[Item], *, shared: Any
    ) -> Generator[tuple[Item, Result | Failure], None, None]:
        """Call ``function(shared, item)`` for every item; yield each as it ends."""
        ...


def cores() -> int:
    """Return how many cores this process may use, which can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def usable_jobs(asked: int | None, items: int) -> int:
    """Return how many items to run at a time: ``asked``, but no more than items or cores."""
    return min(items if asked is None else asked, items, cores())


def check_jobs(jobs: int, timeout: float | None = None) -> None:
    """Raise :class:`ConfigError` unless workers of this number and patience are possible."""
    if not 1 <= jobs <= MOST_JOBS:
        raise ConfigError(f"jobs is {jobs}; expected a whole number from 1 to {MOST_JOBS:,}")
    if timeout is not None and not 0 < timeout <= LONGEST:
        raise ConfigError(
            f"the time limit is {timeout} seconds; expected a number above 0, at most {LONGEST:,}"
        )


def late(timeout: float | None) -> Failure:
    """Return the failure of an item that was stopped after ``timeout`` seconds."""
    return Failure(f"no result within {timeout:g} seconds, so it was stopped; allow more time")


@contextmanager
def set_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the duration of a ``with`` block."""
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
