"""Encoders of single columns: fitted once, they turn new rows into features alike.

An encoder is plain data, so that a model keeps it as JSON. Each gives its column about the same
weight: a number has variance one, the words of a text and a category have length one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp

from dropnode.errors import ConfigError
from dropnode.graph.arrays import Matrix
from dropnode.settings import count
from dropnode.tables.numbers import read_numbers
from dropnode.tables.problems import Problems
from dropnode.tables.table import Column, Table, is_list, is_scalar, is_text, positions, texts

SEPARATOR = "|"
"""What separates the items of a list that is written as text."""


BOOLEANS = ("false", "true")
"""The categories of booleans."""


@dataclass(frozen=True)
class Encoder(ABC):
    """What turns one column into features."""

    column: str
    kind: ClassVar[str]
    nonnegative: ClassVar[bool] = True

    @property
    @abstractmethod
    def width(self) -> int:
        """Number of features."""

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """The name of each feature, for explanations."""

    @abstractmethod
    def transform(self, table: Table, problems: Problems) -> Matrix:
        """Return the features of every row, dense or sparse."""

    @abstractmethod
    def told(self) -> str:
        """Return what the column became, in a few words."""

    def record(self) -> dict[str, Any]:
        """Return the encoder as JSON values."""
        return {"kind": self.kind} | asdict(self)


@dataclass(frozen=True)
class Numbers(Encoder):
    """Standardised numbers; a missing one is the mean, and a second feature tells that it was.

    Columns of zeros and ones stay as they are, with a mean of 0 and a deviation of 1. Other columns
    may have these two as well, so that ``flag`` tells which it is; encoders of an earlier version,
    which have None, did not.
    """

    mean: float
    deviation: float
    indicator: bool = False
    flag: bool | None = None
    kind = "numbers"

    def __post_init__(self) -> None:
        if not self.deviation > 0:
            raise ConfigError(f"the deviation of column {self.column} is {self.deviation}")

    @classmethod
    def fit(cls, column: str, values: np.ndarray) -> Self:
        """Fit to values that are NaN where they are missing.

        Where all values are equal, their deviation is taken for 1.
        """
        present = values[~np.isnan(values)]
        indicator = len(present) < len(values)
        if np.isin(present, (0.0, 1.0)).all():
            return cls(column, 0.0, 1.0, indicator, True)
        # Squares of large numbers would overflow.
        scale = float(np.abs(present).max())
        mean, deviation = float((present / scale).mean()), float((present / scale).std())
        return cls(column, mean * scale, deviation * scale or 1.0, indicator, False)

    @property
    def is_flag(self) -> bool:
        """Whether the column has zeros and ones only."""
        return (self.mean, self.deviation) == (0.0, 1.0) if self.flag is None else self.flag

    @property
    def nonnegative(self) -> bool:  # type: ignore[override]
        """Whether no feature can be below zero."""
        return self.is_flag

    @property
    def width(self) -> int:
        """Number of features."""
        return 1 + self.indicator

    @property
    def names(self) -> list[str]:
        """The name of each feature, for explanations."""
        return [self.column, f"{self.column} is missing"][: self.width]

    def transform(self, table: Table, problems: Problems) -> Matrix:
        """Return the numbers, and where they were missing."""
        values = read_numbers(table, self.column, problems)
        absent = np.isnan(values)
        with np.errstate(over="ignore", invalid="ignore"):
            # Not the difference first, which could overflow.
            scaled = values / self.deviation - self.mean / self.deviation
            scaled = np.where(absent, 0.0, scaled).astype(np.float32)
        beyond = np.flatnonzero(~np.isfinite(scaled) & np.isfinite(np.where(absent, 0.0, values)))
        told = "{} is too far from the other numbers to encode; correct it or rescale the column"
        table.report(problems, self.column, beyond, told)
        return np.stack([scaled, absent], axis=1, dtype=np.float32)[:, : self.width]

    def told(self) -> str:
        """Return what the column became, in a few words."""
        kind = "zeros and ones" if self.is_flag else "numbers, standardised"
        return kind + (", and whether one is missing" if self.indicator else "")


@dataclass(frozen=True)
class Categories(Encoder):
    """One feature per category; an unknown or missing one has zeros."""

    values: tuple[str, ...]
    kind = "categories"

    @classmethod
    def fit(cls, column: str, values: Column) -> Self:
        """Fit to a column of text."""
        found = set(pc.unique(values.drop_null()).to_pylist())
        # Files spell booleans as true, True and TRUE.
        return cls(column, BOOLEANS if is_boolean(values) else tuple(sorted(found)))

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.values)

    @property
    def names(self) -> list[str]:
        """The name of each feature, for explanations."""
        return [f"{self.column} = {value}" for value in self.values]

    def transform(self, table: Table, problems: Problems) -> Matrix:
        """Return a one in the column of each row's category."""
        column = table.columns[self.column]
        if not is_scalar(column):
            problems.add(table.name, f"{column.type} where text is expected", column=self.column)
            return sp.csr_array((len(column), self.width), dtype=np.float32)
        present = texts(column)
        if self.values == BOOLEANS:
            present = pc.utf8_lower(present)
        return _ones(np.arange(len(column)), present, self.values, len(column))

    def told(self) -> str:
        """Return what the column became, in a few words."""
        return f"{self.width:,} categories"


@dataclass(frozen=True)
class Items(Encoder):
    """One feature per item of lists; unknown items have none."""

    values: tuple[str, ...]
    kind = "items"

    @classmethod
    def fit(cls, column: str, lists: Column) -> Self:
        """Fit to a column of lists."""
        items = pc.unique(texts(_flat(lists)).drop_null()).to_pylist()
        return cls(column, tuple(sorted(items)))

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.values)

    @property
    def names(self) -> list[str]:
        """The name of each feature, for explanations."""
        return [f"{self.column} has {value}" for value in self.values]

    def transform(self, table: Table, problems: Problems) -> Matrix:
        """Return a one in the column of each item of each row."""
        lists = as_lists(table, self.column, problems)
        # Not by list_parent_indices: lists of a fixed size have items where they are null, which
        # are not among the flat ones.
        sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
        rows = np.repeat(np.arange(len(lists)), sizes)
        return _ones(rows, texts(_flat(lists)), self.values, len(lists))

    def told(self) -> str:
        """Return what the column became, in a few words."""
        return f"{self.width:,} items of lists"


@dataclass(frozen=True)
class Vectors(Encoder):
    """Lists of equally many numbers, used as they are."""

    size: int = count()
    kind = "vectors"
    nonnegative = False

    @property
    def width(self) -> int:
        """Number of features."""
        return self.size

    @property
    def names(self) -> list[str]:
        """The name of each feature, for explanations."""
        return [f"{self.column}[{at}]" for at in range(self.size)]

    def transform(self, table: Table, problems: Problems) -> Matrix:
        """Return the numbers of every row."""
        column = table.columns[self.column]
        result = np.zeros((len(column), self.size), dtype=np.float32)
        if not is_list(column.type) or column.type.value_type not in (pa.int64(), pa.float64()):
            told = f"{column.type} where lists of {self.size} numbers are expected"
            problems.add(table.name, told, column=self.column)
            return result
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
        wrong = np.flatnonzero(lengths != self.size)
        told = f"{{}}, but expected a list of {self.size} numbers"
        table.report(problems, self.column, wrong, told)
        fine = np.flatnonzero(lengths == self.size)
        flat = _flat(column.take(pa.array(fine))).cast(pa.float64(), safe=False).to_numpy()
        with np.errstate(over="ignore"):
            result[fine] = flat.reshape(-1, self.size)
        endless = np.flatnonzero(~np.isfinite(result).all(axis=1))
        told = "{} has a number that is missing, infinite or too large for float32; replace it"
        table.report(problems, self.column, endless, told)
        return result

    def told(self) -> str:
        """Return what the column became, in a few words."""
        return f"vectors of {self.size:,} numbers, as they are"


def is_boolean(values: Column) -> bool:
    """Return whether every text that is present is true or false."""
    return {each.lower() for each in pc.unique(values.drop_null()).to_pylist()} <= {*BOOLEANS}


def as_lists(table: Table, name: str, problems: Problems) -> Column:
    """Return a column of lists, whose items text separates if the column is text."""
    column = table.columns[name]
    if is_text(column):
        column = pc.split_pattern(pc.fill_null(column, ""), SEPARATOR)
    if not is_list(column.type) or not is_scalar(_flat(column[:0])):
        problems.add(table.name, f"{column.type} where lists are expected", column=name)
        return pa.array([None] * len(column), pa.list_(pa.string()))
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _flat(lists: Column) -> Column:
    """Return the items of lists, one after the other."""
    flat = pc.list_flatten(lists)
    return flat if isinstance(flat, pa.ChunkedArray) else pa.chunked_array([flat])


def _ones(rows: np.ndarray, values: Column, known: tuple[str, ...], num_rows: int) -> Matrix:
    """Return a matrix with a one for every known value at its row."""
    found = pc.index_in(values, value_set=pa.array(known, pa.string()))
    places = positions(found.is_valid())
    columns = found.drop_null().to_numpy()
    ones = np.ones(len(places), dtype=np.float32)
    matrix = sp.csr_array((ones, (rows[places], columns)), shape=(num_rows, len(known)))
    matrix.sum_duplicates()
    matrix.data[:] = 1.0
    return matrix
