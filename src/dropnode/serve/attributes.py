"""Attributes: the cells of the table of nodes, for a person to read beside a prediction.

A saved model has features, not the texts that they were made of: whoever receives the model does
not receive those. So the table is read again, if it is named.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dropnode.serve.served import Served
from dropnode.tables.files import read_table
from dropnode.tables.ids import id_column, read_ids
from dropnode.tables.problems import Problems
from dropnode.tables.table import Column

LONGEST = 20_000
"""Letters of a cell that are shown."""

MOST_COLUMNS = 200
"""Columns that are shown."""


class Attributes:
    """The cells of a table, by the id of their row.

    Parameters
    ----------
    columns : dict of str to Column
        Without the ids.
    rows : dict of str to int
        The row of every id.
    """

    def __init__(self, columns: dict[str, Column], rows: dict[str, int]) -> None:
        self.columns, self.rows = columns, rows

    @classmethod
    def read(cls, path: Path | None, served: Served) -> Attributes:
        """Read the table that a model was fitted to; none gives no attributes.

        Raises
        ------
        TableError
            If the table cannot be read, or has none of the nodes of the model.
        """
        if path is None:
            return cls({}, {})
        problems = Problems()
        table = read_table(path, "nodes", problems)
        name = None
        if table is not None:
            name = id_column(table, served.model.encoders.id or None, problems)
        problems.check()
        assert table is not None
        assert name is not None
        ids = read_ids(table, name, problems)
        rows = {each: at for at, each in enumerate(ids.to_pylist()) if each in served.position}
        if not rows:
            told = "has no node of the model; give the table that it was fitted to"
            problems.add(table.name, told, column=name)
        problems.check()
        shown = [each for each in table.columns if each != name][:MOST_COLUMNS]
        return cls({each: table.columns[each] for each in shown}, rows)

    def of(self, name: str) -> dict[str, str]:
        """Return the cells of a node as text, without those that are empty."""
        row = self.rows.get(name)
        if row is None:
            return {}
        cells = {column: _text(values[row].as_py()) for column, values in self.columns.items()}
        return {column: text for column, text in cells.items() if text}


def _text(value: Any) -> str:
    if value is None:
        return ""
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
