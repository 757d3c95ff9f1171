"""Ids of nodes: any text or whole number, compared as text.

A number in one file and its text in another are the same id, because CSV knows no difference.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dropnode.tables.problems import Problems
from dropnode.tables.table import (
    WHOLE,
    Column,
    Table,
    find_column,
    first_named,
    is_scalar,
    plain_texts,
    positions,
)

NAMES = ("id", "node", "node_id", "nodeid")
"""What a column of ids is called, if nobody says."""


def id_column(table: Table, given: str | None, problems: Problems) -> str | None:
    """Return the name of the column with the ids of a table of nodes."""
    if given is not None:
        return given if find_column(table, given, "ids", problems) else None
    return first_named(table, NAMES) or next(iter(table.columns))


def read_ids(table: Table, name: str, problems: Problems) -> Column:
    """Return the ids of nodes as text; missing ids and those that occur twice are problems."""
    ids = id_texts(table, name, problems)
    absent = positions(ids.is_null())
    table.report(problems, name, absent, "there is no id; fill the cell, or remove the row")
    encoded = ids.dictionary_encode().combine_chunks()
    numbers = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
    # Codes count up with every id that is new.
    newest = np.maximum.accumulate(numbers)
    again = np.flatnonzero((numbers >= 0) & (numbers <= np.append(-1, newest[:-1])))
    if len(again):
        first = np.searchsorted(newest, numbers[again[:100]])
        table.report(
            problems,
            name,
            again,
            "id {} is in row {:,} too; ids must be unique",
            table.row_numbers(first),
        )
    return ids


def id_texts(table: Table, name: str, problems: Problems) -> Column:
    """Return a column of ids as text, whatever it holds, null where it is missing."""
    column = table.columns[name]
    if not is_scalar(column) or column.type == pa.bool_():
        problems.add(
            table.name, f"{column.type} cannot be an id; give text or numbers", column=name
        )
        return pa.chunked_array([pa.nulls(len(column), pa.string())])
    if column.type == pa.float64():
        values = column.to_numpy()
        with np.errstate(invalid="ignore"):
            wrong = np.flatnonzero((np.trunc(values) != values) | (np.abs(values) >= WHOLE))
        wrong = wrong[~np.isnan(values[wrong])]
        table.report(
            problems, name, wrong, "{} cannot be an id; write ids as text or whole numbers"
        )
    return plain_texts(column)


def graph_ids(ids: Column) -> np.ndarray:
    """Return ids as a graph keeps them: int64 if all are such numbers, otherwise objects.

    Examples
    --------
    >>> graph_ids(pa.chunked_array([["7", "-1"]])).tolist()
    [7, -1]
    >>> graph_ids(pa.chunked_array([["7", "07"]])).tolist()
    ['7', '07']
    """
    try:
        numbers = ids.cast(pa.int64())
        if ids.null_count == 0 and pc.all(pc.equal(numbers.cast(pa.string()), ids)).as_py():
            return np.array(numbers.to_numpy(), dtype=np.int64)
    except pa.ArrowInvalid:
        pass
    return np.array(ids.to_numpy(zero_copy_only=False), dtype=object)


def places_of(texts: Column, ids: Column) -> np.ndarray:
    """Return the position of each text among ids, -1 if it is none of them.

    If there are fewer texts than ids, the texts are indexed and the ids are looked up: an index of
    the ids would take longer than all the rest of a call about a few new nodes.

    Examples
    --------
    >>> places_of(pa.chunked_array([["b", "x", None]]), pa.chunked_array([list("abcd")])).tolist()
    [1, -1, -1]
    """
    if len(texts) >= len(ids):
        places = pc.index_in(texts, value_set=ids.combine_chunks())
        return pc.fill_null(places, -1).to_numpy().astype(np.int64)
    distinct = pc.unique(texts).drop_null()
    which = pc.index_in(ids, value_set=distinct)
    found = positions(which.is_valid())[::-1]  # so that the first of equal ids is kept
    place = np.full(len(distinct) + 1, -1, dtype=np.int64)  # the last is for no text
    place[pc.take(which, pa.array(found)).to_numpy()] = found
    wanted = pc.fill_null(pc.index_in(texts, value_set=distinct), -1)
    return np.asarray(place[wanted.to_numpy()])


def texts_of(ids: np.ndarray) -> Column:
    """Return the ids of a graph as text again."""
    return pa.chunked_array([pa.array(ids).cast(pa.string())])
