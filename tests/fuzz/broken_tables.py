"""Files of nodes and edges with known faults, given to the commands that read them.

Unlike in :mod:`tables`, where anything may be wrong or nothing, each file here has a fault of which
the place is known. The command must name the file, and the row and the column where they exist; its
exit code is 2; and it writes nothing.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import driver
import pyarrow as pa
import pyarrow.parquet as parquet

import tables
from dropnode import cli

COMMANDS = ("fit", "inspect", "predict")
TEXT = ("csv", "tsv", "CSV", "csv.gz")
SEPARATORS = {"csv": ",", "tsv": "\t", "CSV": ";", "csv.gz": ","}
ALL = (*TEXT, "jsonl", "parquet")


@dataclass(frozen=True)
class Fault:
    """What is done to a table, and where the error has to point.

    Attributes
    ----------
    name : str
    of : "nodes" or "edges"
    make : callable
        Takes (path, rows, random), writes the broken file, and returns the number of the row that
        the error must name; None if no row is to blame.
    kinds : tuple of str
        The endings that the file may have.
    column : str
        The column that the error must name, if one is to blame.
    commands : tuple of str
        The commands that have to refuse the file.
    """

    name: str
    of: str
    make: Callable[[Path, tables.Rows, Random], int | None]
    kinds: tuple[str, ...] = ALL
    column: str = ""
    commands: tuple[str, ...] = COMMANDS


def warm_up() -> None:
    """Compile the kernels, and make the model that new nodes are given to."""
    _model()


def case(random: Random, folder: Path) -> Callable[[], object]:
    """Return a call of a command with a broken file of nodes, of edges, or with both."""
    command = random.choice(COMMANDS)
    possible = [fault for fault in FAULTS if command in fault.commands]
    chosen = {fault.of: fault for fault in random.sample(possible, random.choice([1, 1, 2]))}
    names, places = {}, []
    for stem, rows in _sound(command).items():
        fault = chosen.get(stem)
        path = folder / f"{stem}.{random.choice(fault.kinds if fault else ALL)}"
        if fault is None:
            write(path, rows)
        else:
            row = fault.make(path, [list(each) for each in rows], random)
            places.append((str(path), row, fault.column))
        names[stem] = str(path)
    told = " and ".join(fault.name for fault in chosen.values())
    return lambda: _refuse(command, names, places, f"{command}: {told}")


@cache
def _model() -> str:
    """The folder of a model of the sound tables."""
    place = Path(_HOME.name) / "model"
    tables.fitted().save(place)
    return str(place)


_HOME = tempfile.TemporaryDirectory(prefix="fuzz-model-")


def _sound(command: str) -> dict[str, tables.Rows]:
    nodes, edges = tables.NODES, tables.EDGES
    if command == "predict":
        # The edges lead from new nodes to old ones.
        nodes = [nodes[0], *[[f"new {row[0]}", *row[1:]] for row in nodes[1:]]]
        edges = [edges[0], *[[f"new {row[0]}", *row[1:]] for row in edges[1:]]]
    return {"nodes": nodes, "edges": edges}


def _refuse(
    command: str, names: dict[str, str], places: list[tuple[str, int | None, str]], told: str
) -> None:
    """Run a command, and look at how it refuses."""
    given = ["--nodes", names["nodes"], "--edges", names["edges"]]
    if command == "predict":
        arguments = [command, _model(), *given, "--out", "predicted.csv"]
    else:
        arguments = [command, *given, "--label", "drinks", "--text", "about", "--lists", "tags"]
        result = ["--out", "made"] if command == "fit" else ["--picture", "made.png"]
        arguments += [*result, *(["--set", "max_epochs=1"] if command == "fit" else [])]
    before = sorted(Path.cwd().rglob("*"))
    printed, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
        code = cli._run(arguments)
    message = errors.getvalue()
    assert code == 2, f"{told}: exit code {code}\n{printed.getvalue()[-2000:]}{message}"
    assert message.startswith("dropnode: "), f"{told}: {message}"
    assert "Traceback" not in message, told
    assert message.count("\n") <= 30, f"{told}: {message}"
    assert printed.getvalue() == "", f"{told}: {printed.getvalue()}"
    assert sorted(Path.cwd().rglob("*")) == before, f"{told}: something was written"
    for path, row, column in places:
        lines = [line for line in message.splitlines() if path in line]
        rows = [line for line in lines if row is None or f"row {row}" in line]
        assert rows, f"{told}: expected {path}, row {row}\n{message}"
        assert any(f"column {column}" in line for line in rows) or not column, (
            f"{told}: expected column {column}\n{message}"
        )
    raise driver.Told(f"{told}\n{message[-1000:]}")


def write(path: Path, rows: tables.Rows) -> None:
    """Write rows in the format of the ending."""
    tables.WRITERS[path.name.partition(".")[2]](path, rows)


def _number(path: Path, at: int) -> int:
    """Return the number of a row in its file; the header of text is a row of its own."""
    return at if path.name.endswith(("jsonl", "parquet")) else at + 1


def cell(column: str, *values: Any) -> Callable[[Path, tables.Rows, Random], int | None]:
    """Put one of some values into one cell of a column."""

    def make(path: Path, rows: tables.Rows, random: Random) -> int:
        at = random.randrange(1, len(rows))
        rows[at][rows[0].index(column)] = random.choice(values)
        write(path, rows)
        return _number(path, at)

    return make


def _same_id(path: Path, rows: tables.Rows, random: Random) -> int:
    first, second = sorted(random.sample(range(1, len(rows)), 2))
    rows[second][0] = rows[first][0]
    write(path, rows)
    return _number(path, second)


def column(name: str, values: Callable[[int], Any]) -> Callable[[Path, tables.Rows, Random], None]:
    """Put other values into a whole column."""

    def make(path: Path, rows: tables.Rows, random: Random) -> None:
        for at, row in enumerate(rows[1:]):
            row[rows[0].index(name)] = values(at)
        write(path, rows)

    return make


def renamed(name: str, other: str) -> Callable[[Path, tables.Rows, Random], None]:
    """Give a column another name."""

    def make(path: Path, rows: tables.Rows, random: Random) -> None:
        rows[0][rows[0].index(name)] = other
        write(path, rows)

    return make


def _longer(path: Path, rows: tables.Rows, random: Random) -> int:
    at = random.randrange(1, len(rows))
    rows[at] += ["more"] * random.choice([1, 3, 500])
    write(path, rows)
    return at + 1


def _shorter(path: Path, rows: tables.Rows, random: Random) -> int:
    at = random.randrange(1, len(rows))
    del rows[at][random.randrange(1, len(rows[at])) :]
    write(path, rows)
    return at + 1


def _twice(path: Path, rows: tables.Rows, random: Random) -> int:
    rows[0][-1] = rows[0][0]
    write(path, rows)
    return 1


def _open_quote(path: Path, rows: tables.Rows, random: Random) -> int:
    mark, at = SEPARATORS[path.name.partition(".")[2]], random.randrange(1, len(rows))
    lines = [mark.join(map(str, row)) for row in rows]
    lines[at] = f'"{lines[at]}'
    content(lambda _: "\n".join(lines).encode())(path, rows, random)
    return at + 1


def spoilt_cell(junk: bytes) -> Callable[[Path, tables.Rows, Random], int | None]:
    """Put bytes that are no text into the first cell of a row."""

    def make(path: Path, rows: tables.Rows, random: Random) -> int:
        at = random.randrange(1, len(rows))
        rows[at][0] = f"SPOILT{rows[at][0]}"
        write(path, rows)
        packed = path.name.endswith("gz")
        whole = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
        whole = whole.replace(b"SPOILT", junk)
        path.write_bytes(gzip.compress(whole) if packed else whole)
        return _number(path, at)

    return make


def content(change: Callable[[bytes], bytes]) -> Callable[[Path, tables.Rows, Random], None]:
    """Write a sound file and change its bytes, below the compression."""

    def make(path: Path, rows: tables.Rows, random: Random) -> None:
        write(path, rows)
        packed = path.name.endswith("gz")
        whole = change(gzip.decompress(path.read_bytes()) if packed else path.read_bytes())
        path.write_bytes(gzip.compress(whole) if packed else whole)

    return make


def _cut(path: Path, rows: tables.Rows, random: Random) -> None:
    write(path, rows)
    whole = path.read_bytes()
    path.write_bytes(whole[: random.randrange(len(whole))])


def _raw_junk(path: Path, rows: tables.Rows, random: Random) -> None:
    start = random.choice([b"", b"PK\x03\x04", b"\x89PNG\r\n\x1a\n", b"\x7fELF", b"PAR1", b"%PDF-"])
    path.write_bytes(start + b"\xff\x00" + random.randbytes(random.choice([1, 100, 20_000])))


def _no_rows(path: Path, rows: tables.Rows, random: Random) -> None:
    if path.name.endswith("parquet"):
        parquet.write_table(pa.table(dict.fromkeys(rows[0], pa.array([], pa.string()))), path)
    else:
        write(path, rows[:1])


def _folder(path: Path, rows: tables.Rows, random: Random) -> None:
    path.mkdir()


def _nothing(path: Path, rows: tables.Rows, random: Random) -> None:
    if random.random() < 0.5:
        path.symlink_to("nowhere")


def _pipe(path: Path, rows: tables.Rows, random: Random) -> None:
    os.mkfifo(path)


def line(text: str) -> Callable[[Path, tables.Rows, Random], int]:
    """Replace a line of JSON lines."""

    def make(path: Path, rows: tables.Rows, random: Random) -> int:
        write(path, rows)
        lines, at = path.read_text(encoding="utf-8").splitlines(), random.randrange(len(rows) - 1)
        lines[at] = text
        path.write_text("\n".join(lines), encoding="utf-8")
        return at + 1

    return make


def _pretty(path: Path, rows: tables.Rows, random: Random) -> int:
    objects = [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]
    path.write_text(json.dumps(objects, indent=2), encoding="utf-8")
    return 1


def typed(name: str, values: Callable[[int], Any], kind: Any = None) -> Any:
    """Write Parquet in which a column has values of another type."""

    def make(path: Path, rows: tables.Rows, random: Random) -> None:
        columns = tables._columns(rows)
        every: dict[str, Any] = {key: list(map(str, cells)) for key, cells in columns.items()}
        every[name] = pa.array([values(at) for at in range(len(rows) - 1)], kind)
        parquet.write_table(pa.table(every), path)

    return make


def _other_name(path: Path, rows: tables.Rows, random: Random) -> None:
    write(path.with_name("sound.csv"), rows)
    path.with_name("sound.csv").rename(path)


BEFORE = ("fit", "inspect")
"""The commands that need labels."""

FAULTS = [
    Fault("no id", "nodes", cell("id", "", " "), TEXT, "id"),
    Fault("an id twice", "nodes", _same_id, column="id"),
    Fault("no number", "nodes", cell("age", "12x", "=1+1", "0x1F", "1,5", "@x"), TEXT, "age"),
    Fault("an infinite number", "nodes", cell("age", "inf", "-inf", "1e999"), TEXT, "age"),
    Fault("a label -1", "nodes", cell("drinks", "-1", "-1.0"), TEXT, "drinks", BEFORE),
    Fault("no labels", "nodes", column("drinks", lambda _: ""), ALL, "drinks", BEFORE),
    Fault("labels of spaces", "nodes", column("drinks", lambda _: " "), TEXT, "drinks", BEFORE),
    Fault("one class", "nodes", column("drinks", lambda _: "tea"), ALL, "drinks", BEFORE),
    Fault("quantities", "nodes", column("drinks", lambda at: at + 0.5), TEXT, "drinks", BEFORE),
    Fault("decimal commas", "nodes", column("age", lambda at: f"{at},5"), TEXT, "age"),
    Fault("no column of labels", "nodes", renamed("drinks", "drink"), ALL, "", BEFORE),
    Fault("no column of text", "nodes", renamed("about", "About me")),
    Fault("a longer row", "nodes", _longer, TEXT),
    Fault("a shorter row", "nodes", _shorter, TEXT),
    Fault("a column twice", "nodes", _twice, TEXT, "id"),
    Fault("an open quote", "nodes", _open_quote, TEXT),
    Fault("bars for commas", "nodes", content(lambda b: b.replace(b",", b":")), ("csv", "csv.gz")),
    Fault("latin-1", "nodes", spoilt_cell("é".encode("latin-1")), TEXT, "id"),
    Fault("half a character", "nodes", spoilt_cell("é".encode()[:1]), TEXT, "id"),
    Fault("no id in an edge", "edges", cell("source", "", " "), TEXT, "source"),
    Fault(
        "a dangling edge", "edges", cell("target", "n99", "N1", "=1+1", "9" * 400), ALL, "target"
    ),
    Fault("no number", "edges", cell("weight", "heavy", "=1+1", "1,5", "0x1F"), TEXT, "weight"),
    Fault("a bad weight", "edges", cell("weight", "-1", "inf", "1e999", "-0.5"), TEXT, "weight"),
    Fault("a missing weight", "edges", cell("weight", "", "NaN", "null"), TEXT, "weight"),
    Fault("weights too large", "edges", column("weight", lambda _: 10**60), TEXT, "weight"),
    Fault("a longer row", "edges", _longer, TEXT),
    Fault("a shorter row", "edges", _shorter, TEXT),
    Fault("a column twice", "edges", _twice, TEXT, "source"),
    Fault("an open quote", "edges", _open_quote, TEXT),
    Fault("latin-1", "edges", spoilt_cell("é".encode("latin-1")), TEXT, "source"),
    Fault("a JSON weight", "edges", cell("weight", "heavy", -2, 10**400), ("jsonl",), "weight"),
    Fault("a JSON list", "edges", cell("target", ["n1"], {"id": "n1"}), ("jsonl",), "target"),
    Fault("a JSON label", "nodes", cell("drinks", ["tea", "mate"]), ("jsonl",), "drinks", BEFORE),
    Fault("a JSON id", "nodes", cell("id", None), ("jsonl",), "id"),
    Fault("an id of Parquet", "nodes", typed("id", lambda at: at + 0.5), ("parquet",), "id"),
    Fault("ids of structs", "nodes", typed("id", lambda at: {"a": at}), ("parquet",), "id"),
    Fault("ids of booleans", "nodes", typed("id", lambda at: at > 3), ("parquet",), "id"),
    Fault("bytes", "nodes", typed("id", lambda at: b"\xff" * at), ("parquet",), "id"),
    Fault(
        "lists of labels",
        "nodes",
        typed("drinks", lambda _: ["tea", "mate"]),
        ("parquet",),
        "drinks",
        BEFORE,
    ),
    Fault("NaN", "edges", typed("weight", lambda _: float("nan")), ("parquet",), "weight"),
    Fault("negative", "edges", typed("weight", lambda at: -at - 1), ("parquet",), "weight"),
    Fault("no weights", "edges", typed("weight", lambda _: [1]), ("parquet",), "weight"),
    *[
        fault
        for of in ("nodes", "edges")
        for fault in (
            Fault("NUL", of, spoilt_cell(b"\0"), TEXT),
            Fault("UTF-16", of, content(lambda b: b.decode().encode("utf-16")), TEXT),
            Fault(
                "UTF-16 without mark",
                of,
                content(lambda b: b.decode().encode("utf-16-le")),
                (*TEXT, "jsonl"),
            ),
            Fault("empty", of, content(lambda _: b"")),
            Fault("white space", of, content(lambda _: b" \n\n\t\n"), (*TEXT, "jsonl")),
            Fault("no rows", of, _no_rows),
            Fault("junk", of, _raw_junk),
            Fault("cut", of, _cut, ("parquet", "csv.gz")),
            Fault("text in gzip's name", of, _other_name, ("csv.gz", "parquet")),
            Fault("a spreadsheet's name", of, _other_name, ("xlsx", "txt", "parquet.gz")),
            Fault("a folder", of, _folder),
            Fault("nothing", of, _nothing),
            Fault("a pipe", of, _pipe),
            Fault("a line cut", of, line('{"id": "n1", "so'), ("jsonl",)),
            Fault("a line of a list", of, line("[1, 2]"), ("jsonl",)),
            Fault("a line of null", of, line("null"), ("jsonl",)),
            Fault("nested deep", of, line("[" * 100_000), ("jsonl",)),
            Fault("a key twice", of, line('{"id": "n1", "id": "n2"}'), ("jsonl",)),
            Fault("pretty JSON", of, _pretty, ("jsonl",)),
        )
    ],
]
