"""Graphs in mapped files: opened without reading them, never after damage, and used like any."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from dropnode import GrandClassifier, Graph, GraphError
from dropnode.data.generators import sbm
from dropnode.data.splits import every_label_split
from dropnode.errors import ConfigError, DataError, ModelError
from dropnode.files import file_sha256, seal
from dropnode.graph import mapped
from dropnode.graph.mapped import ARRAYS, ArrayWriter, MappedGraph, open_mapped, write_manifest
from dropnode.ops.scaling import FeatureScaling
from dropnode.saving import load_model

SMALL: dict[str, Any] = {"nodes": 60, "classes": 3, "average_degree": 4, "features": 6}


def stored(graph: Graph, folder: Path, features: np.ndarray | None = None) -> Path:
    """Write a graph to a folder, perhaps with other features."""
    folder.mkdir()
    values = {
        "starts": graph.adjacency.indptr.astype("<i4"),
        "neighbours": graph.adjacency.indices.astype("<i4"),
        "weights": graph.adjacency.data,
        "features": graph.features if features is None else features,
        "labels": graph.labels,
        "ids": graph.ids,
    }
    arrays = {}
    for name, array in values.items():
        writer = ArrayWriter(folder, name, array.dtype.str)
        # In two pieces, as a large one would be.
        writer.append(array[:7])
        writer.append(array[7:])
        arrays[name] = writer.finish(*array.shape[1:])
    write_manifest(folder, graph.name, graph.class_names, (), arrays)
    return folder


@pytest.fixture(scope="module")
def whole() -> Graph:
    return sbm.make(**SMALL)


@pytest.fixture
def folder(whole: Graph, tmp_path: Path) -> Path:
    return stored(whole, tmp_path / "graph")


def refuse(*_: Any) -> str:
    raise AssertionError("a file was read")


def test_a_folder_that_was_checked_is_opened_without_reading_its_arrays(
    folder: Path, whole: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped, "file_sha256", refuse)
    graph = open_mapped(folder)
    assert isinstance(graph, MappedGraph)
    assert all(mapped.is_mapped(each) for each in (graph.features, graph.adjacency.data))
    assert (graph.adjacency != whole.adjacency).nnz == 0
    np.testing.assert_array_equal(graph.features, whole.features)
    assert graph.ids.tolist() == whole.ids.tolist()


def test_nobody_can_write_to_the_files_through_the_graph(folder: Path) -> None:
    graph = open_mapped(folder)
    for array in (graph.features, graph.labels, graph.adjacency.indices):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@pytest.mark.parametrize("name", ARRAYS)
def test_a_changed_byte_of_any_array_is_noticed(folder: Path, name: str) -> None:
    path = folder / f"{name}.bin"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match=rf"{name}.bin does not have the hash .* convert the graph"):
        open_mapped(folder)


def test_files_of_another_size_or_none_are_told(folder: Path) -> None:
    with (folder / "labels.bin").open("ab") as file:
        file.write(b"12345678")
    with pytest.raises(DataError, match=r"labels.bin has 488 bytes; expected 480 bytes"):
        open_mapped(folder)
    (folder / "labels.bin").unlink()
    with pytest.raises(DataError, match=r"labels.bin is missing; expected 480 bytes"):
        open_mapped(folder)


def test_a_copy_is_checked_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy", copy_function=shutil.copyfile)
    read = []

    def hashed(path: Path) -> str:
        read.append(path)
        return file_sha256(path)

    monkeypatch.setattr(mapped, "file_sha256", hashed)
    open_mapped(copy)
    assert len(read) == len(ARRAYS)
    open_mapped(copy)
    assert len(read) == len(ARRAYS)


def edit(folder: Path, **changes: Any) -> None:
    """Change the manifest, as somebody would who can compute its seal."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    del manifest["sha256"]
    (folder / "manifest.json").write_text(json.dumps(seal(manifest | changes)), encoding="utf-8")


def test_a_manifest_that_was_edited_cut_or_is_of_another_version_is_refused(folder: Path) -> None:
    path = folder / "manifest.json"
    text = path.read_text(encoding="utf-8")
    for wrong in (text.replace('"sbm"', '"abc"'), text[:-30], "[]", ""):
        path.write_text(wrong, encoding="utf-8")
        with pytest.raises(DataError, match="convert the graph again"):
            open_mapped(folder)
    path.write_text(text, encoding="utf-8")
    edit(folder, format=2)
    with pytest.raises(DataError, match="not one of this version"):
        open_mapped(folder)


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("labels", {"shape": [61]}),
        ("features", {"shape": [60, 7]}),
        ("features", {"shape": [6, 60]}),
        ("ids", {"type": "|O"}),
        ("weights", {"sha256": "0" * 64}),
    ],
)
def test_a_manifest_that_does_not_fit_the_files_is_refused(
    folder: Path, name: str, entry: dict[str, Any]
) -> None:
    arrays = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["arrays"]
    arrays[name] |= entry
    edit(folder, arrays=arrays)
    (folder / "checked.json").unlink()
    with pytest.raises(DataError):
        open_mapped(folder)


def test_a_path_that_is_no_folder_of_a_graph_is_the_callers_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="dropnode convert"):
        open_mapped(tmp_path)
    with pytest.raises(ConfigError, match="is no path"):
        open_mapped(3)  # type: ignore[arg-type]


def test_arrays_that_are_not_the_mapped_ones_make_no_graph(folder: Path, whole: Graph) -> None:
    graph = open_mapped(folder)
    with pytest.raises(GraphError, match="unchecked arrays"):
        MappedGraph(
            graph.adjacency,
            whole.features,
            graph.labels,
            graph.ids,
            graph.class_names,
            _checked=graph._checked,
        )


def test_the_fingerprint_tells_graphs_and_labels_apart(
    folder: Path, whole: Graph, tmp_path: Path
) -> None:
    graph = open_mapped(folder)
    assert graph.fingerprint() == open_mapped(folder).fingerprint()
    relabelled = graph.with_labels(np.roll(whole.labels, 1), whole.class_names)
    other = open_mapped(stored(sbm.make(**SMALL, seed=1), tmp_path / "other"))
    assert len({g.fingerprint() for g in (graph, relabelled, other)}) == 3


def test_another_process_maps_the_same_files(folder: Path, whole: Graph) -> None:
    graph = open_mapped(folder)
    changed = graph.with_labels(np.roll(whole.labels, 1), whole.class_names)
    for original in (graph, graph.with_split(every_label_split(graph.labels)), changed):
        sent = pickle.dumps(original)
        assert len(sent) < 3000
        copy = pickle.loads(sent)
        assert mapped.is_mapped(copy.features)
        assert copy.fingerprint() == original.fingerprint()
        assert (copy.split is None) == (original.split is None)
    shutil.rmtree(folder)
    stored(sbm.make(**SMALL, seed=1), folder)
    with pytest.raises(DataError, match="was changed while it was in use"):
        pickle.loads(sent)


@pytest.mark.parametrize("method", ["grand-plus", "sgc", "logistic", "gcn"])
def test_methods_predict_the_same_from_files_as_from_memory(
    folder: Path, whole: Graph, method: str
) -> None:
    options = {} if method == "logistic" else {"max_epochs": 3}
    expected = GrandClassifier(method=method, random_state=0, options=options).fit(whole)
    model = GrandClassifier(method=method, random_state=0, options=options)
    model.fit(open_mapped(folder))
    np.testing.assert_allclose(model.predict_proba(), expected.predict_proba(), atol=1e-5)


@pytest.mark.parametrize(("density", "kind"), [(0.1, "unit"), (0.9, "standard")])
def test_the_scaling_of_features_is_chosen_alike_from_files_and_memory(
    tmp_path: Path, density: float, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped, "BLOCK", 4 * 6 * 16)
    generator = np.random.default_rng(0)
    features = generator.random((60, 6)) * (generator.random((60, 6)) < density)
    files = open_mapped(stored(sbm.make(**SMALL), tmp_path / "graph", features.astype("<f4")))
    for held in (features, files.features, sp.csr_array(features)):
        assert FeatureScaling.fit("auto", held).kind == kind


def test_pyg_gets_float32_from_files_of_float16(whole: Graph, tmp_path: Path) -> None:
    halves = np.asarray(whole.features, dtype=np.float16)
    files = open_mapped(stored(whole, tmp_path / "graph", halves))
    found = files.to_pyg().x
    assert found.dtype == torch.float32
    assert np.array_equal(found.numpy(), halves)


@pytest.mark.parametrize("scaling", ["row", "unit", "standard"])
def test_a_new_node_without_edges_is_predicted(whole: Graph, tmp_path: Path, scaling: str) -> None:
    features = np.abs(whole.features)
    model = GrandClassifier(
        method="grand-plus", random_state=0, feature_scaling=scaling, options={"max_epochs": 2}
    )
    model.fit(open_mapped(stored(whole, tmp_path / "graph", features)))
    assert model.predict_proba(features[:2], graph=np.zeros((2, 2))).shape == (2, 3)


def test_a_model_is_saved_without_the_graph_and_finds_it_again(
    folder: Path, tmp_path: Path
) -> None:
    graph = open_mapped(folder)
    model = GrandClassifier(method="grand-plus", random_state=0, options={"max_epochs": 2})
    model.fit(graph)
    model.save(tmp_path / "model")
    saved = sum(path.stat().st_size for path in (tmp_path / "model").rglob("*"))
    assert saved < graph.features.nbytes + 100_000
    again = GrandClassifier.load(tmp_path / "model")
    assert isinstance(again.graph_, MappedGraph)
    np.testing.assert_array_equal(again.predict_proba(), model.predict_proba())
    os.rename(folder, tmp_path / "elsewhere")
    with pytest.raises(
        ModelError, match=r"the graph in .*graph, which cannot be opened: .*put that"
    ):
        load_model(tmp_path / "model")
    stored(sbm.make(**SMALL, seed=1), folder)
    with pytest.raises(ModelError, match="is not the graph that the model was trained on"):
        load_model(tmp_path / "model")
