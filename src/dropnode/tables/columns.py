"""What each column of a table of nodes becomes: numbers, categories, text, lists, or nothing.

The rules are few and fixed, and the result is told for every column, so that nobody has to guess
what a model has seen. A caller can decide otherwise for every column.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dropnode.errors import ConfigError
from dropnode.settings import shown
from dropnode.tables.column_encoders import (
    Categories,
    Encoder,
    Items,
    Numbers,
    Vectors,
    as_lists,
    is_boolean,
)
from dropnode.tables.numbers import COMMA, NUMBER, numeric_share, read_numbers
from dropnode.tables.problems import Problems
from dropnode.tables.table import (
    Column,
    Table,
    find_column,
    is_list,
    is_scalar,
    is_text,
    positions,
    texts,
)
from dropnode.tables.words import Words

MOST_CATEGORIES = 1_000
"""The most different texts of a column that becomes categories without being asked for."""

MOST_NAMED_CATEGORIES = 100_000
"""The most categories or items of a column that the caller has named."""

MOSTLY_NUMBERS = 0.9
"""From this share of numbers on, the other texts of a column are taken for mistakes."""


@dataclass(frozen=True)
class Roles:
    """What a caller has decided about columns, by name."""

    text: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()

    @classmethod
    def of(cls, **given: Any) -> Roles:
        """Return the roles from names, or lists of names; None is none."""
        roles = {role: _names(role, names) for role, names in given.items()}
        seen: dict[str, str] = {}
        for role, names in roles.items():
            for name in names:
                if seen.setdefault(name, role) != role:
                    raise ConfigError(
                        f"column {shown(name)} is given as {seen[name]} and as {role}; choose one"
                    )
        return cls(**roles)

    def check(self, table: Table, taken: Mapping[str, str | None], problems: Problems) -> None:
        """Add a problem for every name that is no column of the table that can become features.

        ``taken`` has the names of columns that are something else, by what they are.
        """
        for role, names in vars(self).items():
            for name in names:
                found = find_column(table, name, role, problems)
                others = [what for what, other in taken.items() if found and other == name]
                for what in others:
                    told = f"is the column of {what}, which becomes no feature, and is given as"
                    problems.add(table.name, f"{told} {role} too; choose one", column=name)


def _names(role: str, given: Any) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else tuple(given or ())
    for name in names:
        if not isinstance(name, str):
            raise ConfigError(f"{role} = {shown(given)}; expected names of columns")
    return names


@dataclass(frozen=True)
class ColumnReport:
    """What a column became, in words, and how many features that is."""

    column: str
    became: str
    features: int = 0


def fit_columns(
    table: Table, taken: Iterable[str], roles: Roles, problems: Problems
) -> tuple[list[Encoder], list[ColumnReport]]:
    """Return the encoders of the columns of a table that are not ``taken``, and all reports."""
    encoders, reports = [], []
    for name in table.columns:
        if name in taken:
            continue
        encoder, why = _fit(table, name, roles, problems)
        if encoder is None:
            reports.append(ColumnReport(name, f"left out: {why}"))
        else:
            encoders.append(encoder)
            reports.append(ColumnReport(name, encoder.told(), encoder.width))
    return encoders, reports


def _fit(table: Table, name: str, roles: Roles, problems: Problems) -> tuple[Encoder | None, str]:
    """Return the encoder of a column, or None and why it has none."""
    column = table.columns[name]
    if name in roles.drop:
        return None, "as asked for"
    if column.null_count == len(column):
        return None, "it is empty"
    if name in roles.text:
        return _fit_words(table, name, problems)
    if name in roles.categories and not is_scalar(column):
        told = f"{column.type} cannot be categories; write text or numbers, or drop the column"
        problems.add(table.name, told, column=name)
        return None, "its values cannot be categories"
    if name in roles.lists or is_list(column.type):
        return _fit_lists(table, name, name in roles.lists, problems)
    if not is_scalar(column):
        return None, f"values of the type {column.type} are not encoded; turn them into numbers"
    if name in roles.categories:
        return _fit_categories(table, name, MOST_NAMED_CATEGORIES, problems)
    if column.type == pa.bool_():
        return _fit_categories(table, name, MOST_CATEGORIES, problems)
    if not is_text(column):
        return _fit_numbers(table, name, problems)
    present = texts(column)
    share = numeric_share(present) if table.plain_text else 0.0
    if share == 1.0:
        return _fit_numbers(table, name, problems)
    if share >= MOSTLY_NUMBERS:
        _report_others(table, name, present, problems)
        return None, "it has texts among its numbers"
    if table.plain_text and _share(present, COMMA) >= MOSTLY_NUMBERS:
        told = "numbers with a comma in them; write a decimal point, and nothing between thousands"
        problems.add(table.name, told, column=name)
        return None, "it has numbers with a comma"
    return _fit_texts(name, present)


def _fit_numbers(table: Table, name: str, problems: Problems) -> tuple[Encoder | None, str]:
    values = read_numbers(table, name, problems)
    present = values[np.isfinite(values)]
    if not len(present):
        return None, "it is empty"
    if len(present) == len(values) and present.min() == present.max():
        return None, "all rows are equal"
    return Numbers.fit(name, np.where(np.isinf(values), np.nan, values)), ""


def _fit_texts(name: str, present: Column) -> tuple[Encoder | None, str]:
    """Return the encoder of a column of text that nobody has named: categories, if they recur."""
    filled = len(present) - present.null_count
    if not filled:
        return None, "it is empty"
    distinct = pc.count_distinct(present).as_py()
    if distinct == 1 and filled == len(present):
        return None, "all rows are equal"
    recurring = distinct <= MOST_CATEGORIES and 2 * distinct <= filled
    if recurring or (distinct <= 6 and is_boolean(present)):
        return Categories.fit(name, present), ""
    told = f"{distinct:,} different texts in {filled:,} rows; name it as text or as categories"
    return None, f"{told} to use it"


def _fit_categories(
    table: Table, name: str, most: int, problems: Problems
) -> tuple[Encoder | None, str]:
    present = texts(table.columns[name])
    distinct = pc.count_distinct(present).as_py()
    if distinct > most:
        problems.add(table.name, f"{distinct:,} categories; expected at most {most:,}", column=name)
    if not 0 < distinct <= most:
        return None, "it is empty" if not distinct else "it has too many categories"
    if distinct == 1 and not present.null_count:
        return None, "all rows are equal"
    return Categories.fit(name, present), ""


def _fit_words(table: Table, name: str, problems: Problems) -> tuple[Encoder | None, str]:
    column = table.columns[name]
    if not is_text(column):
        problems.add(table.name, f"{column.type} is given as text, but is none", column=name)
        return None, "it is no text"
    encoder = Words.fit(name, column)
    return encoder, "" if encoder else "it has no words of two letters or more"


def _fit_lists(
    table: Table, name: str, named: bool, problems: Problems
) -> tuple[Encoder | None, str]:
    column = table.columns[name]
    numeric = is_list(column.type) and column.type.value_type in (pa.int64(), pa.float64())
    if numeric and not named:
        lengths = pc.unique(pc.list_value_length(column)).to_pylist()
        size = lengths[0]
        if len(lengths) == 1 and size:
            return Vectors(name, size), ""
        if column.type.value_type == pa.float64():
            told = f"lists of {shown(sorted(lengths, key=str)[:5])} numbers; give every row equally"
            problems.add(table.name, f"{told} many", column=name)
            return None, "its lists differ in length"
    before = len(problems)
    lists = as_lists(table, name, problems)
    if len(problems) > before:
        return None, "it has no lists"
    encoder = Items.fit(name, lists)
    if encoder.width > MOST_NAMED_CATEGORIES:
        told = f"{encoder.width:,} items; expected at most {MOST_NAMED_CATEGORIES:,}"
        problems.add(table.name, told, column=name)
    return (encoder, "") if encoder.width else (None, "it is empty")


def _share(present: Column, pattern: str) -> float:
    found = len(positions(pc.match_substring_regex(present, pattern)))
    return found / max(len(present) - present.null_count, 1)


def _report_others(table: Table, name: str, present: Column, problems: Problems) -> None:
    """Report the texts among numbers."""
    others = positions(pc.invert(pc.match_substring_regex(present, NUMBER)))
    told = "{} is not a number, but most of the column are; correct it, or name the column as "
    table.report(problems, name, others, f"{told}categories, as text or to be dropped")
