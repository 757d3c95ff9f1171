"""JSON lines as tables: one object per line.

Python reads them, not Arrow, whose reader of JSON makes dates of text and rounds large numbers,
takes bytes that are no text, and can be brought to crash by a line that is no object.
"""

from __future__ import annotations

import io
import json
import secrets
from collections.abc import Iterator
from itertools import islice
from typing import IO, Any

import numpy as np
import pyarrow as pa

from dropnode.files import is_text
from dropnode.settings import shown
from dropnode.tables.problems import Problems
from dropnode.tables.table import Column, Table, common_type, is_list, is_scalar

CHUNK = 20_000
"""The lines that are read at a time."""

_EXPECTED = 'expected a JSON object in every line, such as {"id": 7, "topic": "tea"}'


def read_json_lines(name: str, data: bytes, problems: Problems) -> Table | None:
    """Read a file of JSON lines; None if nothing in it can be used."""
    chunks: dict[str, list[Column]] = {}
    numbers: list[np.ndarray] = []
    count, before = 0, len(problems)
    for first, lines in _chunks(io.BytesIO(data)):
        rows, places = _objects(name, first, lines, problems)
        numbers.append(places)
        for key in dict.fromkeys(key for row in rows for key in row):
            # A key that appears late is missing in all rows before.
            known = chunks.setdefault(key, [pa.nulls(count)] if count else [])
            known.append(_column(name, key, [row.get(key) for row in rows], places, problems))
        count += len(rows)
        for known in chunks.values():
            if (short := count - sum(map(len, known))) > 0:
                known.append(pa.nulls(short))
    if not count or not chunks:
        if len(problems) == before:
            problems.add(name, f"is empty; {_EXPECTED}")
        return None
    rows_of = np.concatenate(numbers)
    table = Table(name, {}, rows=rows_of)
    for key, known in chunks.items():
        table.columns[key.strip() or f"column {len(table.columns) + 1}"] = _joined(known)
    if len(table.columns) < len(chunks):
        problems.add(name, "has two keys that differ only in white space; rename one")
        return None
    return table


def _chunks(file: IO[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """Return the lines, many at a time, and the number of the first of them."""
    first = 1
    while lines := list(islice(file, CHUNK)):
        yield first, lines
        first += len(lines)


def _objects(
    name: str, first: int, lines: list[bytes], problems: Problems
) -> tuple[list[dict[str, Any]], np.ndarray]:
    """Return the objects in some lines and the numbers of these lines; empty lines have none."""
    filled = np.flatnonzero([bool(line.strip()) for line in lines])
    wanted = [lines[at] for at in filled]
    if first == 1 and wanted:
        wanted[0] = wanted[0].removeprefix(b"\xef\xbb\xbf")
    try:
        # At once, which takes a fraction of the time. A word that no file has stands between two
        # lines: if it does so in the result as well, every line is one object of its own.
        word = secrets.token_hex(8)
        between = f',"{word}",'
        found = _DECODER.decode(f"[{between.join(line.decode() for line in wanted)}]")
        rows = found[::2]
        if found[1::2] == [word] * (len(wanted) - 1) and all(type(row) is dict for row in rows):
            return rows, first + filled
    except (ValueError, RecursionError):
        pass
    rows, sound, wrong, causes = [], [], [], []
    for at, line in zip(filled.tolist(), wanted, strict=True):
        row, cause = _object(line)
        if row is None:
            wrong.append(first + at)
            causes.append(cause)
        else:
            rows.append(row)
            sound.append(first + at)
    problems.add_rows(name, "", wrong, lambda at: f"{causes[at]}; {_EXPECTED}")
    return rows, np.array(sound, dtype=np.int64)


def _object(line: bytes) -> tuple[dict[str, Any] | None, str]:
    """Return the object in a line, or what is wrong with the line."""
    try:
        row = _DECODER.decode(line.decode())
    except UnicodeDecodeError:
        return None, f"{shown(line[:40])} is not in UTF-8"
    except (ValueError, RecursionError) as error:
        return None, f"not valid JSON ({str(error) or 'nested too deep'})"
    return (row, "") if type(row) is dict else (None, f"{shown(row)} is no object")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a key occurs twice")
    return values


_DECODER = json.JSONDecoder(object_pairs_hook=_distinct)


def _column(
    name: str, key: str, values: list[Any], places: np.ndarray, problems: Problems
) -> Column:
    """Return some values of a key as an array; what has no common type as their text."""
    try:
        return common_type(pa.chunked_array([pa.array(values)])).combine_chunks()
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        written = [_text(value) for value in values]
    # Half of a surrogate pair, which JSON can spell, is no text.
    wrong = [at for at, text in enumerate(written) if text is not None and not is_text(text)]
    problems.add_rows(name, key, places[wrong], lambda at: "not Unicode text; replace it")
    for at in wrong:
        written[at] = None
    return pa.array(written, pa.string())


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _joined(chunks: list[Column]) -> Column:
    """Return the arrays of a key as one column, in a type that takes all of them."""
    kinds = {chunk.type for chunk in chunks if not pa.types.is_null(chunk.type)}
    if kinds == {pa.int64(), pa.float64()}:
        kind = pa.float64()
    elif len(kinds) == 1:
        (kind,) = kinds
    elif kinds and all(map(is_list, kinds)):
        kind = pa.list_(pa.float64() if _numeric_lists(kinds) else pa.string())
    else:
        kind = pa.string()
    try:
        if kind != pa.string():
            return pa.chunked_array([chunk.cast(kind) for chunk in chunks], kind)
    except pa.ArrowException:
        pass  # What has no common type is text, as within a chunk.
    return pa.chunked_array([_texts(chunk) for chunk in chunks], pa.string())


def _texts(chunk: Column) -> Column:
    if is_scalar(chunk) or pa.types.is_null(chunk.type):
        return chunk.cast(pa.string())
    return pa.array(map(_text, chunk.to_pylist()), pa.string())


def _numeric_lists(kinds: set[Any]) -> bool:
    inner = {kind.value_type for kind in kinds}
    return inner <= {pa.int64(), pa.float64(), pa.null()}
