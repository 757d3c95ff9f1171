"""Broken files: every problem is told, with the file, the row and the column."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import damage
from dropnode.errors import ConfigError, TableError
from dropnode.tables import json_lines
from dropnode.tables.csv_files import BLOCK
from dropnode.tables.files import read_table
from dropnode.tables.json_lines import CHUNK
from dropnode.tables.problems import Problems
from dropnode.tables.table import Table


def read(folder: Path, content: bytes, ending: str = "csv", **options: Any) -> Any:
    """Write a file and read it; return the table and the lines about its problems."""
    path = folder / f"a.{ending}"
    path.write_bytes(content)
    problems = Problems()
    table = read_table(path, "table", problems, **options)
    try:
        problems.check()
    except TableError as error:
        return table, [line.strip().replace(str(path), "a") for line in str(error).splitlines()[1:]]
    return table, []


def cells(table: Table) -> dict[str, list[Any]]:
    return {name: column.to_pylist() for name, column in table.columns.items()}


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b"a,b\n1,2\n3,4\n", [("1", "2"), ("3", "4")]),
        (b"a,b\r\n1,2\r\n3,4", [("1", "2"), ("3", "4")]),
        (b"\xef\xbb\xbfa,b\n1,2\n", [("1", "2")]),
        (b'a,b\n1,"x, ""y"""\n', [("1", 'x, "y"')]),
        (b'a,b\n1,"x\ny"\n2,z\n', [("1", "x\ny"), ("2", "z")]),
        (b'a,b\r\n1,"x ""q"",\r\n\r\ny"\r\n', [("1", 'x "q",\r\n\r\ny')]),
        (b'a,b\n"x"y,1\nz,"1\n2"\n', [("xy", "1"), ("z", "1\n2")]),
        (b'a,b\n1,\n,""\n2,3\n', [("1", None), ("2", "3")]),
        (b"a,b\n\n1,2\n\n\n3,4\n\n\n", [("1", "2"), ("3", "4")]),
        (b'a,b\n1,5 inch" disk\n', [("1", '5 inch" disk')]),
        (b" a , b \n1, 2\n", [("1", " 2")]),
        ("a,b\nß,日本\n".encode(), [("ß", "日本")]),
    ],
)
def test_a_csv_file_is_read(tmp_path: Path, content: bytes, rows: list[Any]) -> None:
    table, told = read(tmp_path, content)
    assert told == []
    assert list(table.columns) == ["a", "b"]
    assert list(zip(*cells(table).values(), strict=True)) == rows


@pytest.mark.parametrize("ending", ["csv", "tsv"])
@pytest.mark.parametrize(("mark", "name"), [(",", "commas"), (";", "semicolons"), ("\t", "tabs")])
def test_what_separates_columns_is_found_and_told(
    tmp_path: Path, ending: str, mark: str, name: str
) -> None:
    content = f"a{mark}b\n1{mark}2\n".encode()
    table, _ = read(tmp_path, content, ending)
    assert cells(table) == {"a": ["1"], "b": ["2"]}
    usual = {"csv": "commas", "tsv": "tabs"}[ending]
    expected = () if name == usual else (f"a has {name} between its columns, not {usual}",)
    assert tuple(n.replace(str(tmp_path / f"a.{ending}"), "a") for n in table.notes) == expected


def test_the_usual_delimiter_counts_where_several_are_possible(tmp_path: Path) -> None:
    table, _ = read(tmp_path, b"a;x,b;y\n1;2,3;4\n")
    assert list(table.columns) == ["a;x", "b;y"]
    table, told = read(tmp_path, b"a,b,c\n1,2\n3,4,5,6;7\n7,8,9\n")
    assert len(table.columns) == 3
    assert len(told) == 2


def test_rows_are_numbered_as_in_the_file(tmp_path: Path) -> None:
    content = b'a,b\n1,2\n\n3\n4,"x\ny"\n5,6,7\n8,9\n'
    table, told = read(tmp_path, content)
    assert told == [
        "a, row 4: number of cells 1, but the header has 2; put cells that contain a delimiter "
        "into quotation marks",
        "a, row 6: number of cells 3, but the header has 2; put cells that contain a delimiter "
        "into quotation marks",
    ]
    assert table.row_numbers(np.arange(3)).tolist() == [2, 5, 7]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "a is empty; expected a header"),
        (b" \n\n", "a is empty; expected a header"),
        (b"a,b,a\n1,2,3\n", "a, row 1, column a: stands twice in the header"),
        (b"a,b\n1,\xe9\n", "a, row 2, column b: 'é' is not in UTF-8"),
        (b"\xe9,b\n1,2\n", "a, row 1: is not in UTF-8"),
        ("a,b\n1,2\n".encode("utf-16"), "a has NUL bytes, as UTF-16"),
        (b"PK\x03\x04\0\0", "a is an archive, as spreadsheets are"),
        (b"a,b\n1,2\n3,\0\n", "a, row 3, column b: '\\x00' has a NUL byte"),
        (b"a,\0b\n1,2\n3,4\n", "a, row 1: has NUL bytes"),
        (b"a;b;c\n1;2;3\n4;5\n", "a, row 3: number of cells 2, but the header has 3"),
        (b"a,b\n" + b"1,2\n" * 70_000 + b"1,\0\n", "a, row 70,002, column b: '\\x00' has a NUL"),
        (b'a,b\n1,"x\n2,y\n3,z\n', "a, row 2: a quotation mark is not closed"),
        (b'a,b\n1,x\n2,"\n3,z', "a, row 3: a quotation mark is not closed"),
        (b'a,b\n"x"y,1\n2,"z', "a, row 3: a quotation mark is not closed"),
        (b'"a,b\n1,2\n', "a, row 1: a quotation mark is not closed"),
        (b'a,b\n0,z\n1,"x\n2,"y\n3,z\n', "a, row 3: a quotation mark makes one row of 2 lines"),
        (b'a,b\n1,"x\r\n2,y\r\n3,"z\r\n', "a, row 2: a quotation mark makes one row of 3 lines"),
        (b"x" * 300_000, "a has no line end in its first 262,144 bytes"),
        (b"a,b\n1," + b"x" * (2 * BLOCK + 5), "a, row 1: cannot be read"),
    ],
)
def test_a_broken_csv_file_is_told(tmp_path: Path, content: bytes, told: str) -> None:
    _, found = read(tmp_path, content)
    assert len(found) == 1
    assert found[0].startswith(told)


def test_a_header_alone_is_a_table_without_rows(tmp_path: Path) -> None:
    for content in (b"a,b", b"a,b\n", b"a,b\n\n"):
        table, told = read(tmp_path, content)
        assert (cells(table), told) == ({"a": [], "b": []}, [])


def test_a_column_without_a_name_is_numbered(tmp_path: Path) -> None:
    """As pandas writes its index."""
    table, _ = read(tmp_path, b",x\n0,5\n")
    assert list(table.columns) == ["column 1", "x"]


def test_json_lines_are_read(tmp_path: Path) -> None:
    content = b"""\xef\xbb\xbf{"id": 1, "tags": ["a", "b"]}

{"id": 12345678901234567890, "day": "2020-01-01", "x": 1}
{"id": "z", "x": 2.5, "tags": []}
{"id": 4, "x": NaN, "tags": null}
"""
    table, told = read(tmp_path, content, "jsonl")
    assert told == []
    assert table.row_numbers(np.arange(4)).tolist() == [1, 3, 4, 5]
    found = cells(table)
    assert found["id"] == ["1", "12345678901234567890", "z", "4"]
    assert found["day"] == [None, "2020-01-01", None, None]
    assert found["x"][:3] == [None, 1.0, 2.5]
    assert np.isnan(found["x"][3])
    assert found["tags"] == [["a", "b"], None, [], None]


def test_types_of_json_lines_may_change_far_below(tmp_path: Path) -> None:
    lines = [b'{"a": 1, "b": 1}'] * CHUNK + [b'{"a": "x", "c": 2.5}'] * 2
    table, told = read(tmp_path, b"\n".join(lines), "jsonl")
    assert told == []
    found = cells(table)
    assert found["a"][CHUNK - 1 :] == ["1", "x", "x"]
    assert found["b"][CHUNK - 1 :] == [1, None, None]
    assert found["c"][CHUNK - 1 :] == [None, 2.5, 2.5]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([9007199254740993, 1, 1.5], ["9007199254740993", "1", "1.5"]),
        ([[{"x": 1}], [], [{"y": 1}]], ['[{"x": 1}]', "[]", '[{"y": 1}]']),
        ([[9007199254740993], None, [0.5]], ["[9007199254740993]", None, "[0.5]"]),
        ([[1], 1, True, "x"], ["[1]", "1", "true", "x"]),
        ([1, 2, 0.5], [1.0, 2.0, 0.5]),
    ],
)
def test_what_has_no_type_in_common_far_below_is_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: list[Any], expected: list[Any]
) -> None:
    monkeypatch.setattr(json_lines, "CHUNK", 2)
    content = "".join(json.dumps({"a": value}) + "\n" for value in values)
    table, told = read(tmp_path, content.encode(), "jsonl")
    assert told == []
    assert cells(table) == {"a": expected}


@pytest.mark.parametrize(
    "lines",
    [
        [b'{"a":1},{"a":2}', b'{"a":[3', b"4]}"],
        [b'{"a":[{}', b"{}]}", b'{"a":1},{"a":2}'],
        [b'{"a":1},null,{"a":2}', b'{"a":[{}', b"{}]}"],
    ],
)
def test_json_lines_that_are_whole_only_together_are_told(
    tmp_path: Path, lines: list[bytes]
) -> None:
    _, told = read(tmp_path, b"\n".join(lines), "jsonl")
    assert [line.partition(":")[0] for line in told] == ["a, row 1", "a, row 2", "a, row 3"]


def test_all_broken_json_lines_are_told(tmp_path: Path) -> None:
    lines = [
        b'{"a": 1}',
        b"null",
        b'{"a":',
        b'{"a": "\xe9"}',
        b'{"a": 1, "a": 2}',
        b'{"a": 1} {"a": 2}',
        b'{"a": 1}, {"a": 2}',
        b"[" * 100_000,
        b'{"a": "\\ud800"}',
        b"[1, 2]",
    ]
    _, told = read(tmp_path, b"\n".join(lines), "ndjson")
    assert [line.partition(":")[0] for line in told] == [
        *[f"a, row {row}" for row in (2, 3, 4, 5, 6, 7, 8, 10)],
        "a, row 9, column a",
    ]
    assert "None is no object; expected a JSON object in every line" in told[0]
    assert "a key occurs twice" in told[3]


@pytest.mark.parametrize("content", [b"", b"\n\n", b"{}\n{}\n"])
def test_json_lines_without_anything_are_told(tmp_path: Path, content: bytes) -> None:
    assert read(tmp_path, content, "jsonl")[1][0].startswith("a is empty; expected a JSON object")


def test_parquet_keeps_what_it_can(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "category": pd.Categorical(["u", "v", "u"]),
            "large": np.array([1, 2, 2**64 - 1], dtype=np.uint64),
            "small": np.array([1, 2, 3], dtype=np.int8),
            "half": np.array([1, 2, 3], dtype=np.float32),
            "day": pd.to_datetime(["2020-01-01"] * 3),
            "vector": [np.ones(2, np.float32)] * 3,
        }
    )
    frame.to_parquet(tmp_path / "a.parquet", index=False)
    problems = Problems()
    table = read_table(tmp_path / "a.parquet", "table", problems)
    problems.check()
    assert table is not None
    kinds = {name: str(column.type) for name, column in table.columns.items()}
    assert kinds.pop("day").startswith("timestamp")
    assert kinds == {
        "category": "string",
        "large": "string",
        "small": "int64",
        "half": "double",
        "vector": "list<item: double>",
    }


@pytest.mark.parametrize("ending", ["parquet", "csv.gz", "jsonl.gz"])
@pytest.mark.parametrize("flips", [15, pytest.param(200, marks=pytest.mark.slow)])
def test_a_damaged_file_is_told_or_read(tmp_path: Path, ending: str, flips: int) -> None:
    """gzip and Parquet have checksums of their content; flips in their heads may mean nothing."""
    path = tmp_path / f"a.{ending}"
    columns = {"id": list("abcdefgh"), "x": list(range(8))}
    if ending == "parquet":
        parquet.write_table(pa.table(columns), path, write_page_checksum=True)
    else:
        text = "id,x\n" + "".join(f"{a},{x}\n" for a, x in zip(*columns.values(), strict=True))
        if ending == "jsonl.gz":
            pairs = zip(*columns.values(), strict=True)
            text = "".join(f'{{"id": "{a}", "x": {x}}}\n' for a, x in pairs)
        path.write_bytes(gzip.compress(text.encode()))
    whole = read_table(path, "table", Problems())
    assert whole is not None
    noticed = 0
    for seed in range(flips):
        with damage.restored(path):
            told = damage.flip_bit(path, seed)
            problems = Problems()
            table = read_table(path, "table", problems)
            assert (table is None) == bool(len(problems)), told
            if table is not None and ending != "parquet":
                assert cells(table) == cells(whole), told
            noticed += table is None
    assert noticed > flips / 3


def test_files_that_are_none(tmp_path: Path) -> None:
    problems = Problems()
    assert read_table(tmp_path, "table", problems) is None
    assert read_table(tmp_path / "no.csv", "table", problems) is None
    assert read_table(tmp_path / "a.csv" / "b.csv", "table", problems) is None
    with pytest.raises(TableError, match=r"(?s)is a folder; give a file.*no\.csv does not exist"):
        problems.check()
    (tmp_path / "a.xlsx").write_bytes(b"x")
    os.mkfifo(tmp_path / "pipe.parquet")
    others = Problems()
    assert read_table(tmp_path / "a.xlsx", "table", others) is None
    assert read_table(tmp_path / "pipe.parquet", "table", others) is None
    with pytest.raises(TableError, match=r"(?s)name ends in \.csv, \.tsv.*pipe"):
        others.check()
    with pytest.raises(ConfigError, match="is no path"):
        read_table(7, "table", problems)
    # Frames are tables, but not of columns that mix types.
    mixed = pd.DataFrame({"a": [1, "x", [2]]})
    assert read_table(mixed, "table", problems) is None


def test_a_file_that_expands_beyond_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dropnode import memory
    from dropnode.errors import WorkError

    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" + bytes(60 * 2**20)))
    monkeypatch.setattr(memory, "available_memory", lambda: 100 * 2**20)
    with pytest.raises(WorkError, match="use a larger machine or a smaller file"):
        read_table(path, "table", Problems())
