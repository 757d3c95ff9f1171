"""The problems of files, gathered so that all of them are told together.

A problem names its file and, where it has one, its row and its column. Whoever has a hundred
wrong cells should not have to run a command a hundred times to hear of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dropnode.errors import TableError

MOST_TOLD = 20
"""The most problems that an error lists; of the others it tells the number."""

LONGEST = 400
"""The most characters of a line; what a file holds may be long, and is part of it."""


@dataclass(frozen=True)
class _Group:
    """Problems of one kind in one column of one file: how many there are, and some of them."""

    count: int
    lines: tuple[str, ...]


class Problems:
    """A list of problems, which ends in one :class:`~dropnode.errors.TableError` if it has any.

    Examples
    --------
    >>> problems = Problems()
    >>> problems.add("nodes.csv", "is empty; expected a header and one row per node")
    >>> problems.add_rows("edges.csv", "target", [3, 9], lambda at: "no id; fill the cell")
    >>> problems.check()
    Traceback (most recent call last):
    dropnode.errors.TableError: 3 problems:
      nodes.csv is empty; expected a header and one row per node
      edges.csv, row 3, column target: no id; fill the cell
      edges.csv, row 9, column target: no id; fill the cell
    """

    def __init__(self) -> None:
        self._groups: list[_Group] = []

    def __len__(self) -> int:
        return sum(group.count for group in self._groups)

    def add(self, file: str, text: str, *, row: int | None = None, column: str = "") -> None:
        """Add one problem, of a file, a row or a column."""
        self._append(_Group(1, (_line(file, row, column, text),)))

    def add_rows(
        self,
        file: str,
        column: str,
        rows: Sequence[int] | np.ndarray,
        tell: Callable[[int], str],
    ) -> None:
        """Add the same problem of many rows, given by their numbers in the file.

        ``tell`` returns the text about the row at a place of ``rows``. It is called only for rows
        that may be told.
        """
        if len(rows):
            told = range(min(len(rows), MOST_TOLD))
            lines = tuple(_line(file, int(rows[at]), column, tell(at)) for at in told)
            self._append(_Group(len(rows), lines))

    def _append(self, group: _Group) -> None:
        # A column that is read twice, to fit and to encode it, has the same problems twice.
        if group not in self._groups:
            self._groups.append(group)

    def check(self) -> None:
        """Raise :class:`~dropnode.errors.TableError` if there are any problems."""
        if not self._groups:
            return
        shares = zip(self._groups, self._shares(), strict=True)
        lines = [line for group, told in shares for line in group.lines[:told]]
        count = len(self)
        title = "1 problem:" if count == 1 else f"{count:,} problems:"
        rest = [f"and {count - len(lines):,} more"] if count > len(lines) else []
        raise TableError("\n  ".join([title, *lines, *rest]))

    def _shares(self) -> list[int]:
        """Return how many problems of each kind are told: of every kind some, if that can be."""
        shares = [0] * len(self._groups)
        left = MOST_TOLD
        while left:
            # One each, in turn, so that a million of one kind do not hide the others.
            hungry = [at for at, group in enumerate(self._groups) if shares[at] < len(group.lines)]
            for at in hungry[:left]:
                shares[at] += 1
            left -= len(hungry[:left])
            if not hungry:
                break
        return shares


def _line(file: str, row: int | None, column: str, text: str) -> str:
    place = [file]
    if row is not None:
        place.append(f"row {row:,}")
    if column:
        place.append(f"column {column}")
    # A whole file is the subject of its sentence; a row or a column stands before one.
    line = f"{place[0]} {text}" if len(place) == 1 else f"{', '.join(place)}: {text}"
    line = " ".join(line.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
