"""``Config``, the base class of every configuration, and the strict reader of records.

Unknown keys, missing keys, wrong types and values out of range are errors, whether they come from
YAML, JSON, ``--set`` or Python, and so is a key that occurs twice in a file. A setting that is
silently ignored would lead to a wrong result. A number that cannot be meant is an error too: it
would run until somebody ends it. A configuration is a frozen dataclass whose fields define what
they accept::

    @dataclass(frozen=True)
    class Settings(Config):
        hidden: int = width()
        dropout: float = rate()
        stopping: str = choice("loss", "accuracy")

:func:`read_record` reads any other dataclass. An error names the place of the value, such as
``cora.expected.nodes``. Fields may have the types ``bool``, ``int``, ``float``, ``str``, ``Any``,
enums, literals, dataclasses, tuples, lists and mappings of these, and unions, such as
``int | None``.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import types
import typing
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, Union

import yaml

from dropnode.errors import ConfigError
from dropnode.files import unseal

T = TypeVar("T")

MOST = 1_000_000_000
"""The largest whole number of a :func:`count`."""

MOST_REPEATS = 1_000
"""The largest number of hops, views, layers, heads and other repetitions within one epoch."""

MOST_UNITS = 1_000_000
"""The largest number of units of a layer. Memory sets a limit long before, see ``memory.py``."""

MOST_SEED = 2**63 - 1
"""The largest seed: stores of trials have 64 bits for it."""

MOST_YAML = 1_000_000, 20_000, 50
"""The most characters, values and levels of a YAML text; aliases count as what they stand for."""


@dataclass(frozen=True)
class Config:
    """Base class of configurations; every value is checked on creation."""

    def __post_init__(self) -> None:
        kinds = _types(type(self))
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
            if getattr(self, field.name) != _default(field)
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return a configuration from a mapping that has every key without a default."""
        cls._check_keys(values)
        missing = [key for key, required in _keys(cls).items() if required and key not in values]
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
    """Return a field that accepts a number above 0, and at most ``most``."""
    return _within(1e-12, math.inf, "above 0", default, most)


def temperature(default: Any = dataclasses.MISSING) -> Any:
    """Return a field that accepts the temperature of a sharpening."""
    return _within(1e-3, 1.0, "above 0 (at least 0.001) and at most 1", default)


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
    keys = _keys(kind)
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
    if isinstance(read, tuple | list) and not read and _default(field) != read:
        raise ConfigError(f"{where} = {shown(read)}; expected {_described(kind)}, at least one")
    return read


def read_yaml(text: str) -> Any:
    """Return the content of a YAML text; a key that occurs twice and a tag are errors.

    So is a text with more characters, values or levels than :data:`MOST_YAML`.
    """
    if len(text) > MOST_YAML[0]:
        raise ConfigError(f"{len(text):,} characters of YAML; expected at most {MOST_YAML[0]:,}")
    try:
        return yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"not valid YAML ({' '.join(str(error).split())})") from error


def read_json(path: str | Path, cure: str = "restore the file or remove it") -> Any:
    """Return the content of a JSON file; keys that occur twice, NaN and infinity are errors.

    ``cure`` is the end of the error: what to do about a damaged file.
    """
    try:
        return parse_json(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid JSON ({error}); {cure}") from error


def read_sealed(path: str | Path, cure: str = "restore the file or remove it") -> dict[str, Any]:
    """Return the record in a JSON file, whose checksum is checked; see :func:`read_json`."""
    values = read_json(path, cure)
    if not isinstance(values, dict):
        raise ConfigError(f"{path} holds {shown(values)}; expected a JSON object; {cure}")
    try:
        return unseal(values)
    except ValueError as error:
        raise ConfigError(f"{path} cannot be trusted ({error}); {cure}") from error


def parse_json(text: str) -> Any:
    """Return the content of a JSON text; keys that occur twice, NaN and so on: ``ValueError``."""
    try:
        return json.loads(text, object_pairs_hook=_distinct, parse_constant=_no_number)
    except RecursionError as error:
        raise ValueError("its lists are nested too deep") from error


def read_changes(pairs: Sequence[str]) -> dict[str, Any]:
    """Return the keys and values of ``--set`` options.

    A value is true or false, a number, whole numbers separated by commas, or otherwise text. Its
    type is checked later, by the configuration that has the key. As usual on a command line, the
    last value of a key counts, so that the settings in a script can be overridden.

    Examples
    --------
    >>> read_changes(["order=4", "hidden=16,8", "head=gat", "batch_norm=false"])
    {'order': 4, 'hidden': [16, 8], 'head': 'gat', 'batch_norm': False}
    """
    changes: dict[str, Any] = {}
    for pair in pairs:
        key, sign, text = (part.strip() for part in pair.partition("="))
        if not (key and sign):
            raise ConfigError(f"--set {pair!r}; expected KEY=VALUE, such as order=4")
        changes[key] = _parsed(text)
    return changes


def key_of(field: dataclasses.Field[Any]) -> str:
    """Return the name of a field in a file."""
    return typing.cast(str, field.metadata.get("key", field.name))


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message: the nearest known name, or all of them."""
    known, name = list(known), name[:100]
    near = difflib.get_close_matches(name, known, n=1) or difflib.get_close_matches(
        name.lower(), known, n=1
    )
    return f"; did you mean {near[0]!r}?" if near else f"; expected one of {', '.join(known)}"


def continued(message: str, more: str) -> str:
    """Return a message with another part; after a question, the part is a sentence of its own.

    Examples
    --------
    >>> continued("expected one of a, b", "or give a path")
    'expected one of a, b; or give a path'
    >>> continued("did you mean 'a'?", "or give a path")
    "did you mean 'a'? Or give a path"
    """
    if message.endswith("?"):
        return f"{message} {more[:1].upper()}{more[1:]}"
    return f"{message}; {more}"


def shown(value: Any) -> str:
    """Return a value as errors show it, cut if it is long.

    Examples
    --------
    >>> shown("x" * 100)
    "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…"
    """
    try:
        text = " ".join(repr(value).split())
    except Exception:  # Whole numbers of thousands of digits have no text, nor has what is broken.
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 60 else f"{text[:59]}…"


def _within(low: float, high: float, described: str, default: Any, most: float = math.inf) -> Any:
    """Return a field of numbers in a range; above ``most``, a number cannot be meant."""
    metadata = {"range": (low, high, described), "most": most}
    return dataclasses.field(default=default, metadata=metadata)


_types: Callable[[Any], dict[str, Any]] = cache(typing.get_type_hints)
"""The types of a dataclass's fields by name, also if its annotations are strings."""


def _keys(kind: Any) -> dict[str, bool]:
    """Return the keys of a dataclass in a file, and whether each is required."""
    keys: dict[str, bool] = {}
    for field in dataclasses.fields(kind):
        if field.metadata.get("flat"):
            keys |= _keys(_types(kind)[field.name])
        elif field.init:
            keys[key_of(field)] = _default(field) is dataclasses.MISSING
    return keys


def _read_fields(kind: Any, values: Mapping[str, Any], where: str) -> Any:
    """Return a dataclass from values whose keys are known to be right."""
    parts = {}
    for field in dataclasses.fields(kind):
        of_field, key = _types(kind)[field.name], key_of(field)
        if field.metadata.get("flat"):
            parts[field.name] = _read_fields(of_field, values, where)
        elif key in values:
            parts[field.name] = read_value(of_field, values[key], f"{where}.{key}", field)
    return kind(**parts)


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if dataclasses.is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    return value


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
        return f"the keys {', '.join(_keys(kind))}"
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


class _Loader(yaml.SafeLoader):
    """Raises an error if a key occurs twice, of which YAML would drop one, and beyond limits."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.values = self.depth = 0
        self.sizes: dict[int, int] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        _, most_values, most_levels = MOST_YAML
        event = self.peek_event()
        if getattr(event, "tag", None) is not None:
            raise yaml.composer.ComposerError(None, None, f"the tag {event.tag}", event.start_mark)
        is_alias = isinstance(event, yaml.AliasEvent)
        before, self.values, self.depth = self.values, self.values + 1, self.depth + 1
        if self.depth > most_levels:
            raise yaml.composer.ComposerError(
                None, None, f"more than {most_levels} levels", event.start_mark
            )
        node = super().compose_node(parent, index)
        self.depth -= 1
        if is_alias and id(node) not in self.sizes:
            raise yaml.composer.ComposerError(
                None, None, "an alias stands for what it is part of", event.start_mark
            )
        if is_alias:
            self.values += self.sizes[id(node)]
        self.sizes[id(node)] = self.values - before
        if self.values > most_values:
            raise yaml.composer.ComposerError(
                None, None, f"more than {most_values:,} values", event.start_mark
            )
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            # What cannot be a key is reported below.
            if isinstance(key, Hashable) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} occurs twice", key_node.start_mark
                )
            if isinstance(key, Hashable):
                seen.add(key)
        return super().construct_mapping(node, deep)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; a key that occurs twice is an error, where Python keeps the last."""
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} occurs twice")
    return values


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not a number in JSON")


def _parsed(text: str) -> Any:
    """Return a value of ``--set``: true or false, a number, several whole numbers, or text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    parts = text.split(",")
    several = len(parts) > 1 and all(part.strip().isdecimal() for part in parts)
    # A number of thousands of digits is text to Python, which the configuration then refuses.
    with suppress(ValueError):
        return [int(part) for part in parts] if several else int(text)
    with suppress(ValueError):
        return float(text)
    return text
