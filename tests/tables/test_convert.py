"""Files of any length become the folder of a graph, whole or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dropnode import Graph
from dropnode.errors import ConfigError, GraphWarning, TableError
from dropnode.graph.mapped import open_mapped
from dropnode.tables import streams
from dropnode.tables.convert import Converted, convert
from dropnode.tables.edges import EdgeColumns

IDS: dict[str, list[Any]] = {
    "positions": list(range(40)),
    "numbers": [1000 - 13 * at for at in range(40)],
    "texts": [f"Knoten {at}, ü" for at in range(40)],
    "huge": [str(10**25 + at) for at in range(40)],
}


class Files:
    """Files of a random graph with some labels, and the same graph made in memory."""

    def __init__(self, folder: Path, ids: list[Any], ending: str = "csv") -> None:
        rng = np.random.default_rng(3)
        self.nodes, self.features = folder / "nodes.csv", folder / "features.npy"
        self.edges, self.out = folder / f"edges.{ending}", folder / "made/graph"
        labels = ["red", "green", ""] * 13 + ["red"]
        matrix = rng.standard_normal((40, 5)).astype(np.float32)
        ends = rng.integers(0, 40, (300, 2))
        weights = rng.integers(0, 5, 300)
        pd.DataFrame({"id": ids, "class": labels}).to_csv(self.nodes, index=False)
        np.save(self.features, matrix)
        named = np.array(ids, dtype=object)[ends]
        table = pd.DataFrame({"source": named[:, 0], "target": named[:, 1], "weight": weights})
        if ending == "parquet":
            table.to_parquet(self.edges)
        else:
            table.to_csv(self.edges, index=False, sep="\t" if ending == "tsv" else ",")
        with pytest.warns(GraphWarning):
            self.expected = Graph.from_edges(
                named, matrix, [label or None for label in labels], weights=weights, ids=ids
            )

    def convert(self, **options: Any) -> Converted:
        return convert(self.nodes, self.edges, self.features, self.out, label="class", **options)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path, IDS["texts"])


def assert_same(graph: Graph, expected: Graph) -> None:
    assert (graph.adjacency != expected.adjacency).nnz == 0
    np.testing.assert_array_equal(graph.features, expected.features)
    np.testing.assert_array_equal(graph.labels, expected.labels)
    assert graph.ids.tolist() == expected.ids.tolist()
    assert graph.class_names == expected.class_names


@pytest.mark.parametrize("kind", IDS)
@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet"])
def test_files_read_in_many_parts_give_the_graph_of_the_same_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, ending: str
) -> None:
    monkeypatch.setattr(streams, "BYTES", 500)
    monkeypatch.setattr(streams, "ROWS", 17)
    files = Files(tmp_path, IDS[kind], ending)
    told: list[float] = []
    made = files.convert(watch=told.append)
    assert_same(open_mapped(files.out), files.expected)
    assert (made.nodes, made.features, made.labels) == (40, 5, 27)
    assert made.edges == files.expected.num_edges
    for note in files.expected.notes:
        assert f"{files.edges}: {note}" in made.notes
    assert told == sorted(told)
    assert told[-1] == 3
    assert not list(tmp_path.rglob("*unsorted*"))


def test_a_file_without_a_header_keeps_its_first_edge_and_those_of_every_part(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "BYTES", 400)
    lines = files.edges.read_text(encoding="utf-8").splitlines(keepends=True)
    files.edges.write_text("".join(lines[1:]), encoding="utf-8")
    made = files.convert(columns=EdgeColumns(weight="column 3"))
    assert_same(open_mapped(files.out), files.expected)
    assert f"{files.edges} has no header: its first row is data" in made.notes


def test_half_precision_rounds_features_and_refuses_what_does_not_fit(files: Files) -> None:
    files.convert(half=True)
    graph = open_mapped(files.out)
    assert graph.features.dtype == np.float16
    assert (graph.features == files.expected.features.astype(np.float16)).all()
    large = files.expected.features.copy()
    large[7, 2] = 1e6
    np.save(files.features, large)
    with pytest.raises(TableError, match=r"features.npy, row 8: .* too large for float16"):
        convert(files.nodes, files.edges, files.features, files.out.with_name("two"), half=True)


def no_id(files: Files) -> str:
    lines = files.edges.read_text(encoding="utf-8").splitlines(keepends=True)
    lines[250] = "nobody,nobody,1\n"
    files.edges.write_text("".join(lines), encoding="utf-8")
    return "edges.csv, row 251, column source: 'nobody' is no id in"


@pytest.mark.parametrize("headless", [False, True])
def test_rows_of_later_parts_have_the_numbers_of_the_file(
    files: Files, monkeypatch: pytest.MonkeyPatch, headless: bool
) -> None:
    monkeypatch.setattr(streams, "BYTES", 30)
    lines = [f"{at},{at + 1}\n" for at in range(30)] + ["7,x\n", "\n"]
    files.nodes.write_text("id\n" + "".join(f"{at}\n" for at in range(40)), encoding="utf-8")
    text = "".join(lines if headless else ["source,target\n", *lines])
    files.edges.write_text(text, encoding="utf-8")
    with pytest.raises(TableError, match=f"edges.csv, row {31 if headless else 32}, column"):
        convert(files.nodes, files.edges, files.features, files.out)


def too_few_rows(files: Files) -> str:
    np.save(files.features, files.expected.features[1:])
    return "has 39 rows; expected one for each of the 40 rows of nodes"


def missing_number(files: Files) -> str:
    wrong = files.expected.features.copy()
    wrong[3, 1] = np.nan
    np.save(files.features, wrong)
    return "features.npy, row 4: a number is missing"


def pickled(files: Files) -> str:
    np.save(files.features, np.array([{}] * 40, dtype=object))
    return "features.npy holds no matrix"


def no_edges(files: Files) -> str:
    files.edges.unlink()
    return "edges.csv does not exist"


def negative(files: Files) -> str:
    with files.edges.open("a", encoding="utf-8") as file:
        file.write(f'"{IDS["texts"][0]}","{IDS["texts"][1]}",-1\n')
    return "-1' is no number from 0 on"


def twice(files: Files) -> str:
    with files.nodes.open("a", encoding="utf-8") as file:
        file.write(f'"{IDS["texts"][0]}",red\n')
    np.save(files.features, np.zeros((41, 2)))
    return "ids must be unique"


def empty_file(files: Files) -> str:
    files.edges.write_bytes(b"")
    return "edges.csv is empty; expected a header"


def header_alone(files: Files) -> str:
    files.edges.write_bytes(b"source,target\n")
    return "edges.csv has no rows below its header"


def other_header(files: Files) -> str:
    files.edges.write_bytes(b"name\n")
    return "edges.csv has one column, 'name'"


def far_below(files: Files) -> str:
    lines = files.edges.read_text(encoding="utf-8").splitlines(keepends=True)
    lines[250] = f'"{IDS["texts"][0]}"\n'
    files.edges.write_text("".join(lines), encoding="utf-8")
    return "edges.csv, row 251: number of cells 1"


def unclosed(files: Files) -> str:
    lines = files.edges.read_text(encoding="utf-8").splitlines(keepends=True)
    lines[250] = '"nobody,7,1\n'
    files.edges.write_text("".join(lines), encoding="utf-8")
    return "edges.csv, row 251: a quotation mark"


@pytest.mark.parametrize(
    "spoil",
    [
        *[no_id, too_few_rows, missing_number, pickled, no_edges, negative, twice],
        *[empty_file, header_alone, other_header, far_below, unclosed],
    ],
)
def test_what_is_wrong_is_told_and_nothing_is_left(
    files: Files, monkeypatch: pytest.MonkeyPatch, spoil: Any
) -> None:
    monkeypatch.setattr(streams, "BYTES", 500)
    told = spoil(files)
    before = sorted(files.nodes.parent.rglob("*"))
    with pytest.raises(TableError) as error:
        files.convert()
    assert told in str(error.value)
    assert sorted(files.nodes.parent.rglob("*")) == before


def test_a_folder_with_anything_in_it_is_not_overwritten(files: Files) -> None:
    files.out.mkdir(parents=True)
    (files.out / "mine").touch()
    with pytest.raises(ConfigError, match="exists and is not empty"):
        files.convert()


@pytest.mark.parametrize("moment", [0.5, 1.5, 2.5])
def test_an_interrupted_conversion_leaves_nothing(files: Files, moment: float) -> None:
    def stop(done: float) -> None:
        if done > moment:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.convert(watch=stop)
    assert not files.out.parent.exists()


WAITING = """
import sys, time
from pathlib import Path
from dropnode.tables.convert import convert

def wait(done):
    if done >= float(sys.argv[1]):
        print("waits", flush=True)
        time.sleep(600)

convert(*map(Path, sys.argv[2:]), watch=wait)
"""


@pytest.mark.parametrize("moment", [0.5, 1.5, 3.0])
def test_a_killed_conversion_is_cleared_away_by_the_next_and_a_running_one_is_not(
    files: Files, moment: float
) -> None:
    """Killed while it copies features, reads edges, and after it has sorted them."""
    paths = [str(path) for path in (files.nodes, files.edges, files.features, files.out)]
    command = [sys.executable, "-c", WAITING, str(moment), *paths]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        (unfinished,) = files.out.parent.iterdir()
        assert unfinished.name.endswith(".tmp")
        other = files.out.with_name("other")
        convert(files.nodes, files.edges, files.features, other)
        assert unfinished.is_dir()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    files.convert()
    assert sorted(files.out.parent.iterdir()) == [files.out, other]
    assert_same(open_mapped(files.out), files.expected)


def test_a_graph_without_edges_or_labels_is_converted(files: Files) -> None:
    name = IDS["texts"][0]
    files.edges.write_text(f'source,target\n"{name}","{name}"\n', encoding="utf-8")
    made = convert(files.nodes, files.edges, files.features, files.out)
    assert (made.edges, made.labels, made.classes) == (0, 0, ())
    assert open_mapped(files.out).num_edges == 0


def test_a_conversion_that_was_killed_in_an_empty_folder_is_cleared_away(files: Files) -> None:
    left = files.out / ".dropnode-1-0123abcd.tmp"
    (left / "unsorted").mkdir(parents=True)
    files.convert()
    assert not left.exists()
    assert_same(open_mapped(files.out), files.expected)
