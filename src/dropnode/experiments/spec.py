"""Specs: the methods, datasets, seeds and published figures of an experiment.

A spec has either ``rows``, methods to compare on datasets, or a ``search`` in stages.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dropnode.errors import ConfigError
from dropnode.settings import suggestion

MOST_TRIALS = 100_000
"""The most trials of a spec."""

MOST_SETTINGS = 20_000
"""The most combinations of a grid; each of them is checked before anything is run."""

Figure = tuple[float, float | None]
"""A published mean and its standard deviation, if published, in percent."""


@dataclass(frozen=True)
class Row:
    """A row of the table: one method, on every dataset in ``seeds``.

    ``choose`` has settings to choose by validation: all are trained, and on each dataset the row
    shows the one with the highest mean validation accuracy. A series of rows varies one setting:
    ``series`` is its name, and ``at`` the value in this row, such as ``{"order": 8}``.
    """

    name: str
    method: str
    label: str
    presets: Mapping[str, str | None]
    changes: Mapping[str, Any]
    seeds: Mapping[str, int]
    paper: Mapping[str, Figure]
    choose: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    series: str = ""
    at: Mapping[str, Any] = field(default_factory=dict)

    def candidates(self) -> list[dict[str, Any]]:
        """Return all settings to choose from; a single one without changes if there are none."""
        return combinations(self.choose)


@dataclass(frozen=True)
class Claim:
    """A claim that one row is better than another.

    Attributes
    ----------
    claim : the claim in words
    better : the name of the row that is said to be better
    than : the name of the other row
    measure : what they are compared by
    datasets : where it is tested; everywhere by default
    against : the dataset of the other row, if it is another one
    wider_than : the dataset on which the difference of the rows is smaller, if that is the claim
    paper : the difference that the paper states, in the unit of the tables
    size : whether the claim is that very difference, and not only its sign
    """

    claim: str
    better: str
    than: str
    measure: str = "test_accuracy"
    datasets: tuple[str, ...] = ()
    against: str | None = None
    wider_than: str | None = None
    paper: float | None = None
    size: bool = False

    def sides(self, dataset: str) -> list[tuple[str, str]]:
        """Return the row and the dataset of each side, and of each of the difference elsewhere."""
        sides = [(self.better, dataset), (self.than, self.against or dataset)]
        if self.wider_than is not None:
            sides += [(self.better, self.wider_than), (self.than, self.wider_than)]
        return sides


@dataclass(frozen=True)
class Plot:
    """Measures drawn against a number, with a line per series of rows.

    Attributes
    ----------
    title : title of the plot
    x : label of the horizontal axis
    over : the option of a transform that the datasets vary, such as ``random-edges.rate``; by
        default, the setting that the rows vary
    rows : the rows to draw, all by default; a row that varies nothing is a horizontal line; over
        an option, a row that varies a setting is a line for each value
    measures : the measures to draw, one panel each
    log : whether the horizontal axis is logarithmic
    """

    title: str
    x: str
    over: str | None = None
    rows: tuple[str, ...] = ()
    measures: tuple[str, ...] = ("test_accuracy",)
    log: bool = False


@dataclass(frozen=True)
class Search:
    """A search in stages: each tries its grid with the settings chosen by the earlier ones."""

    method: str
    preset: str | None
    changes: Mapping[str, Any]
    seeds: int
    stages: tuple[Mapping[str, tuple[Any, ...]], ...]


@dataclass(frozen=True)
class Spec:
    """An experiment.

    Attributes
    ----------
    name, title, description : str
    datasets : tuple of str
    splits : int
        Number of splits to draw for every dataset without a published one; each has all seeds.
    rows : tuple of Row
    reference : str or None
        The row that all others are compared with.
    claims : tuple of Claim
    search : Search or None
    measures : tuple of str
        The measures that are summarised in addition to the test accuracy. Trials store those that
        are not standard only if a spec names them.
    plots : tuple of Plot
    first_split : int
        The seed of the first split. A search uses other splits than the experiment that reports
        its result.
    optional : tuple of str
        The datasets that are left out, and named in the results, if their files cannot be had.
    """

    name: str
    title: str
    description: str
    datasets: tuple[str, ...]
    splits: int
    rows: tuple[Row, ...]
    reference: str | None
    claims: tuple[Claim, ...]
    search: Search | None
    text: str = field(repr=False)
    measures: tuple[str, ...] = ()
    plots: tuple[Plot, ...] = ()
    first_split: int = 0
    optional: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.num_trials > MOST_TRIALS:
            raise ConfigError(
                f"{self.num_trials:,} trials; expected at most {MOST_TRIALS:,}: lower seeds or "
                "splits, or give fewer values to try"
            )

    @property
    def num_trials(self) -> int:
        """How many trials the spec has at most; published splits and stages may share some."""
        if self.search is None:
            runs = sum(
                math.prod(map(len, row.choose.values())) * sum(row.seeds.values())
                for row in self.rows
            )
        else:
            settings = sum(math.prod(map(len, stage.values())) for stage in self.search.stages)
            runs = settings * self.search.seeds * len(self.datasets)
        return runs * self.splits

    @property
    def split_seeds(self) -> range:
        """The seeds of the splits."""
        return range(self.first_split, self.first_split + self.splits)

    def only(
        self,
        datasets: Iterable[str] | None = None,
        methods: Iterable[str] | None = None,
        seeds: int | None = None,
        splits: int | None = None,
    ) -> Spec:
        """Return the part of a spec with some datasets and rows, and other seeds and splits."""
        chosen = self
        if datasets is not None:
            kept = _chosen("dataset", datasets, self.datasets)
            rows = tuple(
                replace(row, seeds={name: row.seeds[name] for name in kept if name in row.seeds})
                for row in self.rows
            )
            chosen = replace(chosen, datasets=kept, rows=rows)
        if methods is not None:
            known = [name for row in self.rows for name in (row.series, row.name) if name]
            asked = _chosen("method", methods, dict.fromkeys(known))
            rows = tuple(row for row in chosen.rows if {row.name, row.series} & set(asked))
            names = [row.name for row in rows]
            claims = tuple(c for c in self.claims if {c.better, c.than} <= set(names))
            reference = self.reference if self.reference in names else None
            chosen = replace(chosen, rows=rows, claims=claims, reference=reference)
        if seeds is not None:
            if seeds < 1:
                raise ConfigError(f"{seeds} seeds; expected at least 1")
            rows = tuple(replace(row, seeds=dict.fromkeys(row.seeds, seeds)) for row in chosen.rows)
            search = chosen.search and replace(chosen.search, seeds=seeds)
            chosen = replace(chosen, rows=rows, search=search)
        if splits is not None:
            if splits < 1:
                raise ConfigError(f"{splits} splits; expected at least 1")
            chosen = replace(chosen, splits=splits)
        return chosen


def combinations(grid: Mapping[str, tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Return every combination of the values of a grid.

    Examples
    --------
    >>> combinations({"order": (2, 4), "hidden": (8,)})
    [{'order': 2, 'hidden': 8}, {'order': 4, 'hidden': 8}]
    """
    number = math.prod(map(len, grid.values()))
    if number > MOST_SETTINGS:
        raise ConfigError(
            f"{number:,} combinations of {', '.join(grid)}; expected at most {MOST_SETTINGS:,}"
        )
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def _chosen(kind: str, asked: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
    known = list(known)
    asked = list(asked)
    if not asked:
        raise ConfigError(f"no {kind} chosen; expected some of {', '.join(known)}")
    for name in asked:
        if name not in known:
            raise ConfigError(
                f"the experiment has no {kind} {name!r}{suggestion(name, known)}"
                if known
                else f"the experiment has no {kind}s to choose from"
            )
    return tuple(name for name in known if name in asked)
