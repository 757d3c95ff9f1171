"""``Config``: the base class of every configuration."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from dropnode.errors import ConfigError
from dropnode.settings.fields import default_of
from dropnode.settings.messages import shown, suggestion
from dropnode.settings.records import keys_of, read_value, types_of


@dataclass(frozen=True)
class Config:
    """Base class of configurations; every value is checked on creation."""

    def __post_init__(self) -> None:
        kinds = types_of(type(self))
        for field in dataclasses.fields(self):
            value = read_value(kinds[field.name], getattr(self, field.name), field.name, field)
            object.__setattr__(self, field.name, value)

    def replace(self, /, **changes: Any) -> Self:
        """Return this configuration with some keys changed; an unknown key is an error."""
        self._check_keys(changes)
        return dataclasses.replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        """Return the configuration as plain values for JSON."""
        return {name: _plain(getattr(self, name)) for name in self.names()}

    def identity(self) -> dict[str, Any]:
        """Return the keys that differ from their default.

        They identify a configuration, also after keys with a default have been added.
        """
        return {
            field.name: _plain(getattr(self, field.name))
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != default_of(field)
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return a configuration from a mapping that has every key without a default."""
        cls._check_keys(values)
        missing = [key for key, required in keys_of(cls).items() if required and key not in values]
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
                    f"unknown configuration key {shown(name)}{suggestion(str(name), cls.names())}"
                )


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if dataclasses.is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    return value
