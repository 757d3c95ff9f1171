"""Timing in turns: a busy moment of the machine affects all actions alike.

A burst of one action follows a burst of another, round after round. An action's time is the median
over the rounds. Two actions are compared within each round, and the median is taken of the ratios.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

Announce = Callable[[str], None]
"""Called with a text about the current measurement."""


def quiet(message: str) -> None:
    """Ignore the text."""


def headed(announce: Announce, heading: str) -> Announce:
    """Return an announcement that puts a heading before its text."""
    return lambda message: announce(f"{heading}, {message}")


@dataclass(frozen=True)
class Spread:
    """A median, and the interquartile range around it."""

    median: float
    iqr: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Return the spread of some numbers.

        Examples
        --------
        >>> Spread.of([1.0, 2.0, 3.0, 4.0, 50.0])
        Spread(median=3.0, iqr=2.0)
        """
        low, middle, high = np.quantile(np.fromiter(values, dtype=float), [0.25, 0.5, 0.75])
        return cls(float(middle), float(high - low))


@dataclass(frozen=True)
class Timings:
    """The result of :func:`alternate`.

    Attributes
    ----------
    seconds : dict
        Seconds per call of each action, one number per round.
    bursts : dict
        The number of calls of each action that were timed together.
    """

    seconds: dict[str, list[float]]
    bursts: dict[str, int]

    def time(self, name: str) -> Spread:
        """Return the seconds that one call takes."""
        return Spread.of(self.seconds[name])

    def speedup(self, name: str, over: str) -> Spread:
        """Return how many times faster an action is than another."""
        pairs = zip(self.seconds[name], self.seconds[over], strict=True)
        return Spread.of(other / own for own, other in pairs)


def alternate(
    actions: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    burst: float = 0.5,
    clock: Callable[[], float] = time.perf_counter,
    announce: Announce = quiet,
) -> Timings:
    """Time actions in turns.

    Parameters
    ----------
    actions : mapping
        Functions by name. Each is called at least twice before it is timed: the first call
        compiles, allocates and fills caches.
    rounds : int
        The number of rounds.
    burst : float
        Seconds that a turn should last; an action that takes longer is called once per turn.
    clock : callable
        Returns the time in seconds, from any start.
    announce : callable
        Called with a text about the progress.
    """
    bursts = {}
    for name, action in actions.items():
        announce(f"warming up {name}")
        bursts[name] = _burst_size(action, burst, clock)
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for number in range(1, rounds + 1):
        announce(f"round {number} of {rounds}")
        for name, action in actions.items():
            started = clock()
            for _ in range(bursts[name]):
                action()
            seconds[name].append((clock() - started) / bursts[name])
    return Timings(seconds, bursts)


def _burst_size(action: Callable[[], object], burst: float, clock: Callable[[], float]) -> int:
    """Warm an action up, and return the number of calls that fill a turn."""
    action()
    calls, started = 0, clock()
    while calls == 0 or clock() - started < burst / 4:
        action()
        calls += 1
    return max(1, round(burst * calls / (clock() - started)))
