"""Values from texts: YAML, JSON, sealed records, and ``--set`` options.

A key that occurs twice is an error, and so is what would take long to read.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from dropnode.errors import ConfigError
from dropnode.files import read_content, unseal
from dropnode.settings.messages import shown

MOST_YAML = 1_000_000, 20_000, 50
"""The most characters, values and levels of a YAML text; aliases count as what they stand for."""


def read_yaml(text: str) -> Any:
    """Return the content of a YAML text; a key that occurs twice and a tag are errors.

    So is a text with more characters, values or levels than ``MOST_YAML``.
    """
    if len(text) > MOST_YAML[0]:
        raise ConfigError(f"{len(text):,} characters of YAML; expected at most {MOST_YAML[0]:,}")
    try:
        return yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"not valid YAML ({' '.join(str(error).split())})") from error


def yaml_text(path: Path) -> str:
    """Return the text of a file; more bytes than the longest YAML text may have are an error."""
    return read_content(path, most=4 * MOST_YAML[0]).decode()


def read_json(path: str | Path, cure: str = "restore the file or remove it") -> Any:
    """Return the content of a JSON file; keys that occur twice, NaN and infinity are errors.

    ``cure`` is the end of the error: what to do about a damaged file.
    """
    try:
        return parse_json(read_content(Path(path)).decode())
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
    last value of a key counts, so that the settings in a script can be overridden. ``@FILE`` stands
    for the keys and values of a YAML or JSON file, such as the ``best.yaml`` of ``dropnode tune``.

    Examples
    --------
    >>> read_changes(["order=4", "hidden=16,8", "head=gat", "batch_norm=false"])
    {'order': 4, 'hidden': [16, 8], 'head': 'gat', 'batch_norm': False}
    """
    changes: dict[str, Any] = {}
    for pair in pairs:
        if pair.startswith("@"):
            changes |= _read_settings(Path(pair[1:]))
            continue
        key, sign, text = (part.strip() for part in pair.partition("="))
        if not (key and sign):
            raise ConfigError(f"--set {pair!r}; expected KEY=VALUE, such as order=4")
        changes[key] = _parsed(text)
    return changes


def _read_settings(path: Path) -> dict[str, Any]:
    try:
        values = read_yaml(yaml_text(path))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"--set @{path}: the file cannot be read ({error}); expected keys and values, as "
            "dropnode tune writes them"
        ) from error
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise ConfigError(f"--set @{path}: expected keys and values, such as order: 4")
    return values


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
