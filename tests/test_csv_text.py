"""Texts in CSV files do nothing in a spreadsheet, and come back as they were."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from dropnode.csv_text import MARKS, csv_lines, csv_rows, write_csv

TEXT = st.text(st.sampled_from([*MARKS, "'", '"', ",", "a", "é", "1"]), max_size=6)


@given(st.lists(st.tuples(TEXT, TEXT), max_size=4))
def test_no_text_is_a_formula_and_every_text_comes_back(rows: list[tuple[str, str]]) -> None:
    for quoted in (False, True):
        text = csv_lines([("id", "label"), *rows], quoted=quoted)
        read = [row for _, row in csv_rows(text)]
        assert [(row["id"], row["label"]) for row in read] == rows
    cells = [cell for row in csv_rows(csv_lines([("a", "b"), *rows])) for cell in row[1].values()]
    assert len(cells) == 2 * len(rows)


@given(TEXT)
def test_a_spreadsheet_finds_no_formula(text: str) -> None:
    written = csv_lines([("id", text)])
    cell = written.removeprefix("id,").strip("\n").removeprefix('"')
    assert not cell.startswith(MARKS)


def test_numbers_stay_numbers(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", [("id", "gap"), (-3, -0.5)])
    assert (tmp_path / "a.csv").read_text() == "id,gap\n-3,-0.5\n"


def test_rows_know_their_lines() -> None:
    text = csv_lines([("id", "note"), ("1", "two\nlines"), ("2", "")])
    assert [line for line, _ in csv_rows(text)] == [2, 4]
