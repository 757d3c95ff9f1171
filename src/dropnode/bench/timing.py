"""The clock of the benchmark: actions take turns, so that a busy moment of the machine hits all.

A burst of one action follows a burst of another, round after round. An action's time is the median
over the rounds; two actions are compared within each round first, and the median is taken of that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

Announce = Callable[[str], None]
"""Tells a person what is being measured."""


def quiet(message: str) -> None:
    """Announce nothing."""


def headed(announce: Announce, heading: str) -> Announce:
    """Return an announcement that starts with what it is about."""
    return lambda message: announce(f"{heading}, {message}")


@dataclass(frozen=True)
class Spread:
    """A median, and the interquartile range around it."""

    median: float
    iqr: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Summarise some numbers.

        Examples
        --------
        >>> Spread.of([1.0, 2.0, 3.0, 4.0, 50.0])
        Spread(median=3.0, iqr=2.0)
        """
        low, middle, high = np.quantile(np.fromiter(values, dtype=float), [0.25, 0.5, 0.75])
        return cls(float(middle), float(high - low))


@dataclass(frozen=True)
class Timings:
    """What :func:`alternate` measured.

    Attributes
    ----------
    seconds : dict
        Seconds a call of each action, one number a round.
    bursts : dict
        How many calls of each action were timed together.
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
        What to call, by name. Each is called at least twice before it is timed: the first call
        compiles, allocates and fills caches.
    rounds : int
        How often the turn comes round.
    burst : float
        Seconds that a turn should last; an action that takes longer is called once a turn.
    clock : callable
        Seconds from anywhere.
    announce : callable
        Told where the measurement stands.
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
    """Warm an action up, and return how many calls fill a turn."""
    action()
    calls, started = 0, clock()
    while calls == 0 or clock() - started < burst / 4:
        action()
        calls += 1
    return max(1, round(burst * calls / (clock() - started)))
