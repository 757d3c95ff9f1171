"""Broken files of nodes and edges, as they are mailed, exported, cut and edited."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import driver
import junk
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from dropnode import GrandClassifier, TableModel, cli, read_tables

Rows = list[list[Any]]

NODES: Rows = [
    ["id", "age", "town", "about", "tags", "drinks"],
    *[
        [f"n{at}", 20 + at, ["Ulm", "Bern"][at % 2], f"likes {at % 3} things", "a|b", label]
        for at, label in enumerate(["tea", "mate", "tea", "mate", "", "", "", "", "", "", "", ""])
    ],
]
EDGES: Rows = [
    ["source", "target", "weight"],
    *[[f"n{at}", f"n{(at * 5 + 1) % 12}", 1 + at % 3] for at in range(12)],
]

CELLS = [
    "",
    " ",
    "n1",
    "n3 ",
    "NaN",
    "nan",
    "null",
    "-1",
    "inf",
    "-inf",
    "1e999",
    "1e308",
    "12x",
    "1,5",
    "0x1F",
    "007",
    "9" * 25,
    "=cmd|'/c calc'!A1",
    "@x",
    "\t",
    "a\nb",
    'say "hi"',
    "x" * 70_000,
    "\u202e",
    "日本",
    "\U0001f600",
    "true",
    "2020-01-01",
]


@cache
def fitted() -> TableModel:
    """A model of the sound tables."""
    nodes, edges = (pa.table(_columns(rows)) for rows in (NODES, EDGES))
    tables = read_tables(nodes, edges, label="drinks", text="about", lists="tags")
    return TableModel.fit(tables, GrandClassifier(max_epochs=1, hidden=4, order=1, random_state=0))


def warm_up() -> None:
    """Compile the kernels, and import what takes seconds."""
    fitted().predict()


def case(random: Random, folder: Path) -> Callable[[], object]:
    """Return a call that reads broken tables, of nodes to train on or of new ones."""
    names = []
    later = random.random() < 0.25
    for stem, rows in (("nodes", NODES), ("edges", EDGES)):
        spoilt = [list(row) for row in rows]
        for row in spoilt[1:] if later else []:
            row[0] = f"new {row[0]}"
        for _ in range(random.choice([0, 0, 1, 1, 2, 5])):
            random.choice(CHANGES)(spoilt, random)
        path = folder / f"{stem}.{random.choice(list(WRITERS))}"
        try:
            WRITERS[path.name.partition(".")[2]](path, spoilt)
        except (ValueError, IndexError, pa.ArrowException):
            # What Parquet cannot hold at all.
            path = folder / f"{stem}.csv"
            _write_csv(path, spoilt, ",")
        if random.random() < 0.25:
            _damage(path, random)
        names.append(str(path))
    if random.random() < 0.08:
        names[random.randrange(2)] = random.choice([str(folder), "nothing.csv", "not ours.txt"])
    given = {"label": "drinks"}
    for option in ("id", "label", "text", "categories", "lists", "drop", "source", "weight"):
        if random.random() < 0.08:
            columns = EDGES[0] if option in ("source", "weight") else NODES[0]
            given[option] = random.choice([*columns, *columns, "nothing", junk.text(random)])
    if random.random() < 0.1:
        return lambda: _command(names, given)
    edges = names[1] if random.random() < 0.9 else None
    if later:
        return lambda: _predict(names[0], edges)
    return lambda: _fit(read_tables(names[0], edges, **given))  # type: ignore[arg-type]


def _fit(tables: Any) -> None:
    """Train for an epoch, save, load, and predict: tables that were read are sound."""
    graph = tables.graph
    assert (graph.adjacency != graph.adjacency.T).nnz == 0
    model = TableModel.fit(tables, GrandClassifier(max_epochs=1, hidden=4, order=1, random_state=0))
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "made")
        again = TableModel.load(Path(folder) / "made")
    assert again.encoders == tables.encoders
    np.testing.assert_array_equal(again.predict().probabilities, model.predict().probabilities)


def _predict(nodes: str, edges: str | None) -> None:
    found = fitted().predict_new(nodes, edges)
    assert np.isfinite(found.probabilities).all()
    found.write("predicted.csv")


def _command(names: list[str], given: dict[str, str]) -> None:
    """Run the command, and look at how it failed: a list or a line, and nothing is left."""
    options = [word for name, value in given.items() for word in (f"--{name}", value)]
    arguments = ["fit", "--nodes", names[0], "--edges", names[1], "--out", "made", *options]
    printed, errors = io.StringIO(), io.StringIO()
    quick = ["--set", "max_epochs=1", "--set", "hidden=4", "--set", "order=1"]
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
        code = cli._run([*arguments, *quick])
    if code:
        told = [line for line in errors.getvalue().splitlines() if not line.startswith("  ")]
        assert [line for line in told if line.startswith("dropnode: ")], errors.getvalue()
        assert "Traceback" not in errors.getvalue()
        assert errors.getvalue().count("\n") <= 30
        assert code in (1, 2)
        assert not Path("made").exists()
        raise driver.Told(errors.getvalue()[-500:])


def _columns(rows: Rows) -> dict[str, list[Any]]:
    head, *body = rows
    return {str(name): [row[at] for row in body] for at, name in enumerate(head)}


def _write_csv(path: Path, rows: Rows, mark: str) -> None:
    def cell(value: Any) -> str:
        text = str(value)
        quoted = any(each in text for each in (mark, '"', "\n", "\r"))
        return '"' + text.replace('"', '""') + '"' if quoted else text

    text = "\n".join(mark.join(map(cell, row)) for row in rows) + "\n"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))


def _write_json(path: Path, rows: Rows) -> None:
    head, *body = rows
    lines = [json.dumps(dict(zip(map(str, head), row, strict=False))) for row in body]
    path.write_text("\n".join(lines), encoding="utf-8")


def _write_parquet(path: Path, rows: Rows) -> None:
    columns = {
        name: values if all(isinstance(each, int) for each in values) else list(map(str, values))
        for name, values in _columns(rows).items()
    }
    parquet.write_table(pa.table(columns), path)


def _packed(path: Path, rows: Rows) -> None:
    _write_csv(path, rows, ",")
    path.write_bytes(gzip.compress(path.read_bytes()))


WRITERS: dict[str, Callable[[Path, Rows], None]] = {
    "csv": lambda path, rows: _write_csv(path, rows, ","),
    "tsv": lambda path, rows: _write_csv(path, rows, "\t"),
    "CSV": lambda path, rows: _write_csv(path, rows, ";"),
    "jsonl": _write_json,
    "parquet": _write_parquet,
    "csv.gz": _packed,
}


def _cell(rows: Rows, random: Random) -> None:
    row = random.choice(rows)
    if row:
        row[random.randrange(len(row))] = random.choice(CELLS)


def _column(rows: Rows, random: Random) -> None:
    at = random.randrange(len(rows[0])) if rows[0] else 0
    value = random.choice([*CELLS, "", "1"])
    for row in rows[1:]:
        row[at : at + 1] = [value]


def _fewer_columns(rows: Rows, random: Random) -> None:
    at = random.randrange(max(len(rows[0]), 1))
    for row in rows:
        del row[at : at + 1]


def _shorter_row(rows: Rows, random: Random) -> None:
    del random.choice(rows)[-1:]


def _cut(rows: Rows, random: Random) -> None:
    del rows[random.choice([0, 1, 3]) :]
    rows.append([])


def _other_names(rows: Rows, random: Random) -> None:
    rows[0] = [junk.text(random) for _ in rows[0]]


def _no_header(rows: Rows, random: Random) -> None:
    del rows[0]
    rows.append([])


CHANGES: list[Callable[[Rows, Random], None]] = [
    _cell,
    _cell,
    _cell,
    _cell,
    _column,
    _fewer_columns,
    _shorter_row,
    _cut,
    _other_names,
    _no_header,
    lambda rows, random: rows.append(list(random.choice(rows))),
    lambda rows, random: rows.insert(random.randrange(len(rows)), []),
    lambda rows, random: random.choice(rows).append(random.choice(CELLS)),
]


def _damage(path: Path, random: Random) -> None:
    content = bytearray(path.read_bytes())
    kind = random.randrange(6)
    if kind == 0:
        content = content[: random.randrange(len(content) + 1)]
    elif kind == 1 and content:
        for _ in range(random.choice([1, 4, 40])):
            content[random.randrange(len(content))] = random.randrange(256)
    elif kind == 2:
        content = bytearray(b"")
    elif kind == 3:
        content = bytearray(bytes(content).decode("utf-8", "replace").encode("utf-16"))
    elif kind == 4:
        content = bytearray(b"\xef\xbb\xbf" + content)
    else:
        content = content.replace(b"\n", random.choice([b"\r", b"\r\n", b"\n\n", b"", b'"\n']))
    path.write_bytes(bytes(content))
