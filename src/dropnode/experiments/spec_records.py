"""The keys of a spec file, of its rows and of its search, before they are checked together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dropnode.experiments.spec import Claim, Plot
from dropnode.settings import repeats, seed


@dataclass(frozen=True)
class RowRecord:
    """A row as the file has it.

    Attributes
    ----------
    method : the method that is trained
    name : how the rest of the file calls the row; by default the method's name
    label : how tables call the row; by default its name
    preset : the preset to start from, instead of the file's; also by catalogue name, such as
        ``{cora: fast, pubmed: tuned}``
    set : configuration keys and values on top of the preset and of the file's ``set``
    seeds : number of seeds, instead of the file's; also by dataset, such as ``{cora: 100}``
    paper : the published accuracy by dataset: a mean, or ``[mean, deviation]``, in percent
    choose : keys whose value validation chooses, with the values to try
    vary : one key and its values; the row becomes a series with a row for each value
    """

    method: str
    name: str | None = None
    label: str | None = None
    preset: str | Mapping[str, str] | None = None
    set: Mapping[str, Any] = field(default_factory=dict)
    seeds: int | Mapping[str, int] | None = None
    paper: Mapping[str, float | tuple[float, ...]] = field(default_factory=dict)
    choose: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    vary: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class SearchRecord:
    """A search as the file has it.

    Attributes
    ----------
    method : the method that is trained
    stages : grids of keys and values to try, each with what the earlier stages chose
    """

    method: str
    stages: tuple[Mapping[str, tuple[Any, ...]], ...]


@dataclass(frozen=True)
class SpecRecord:
    """The keys of a spec file.

    Attributes
    ----------
    title : the heading of tables and report
    datasets : references: names, ``.npz`` files, or transforms of these
    seeds : seeds per row and dataset; also by dataset, such as ``{cora: 100}``
    description : a paragraph for the report
    optional : datasets that are left out, and named in the results, if their files cannot be had
    preset : the preset of every row; by default ``official`` where there is one, else ``default``
    set : configuration keys and values for every row, on top of the preset
    splits : splits to draw for datasets without a published one; each has all seeds
    first_split : the seed of the first split
    measures : measures that the tables show beside the test accuracy; every trial stores them
    plots : measures to draw against a setting that rows vary, or against an option of a transform
    rows : the methods to compare; either these or ``search``
    include : a spec of the package whose rows, claims and measures follow this file's
    reference : the name of the row that every other row is compared with
    claims : claims to test, each about two rows
    search : settings to choose by validation, in stages; either this or ``rows``
    """

    title: str
    datasets: tuple[str, ...]
    seeds: int | Mapping[str, int]
    description: str | None = None
    optional: tuple[str, ...] = ()
    preset: str | None = None
    set: Mapping[str, Any] = field(default_factory=dict)
    splits: int = repeats(default=1)
    first_split: int = seed(default=0)
    measures: tuple[str, ...] = ()
    plots: tuple[Plot, ...] = ()
    rows: tuple[RowRecord, ...] | None = None
    include: str | None = None
    reference: str | None = None
    claims: tuple[Claim, ...] = ()
    search: SearchRecord | None = None
