"""``dropnode convert``, and training on what it made, as a person or a script meets them."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from dropnode import cli
from dropnode.data.generators import sbm

pytestmark = pytest.mark.usefixtures("empty_cache")


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Write the files of a graph, and return the options that name them."""
    graph = sbm.make(nodes=300, classes=3, homophily=0.9, features=4)
    rows, columns = graph.adjacency.nonzero()
    edges = "".join(f"n{a},n{b}\n" for a, b in zip(rows, columns, strict=True) if a < b)
    (tmp_path / "edges.csv").write_text(f"source,target\n{edges}", encoding="utf-8")
    nodes = "".join(f"n{at},{'abc'[label]}\n" for at, label in enumerate(graph.labels))
    (tmp_path / "nodes.csv").write_text(f"id,kind\n{nodes}", encoding="utf-8")
    np.save(tmp_path / "features.npy", graph.features)
    named = {"nodes": "nodes.csv", "edges": "edges.csv", "features": "features.npy"}
    return [text for key, name in named.items() for text in (f"--{key}", str(tmp_path / name))]


def test_files_become_a_folder_and_a_run_predicts_all_of_its_nodes(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph, out = tmp_path / "graph", tmp_path / "run"
    assert cli._run(["convert", *files, "--label", "kind", "--out", str(graph), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["nodes"], made["features"], made["labels"]) == (300, 4, 300)
    assert made["classes"] == ["a", "b", "c"]
    train = ["train", str(graph), "--method", "grand-plus", "--set", "max_epochs=5"]
    assert cli._run([*train, "--out", str(out), "--json"]) == 0
    accuracy = json.loads(capsys.readouterr().out)["test_accuracy"]
    assert accuracy > 0.6
    with (out / "predictions.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == [f"n{at}" for at in range(300)]
    right = [row["predicted"] == row["label"] for row in rows if row["part"] == "test"]
    assert sum(right) / len(right) == pytest.approx(accuracy)


def test_a_wrong_call_is_one_line_and_leaves_nothing(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(tmp_path.iterdir())
    out = ["--out", str(tmp_path / "graph")]
    assert cli._run(["convert", *files, "--label", "sort", *out]) == 2
    assert "has no column 'sort' for the labels" in capsys.readouterr().err
    assert cli._run(["convert", *files, "--out", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert "exists and is not empty" in told
    assert told.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before
