"""A graph of one's own: what is written is read again, and what is forged is refused."""

from __future__ import annotations

import io
import json
import os
import pickle
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import damage
from dropnode import memory
from dropnode.data import draw_split, load_dataset, per_class_split, save_graph
from dropnode.data.generators import sbm
from dropnode.data.graph_file import has_split, is_path, read_graph
from dropnode.errors import ConfigError, DataError, DropnodeError, GraphError
from dropnode.graph import Graph, Split, archives

IDS = st.one_of(
    st.integers(),
    st.text(max_size=3),
    st.booleans(),
    st.floats(allow_nan=False),
    st.tuples(st.text(max_size=2), st.integers()),
)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    nodes = draw(st.integers(1, 7))
    node = st.integers(0, nodes - 1)
    edges = draw(st.lists(st.tuples(node, node).filter(lambda e: e[0] < e[1]), unique=True))
    weights = draw(
        st.lists(st.floats(0.125, 1024, width=32), min_size=len(edges), max_size=len(edges))
    )
    features: Any = np.array(
        draw(
            st.lists(
                st.lists(st.floats(-9, 9, width=32), min_size=3, max_size=3),
                min_size=nodes,
                max_size=nodes,
            )
        )
    )
    classes = draw(st.lists(st.text(min_size=1, max_size=4), unique=True, max_size=3))
    labels = draw(st.lists(st.integers(-1, len(classes) - 1), min_size=nodes, max_size=nodes))
    ids = draw(st.none() | st.lists(IDS, min_size=nodes, max_size=nodes, unique=True))
    parts = draw(st.lists(st.integers(0, 3), min_size=nodes, max_size=nodes))
    split = Split(*(np.flatnonzero(np.array(parts) == part) for part in range(3)), name="mine, 1")
    return Graph.from_edges(
        [(ids[u], ids[v]) for u, v in edges] if ids else edges,
        sp.csr_array(features) if draw(st.booleans()) else features,
        labels,
        weights=weights,
        ids=ids,
        class_names=classes,
        split=split if draw(st.booleans()) else None,
    )


def assert_same(one: Graph, other: Graph) -> None:
    for matrix in ("adjacency", "features"):
        first, second = getattr(one, matrix), getattr(other, matrix)
        assert type(first) is type(second)
        assert first.shape == second.shape
        if sp.issparse(first):
            for part in ("data", "indices", "indptr"):
                assert np.array_equal(getattr(first, part), getattr(second, part))
            assert first.data.tobytes() == second.data.tobytes()
        else:
            assert first.tobytes() == second.tobytes()
    assert np.array_equal(one.labels, other.labels)
    assert one.ids.dtype == other.ids.dtype
    assert [(type(i), i) for i in one.ids.tolist()] == [(type(i), i) for i in other.ids.tolist()]
    assert one.class_names == other.class_names
    assert (one.split is None) == (other.split is None)
    if one.split is not None and other.split is not None:
        assert one.split.name == other.split.name
        for part in ("train", "val", "test"):
            assert np.array_equal(getattr(one.split, part), getattr(other.split, part))
    assert one.fingerprint() == other.fingerprint()


@given(graphs())
def test_every_graph_is_read_as_it_was_written(tmp_path_factory: Any, graph: Graph) -> None:
    path = tmp_path_factory.mktemp("graph") / "mine.npz"
    save_graph(graph, path)
    read = read_graph(path)
    assert_same(graph, read)
    assert (read.name, read.notes) == ("mine", ())
    assert has_split(path) == (graph.split is not None)


@pytest.mark.parametrize(
    "ids", [["a\0", "a", "b"], ["a", "b", "\0"], [1, "1", 2], [2**63, 1, 2], ["", "\0", "\0\0"]]
)
def test_ids_that_an_array_of_text_would_change_are_kept(tmp_path: Path, ids: list[Any]) -> None:
    """NumPy pads text with NULs, and makes text of numbers beside text."""
    names = ["yes", "yes\0"]
    graph = Graph.from_edges([(ids[0], ids[1])], np.eye(3), [0, 1, -1], ids=ids, class_names=names)
    save_graph(graph, tmp_path / "mine.npz")
    assert_same(graph, read_graph(tmp_path / "mine.npz"))


@pytest.mark.parametrize("name", ["cora", "amazon-photo"])
def test_a_published_graph_is_read_as_it_was_written(
    name: str, published: Callable[[str], Graph], tmp_path: Path
) -> None:
    graph = published(name)
    save_graph(graph, tmp_path / "copy.npz")
    read = load_dataset(str(tmp_path / "copy.npz"), split_seed=5)
    assert_same(graph, read)
    assert read.name == "copy"


EDGES = [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 5), (5, 3)]


@pytest.fixture
def arrays() -> dict[str, Any]:
    """Two triangles, joined and weighted in one direction, in the layout of the GNN benchmark."""
    adjacency = sp.csr_array((np.arange(1.0, 8), tuple(np.array(EDGES).T)), shape=(6, 6))
    return {
        **{f"adj_{part}": getattr(adjacency, part) for part in "data indices indptr shape".split()},
        "attr_matrix": np.arange(12.0).reshape(6, 2),
        "labels": np.array([0, 0, -1, 1, 1, 1]),
    }


def test_a_file_is_read_as_it_is(arrays: dict[str, Any], tmp_path: Path) -> None:
    """Weights stay, components and small classes stay; other arrays are none of our business."""
    path = tmp_path / "own.npz"
    extra = {"node_names": np.array(list("abcdef")), "ids": np.array([10, 20, 30, 40, 50, 60])}
    split = {"train": np.array([0, 3]), "val": np.array([], dtype=int), "test": [1, 4]}
    np.savez(path, **arrays, **extra, **split)
    graph = load_dataset(path)
    expected = np.zeros((6, 6))
    for weight, (u, v) in enumerate(EDGES, 1):
        expected[u, v] = expected[v, u] = weight
    assert np.array_equal(graph.adjacency.toarray(), expected)
    assert np.array_equal(graph.features, arrays["attr_matrix"])
    assert (graph.class_names, graph.labels.tolist()) == (("0", "1"), [0, 0, -1, 1, 1, 1])
    assert graph.ids.tolist() == [10, 20, 30, 40, 50, 60]
    assert graph.split is not None
    assert graph.split.name == "custom"
    assert [graph.split.train.tolist(), graph.split.val.tolist(), graph.split.test.tolist()] == [
        [0, 3],
        [],
        [1, 4],
    ]


def test_a_split_may_be_masks(arrays: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    masks = {
        part: np.isin(np.arange(6), chosen)
        for part, chosen in {"train": [0, 3], "val": [1], "test": [4, 5]}.items()
    }
    np.savez(path, **arrays, **masks, split_name="masked")
    split = load_dataset(path).split
    assert split is not None
    assert (split.train.tolist(), split.test.tolist(), split.name) == ([0, 3], [4, 5], "masked")
    np.savez(path, **arrays, **(masks | {"val": np.array([True])}))
    with pytest.raises(DataError, match=r"a mask val of shape \(1,\) for 6 nodes"):
        load_dataset(path)
    del masks["val"]
    np.savez(path, **arrays, **masks)
    with pytest.raises(DataError, match=r"has train, test but no val; add it"):
        load_dataset(path)


def test_a_file_without_a_split_gets_one_or_says_what_it_lacks(tmp_path: Path) -> None:
    graph = load_dataset("sbm", nodes=300, classes=3).with_split(None)
    path = tmp_path / "own.npz"
    save_graph(graph, path)
    for seed in (0, 3):
        loaded = load_dataset(path, split_seed=seed)
        drawn = per_class_split(graph.labels, 20, 30, seed)
        assert loaded.split is not None
        for split in (loaded.split, draw_split(path, loaded, seed)):
            assert split.name == drawn.name == f"20+30 per class, seed {seed}"
            assert np.array_equal(split.train, drawn.train)
    save_graph(sbm.make(nodes=140, classes=3), path)
    with pytest.raises(GraphError, match=r"no split, and drawing .* 50 .* but class '0' has 46; s"):
        load_dataset(path)
    bare = Graph.from_scipy(graph.adjacency, graph.features)
    save_graph(bare, path)
    with pytest.raises(GraphError, match="but no node has one"):
        load_dataset(path)


def test_what_is_a_path_and_what_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(map(is_path, ["a.npz", "a/b", "./cora", Path("cora")]))
    assert not any(map(is_path, ["cora", "amazon-photo", "npz"]))
    monkeypatch.chdir(tmp_path)
    save_graph(load_dataset("sbm", nodes=300, classes=3), "cora.npz")
    assert load_dataset("cora.npz").num_nodes == 300
    assert load_dataset(Path("cora.npz")).name == "cora"
    for wrong in ("core.npz", str(tmp_path) + "/x.npz"):
        with pytest.raises(ConfigError, match=f"{wrong} is not a file; expected"):
            load_dataset(wrong)
    for wrong in (".", "some/folder", "cora.npy"):
        with pytest.raises(ConfigError, match=r"does not end in \.npz|unknown dataset"):
            load_dataset(wrong)
    with pytest.raises(ConfigError, match=r"cora\.npz is a file and has no option 'nodes'"):
        load_dataset("cora.npz", nodes=5)
    with pytest.raises(ConfigError, match=r"does not end in \.npz"):
        save_graph(load_dataset("digits"), "digits")
    assert os.listdir(tmp_path) == ["cora.npz"]


def test_ids_that_no_file_can_hold_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    graph = Graph.from_edges([], np.eye(2), ids=[frozenset([1]), frozenset([2])])
    with pytest.raises(GraphError, match="ids cannot be written; use numbers, text, or tuples"):
        save_graph(graph, tmp_path / "a.npz")
    assert os.listdir(tmp_path) == []


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = load_dataset("sbm", nodes=300, classes=3)
    save_graph(graph, tmp_path / "a.npz")

    def full(file: Any, **_: Any) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(OSError, match="No space left"):
        save_graph(graph.with_split(None), tmp_path / "a.npz")
    assert os.listdir(tmp_path) == ["a.npz"]
    assert_same(read_graph(tmp_path / "a.npz"), graph)


class Bomb:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("exploded",)


def test_nothing_is_unpickled(
    arrays: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for value in (np.array([Bomb()], dtype=object), np.array(["a", "b"], dtype=object)):
        np.savez("own.npz", **arrays, class_names=value)
        with pytest.raises(DataError, match=r"own\.npz:class_names\.npy holds Python objects"):
            load_dataset("own.npz")
    (tmp_path / "own.npz").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(DataError, match="not a readable npz file"):
        load_dataset("own.npz")
    assert os.listdir(tmp_path) == ["own.npz"]


def forged(path: Path, arrays: dict[str, Any], name: str, header: dict[str, Any]) -> None:
    """Write a file in which one array claims to be another."""
    np.savez(path, **{key: value for key, value in arrays.items() if key != name})
    member = io.BytesIO()
    np.lib.format.write_array_header_1_0(member, header)
    member.write(b"\0" * 48)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}.npy", member.getvalue())


@pytest.mark.parametrize("shape", [(2**40,), (2**62, 2**62), (7,), (5,)])
def test_an_array_larger_than_its_file_is_refused_before_it_is_made(
    shape: tuple[int, ...], arrays: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "own.npz"
    header = {"descr": "<i8", "fortran_order": False, "shape": shape}
    forged(path, arrays, "labels", header)
    with pytest.raises(DataError, match=r"labels\.npy claims [\d,]+ bytes and holds 48"):
        load_dataset(path)


def test_more_than_the_memory_of_the_machine_is_refused(
    arrays: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "own.npz", **arrays)
    monkeypatch.setattr(memory, "available_memory", lambda: 256)
    with pytest.raises(DataError, match=r"needs at least .* bytes of memory, and 256 bytes are"):
        load_dataset(tmp_path / "own.npz")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"adj_indices": np.full(7, 99)}, r"no sound adj_\* matrix"),
        ({"adj_shape": np.array([10**12, 10**12])}, r"no sound adj_\* matrix"),
        ({"adj_shape": np.array([6.5, 6.5])}, r"no sound adj_\* matrix"),
        ({"adj_indptr": None}, r"no sound adj_\* matrix"),
        ({"attr_matrix": None}, r"no sound attr_\* matrix"),
        ({"attr_matrix": np.full((6, 2), np.nan)}, "feature 0 of node 0 is NaN"),
        ({"attr_matrix": np.array([["a", "b"]] * 6)}, "cannot be read as numbers"),
        ({"labels": None}, "holds no labels"),
        ({"labels": np.array(3)}, "holds no labels"),
        ({"labels": np.arange(5)}, "5 labels for 6 nodes"),
        ({"class_names": np.array(["a"])}, "label 1 is the code of none of the 1 class_names"),
        ({"ids": np.array("[1, 2")}, "unreadable ids"),
        ({"ids": np.array(json.dumps({"a": 1}))}, "expected one value each"),
        ({"ids": np.array([1, 1, 2, 3, 4, 5])}, "ids must be unique"),
        ({part: np.array([99]) for part in ("train", "val", "test")}, "occurs more than once"),
        ({"train": np.array([99]), "val": np.array([1]), "test": np.array([2])}, "holds node 99"),
    ],
)
def test_arrays_that_make_no_graph_are_named(
    changes: dict[str, Any], told: str, arrays: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "own.npz"
    np.savez(path, **{k: v for k, v in (arrays | changes).items() if v is not None})
    with pytest.raises((DataError, GraphError), match=told) as caught:
        load_dataset(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("flips", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_a_flipped_bit_is_refused_or_harmless(tmp_path: Path, flips: int) -> None:
    graph = load_dataset("sbm", nodes=200, classes=4)
    path = tmp_path / "mine.npz"
    save_graph(graph, path)
    whole = load_dataset(path)
    refused = 0
    for seed in range(flips):
        with damage.restored(path):
            told = damage.flip_bit(path, seed)
            read = []
            error = damage.error_of(lambda: read.append(load_dataset(path)), DropnodeError)  # noqa: B023
            if error is None:
                (same,) = read
                assert same.fingerprint() == whole.fingerprint(), told
                assert same.split.fingerprint() == whole.split.fingerprint(), told
                assert same.ids.tolist() == whole.ids.tolist(), told
                assert same.class_names == whole.class_names, told
            else:
                assert str(path) in error, told
                refused += 1
    assert refused > flips / 2


def test_an_archive_that_expands_beyond_measure_is_refused(
    arrays: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "own.npz"
    np.savez_compressed(path, **arrays | {"attr_matrix": np.zeros((6, 10**6))})
    monkeypatch.setattr(archives, "ALWAYS_READ", 10**6)
    with pytest.raises(DataError, match=r"expands to 0\.0 GB; expected at most .*, 100 times"):
        load_dataset(path)
    monkeypatch.undo()
    # A file of zeros is read all the same if it is small enough to be harmless.
    with pytest.raises(GraphError, match="has no split"):
        load_dataset(path)


def test_a_large_file_that_is_really_large_is_read(
    arrays: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit grows with the file: what compresses as data do is never refused."""
    monkeypatch.setattr(archives, "ALWAYS_READ", 0)
    noise = np.random.default_rng(0).random((6, 10**4))
    np.savez_compressed(tmp_path / "own.npz", **arrays | {"attr_matrix": noise})
    with pytest.raises(GraphError, match="has no split"):
        load_dataset(tmp_path / "own.npz")


def test_an_archive_of_many_or_equal_arrays_is_refused(
    arrays: dict[str, Any], tmp_path: Path
) -> None:
    np.savez(tmp_path / "many.npz", **{f"a{i}": np.empty(0) for i in range(1001)})
    with pytest.raises(DataError, match="holds 1,001 arrays; expected at most 1,000"):
        load_dataset(tmp_path / "many.npz")
    np.savez(tmp_path / "own.npz", **arrays)
    with (
        zipfile.ZipFile(tmp_path / "own.npz", "a") as archive,
        warnings.catch_warnings(action="ignore"),
    ):
        archive.writestr("labels.npy", archive.read("labels.npy"))
    with pytest.raises(DataError, match="it holds labels twice"):
        load_dataset(tmp_path / "own.npz")
