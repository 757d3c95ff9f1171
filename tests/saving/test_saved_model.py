"""A saved model comes back whole, or not at all."""

from __future__ import annotations

import dataclasses
import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from safetensors import numpy as safetensors

import damage
import dropnode.saving.model
from dropnode.errors import ModelError
from dropnode.files import record_sha256
from dropnode.graph import Graph, Split
from dropnode.methods.grand.config import GrandConfig
from dropnode.methods.grand.model import Grand
from dropnode.methods.table import make_method
from dropnode.ops.scaling import KINDS
from dropnode.saving import load_encoders, load_model, save_model
from dropnode.training import train

FILES = ("model.json", "weights.safetensors", "graph.safetensors")


def trained(graph: Graph, config: GrandConfig, seed: int = 0) -> Grand:
    method = Grand(config)
    train(method, graph, seed=seed)
    return method


@pytest.fixture
def saved(community: Graph, configure: Any, tmp_path: Path) -> Path:
    save_model(tmp_path / "model", trained(community, configure()), community)
    return tmp_path / "model"


def edit(folder: Path, **changes: Any) -> None:
    """Rewrite parts of model.json, and its hash: what a hash cannot find."""
    document = json.loads((folder / "model.json").read_text()) | changes
    del document["sha256"]["model.json"]
    document["sha256"]["model.json"] = record_sha256(document)
    (folder / "model.json").write_text(json.dumps(document))


@pytest.mark.parametrize("scaling", KINDS)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    "head", [{"head": "mlp"}, {"head": "mlp", "batch_norm": True}, {"head": "gcn"}, {"head": "gat"}]
)
def test_a_loaded_model_predicts_the_same_bits(
    community: Graph,
    configure: Any,
    tmp_path: Path,
    head: dict[str, Any],
    sparse: bool,
    scaling: str,
) -> None:
    features = sp.csr_array(community.features) if sparse else community.features
    graph = Graph.from_scipy(
        community.adjacency, features, community.labels, split=community.split, name="mine"
    )
    method = trained(graph, configure(feature_scaling=scaling, max_epochs=3, **head))
    save_model(tmp_path, method, graph)

    loaded = load_model(tmp_path)

    rows = np.array([3, 0])
    assert torch.equal(loaded.method.logits(), method.logits())
    assert torch.equal(loaded.method.logits(rows=rows), method.logits(rows=rows))
    assert torch.equal(loaded.method.logits(graph), method.logits(graph))
    assert loaded.method.config == method.config


@pytest.mark.parametrize("name", ["gcn", "grand", "grand-gat"])
def test_loading_draws_nothing_from_the_users_generator(
    name: str, community: Graph, tmp_path: Path
) -> None:
    method = make_method(name, None, changes={"max_epochs": 1}).method
    train(method, community)
    save_model(tmp_path, method, community)
    before = torch.get_rng_state()
    load_model(tmp_path)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_place_in_the_catalogue_is_kept(
    community: Graph, configure: Any, tmp_path: Path
) -> None:
    listed = dataclasses.replace(community, catalogue_name="cora")
    save_model(tmp_path, trained(listed, configure(max_epochs=1)), listed)
    assert load_model(tmp_path).graph.catalogue_name == "cora"


def test_the_training_graph_comes_back_as_it_was(saved: Path, community: Graph) -> None:
    graph = load_model(saved).graph

    assert graph.fingerprint() == community.fingerprint()
    assert (graph.name, graph.catalogue_name) == ("community", None)
    assert graph.class_names == community.class_names
    assert graph.ids.tolist() == community.ids.tolist()
    assert graph.split is not None
    assert community.split is not None
    for part in ("train", "val", "test"):
        assert getattr(graph.split, part).tolist() == getattr(community.split, part).tolist()
    assert graph.split.name == community.split.name


@pytest.mark.parametrize(
    "ids",
    [
        ["a", "b", "c", "ß"],
        [7, -3, 2**62, 0],
        [0.5, 1.0, 2.0, 3.0],
        [False, True, 2, "3"],
        [(0, 0), (0, 1), (1, ("x", 2.5)), 9],
        [0.0, 1.0, 2.0, 3.0],
        [3, 2, 1, 0],
    ],
)
def test_node_ids_keep_value_and_type(ids: list[Any], configure: Any, tmp_path: Path) -> None:
    graph = Graph.from_edges(
        [(ids[0], ids[1]), (ids[2], ids[3])],
        np.eye(4),
        ["x", "y", None, None],
        ids=ids,
        split=Split([0, 1], [], []),
    )
    save_model(tmp_path, trained(graph, configure(max_epochs=1)), graph)

    loaded = load_model(tmp_path).graph

    assert [(type(i), i) for i in loaded.ids.tolist()] == [(type(i), i) for i in ids]
    assert loaded.ids.dtype == graph.ids.dtype


@pytest.mark.parametrize("ids", [["a", "ß", "", "日本"], [7, -3, 2**62, 1]])
def test_ids_of_one_kind_are_tensors(ids: list[Any], configure: Any, tmp_path: Path) -> None:
    """A million of them would make a text of many megabytes."""
    graph = Graph.from_edges(
        [(ids[0], ids[1])], np.eye(4), ["x", "y", None, None], ids=ids, split=Split([0, 1], [], [])
    )
    save_model(tmp_path, trained(graph, configure(max_epochs=1)), graph)

    assert json.loads((tmp_path / "model.json").read_text())["graph"]["ids"] is None
    assert load_model(tmp_path).graph.ids.tolist() == ids


def test_a_model_of_the_first_format_has_its_ids_in_the_description(
    configure: Any, tmp_path: Path
) -> None:
    graph = Graph.from_edges([("a", "b")], np.eye(2), ["x", "y"], ids=["a", "b"],
                             split=Split([0, 1], [], []))  # fmt: skip
    save_model(tmp_path, trained(graph, configure(max_epochs=1)), graph)
    document = json.loads((tmp_path / "model.json").read_text())
    tensors = safetensors.load((tmp_path / "graph.safetensors").read_bytes())
    old = {name: values for name, values in tensors.items() if not name.startswith("ids/")}
    assert len(old) < len(tensors)
    (tmp_path / "graph.safetensors").write_bytes(safetensors.save(old))
    digest = sha256((tmp_path / "graph.safetensors").read_bytes()).hexdigest()
    ids = {"dtype": "|O", "values": ["a", "b"]}
    edit(
        tmp_path,
        format=1,
        graph=document["graph"] | {"ids": ids},
        sha256=document["sha256"] | {"graph.safetensors": digest},
    )

    assert load_model(tmp_path).graph.ids.tolist() == ["a", "b"]


def test_encoders_are_kept_with_a_model(saved: Path, community: Graph, configure: Any) -> None:
    from dropnode.tables import Encoders

    with pytest.raises(ModelError, match=r"model\.json has no encoders of tables; fit the model"):
        load_encoders(saved)
    encoders = Encoders("id", (), vector_size=3)
    method = trained(community, configure(max_epochs=1))
    save_model(saved, method, community, encoders=encoders)
    assert load_encoders(saved) == encoders
    edit(saved, encoders=encoders.record() | {"vector_size": -1})
    with pytest.raises(ModelError, match=r"model\.json has invalid contents .*vector_size = -1"):
        load_encoders(saved)


@pytest.mark.parametrize(
    "classes",
    [
        np.array([3, 10, 11]),
        np.array(["blue", "green", "ŕed"]),
        np.array([0.25, 0.5, 1e300]),
        np.array([1, 2, 200], dtype=np.uint8),
        np.array(["a", "b", "c"], dtype=object),
    ],
)
def test_classes_keep_value_and_type(
    classes: np.ndarray, community: Graph, configure: Any, tmp_path: Path
) -> None:
    save_model(tmp_path, trained(community, configure(max_epochs=1)), community, classes=classes)

    loaded = load_model(tmp_path).classes

    assert loaded.dtype == classes.dtype
    assert [(type(c), c) for c in loaded.tolist()] == [(type(c), c) for c in classes.tolist()]


def test_boolean_classes_stay_boolean(configure: Any, tmp_path: Path) -> None:
    graph = Graph.from_edges([(0, 1)], np.eye(2), [False, True], split=Split([0, 1], [], []))
    method = trained(graph, configure(max_epochs=1))
    save_model(tmp_path, method, graph, classes=np.array([False, True]))

    assert load_model(tmp_path).classes.tolist() == [False, True]
    assert load_model(tmp_path).classes.dtype == bool


def test_without_classes_their_names_are_the_classes(saved: Path, community: Graph) -> None:
    assert tuple(load_model(saved).classes.tolist()) == community.class_names


def test_provenance_extra_and_versions_are_kept(
    community: Graph, configure: Any, tmp_path: Path
) -> None:
    story, more = {"seed": 3, "preset": "paper"}, {"curve": [0.5, 0.25], "who": None}
    method = trained(community, configure(max_epochs=1))
    save_model(tmp_path, method, community, provenance=story, extra=more)

    loaded = load_model(tmp_path)

    assert (loaded.provenance, loaded.extra) == (story, more)
    written = json.loads((tmp_path / "model.json").read_text())
    assert written["versions"]["torch"] == torch.__version__.partition("+")[0]
    assert set(written["versions"]) == {"dropnode", "torch", "numpy", "python"}


def test_a_model_is_replaced_by_saving_again(saved: Path, community: Graph, configure: Any) -> None:
    other = trained(community, configure(hidden=4), seed=1)

    save_model(saved, other, community)

    assert torch.equal(load_model(saved).method.logits(), other.logits())
    assert sorted(path.name for path in saved.iterdir()) == sorted(FILES)


@pytest.mark.parametrize("finished", [0, 1, 2])
def test_a_save_that_is_cut_short_leaves_the_model_that_was_there(
    saved: Path, community: Graph, configure: Any, monkeypatch: pytest.MonkeyPatch, finished: int
) -> None:
    """The disk fills up after some of the three files were written over an older model."""
    before = load_model(saved).method.logits()
    other = trained(community.with_split(Split([0, 8, 16], [], [])), configure(), seed=5)
    write, written = dropnode.saving.model.write_bytes, []

    def failing(path: Path, data: bytes) -> None:
        if len(written) == finished:
            raise OSError(28, "No space left on device")
        write(path, data)
        written.append(path)

    monkeypatch.setattr(dropnode.saving.model, "write_bytes", failing)
    with pytest.raises(OSError, match="No space left"):
        save_model(saved, other, community.with_split(None))

    assert torch.equal(load_model(saved).method.logits(), before)
    assert sorted(path.name for path in saved.iterdir()) == sorted(FILES)


def test_text_that_is_not_unicode_destroys_no_model(saved: Path, configure: Any) -> None:
    """Half of a surrogate pair cannot be written in UTF-8."""
    graph = Graph.from_edges([(0, 1)], np.eye(2), ["\ud800", "b"], split=Split([0, 1], [], []))
    save_model(saved, trained(graph, configure(max_epochs=1)), graph)

    assert load_model(saved).graph.class_names == graph.class_names


def test_other_files_in_the_folder_are_left_alone(
    saved: Path, community: Graph, configure: Any
) -> None:
    (saved / "notes.txt").write_text("precious")
    (saved / ".weights.safetensors.backup").write_text("precious")

    save_model(saved, trained(community, configure(max_epochs=1)), community)

    assert (saved / "notes.txt").read_text() == "precious"
    assert (saved / ".weights.safetensors.backup").read_text() == "precious"


@pytest.mark.parametrize("moved", [0, 1])
@pytest.mark.parametrize("first", [False, True])
def test_a_save_that_is_killed_after_its_last_write_is_the_new_model(
    community: Graph,
    configure: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    first: bool,
    moved: int,
) -> None:
    """Killed between the three moves that put files in their places."""
    if not first:
        save_model(tmp_path, trained(community, configure(max_epochs=1)), community)
    new, later = (trained(community, configure(), seed=seed) for seed in (5, 6))
    replace, moves = os.replace, []

    def killed(source: Path, target: Path) -> None:
        if Path(source).suffix == ".new":
            if len(moves) == moved:
                raise SystemExit
            moves.append(target)
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        with pytest.raises(SystemExit):
            save_model(tmp_path, new, community)
    assert torch.equal(load_model(tmp_path).method.logits(), new.logits())
    save_model(tmp_path, later, community)
    assert torch.equal(load_model(tmp_path).method.logits(), later.logits())
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(FILES)


def test_a_model_of_an_earlier_version_has_no_hash_of_its_description(
    saved: Path, community: Graph
) -> None:
    document = json.loads((saved / "model.json").read_text())
    del document["sha256"]["model.json"]
    (saved / "model.json").write_text(json.dumps(document))

    assert load_model(saved).graph.fingerprint() == community.fingerprint()


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(saved: Path, name: str) -> None:
    (saved / name).unlink()

    with pytest.raises(ModelError, match=f"{name} does not exist; a saved model is a folder with"):
        load_model(saved)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("flips", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_a_flipped_bit_is_found(saved: Path, name: str, flips: int) -> None:
    document = json.loads((saved / "model.json").read_text())
    for seed in range(flips):
        with damage.restored(saved / name):
            told = damage.flip_bit(saved / name, seed)
            error = damage.error_of(lambda: load_model(saved), ModelError)
            if error is None:
                # White space between the keys of model.json means nothing.
                assert name == "model.json", told
                assert json.loads((saved / name).read_text()) == document, told
            else:
                assert name in error, told
                assert "save the model again" in error or "has format" in error, told


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", '{"format": 1}', "\udcff", "null"])
def test_a_damaged_description_is_named(saved: Path, text: str) -> None:
    (saved / "model.json").write_bytes(text.encode("utf-8", "surrogateescape"))

    with pytest.raises(ModelError, match=r"model\.json"):
        load_model(saved)


def test_a_later_format_is_refused(saved: Path) -> None:
    edit(saved, format=3)

    with pytest.raises(
        ModelError, match=r"model\.json has format 3, but dropnode .* reads formats 1 to 2"
    ):
        load_model(saved)


def replace_tensors(folder: Path, name: str, **changes: np.ndarray) -> None:
    """Replace tensors and vouch for them: what a hash cannot find."""
    data = safetensors.save(safetensors.load((folder / name).read_bytes()) | changes)
    (folder / name).write_bytes(data)
    document = json.loads((folder / "model.json").read_text())
    edit(folder, sha256=document["sha256"] | {name: sha256(data).hexdigest()})


@pytest.mark.parametrize(
    ("name", "tensor", "values"),
    [
        ("weights.safetensors", "head/weight1", np.zeros((2, 2), np.float32)),
        ("weights.safetensors", "scaling/mean", np.zeros(2, np.float32)),
        ("graph.safetensors", "labels", np.zeros(3, np.int64)),
        ("graph.safetensors", "labels", np.full(26, 9)),
        ("graph.safetensors", "features", np.full((26, 9), np.nan, np.float32)),
        ("graph.safetensors", "adjacency/indices", np.full(400, 1000, np.int32)),
        ("graph.safetensors", "split/train", np.array([99])),
        ("weights.safetensors", "head/weight3", np.zeros(2, np.float32)),
        ("weights.safetensors", "tail", np.zeros(2, np.float32)),
        ("graph.safetensors", "edges", np.zeros(2, np.int64)),
        ("graph.safetensors", "ids/numbers", np.zeros(26, np.int64)),
        ("graph.safetensors", "ids/text", np.zeros(26, np.uint8)),
    ],
)
def test_tensors_that_do_not_fit_are_refused(
    saved: Path, name: str, tensor: str, values: np.ndarray
) -> None:
    replace_tensors(saved, name, **{tensor: values})

    with pytest.raises(ModelError, match=f"{name} has invalid contents"):
        load_model(saved)


@pytest.mark.parametrize("part", ["indices", "indptr"])
@pytest.mark.parametrize("matrix", ["adjacency", "features"])
def test_pointers_outside_a_matrix_are_refused(
    matrix: str, part: str, community: Graph, configure: Any, tmp_path: Path
) -> None:
    """Reading where they point to would read someone else's memory."""
    graph = Graph.from_scipy(
        community.adjacency,
        sp.csr_array(community.features),
        community.labels,
        split=community.split,
    )
    save_model(tmp_path, trained(graph, configure(max_epochs=1)), graph)
    outside = getattr(getattr(graph, matrix), part).copy()
    outside[1] = 10_000
    replace_tensors(tmp_path, "graph.safetensors", **{f"{matrix}/{part}": outside})

    with pytest.raises(ModelError, match=r"graph\.safetensors has invalid contents"):
        load_model(tmp_path)


def test_an_unknown_configuration_key_is_refused(saved: Path) -> None:
    config = json.loads((saved / "model.json").read_text())["config"]
    edit(saved, config=config | {"tempreature": 0.5})

    with pytest.raises(ModelError, match=r"model\.json .*did you mean 'temperature'"):
        load_model(saved)


@pytest.mark.parametrize("key", ["comment", "formt", "provenanec"])
def test_an_unknown_key_is_refused(saved: Path, key: str) -> None:
    edit(saved, **{key: 1})

    with pytest.raises(ModelError, match=f"unknown key '{key}' in model.json"):
        load_model(saved)


def test_classes_that_do_not_match_the_graph_are_refused(saved: Path) -> None:
    edit(saved, classes={"dtype": "<i8", "values": [1, 2]})

    with pytest.raises(ModelError, match=r"model\.json lists 2 classes for 3 class names"):
        load_model(saved)


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, b"bytes"])
def test_what_json_cannot_hold_is_refused_before_anything_is_written(
    saved: Path, community: Graph, configure: Any, value: Any
) -> None:
    method = trained(community, configure(max_epochs=1))

    with pytest.raises(ModelError, match=r"model\.json cannot be written .* finite numbers"):
        save_model(saved, method, community, extra={"value": value})

    load_model(saved)


def test_loading_does_not_unpickle(saved: Path, tmp_path: Path) -> None:
    """A pickle that would leave a file behind, under every name the loader opens."""
    import pickle

    trace = tmp_path / "executed"

    class Payload:
        def __reduce__(self) -> Any:
            return open, (str(trace), "w")

    for name in FILES:
        (saved / name).write_bytes(pickle.dumps(Payload()))

    with pytest.raises(ModelError):
        load_model(saved)
    assert not trace.exists()
