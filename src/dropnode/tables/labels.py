"""Labels: the class of some nodes; where there is none, a node is to be classified."""

from __future__ import annotations

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dropnode.graph.labels import UNKNOWN
from dropnode.settings import shown
from dropnode.tables.column_encoders import BOOLEANS
from dropnode.tables.numbers import CODE, NUMBER
from dropnode.tables.problems import Problems
from dropnode.tables.table import Table, is_list, is_scalar, positions, texts

MOST_LONELY = 20
"""How many classes may have one label each before the column is taken for something else."""


def read_labels(
    table: Table, name: str, problems: Problems
) -> tuple[np.ndarray, tuple[str, ...]] | None:
    """Return the class code of every row, -1 where unknown, and the name of every class.

    Classes that are whole numbers are in the order of numbers, others in that of text.
    """
    column = table.columns[name]
    if is_list(column.type):
        told = "lists of labels; a node has one class, so keep one label, or fit a model per label"
        problems.add(table.name, told, column=name)
        return None
    if not is_scalar(column):
        told = f"{column.type} cannot be labels; write the classes as text or whole numbers"
        problems.add(table.name, told, column=name)
        return None
    encoded = texts(column).dictionary_encode().combine_chunks()
    distinct = encoded.dictionary.to_pylist()
    names = [_name(text) for text in distinct]
    small = [name.lower() for name in names]
    if {*small} <= {*BOOLEANS} and len({*small}) < len({*names}):
        names = small  # As in features, TRUE and true are the same.
    if distinct and all(map(_is_quantity, distinct)) and not all(map(_WHOLE.fullmatch, distinct)):
        sample = shown(next(text for text in distinct if not _WHOLE.fullmatch(text)))
        told = f"labels such as {sample} are quantities; a classifier needs classes"
        problems.add(table.name, told, column=name)
        return None
    if "-1" in names:
        of_old = pa.array([old for old, new in zip(distinct, names, strict=True) if new == "-1"])
        rows = positions(pc.is_in(texts(column), value_set=of_old))
        table.report(problems, name, rows, _MINUS_ONE)
        return None
    if not table.plain_text:
        # A list among texts is text in JSON's form.
        several = pa.array([text for text in distinct if text[:1] in "[{" and _is_json(text)])
        rows = positions(pc.is_in(texts(column), value_set=several.cast(pa.string())))
        table.report(problems, name, rows, "{} is no label; a node has one class: keep one label")
    order = sorted(set(names), key=_key)
    place = {each: at for at, each in enumerate(order)}
    codes = np.array([*(place[each] for each in names), UNKNOWN], dtype=np.int64)
    rows = pc.fill_null(encoded.indices, len(distinct)).to_numpy(zero_copy_only=False)
    codes = codes[rows]
    _check_classes(table, name, codes, order, problems)
    return codes, tuple(order)


_MINUS_ONE = (
    "the label {} may be a class or an unknown; empty the cell if it is unknown, or give the "
    "class another name"
)


def _check_classes(
    table: Table, name: str, codes: np.ndarray, classes: list[str], problems: Problems
) -> None:
    """Refuse labels from which nothing can be learnt."""
    told = ""
    if not classes:
        told = "no row has a label; a classifier needs some labels of at least two classes"
    elif len(classes) == 1:
        told = f"every label is {shown(classes[0])}; a classifier needs at least two classes"
    elif len(classes) > MOST_LONELY and len(classes) == np.count_nonzero(codes != UNKNOWN):
        told = f"all of the {len(classes):,} labels differ; is this the column of labels?"
    if told:
        problems.add(table.name, told, column=name)


_WHOLE = re.compile(r"[+-]?(0|[1-9]\d{0,300})(\.0*)?", re.ASCII)
"""A whole number as text; 02 is a name."""


def _name(text: str) -> str:
    """Return the name of a class: 2.0 is 2, because missing labels make floats of integers.

    Examples
    --------
    >>> _name("2.0"), _name("+3"), _name("-0"), _name("02"), _name("v2.0")
    ('2', '3', '0', '02', 'v2.0')
    """
    return str(int(text.partition(".")[0])) if _WHOLE.fullmatch(text) else text


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _is_quantity(text: str) -> bool:
    # Digits of ASCII, as everywhere else: Arrow's expressions know no others.
    return bool(re.match(NUMBER, text, re.ASCII)) and not re.match(CODE, text, re.ASCII)


def _key(name: str) -> tuple[int, int, str]:
    """Order whole numbers as numbers, before all other text."""
    return (0, int(name), "") if _WHOLE.fullmatch(name) else (1, 0, name)
