"""The same table in every format, written by libraries that the package does not read with."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pandas as pd

Columns = dict[str, list[Any]]


def write_csv(path: Path, columns: Columns, delimiter: str = ",") -> Path:
    """Write CSV as a spreadsheet would; lists are separated by vertical bars."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(columns)
        writer.writerows(
            [_cell(value) for value in row] for row in zip(*columns.values(), strict=True)
        )
    return path


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, list):
        return "|".join(value)
    return "" if value is None else value


def write_jsonl(path: Path, columns: Columns) -> Path:
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_parquet(path: Path, columns: Columns) -> Path:
    pd.DataFrame({name: pd.Series(values, dtype=_dtype(values)) for name, values in columns.items()}
                 ).to_parquet(path, index=False)  # fmt: skip
    return path


def _dtype(values: list[Any]) -> Any:
    kinds = {type(value) for value in values} - {type(None)}
    return {int: "Int64", bool: "boolean", float: "float64"}.get(next(iter(kinds), str), object)


def write_everywhere(folder: Path, stem: str, columns: Columns) -> dict[str, Path]:
    """Write a table in every format, by the name of the format."""
    made = {
        "csv": write_csv(folder / f"{stem}.csv", columns),
        "tsv": write_csv(folder / f"{stem}.tsv", columns, "\t"),
        "semicolons": write_csv(folder / f"{stem}-2.csv", columns, ";"),
        "jsonl": write_jsonl(folder / f"{stem}.jsonl", columns),
        "parquet": write_parquet(folder / f"{stem}.parquet", columns),
    }
    for kind in ("csv", "jsonl"):
        packed = folder / f"{stem}.{kind}.gz"
        packed.write_bytes(gzip.compress(made[kind].read_bytes()))
        made[f"{kind}.gz"] = packed
    return made
