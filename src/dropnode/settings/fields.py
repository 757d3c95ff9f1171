"""Fields of configurations and records: what each accepts, and the limits that they share.

A number above its limit cannot be meant: it would run until somebody ends it.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from typing import Any

MOST = 1_000_000_000
"""The largest whole number of a :func:`count`."""

MOST_REPEATS = 1_000
"""The largest number of hops, views, layers, heads and other repetitions within one epoch."""

MOST_UNITS = 1_000_000
"""The largest number of units of a layer. Memory sets a limit long before, see ``memory.py``."""

MOST_SEED = 2**63 - 1
"""The largest seed: stores of trials have 64 bits for it."""


def choice(*words: str, default: Any = dataclasses.MISSING) -> Any:
    """Return a field that accepts one of some words."""
    return dataclasses.field(default=default, metadata={"choices": words})


def flag(default: Any = dataclasses.MISSING) -> Any:
    """Return a field that accepts true or false."""
    return dataclasses.field(default=default)


def rate(default: Any = dataclasses.MISSING) -> Any:
    """Return a field that accepts the probability of dropping something, which is below 1."""
    return _within(0.0, 1.0 - 1e-9, "at least 0 and below 1", default)


def share(default: Any = dataclasses.MISSING) -> Any:
    """Return a field that accepts a number from 0 to 1."""
    return _within(0.0, 1.0, "from 0 to 1", default)


def count(least: int = 1, default: Any = dataclasses.MISSING, most: int = MOST) -> Any:
    """Return a field that accepts a whole number from ``least`` to ``most``."""
    return _within(least, math.inf, f"a whole number of at least {least}", default, most)


def repeats(least: int = 1, default: Any = dataclasses.MISSING) -> Any:
    """Return a field that accepts how often something is repeated within one epoch."""
    return count(least, default, MOST_REPEATS)


def width(default: Any = dataclasses.MISSING) -> Any:
    """Return a field that accepts the number of units of a layer."""
    return count(1, default, MOST_UNITS)


def seed(default: Any = dataclasses.MISSING) -> Any:
    """Return a field that accepts a seed."""
    return count(0, default, MOST_SEED)


def weight(default: Any = dataclasses.MISSING) -> Any:
    """Return a field that accepts a number of at least 0."""
    return _within(0.0, math.inf, "a number of at least 0", default)


def positive(default: Any = dataclasses.MISSING, most: float = math.inf) -> Any:
    """Return a field that accepts a number above 0, from 1e-12 on, and at most ``most``."""
    return _within(1e-12, math.inf, "above 0 (at least 1e-12)", default, most)


def temperature(default: Any = dataclasses.MISSING) -> Any:
    """Return a field that accepts the temperature of a sharpening."""
    return _within(1e-3, 1.0, "above 0 (at least 0.001) and at most 1", default)


def key_of(field: dataclasses.Field[Any]) -> str:
    """Return the name of a field in a file."""
    return typing.cast(str, field.metadata.get("key", field.name))


def default_of(field: dataclasses.Field[Any]) -> Any:
    """Return the default of a field; ``dataclasses.MISSING`` if it is required."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _within(low: float, high: float, described: str, default: Any, most: float = math.inf) -> Any:
    """Return a field of numbers in a range; above ``most``, a number cannot be meant."""
    metadata = {"range": (low, high, described), "most": most}
    return dataclasses.field(default=default, metadata=metadata)
