"""A model fitted to tables is saved whole, and classifies nodes that arrive later."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

import damage
from dropnode import GrandClassifier, TableModel, read_tables
from dropnode.csv_text import csv_rows
from dropnode.errors import ConfigError, ModelError
from dropnode.table_model import Predictions

GROUPS = ("=tea", "mate")


def community(count: int = 40, seed: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two groups of people, who know people of their group, and drink what their group drinks."""
    generator = np.random.default_rng(seed)
    group = np.arange(count) % 2
    pairs = generator.integers(0, count, (8 * count, 2))
    pairs = pairs[(group[pairs[:, 0]] == group[pairs[:, 1]]) | (generator.random(len(pairs)) < 0.1)]
    names = np.array([f"-{at}n" for at in range(count)])
    words = np.array([["kettle", "cup"], ["straw", "gourd"]])
    nodes = {
        "id": names.tolist(),
        "age": (20 + 30 * group + generator.normal(0, 9, count)).round(1).tolist(),
        "about": [" ".join(generator.choice(words[g], 3)) for g in group],
        "drinks": [GROUPS[g] if at < 12 else None for at, g in enumerate(group)],
    }
    edges = {"source": names[pairs[:, 0]].tolist(), "target": names[pairs[:, 1]].tolist()}
    return nodes, edges


def rows_of(columns: dict[str, Any], chosen: Any) -> dict[str, Any]:
    return {name: [values[at] for at in chosen] for name, values in columns.items()}


def fitted(**parameters: Any) -> tuple[TableModel, dict[str, Any], dict[str, Any]]:
    """A model of the first 34 people; the others arrive later."""
    nodes, edges = community()
    old = rows_of(nodes, range(34))
    known = [
        at for at, pair in enumerate(zip(*edges.values(), strict=True)) if {*pair} <= {*old["id"]}
    ]
    later = [at for at in range(len(edges["source"])) if at not in set(known)]
    tables = read_tables(
        pa.table(old), pa.table(rows_of(edges, known)), label="drinks", text="about"
    )
    classifier = GrandClassifier(random_state=0, **{"max_epochs": 30, "order": 2} | parameters)
    model = TableModel.fit(tables, classifier)
    new = rows_of({k: v for k, v in nodes.items() if k != "drinks"}, range(34, 40))
    return model, new, rows_of(edges, later)


@pytest.fixture(scope="module")
def model() -> tuple[TableModel, dict[str, Any], dict[str, Any]]:
    return fitted()


def test_old_and_new_nodes_are_classified(model: Any) -> None:
    trained, new, edges = model
    truth = np.array([GROUPS[at % 2] for at in range(40)])
    found = trained.predict()
    assert (found.predicted == truth[:34]).mean() > 0.9
    later = trained.predict_new(pa.table(new), pa.table(edges))
    assert (later.predicted == truth[34:]).mean() > 0.8
    np.testing.assert_allclose(later.probabilities.sum(axis=1), 1.0)


def test_a_saved_model_gives_the_same_bits(model: Any, tmp_path: Path) -> None:
    trained, new, edges = model
    trained.save(tmp_path / "model")
    loaded = TableModel.load(tmp_path / "model")
    assert loaded.encoders == trained.encoders
    assert loaded.trust == trained.trust is not None
    for one, other in (
        (trained.predict(), loaded.predict()),
        *[[m.predict_new(pa.table(new), pa.table(edges)) for m in (trained, loaded)]],
    ):
        np.testing.assert_array_equal(one.probabilities, other.probabilities)
        np.testing.assert_array_equal(one.sets, other.sets)
        assert one.ids.tolist() == other.ids.tolist()
    # The classifier alone reads the same folder.
    alone = GrandClassifier.load(tmp_path / "model")
    assert alone.predict().tolist() == trained.predict().predicted.tolist()


def test_the_files_of_a_model(model: Any, tmp_path: Path) -> None:
    trained, _, _ = model
    trained.save(tmp_path / "model")
    assert sorted(os.listdir(tmp_path / "model")) == [
        "graph.safetensors",
        "held_out.png",
        "label_next.csv",
        "metrics.json",
        "model.json",
        "predictions.csv",
        "suspicious_labels.csv",
        "weights.safetensors",
    ]
    metrics = json.loads((tmp_path / "model" / "metrics.json").read_text())
    assert metrics["labels"] == 12
    assert metrics["accuracy"] == trained.held.correct.mean()
    suspicious = [
        row for _, row in csv_rows((tmp_path / "model/suspicious_labels.csv").read_text())
    ]
    odds = [float(row["log_odds"]) for row in suspicious]
    assert len(odds) == 12
    assert odds == sorted(odds)
    # The predicted class is that which the confusion matrix counts.
    names, position = metrics["classes"], {each: at for at, each in enumerate(metrics["classes"])}
    confusion = np.zeros((len(names), len(names)), dtype=int)
    for row in suspicious:
        confusion[position[row["label"]], position[row["predicted"]]] += 1
    assert confusion.tolist() == metrics["confusion"]
    advised = [row for _, row in csv_rows((tmp_path / "model/label_next.csv").read_text())]
    labelled = {row["id"] for row in suspicious}
    assert len({row["id"] for row in advised} - labelled) == len(advised) == 22
    text = (tmp_path / "model" / "predictions.csv").read_text()
    first = next(csv.reader([text.splitlines()[1]]))
    assert first[:3] == ["'-0n", "'=tea", "'=tea"], "a spreadsheet would run it"
    rows = [row for _, row in csv_rows(text)]
    graph = trained.classifier.graph_
    assert [row["id"] for row in rows] == graph.ids.tolist()
    assert [row["label"] for row in rows][11:13] == ["mate", ""]
    for row in rows:
        shares = {name: float(row[f"p_{name}"]) for name in GROUPS}
        assert row["predicted"] == max(shares, key=lambda name: shares[name])
        assert float(row["confidence"]) == max(shares.values())
        assert row["predicted"] in row["set"].split("|")


def test_long_files_are_written_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shares = np.random.default_rng(0).dirichlet([1, 1], 25)
    found = Predictions(np.arange(25), ("a", "b"), shares)
    found.write(tmp_path / "whole.csv")
    monkeypatch.setattr("dropnode.table_model.CHUNK", 4)
    found.write(tmp_path / "parts.csv")
    assert (tmp_path / "parts.csv").read_text() == (tmp_path / "whole.csv").read_text()
    assert len((tmp_path / "parts.csv").read_text().splitlines()) == 26


def test_the_prediction_for_a_new_node_depends_on_those_it_is_joined_to(model: Any) -> None:
    trained, new, _ = model
    ids = new["id"]
    alone = {"source": [ids[0], ids[1], ids[2]], "target": ["-0n", "-1n", ids[1]]}
    together = trained.predict_new(pa.table(new), pa.table(alone)).probabilities
    first = trained.predict_new(
        pa.table(rows_of(new, [0])), pa.table(rows_of(alone, [0]))
    ).probabilities
    pair = trained.predict_new(
        pa.table(rows_of(new, [1, 2])), pa.table(rows_of(alone, [1, 2]))
    ).probabilities
    np.testing.assert_array_equal(together[:1], first)
    np.testing.assert_array_equal(together[1:3], pair)


def test_edges_between_new_nodes_carry_messages_both_ways(model: Any) -> None:
    trained, new, _ = model
    two = rows_of(new, [0, 1])
    links = {"source": two["id"], "target": ["-0n", "-1n"]}
    joined = {"source": [*two["id"], two["id"][0]], "target": ["-0n", "-1n", two["id"][1]]}
    apart = trained.predict_new(pa.table(two), pa.table(links)).probabilities
    found = trained.predict_new(pa.table(two), pa.table(joined)).probabilities
    assert (np.abs(found - apart).max(axis=1) > 1e-3).all()


def test_features_are_scaled_as_suits_their_encoders(model: Any) -> None:
    trained, _, _ = model
    assert trained.classifier.config_.feature_scaling == "none"
    words, _, _ = fitted_words()
    assert words.classifier.config_.feature_scaling == "auto"
    given, _, _ = fitted(feature_scaling="standard", max_epochs=1)
    assert given.classifier.config_.feature_scaling == "standard"


def fitted_words() -> tuple[TableModel, Any, Any]:
    nodes, edges = community()
    tables = read_tables(pa.table(nodes), pa.table(edges), label="drinks", text="about", drop="age")
    return TableModel.fit(tables, GrandClassifier(random_state=0, max_epochs=1)), nodes, edges


def test_sparse_features_are_saved_and_new_rows_are_sparse_too(tmp_path: Path) -> None:
    nodes, edges = community()
    nodes["about"] = [f"word{at % 17} word{at % 19 + 20}" for at in range(40)]
    tables = read_tables(pa.table(nodes), pa.table(edges), label="drinks", text="about")
    assert sp.issparse(tables.graph.features)
    TableModel.fit(tables, GrandClassifier(random_state=0, max_epochs=2)).save(tmp_path / "model")
    model = TableModel.load(tmp_path / "model")
    new = {"id": ["q"], "age": [33.0], "about": ["word3 unseen"]}
    found = model.predict_new(pa.table(new), pa.table({"source": ["q"], "target": ["-0n"]}))
    assert found.ids.tolist() == ["q"]


@pytest.mark.parametrize("method", ["label-propagation", "logistic", "boosting", "grand-gat"])
def test_every_method_takes_new_nodes(method: str) -> None:
    epochs = {} if method in ("label-propagation", "logistic", "boosting") else {"max_epochs": 3}
    options = {"max_epochs": None, "order": None} | epochs | {"method": method}
    trained, new, edges = fitted(**options)
    assert trained.predict_new(pa.table(new), pa.table(edges)).probabilities.shape == (6, 2)


def test_a_model_without_held_out_labels_has_no_metrics(tmp_path: Path) -> None:
    nodes, edges = community()
    nodes["drinks"] = ["=tea", "mate", *[None] * 38]
    tables = read_tables(pa.table(nodes), pa.table(edges), label="drinks", drop="about")
    with pytest.warns(UserWarning, match="only one label"):
        trained = TableModel.fit(tables, GrandClassifier(random_state=0, max_epochs=2))
    trained.save(tmp_path / "model")
    assert trained.metrics() is None
    assert trained.trust is None
    assert (tmp_path / "model" / "label_next.csv").exists()
    assert not (tmp_path / "model" / "metrics.json").exists()


@pytest.mark.parametrize("fatal", [1, 2, 3, 4, 5])
def test_a_full_disk_leaves_nothing(
    model: Any, fatal: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage.FullDisk(monkeypatch, fatal)
    with pytest.raises(OSError, match="No space left"):
        model[0].save(tmp_path / "new" / "model")
    assert os.listdir(tmp_path) == []


def test_a_folder_of_somebody_is_refused(model: Any, tmp_path: Path) -> None:
    model[0].save(tmp_path / "model")
    before = (tmp_path / "model" / "model.json").read_bytes()
    with pytest.raises(ConfigError, match="exists and is not empty; remove it, or choose another"):
        model[0].save(tmp_path / "model")
    assert (tmp_path / "model" / "model.json").read_bytes() == before


def test_a_model_without_encoders_is_told(tmp_path: Path) -> None:
    X = sp.csr_array(np.eye(6))
    GrandClassifier(random_state=0, max_epochs=1).fit(X, [0, 0, 1, 1, -1, -1]).save(tmp_path)
    with pytest.raises(ModelError, match="has no encoders of tables"):
        TableModel.load(tmp_path)


def test_features_that_do_better_alone_are_told() -> None:
    """Every node is joined to nodes of the other group, and its age tells its own."""
    generator = np.random.default_rng(0)
    group = np.arange(160) % 2
    ids = [f"n{at}" for at in range(160)]
    nodes = {
        "id": ids,
        "age": (30 + 20 * group + generator.normal(0, 5, 160)).tolist(),
        "drinks": [GROUPS[g] if at < 150 else None for at, g in enumerate(group)],
    }
    pairs = 2 * generator.integers(0, 80, (2000, 2)) + [0, 1]
    edges = {"source": [ids[a] for a, _ in pairs], "target": [ids[b] for _, b in pairs]}
    tables = read_tables(pa.table(nodes), pa.table(edges), label="drinks")
    with pytest.warns(UserWarning, match="features alone predict"):
        TableModel.fit(tables, GrandClassifier(random_state=0, max_epochs=5, order=5))
