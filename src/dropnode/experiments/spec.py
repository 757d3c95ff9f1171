"""Specs: the methods, datasets, seeds and published figures of an experiment.

A spec has either ``rows``, methods to compare on datasets, or a ``search`` in stages.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dropnode.errors import ConfigError
from dropnode.settings import suggestion

Figure = tuple[float, float | None]
"""A published mean and its standard deviation, if published, in percent."""


@dataclass(frozen=True)
class Row:
    """A row of the table: one method, on every dataset in ``seeds``.

    ``choose`` has settings to choose by validation: all are trained, and on each dataset the row
    shows the one with the highest mean validation accuracy.
    """

    name: str
    method: str
    label: str
    preset: str | None
    changes: Mapping[str, Any]
    seeds: Mapping[str, int]
    paper: Mapping[str, Figure]
    choose: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

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
    """

    claim: str
    better: str
    than: str


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
        The measures that trials store in addition to the standard ones.
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

    def only(
        self,
        datasets: Iterable[str] | None = None,
        methods: Iterable[str] | None = None,
        seeds: int | None = None,
    ) -> Spec:
        """Return the part of a spec with some of its datasets and rows, and other seeds."""
        chosen = self
        if datasets is not None:
            kept = _chosen("dataset", datasets, self.datasets)
            rows = tuple(
                replace(row, seeds={name: row.seeds[name] for name in kept if name in row.seeds})
                for row in self.rows
            )
            chosen = replace(chosen, datasets=kept, rows=rows)
        if methods is not None:
            names = _chosen("method", methods, [row.name for row in self.rows])
            rows = tuple(row for row in chosen.rows if row.name in names)
            claims = tuple(c for c in self.claims if {c.better, c.than} <= set(names))
            reference = self.reference if self.reference in names else None
            chosen = replace(chosen, rows=rows, claims=claims, reference=reference)
        if seeds is not None:
            if seeds < 1:
                raise ConfigError(f"{seeds} seeds; expected at least 1")
            rows = tuple(replace(row, seeds=dict.fromkeys(row.seeds, seeds)) for row in chosen.rows)
            search = chosen.search and replace(chosen.search, seeds=seeds)
            chosen = replace(chosen, rows=rows, search=search)
        return chosen


def combinations(grid: Mapping[str, tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Return every combination of the values of a grid.

    Examples
    --------
    >>> combinations({"order": (2, 4), "hidden": (8,)})
    [{'order': 2, 'hidden': 8}, {'order': 4, 'hidden': 8}]
    """
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
