"""Encoders: everything that turns rows of a table into features, as fitted to the training rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from dropnode.errors import ConfigError
from dropnode.graph.arrays import Matrix, lighter_sparse
from dropnode.settings import count, read_record
from dropnode.tables.column_encoders import Categories, Encoder, Items, Numbers, Vectors
from dropnode.tables.files import read_table
from dropnode.tables.problems import Problems
from dropnode.tables.structure import Structure
from dropnode.tables.table import Table
from dropnode.tables.vectors import read_vectors, vectors_name
from dropnode.tables.words import Words

_KINDS: dict[str, type[Encoder]] = {
    kind.kind: kind for kind in (Numbers, Categories, Items, Vectors, Words)
}


@dataclass(frozen=True)
class Encoders:
    """The encoders of a table of nodes.

    Attributes
    ----------
    id : str
        The name of the column with the ids; empty if there was no table of nodes.
    columns : tuple of Encoder
        One per column that became features.
    vector_size : int
        How many features come from a file of vectors, 0 without one.
    structure : Structure or None
        What gives features to nodes that have no others.
    neighbours : int
        How many rows a row is joined to, 0 if edges were given.
    sparse : bool
        Whether features are stored sparse.
    """

    id: str
    columns: tuple[Encoder, ...]
    vector_size: int = 0
    structure: Structure | None = None
    neighbours: int = 0
    sparse: bool = False

    @property
    def width(self) -> int:
        """Number of features."""
        structure = self.structure.width if self.structure else 0
        return sum(encoder.width for encoder in self.columns) + self.vector_size + structure

    @property
    def names(self) -> list[str]:
        """The name of each feature, for explanations."""
        return [
            *(name for encoder in self.columns for name in encoder.names),
            *(f"vector[{at}]" for at in range(self.vector_size)),
            *(self.structure.names if self.structure else ()),
        ]

    @property
    def scaling(self) -> str:
        """The scaling of features that suits them, a ``feature_scaling`` of methods.

        Numbers and places in the graph are on one scale already, which is also that of the columns
        beside them. Vectors are in units of their own, which are not known to suit anything, so
        that they are scaled where they are alone, whether a file or a column has them.
        """
        vectors = [isinstance(encoder, Vectors) for encoder in self.columns]
        vectors += [True] * bool(self.vector_size)
        if self.structure or (any(vectors) and not all(vectors)):
            return "none"
        counts = all(encoder.nonnegative for encoder in self.columns)
        return "auto" if counts or all(vectors) else "none"

    def transform(self, table: Any, features: Any = None) -> Matrix:
        """Return the features of the rows of a table, encoded as the training rows were.

        Parameters
        ----------
        table : path or data frame
            With the columns of the training table; others are ignored. A category or a word that
            training did not have becomes zeros.
        features : path or array, optional
            The vectors of the rows, if the training rows had such.

        Raises
        ------
        TableError
            With all problems of the table, such as columns that are missing.
        """
        problems = Problems()
        read = read_table(table, "the table", problems)
        matrix = None if read is None else self.encode(read, features, problems)
        problems.check()
        return matrix

    def encode(self, table: Table, features: Any, problems: Problems) -> Matrix:
        """Return the features of a table that has been read; None if it has problems."""
        if self.structure is not None:
            raise ConfigError("the features of this model come from edges, not from a table")
        before = len(problems)
        for encoder in self.columns:
            if encoder.column not in table.columns:
                told = f"is missing; the model was trained with it as {encoder.told()}"
                problems.add(table.name, told, column=encoder.column)
        if self.vector_size and features is None:
            told = f"has no file of vectors beside it, but the model needs {self.vector_size:,}"
            problems.add(table.name, f"{told} features from one; give it as features")
        if features is not None and not self.vector_size:
            problems.add(table.name, "has vectors beside it, but the model was trained without")
        if len(problems) > before:
            return None
        blocks = [encoder.transform(table, problems) for encoder in self.columns]
        if features is not None:
            vectors = read_vectors(features, table.num_rows, problems)
            if vectors is not None and vectors.shape[1] != self.vector_size:
                told = f"has vectors of {vectors.shape[1]:,} numbers; the model was trained with"
                problems.add(vectors_name(features), f"{told} {self.vector_size:,}")
            blocks.append(vectors)
        return None if len(problems) > before else joined(blocks, self.sparse)

    def record(self) -> dict[str, Any]:
        """Return everything as JSON values, which :meth:`from_record` reads."""
        return asdict(self) | {
            "columns": [encoder.record() for encoder in self.columns],
            "structure": asdict(self.structure) if self.structure else None,
        }

    @classmethod
    def from_record(cls, values: Any) -> Encoders:
        """Return the encoders that :meth:`record` described; anything else is an error."""
        read = read_record(_Record, values, "encoders")
        columns = [
            _encoder(each, f"encoders.columns[{at}]") for at, each in enumerate(read.columns)
        ]
        return cls(**vars(read) | {"columns": tuple(columns)})


@dataclass(frozen=True)
class _Record:
    """The keys of :meth:`Encoders.record`."""

    id: str
    columns: list[Any] = field(default_factory=list)
    vector_size: int = count(0, 0)
    structure: Structure | None = None
    neighbours: int = count(0, 0)
    sparse: bool = False


def _encoder(record: Any, where: str) -> Encoder:
    """Return the encoder that :meth:`Encoder.record` described."""
    kind = record.get("kind") if isinstance(record, dict) else None
    if kind not in _KINDS:
        raise ConfigError(f"{where} has the kind {kind!r}; expected one of {', '.join(_KINDS)}")
    return read_record(_KINDS[kind], {k: v for k, v in record.items() if k != "kind"}, where)


def joined(blocks: Sequence[Matrix], sparse: bool) -> Matrix:
    """Return blocks of features side by side, all sparse or all dense."""
    if sparse:
        held = [sp.csr_array(block) for block in blocks]
        return sp.csr_array(sp.hstack(held, format="csr", dtype=np.float32))
    dense = [block.toarray() if sp.issparse(block) else block for block in blocks]
    return np.hstack(dense, dtype=np.float32)


def are_sparse(blocks: Sequence[Matrix]) -> bool:
    """Return whether blocks of features take less memory if they are stored sparse."""
    width = sum(block.shape[1] for block in blocks)
    entries = sum(block.nnz if sp.issparse(block) else np.count_nonzero(block) for block in blocks)
    return lighter_sparse(int(entries), (blocks[0].shape[0], width))
