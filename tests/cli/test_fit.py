"""``dropnode fit`` and ``dropnode predict`` on real files, as a practitioner meets them."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dropnode import GrandClassifier, cli
from dropnode.errors import ConfigError
from dropnode.table_model import Predictions

QUICK = ["--set", "max_epochs=8", "--set", "order=2", "--set", "hidden=8"]


def write(path: Path, rows: list[list[Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return path


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Thirty papers of two topics, six later ones, and citations between all of them."""
    generator = np.random.default_rng(0)
    topics = ["graphs", "trees"]
    old = [["id", "year", "abstract", "topic"]]
    new = [["id", "year", "abstract"]]
    for at in range(36):
        row = [f"p{at}", 2000 + at % 7, f"{topics[at % 2]} are {'large' if at % 3 else 'small'}"]
        if at < 30:
            old.append([*row, topics[at % 2] if at < 10 else ""])
        else:
            new.append(row)
    edges, later = [["source", "target"]], [["source", "target"]]
    for source, target in generator.integers(0, 36, (200, 2)):
        if (source - target) % 2 == 0:
            (edges if max(source, target) < 30 else later).append([f"p{source}", f"p{target}"])
    write(tmp_path / "nodes.csv", old)
    write(tmp_path / "new.csv", new)
    write(tmp_path / "edges.csv", edges)
    write(tmp_path / "later.csv", later)
    return tmp_path


def fit(files: Path, *more: str, out: str = "model") -> int:
    return cli._run(
        [
            *["fit", "--nodes", str(files / "nodes.csv"), "--edges", str(files / "edges.csv")],
            *["--label", "topic", "--text", "abstract", "--out", str(files / out), *QUICK, *more],
        ]
    )


def predict(files: Path, *more: str, out: str = "predicted.csv") -> int:
    return cli._run(
        [
            *["predict", str(files / "model"), "--nodes", str(files / "new.csv")],
            *["--edges", str(files / "later.csv"), "--out", str(files / out), *more],
        ]
    )


def test_fit_then_predict(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(files) == 0
    printed = capsys.readouterr().out
    for told in (
        "id        id",
        "topic     label, 2 classes, known for 10 of 30",
        "year      numbers, standardised",
        "abstract  text, 5 words",
        "30 nodes, ",
        "classes            2: graphs, trees",
        "labels             10 given, 20 predicted",
        "held-out accuracy  ",
        "self-loops removed, as propagation adds its own:",
    ):
        assert told in printed
    with (files / "model" / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == [f"p{at}" for at in range(30)]
    assert [row["label"] for row in rows][8:12] == ["graphs", "trees", "", ""]
    loaded = GrandClassifier.load(files / "model")
    assert [row["predicted"] for row in rows] == loaded.predict().tolist()

    assert predict(files) == 0
    assert "6 nodes predicted, in " in capsys.readouterr().out
    with (files / "predicted.csv").open() as file:
        later = list(csv.DictReader(file))
    assert [row["id"] for row in later] == [f"p{at}" for at in range(30, 36)]
    assert list(later[0]) == ["id", "predicted", "confidence", "set", "p_graphs", "p_trees"]
    right = [row["predicted"] == ["graphs", "trees"][at % 2] for at, row in enumerate(later)]
    assert all(right)


@pytest.mark.parametrize("out", [".", "link"])
def test_an_empty_folder_takes_the_model_wherever_it_is(
    files: Path, monkeypatch: pytest.MonkeyPatch, out: str
) -> None:
    here = files / "here"
    here.mkdir()
    (files / "link").symlink_to(here, target_is_directory=True)
    monkeypatch.chdir(here if out == "." else files)
    options = ["--text", "abstract", "--no-assess", "--out", out, *QUICK]
    nodes = ["--nodes", str(files / "nodes.csv"), "--edges", str(files / "edges.csv")]
    assert cli._run(["fit", *nodes, "--label", "topic", *options]) == 0
    assert len(GrandClassifier.load(here).predict()) == 30
    assert sorted(path.name for path in here.iterdir()) == [
        *["graph.safetensors", "label_next.csv", "model.json"],
        *["predictions.csv", "weights.safetensors"],
    ]


def test_names_of_files_may_have_brackets(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rich takes [/x] for the end of a style."""
    odd = files / "a[" / "x]"
    odd.mkdir(parents=True)
    for name in ("nodes.csv", "edges.csv", "new.csv", "later.csv"):
        (files / name).rename(odd / name)
    assert fit(odd, "--no-assess", out="model[b]") == 0
    assert f"look at {odd / 'model[b]' / 'predictions.csv'}" in capsys.readouterr().out
    (odd / "model[b]").rename(odd / "model")
    assert predict(odd) == 0


def test_json_is_one_object(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(files, "--json", "--seed", "3", "--method", "grand-no-cr") == 0
    values = json.loads(capsys.readouterr().out)
    assert (values["nodes"], values["labels"], values["predicted"]) == (30, 10, 20)
    assert (values["method"], values["preset"], values["seed"]) == ("grand-no-cr", "default", 3)
    assert values["classes"] == ["graphs", "trees"]
    assert values["held_out"]["labels"] == 10
    assert values["feature_scaling"] == "none"
    assert {"column": "year", "became": "numbers, standardised", "features": 1} in values["columns"]
    assert predict(files, "--json") == 0
    values = json.loads(capsys.readouterr().out)
    assert values["predicted"] == 6


@pytest.mark.parametrize(
    ("more", "method"),
    [([], "grand-plus"), (["--set", "order=2"], "grand"), (["--method", "gcn"], "gcn")],
)
def test_a_large_graph_is_trained_with_another_method(
    files: Path,
    more: list[str],
    method: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # The package has a function of the name of the module.
    monkeypatch.setattr(sys.modules["dropnode.cli.fit"], "LARGE", 29)
    asked: list[str] = []

    def stopped(tables: Any, classifier: GrandClassifier, **_: Any) -> None:
        asked.append(classifier.method)
        raise ConfigError("not trained here")

    monkeypatch.setattr("dropnode.table_model.TableModel.fit", stopped)
    plain = ["fit", "--nodes", str(files / "nodes.csv"), "--edges", str(files / "edges.csv")]
    assert cli._run([*plain, "--label", "topic", "--out", str(files / "model"), *more]) == 2
    assert asked == [method]
    warned = "--method grand-plus is made for so many" in capsys.readouterr().err
    assert warned == (method == "grand")


def test_the_same_seed_gives_the_same_files(files: Path) -> None:
    assert fit(files, out="one") == fit(files, out="two") == 0
    for name in ("predictions.csv", "weights.safetensors", "metrics.json"):
        assert (files / "one" / name).read_bytes() == (files / "two" / name).read_bytes()


def test_all_problems_are_a_list_and_nothing_is_written(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (files / "edges.csv").open("a") as file:
        file.write("p1,zoe\np2\n")
    with (files / "nodes.csv").open("a") as file:
        file.write('p3,2000,"again\nand again",\n,2001,,graphs\n')
    assert fit(files, "--id", "id", "--drop", "yaer") == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.replace(f"{files}/", "").splitlines()
    assert lines == [
        "dropnode: 5 problems:",
        "  nodes.csv has no column 'yaer' for the drop; did you mean 'year'?",
        "  nodes.csv, row 33, column id: there is no id; fill the cell, or remove the row",
        "  nodes.csv, row 32, column id: id 'p3' is in row 5 too; ids must be unique",
        f"  edges.csv, row {lines[4].split('row ')[1].split(':')[0]}: number of cells 1, but the "
        "header has 2; put cells that contain a delimiter into quotation marks",
        f"  edges.csv, row {lines[5].split('row ')[1].split(',')[0]}, column target: 'zoe' is no "
        "id in nodes.csv; correct it, add the node, or remove the edge",
    ]
    assert not (files / "model").exists()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--method", "grnad"], "did you mean 'grand'"),
        (["--preset", "offical"], "unknown preset"),
        (["--set", "oder=3"], "did you mean 'order'"),
        (["--device", "warp"], "use 'cpu'"),
        (["--seed", "-1"], "--seed"),
        (["--seed", "9" * 30], "at most"),
        (["--neighbors", "0"], "--neighbors"),
        (["--text", "year", "--drop", "year"], "given as text and as drop"),
        (["--features", "x.npy"], "x.npy"),
        (["--edges", "edges.xlsx"], "edges.xlsx"),
    ],
)
def test_a_wrong_call_is_told_and_nothing_is_written(
    files: Path, more: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (files / "edges.xlsx").write_text("x")
    more = [str(files / word) if word.endswith((".npy", ".xlsx")) else word for word in more]
    assert fit(files, *more) == 2
    captured = capsys.readouterr()
    assert told in captured.err
    assert captured.out == ""
    assert not (files / "model").exists()


def test_a_class_with_one_label_is_a_note(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (files / "nodes.csv").open() as file:
        head, *rows = csv.reader(file)
    for at, row in enumerate(rows):
        row[-1] = row[-1] if at in (0, 1, 3) else ""
    write(files / "nodes.csv", [head, *rows])
    assert fit(files) == 0
    captured = capsys.readouterr()
    assert "note: class 'graphs' has only one label" in captured.err
    assert "held-out accuracy  not measured" in captured.out
    assert not (files / "model" / "metrics.json").exists()


def test_a_folder_of_somebody_is_left_alone(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (files / "model").mkdir()
    (files / "model" / "notes.txt").write_text("precious")
    assert fit(files) == 2
    assert "model exists and is not empty" in capsys.readouterr().err
    assert os.listdir(files / "model") == ["notes.txt"]


@pytest.mark.parametrize("place", ["fit", "write"])
def test_an_interruption_leaves_nothing(
    files: Path, place: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(files.rglob("*"))

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(GrandClassifier if place == "fit" else Predictions, place, interrupted)
    assert fit(files) == 1
    assert capsys.readouterr().err.endswith("dropnode: interrupted; there is no result yet\n")
    assert sorted(files.rglob("*")) == before


@pytest.mark.slow
@pytest.mark.parametrize("wait", [0.5, 2.0, 4.0, 6.0, 8.0])
def test_a_real_interruption_leaves_nothing(files: Path, wait: float) -> None:
    before = sorted(files.rglob("*"))
    process = subprocess.Popen(
        [
            *[sys.executable, "-m", "dropnode", "fit", "--nodes", "nodes.csv"],
            *["--edges", "edges.csv", "--label", "topic", "--out", "model"],
            *["--set", "max_epochs=100000000", "--set", "patience=100000000"],
        ],
        cwd=files,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(wait)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode in (1, -signal.SIGINT)
    assert sorted(files.rglob("*")) == before
    if process.returncode == 1:
        assert "dropnode: interrupted; there is no result yet" in errors or wait < 4


def test_predictions_replace_only_predictions(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit(files) == 0
    assert predict(files) == predict(files) == 0
    capsys.readouterr()
    (files / "notes.csv").write_text("day,weather\n1,rain\n")
    for out in ("notes.csv", "new.csv", "later.csv", "model", "model/predictions.csv"):
        before = (files / out).read_bytes() if (files / out).is_file() else None
        assert predict(files, out=out) == 2
        line = capsys.readouterr().err
        assert line.count("\n") == 1
        assert out in line
        if before is not None:
            assert (files / out).read_bytes() == before
    assert predict(files, "--nodes", str(files / "predicted.csv"), out="predicted.csv") == 2
    assert "is also read" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["nothing", "new.csv", "."])
def test_predict_needs_a_model_of_fit(
    files: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (files / "model").symlink_to(files / place)
    assert predict(files) == 1
    assert "model.json does not exist; a saved model is a folder" in capsys.readouterr().err
    assert not (files / "predicted.csv").exists()


def test_problems_of_new_nodes_are_a_list_too(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit(files) == 0
    capsys.readouterr()
    write(files / "new.csv", [["id", "abstract"], ["p1", "x"], ["q", "y"]])
    assert predict(files) == 2
    lines = capsys.readouterr().err.replace(f"{files}/", "").splitlines()
    assert lines[0].startswith("dropnode: ")
    assert "  new.csv, row 2, column id: 'p1' is a node of the training graph" in lines[1]
    assert "column year: is missing; the model was trained with it as numbers" in lines[2]
    assert "is no id in new.csv or in the training graph" in lines[3]
    assert not (files / "predicted.csv").exists()
