"""The encoder of text: the words in it, weighted by TF-IDF."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow.compute as pc
import scipy.sparse as sp

from dropnode.errors import ConfigError
from dropnode.graph.arrays import Matrix
from dropnode.settings import count
from dropnode.tables.column_encoders import Encoder
from dropnode.tables.problems import Problems
from dropnode.tables.table import Column, Table, is_text, texts

MOST_WORDS = 20_000
"""The most words of a text column; the most frequent ones are kept."""


@dataclass(frozen=True)
class Words(Encoder):
    """TF-IDF of the words of a text: scikit-learn's, with words in few rows weighing more.

    Attributes
    ----------
    words : tuple of str
        The vocabulary.
    documents : tuple of int
        In how many of the rows that were fitted each word occurs.
    rows : int
        How many rows were fitted.
    """

    words: tuple[str, ...]
    documents: tuple[int, ...] = count()
    rows: int = count()
    kind = "words"

    def __post_init__(self) -> None:
        if len(self.words) != len(self.documents):
            raise ConfigError(
                f"{len(self.words)} words of column {self.column} with {len(self.documents)} counts"
            )

    @classmethod
    def fit(cls, column: str, text: Column) -> Self | None:
        """Fit to a column of text; None if there are no words in it."""
        from sklearn.feature_extraction.text import CountVectorizer

        given = _present(text)
        # A word in a single row joins it to no other. A table too small to repeat any keeps all.
        for least in (2, 1):
            try:
                counter = CountVectorizer(max_features=MOST_WORDS, min_df=least, binary=True)
                found = counter.fit_transform(given)
            except ValueError:  # Says that no word is left.
                continue
            words = tuple(map(str, counter.get_feature_names_out()))
            return cls(column, words, tuple(found.sum(axis=0).A1.tolist()), len(given))
        return None

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.words)

    @property
    def names(self) -> list[str]:
        """The name of each feature, for explanations."""
        return [f"{self.column}: {word}" for word in self.words]

    @cached_property
    def _vectorizer(self) -> Any:
        from sklearn.feature_extraction.text import TfidfVectorizer

        vectorizer = TfidfVectorizer(vocabulary=list(self.words), dtype=np.float32)
        # As scikit-learn has it: as if one more row had every word.
        vectorizer.idf_ = np.log((1 + self.rows) / (1 + np.array(self.documents))) + 1
        return vectorizer

    def transform(self, table: Table, problems: Problems) -> Matrix:
        """Return the weight of every word in every row."""
        column = table.columns[self.column]
        if not is_text(column):
            problems.add(table.name, f"{column.type} where text is expected", column=self.column)
            return sp.csr_array((len(column), self.width), dtype=np.float32)
        weights = self._vectorizer.transform(_present(column))
        return sp.csr_array(weights, dtype=np.float32)

    def told(self) -> str:
        """Return what the column became, in a few words."""
        return f"text, {self.width:,} words"


def _present(column: Column) -> list[str]:
    """Return the texts of a column, none where one stands for a missing value."""
    return pc.fill_null(texts(column), "").to_pylist()
