"""The strict reader of records: a dataclass from a mapping, a value in its type."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cache
from numbers import Integral, Real
from typing import Any, Literal, TypeVar, Union

from dropnode.errors import ConfigError
from dropnode.settings.fields import default_of, key_of
from dropnode.settings.messages import shown, suggestion

T = TypeVar("T")


def read_record(kind: type[T], values: Any, where: str) -> T:
    """Return a dataclass from a mapping of its keys to values.

    Parameters
    ----------
    kind : type
        A dataclass. A list of it may be empty only if that is the field's default. The metadata of
        a field can say that a file has it in another form: ``key`` is its name there; ``flat`` that
        its own fields are not nested there; ``empty`` the value that stands for an empty list.
    values : mapping
        As read from YAML or JSON: lists for tuples, mappings for dataclasses.
    where : str
        The name of the record in errors.

    Raises
    ------
    ConfigError
        If a key is unknown or missing, or a value has a wrong type or is out of range.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from dropnode.settings import count
    >>> @dataclass(frozen=True)
    ... class Size:
    ...     nodes: int = count()
    ...     edges: int | None = None
    >>> read_record(Size, {"nodes": 3}, "graph")
    Size(nodes=3, edges=None)
    >>> read_record(Size, {"nodes": 0}, "graph")
    Traceback (most recent call last):
    dropnode.errors.ConfigError: graph.nodes = 0; expected a whole number of at least 1
    """
    keys = keys_of(kind)
    required = [key for key, needed in keys.items() if needed]
    check_keys(values, required, [key for key in keys if key not in required], where)
    return _read_fields(kind, values, where)


def check_keys(
    values: Any, required: Iterable[str], optional: Iterable[str] = (), where: str = "the record"
) -> None:
    """Raise :class:`ConfigError` unless ``values`` is a mapping with exactly these keys."""
    required = list(required)
    known = [*required, *optional]
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where} = {shown(values)}; expected the keys {', '.join(known)}")
    for key in values:
        if key not in known:
            raise ConfigError(f"unknown key {shown(key)} in {where}{suggestion(str(key), known)}")
    missing = [name for name in required if name not in values]
    if missing:
        raise ConfigError(f"{where} lacks {', '.join(missing)}; give every key without a default")


def read_value(kind: Any, value: Any, where: str, field: Any = None) -> Any:
    """Return ``value`` in the type ``kind``, or raise :class:`ConfigError`.

    Parameters
    ----------
    kind : type
        Any type that a field may have.
    value : object
        As read from YAML or JSON, or given in Python.
    where : str
        The name of the value in errors.
    field : field, optional
        Further conditions on the value, such as ``count()`` or ``choice("a", "b")``.

    Examples
    --------
    >>> from dropnode.settings import count
    >>> read_value(tuple[int, ...], [4, 5], "hidden")
    (4, 5)
    >>> read_value(int, 0, "seeds", count())
    Traceback (most recent call last):
    dropnode.errors.ConfigError: seeds = 0; expected a whole number of at least 1
    """
    if field is not None and "empty" in field.metadata and value == field.metadata["empty"]:
        return ()
    read = _convert(kind, value, where)
    if field is None or read is None:
        return read
    choices = field.metadata.get("choices")
    if choices and read not in choices:
        raise ConfigError(f"{where} = {shown(read)}; expected one of {', '.join(choices)}")
    if "range" in field.metadata:
        low, high, described = field.metadata["range"]
        numbers = read if isinstance(read, tuple | list) else (read,)
        if not all(low <= number <= high for number in numbers):
            raise ConfigError(f"{where} = {shown(read)}; expected {described}")
        most = field.metadata["most"]
        if any(number > most for number in numbers):
            raise ConfigError(f"{where} = {shown(read)}; expected at most {most:,}")
    if isinstance(read, tuple | list) and not read and default_of(field) != read:
        raise ConfigError(f"{where} = {shown(read)}; expected {_described(kind)}, at least one")
    return read


types_of: Callable[[Any], dict[str, Any]] = cache(typing.get_type_hints)
"""The types of a dataclass's fields by name, also if its annotations are strings."""


def keys_of(kind: Any) -> dict[str, bool]:
    """Return the keys of a dataclass in a file, and whether each is required."""
    keys: dict[str, bool] = {}
    for field in dataclasses.fields(kind):
        if field.metadata.get("flat"):
            keys |= keys_of(types_of(kind)[field.name])
        elif field.init:
            keys[key_of(field)] = default_of(field) is dataclasses.MISSING
    return keys


def _read_fields(kind: Any, values: Mapping[str, Any], where: str) -> Any:
    """Return a dataclass from values whose keys are known to be right."""
    parts = {}
    for field in dataclasses.fields(kind):
        of_field, key = types_of(kind)[field.name], key_of(field)
        if field.metadata.get("flat"):
            parts[field.name] = _read_fields(of_field, values, where)
        elif key in values:
            parts[field.name] = read_value(of_field, values[key], f"{where}.{key}", field)
    return kind(**parts)


def _convert(kind: Any, value: Any, where: str) -> Any:
    """Return the value in a type; its range is not checked."""
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind):
        if isinstance(value, typing.cast(type, kind)):
            return value
        return read_record(typing.cast(type, kind), value, where)
    if isinstance(kind, type) and issubclass(kind, Enum):
        try:
            return kind(value)
        except ValueError:
            raise ConfigError(f"{where} = {shown(value)}; expected {_described(kind)}") from None
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        return _convert_union(kind, value, where)
    if origin is Literal and value in arguments:
        return value
    if origin in (tuple, list) and isinstance(value, list | tuple):
        made = [_convert(arguments[0], each, f"{where}[{i}]") for i, each in enumerate(value)]
        return made if origin is list else tuple(made)
    if origin in (dict, Mapping) and isinstance(value, Mapping):
        return {
            _convert(arguments[0], key, f"a key of {where}"): _convert(
                arguments[1], each, f"{where}[{key!r}]"
            )
            for key, each in value.items()
        }
    if kind in (int, float):
        number = _number(kind, value)
        if number is not None:
            return number
    elif kind in (str, bool, type(None)) and isinstance(value, kind):
        return value
    raise ConfigError(f"{where} = {shown(value)}; expected {_described(kind)}")


def _number(kind: type, value: Any) -> float | int | None:
    """Return a number in a type; None if it is not finite, not whole, or no number."""
    # Real includes NumPy's scalars, which a parameter search passes, and also bool, which is not
    # accepted as a number.
    if not isinstance(value, Real) or isinstance(value, bool):
        return None
    if kind is int and isinstance(value, Integral):
        return int(value)
    try:
        finite = float(value) if math.isfinite(value) else None
    except OverflowError:
        return None
    if kind is float or finite is None:
        return finite
    return int(finite) if finite.is_integer() else None


def _convert_union(kind: Any, value: Any, where: str) -> Any:
    """Return the value in the first type of a union that accepts it."""
    arms = [arm for arm in typing.get_args(kind) if arm is not type(None)]
    if value is None and len(arms) < len(typing.get_args(kind)):
        return None
    if len(arms) == 1:
        return _convert(arms[0], value, where)
    for arm in arms:
        # An error in a record is more helpful than one about the union.
        if dataclasses.is_dataclass(arm) and isinstance(value, Mapping):
            return _convert(arm, value, where)
        try:
            return _convert(arm, value, where)
        except ConfigError:
            continue
    raise ConfigError(f"{where} = {shown(value)}; expected {_described(kind)}")


_WORDS = {
    float: ("a number", "numbers"),
    int: ("a whole number", "whole numbers"),
    str: ("a word", "words"),
    bool: ("true or false", "true or false"),
    type(None): ("nothing", "nothing"),
}
"""The names of the simple types in errors, singular and plural."""


def _described(kind: Any) -> str:
    """Return the description of a type in errors."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return f"the keys {', '.join(keys_of(kind))}"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return f"one of {', '.join(str(member.value) for member in kind)}"
    if origin in (Union, types.UnionType):
        return " or ".join(_described(arm) for arm in arguments if arm is not type(None))
    if origin is Literal:
        return " or ".join(map(repr, arguments))
    if origin in (tuple, list):
        if arguments[0] is Any:
            return "a list"
        if arguments[0] in _WORDS:
            return f"a list of {_WORDS[arguments[0]][1]}"
        return f"a list, each {_described(arguments[0])}"
    if origin in (dict, Mapping):
        return "keys and values"
    if kind not in _WORDS:
        raise TypeError(f"a field has the type {kind}, which cannot be read strictly")
    return _WORDS[kind][0]
