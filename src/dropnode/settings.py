"""Strict configurations: unknown keys, wrong types and values out of range are errors.

A configuration is a frozen dataclass whose fields say what they accept::

    @dataclass(frozen=True)
    class Settings(Config):
        hidden: int = count()
        dropout: float = rate()
        stopping: str = choice("loss", "accuracy")
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, Self

import yaml

from dropnode.errors import ConfigError


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the end of an error sentence: the nearest known name, or all of them."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; expected one of {', '.join(known)}"


def read_yaml(text: str) -> Any:
    """Return what a YAML text says; a key that is given twice is an error."""
    try:
        return yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"not YAML ({' '.join(str(error).split())})") from error


def choice(*words: str, default: Any = dataclasses.MISSING) -> Any:
    """A field that takes one of some words."""
    return dataclasses.field(default=default, metadata={"choices": words})


def flag(default: Any = dataclasses.MISSING) -> Any:
    """A field that takes true or false."""
    return dataclasses.field(default=default)


def rate(default: Any = dataclasses.MISSING) -> Any:
    """A field that takes the probability of dropping something."""
    return _within(0.0, 1.0 - 1e-9, "at least 0 and below 1", default)


def share(default: Any = dataclasses.MISSING) -> Any:
    """A field that takes a number from 0 to 1."""
    return _within(0.0, 1.0, "from 0 to 1", default)


def count(least: int = 1, default: Any = dataclasses.MISSING) -> Any:
    """A field that takes a whole number of at least ``least``."""
    return _within(least, math.inf, f"a whole number of at least {least}", default)


def weight(default: Any = dataclasses.MISSING) -> Any:
    """A field that takes a number of at least 0."""
    return _within(0.0, math.inf, "a number of at least 0", default)


def positive(default: Any = dataclasses.MISSING) -> Any:
    """A field that takes a number above 0."""
    return _within(1e-12, math.inf, "above 0", default)


def temperature(default: Any = dataclasses.MISSING) -> Any:
    """A field that takes the temperature of a sharpening."""
    return _within(1e-3, 1.0, "above 0 (at least 0.001) and at most 1", default)


@dataclass(frozen=True)
class Config:
    """What every configuration can do."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = _typed(field, getattr(self, field.name))
            object.__setattr__(self, field.name, value)
            choices = field.metadata.get("choices")
            if choices and value not in choices:
                raise ConfigError(f"{field.name} = {value!r}; expected one of {', '.join(choices)}")
            if "range" in field.metadata:
                low, high, described = field.metadata["range"]
                if not (low <= value <= high):
                    raise ConfigError(f"{field.name} = {value!r}; expected {described}")

    def replace(self, /, **changes: Any) -> Self:
        """Return this configuration with some keys changed; an unknown key is an error."""
        self._check_keys(changes)
        return dataclasses.replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        """Return the configuration as plain values, such as JSON has."""
        return {name: _plain(getattr(self, name)) for name in self.names()}

    def identity(self) -> dict[str, Any]:
        """Return the keys that are not at their default.

        They tell two configurations apart, and go on doing so when keys are added.
        """
        return {
            field.name: _plain(getattr(self, field.name))
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build a configuration that names every key without a default."""
        cls._check_keys(values)
        missing = [
            field.name
            for field in dataclasses.fields(cls)
            if field.default is dataclasses.MISSING and field.name not in values
        ]
        if missing:
            raise ConfigError(f"configuration lacks {', '.join(sorted(missing))}; give every key")
        return cls(**values)

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of all keys."""
        return tuple(field.name for field in dataclasses.fields(cls))

    @classmethod
    def _check_keys(cls, values: Mapping[str, Any]) -> None:
        for name in values:
            if name not in cls.names():
                raise ConfigError(
                    f"unknown configuration key {name!r}{suggestion(str(name), cls.names())}"
                )


class _Loader(yaml.SafeLoader):
    """Refuses a key that is given twice, of which YAML would drop one."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        own = [key for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        keys = [self.construct_object(key, deep=True) for key in own]
        for place, key in enumerate(keys):
            if key in keys[:place]:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key!r} is given twice", node.start_mark
                )
        return super().construct_mapping(node, deep)


def _within(low: float, high: float, described: str, default: Any) -> Any:
    return dataclasses.field(default=default, metadata={"range": (low, high, described)})


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _typed(field: dataclasses.Field[Any], value: Any) -> Any:
    """Return the value in the field's type, or say why it is not of that type."""
    kind = str(field.type)
    if kind in ("float", "int"):
        # Real covers NumPy's scalars, which a parameter search hands over; so does bool, a trap.
        number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
        if number and kind == "float":
            return float(value)
        if number and value == int(value):
            return int(value)
    elif kind == "tuple[int, ...]":
        numbers = tuple(value) if isinstance(value, list | tuple) else ()
        if numbers and all(isinstance(n, int) and not isinstance(n, bool) for n in numbers):
            return numbers
    elif isinstance(value, str if kind == "str" else bool):
        return value
    raise ConfigError(f"{field.name} = {value!r}; expected {_KINDS[kind]}")


_KINDS = {
    "float": "a number",
    "int": "a whole number",
    "str": "a word",
    "bool": "true or false",
    "tuple[int, ...]": "a list of whole numbers",
}
