"""Workload: long work, of which some runs at a time.

A thread cannot be ended. The work of a request that was given up goes on, so it keeps its place
until it has really ended, and requests that come meanwhile are refused rather than added to it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

PLACES = 8
"""Works at a time."""

PATIENCE = 5.0
"""Seconds that work waits for a place."""


class BusyError(Exception):
    """Work that found no place."""


class Workload:
    """The places of long work."""

    def __init__(self) -> None:
        self._places = threading.BoundedSemaphore(PLACES)

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold a place; without one for some seconds, raise a :class:`BusyError`."""
        if not self._places.acquire(timeout=PATIENCE):
            raise BusyError(
                f"{PLACES} long requests are under way, as many as there may be; ask again later"
            )
        try:
            yield
        finally:
            self._places.release()
