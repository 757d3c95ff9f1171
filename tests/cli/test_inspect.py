"""``dropnode inspect`` and ``dropnode explain`` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dropnode import GrandClassifier, cli, load_dataset, save_graph
from dropnode.analysis.explain import explain
from dropnode.data.graph_file import read_graph
from dropnode.tables.convert import convert


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explained") / "model"
    graph = load_dataset("sbm", nodes=120, classes=2)
    GrandClassifier(random_state=0, max_epochs=5).fit(graph).save(folder)
    return folder


def test_inspect_prints_draws_and_gives_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph, picture = str(tmp_path / "graph.npz"), tmp_path / "look.svg"
    save_graph(load_dataset("sbm", nodes=120, classes=2), graph)
    assert cli._run(["inspect", graph, "--picture", str(picture)]) == 0
    printed = capsys.readouterr().out
    for told in ("nodes       120", "features alone", "edges alone", f"look at {picture}"):
        assert told in printed
    assert picture.read_text().startswith("<?xml")
    assert cli._run(["inspect", graph, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["nodes"] == 120
    assert set(values["held_out"]) == {"grand", "grand-no-cr", "logistic", "label-propagation"}


def test_inspect_reads_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"n{at},{at % 7},{'ab'[at % 2] if at < 8 else ''}" for at in range(20)]
    (tmp_path / "nodes.csv").write_text("id,size,kind\n" + "\n".join(rows))
    (tmp_path / "edges.csv").write_text(
        "source,target\n" + "\n".join(f"n{at},n{at + 2}" for at in range(18))
    )
    files = ["--nodes", str(tmp_path / "nodes.csv"), "--edges", str(tmp_path / "edges.csv")]
    assert cli._run(["inspect", *files, "--label", "kind", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["label_counts"] == {"a": 4, "b": 4}
    assert values["adjusted_homophily"] == 1.0


def test_inspect_scales_as_fit_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"n{at},{at % 7},{'ab'[at % 2]}" for at in range(20)]
    (tmp_path / "nodes.csv").write_text("id,size,kind\n" + "\n".join(rows))
    nodes = ["--nodes", str(tmp_path / "nodes.csv"), "--label", "kind", "--json"]
    assert cli._run(["inspect", *nodes]) == 0
    looked = json.loads(capsys.readouterr().out)
    fit = ["--out", str(tmp_path / "model"), "--no-assess", "--set", "max_epochs=1"]
    assert cli._run(["fit", *nodes, *fit]) == 0
    assert looked["feature_scaling"] == json.loads(capsys.readouterr().out)["feature_scaling"]


def test_inspect_takes_a_file_with_few_labels_and_without_a_split(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = load_dataset("sbm", nodes=120, classes=2).with_split(None)
    labels = np.where(np.arange(120) < 12, graph.labels, -1)
    save_graph(graph.with_labels(labels, graph.class_names), tmp_path / "mine.npz")
    assert cli._run(["inspect", str(tmp_path / "mine.npz"), "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert sum(values["label_counts"].values()) == 12


def test_inspect_takes_a_folder_of_convert(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"n{at},{'ab'[at % 2] if at < 12 else ''}\n" for at in range(40)]
    (tmp_path / "nodes.csv").write_text("id,kind\n" + "".join(rows))
    edges = [f"n{at},n{at + 2}\n" for at in range(38)]
    (tmp_path / "edges.csv").write_text("source,target\n" + "".join(edges))
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(40, 3)))
    folder = tmp_path / "graph"
    convert(
        tmp_path / "nodes.csv", tmp_path / "edges.csv", tmp_path / "x.npy", folder, label="kind"
    )
    assert cli._run(["inspect", str(folder), "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["label_counts"] == {"a": 6, "b": 6}
    assert cli._run(["train", str(folder), "--method", "grand-plus"]) == 2
    told = capsys.readouterr().err
    assert "label more nodes and convert again, or train in Python" in told
    assert "save_graph" not in told
    model = GrandClassifier(method="grand-plus", max_epochs=2, random_state=0)
    assert len(model.fit(read_graph(str(folder))).predict()) == 40


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "nothing to look at"),
        (["cora", "--neighbors", "3"], "give one of the two"),
        (["cora", "--label", "x"], "give one of the two"),
        (["sbm", "--picture", "look.jpeg"], "ends in .png, .svg or .pdf"),
        (["nowhere.npz"], "nowhere.npz"),
    ],
)
def test_a_wrong_call_of_inspect(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli._run(["inspect", *arguments]) == 2
    captured = capsys.readouterr()
    assert told in captured.err
    assert captured.out == ""


def test_explain_tells_what_the_library_tells(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "why.png"
    asked = ["explain", str(model), "7", "--picture", str(picture)]
    assert cli._run([*asked, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    loaded = GrandClassifier.load(model)
    expected = explain(loaded.method_, 7)
    assert values["score"] == expected.score
    assert values["class"] == loaded.graph_.class_names[expected.label]
    strongest = expected.strongest_nodes(1)[0]
    assert values["nodes"][0] == {"id": str(strongest.name), "amount": strongest.amount}
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert cli._run(asked) == 0
    assert f"node 7: class {values['class']}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["999"], "knows no node '999'"),
        (["7", "--class", "c9"], "unknown class 'c9'"),
        (["7", "--most", "0"], "--most"),
        (["7", "--picture", "x.bmp"], ".png, .svg or .pdf"),
    ],
)
def test_a_wrong_call_of_explain(
    model: Path, more: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli._run(["explain", str(model), *more]) == 2
    assert told in capsys.readouterr().err
