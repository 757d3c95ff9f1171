"""Readers give the published graphs: their sizes, what independent readers see, odd corners."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

from dropnode.data.catalogue import Entry, Sizes, find
from dropnode.data.datasets import check_sizes
from dropnode.data.readers import aminer, metattack, npz
from dropnode.errors import DataError
from dropnode.graph import Graph

Published = Callable[[str], Graph]


def edge_set(graph: Graph) -> set[tuple[int, int]]:
    source, target = (graph.ids[end] for end in graph.adjacency.nonzero())
    return set(zip(source.tolist(), target.tolist(), strict=True))


@pytest.mark.parametrize(
    ("name", "nodes", "edges", "features", "classes", "split"),
    [
        ("cora", 2708, 5278, 1433, 7, (140, 500, 1000)),
        ("citeseer", 3327, 4552, 3703, 6, (120, 500, 1000)),
        ("pubmed", 19717, 44324, 500, 3, (60, 500, 1000)),
        ("amazon-computers", 13381, 245778, 767, 10, (200, 300, 12881)),
        ("amazon-photo", 7487, 119043, 745, 8, (160, 240, 7087)),
        ("coauthor-cs", 18333, 81894, 6805, 15, (300, 450, 17583)),
        ("coauthor-physics", 34493, 247962, 8415, 5, (100, 150, 34243)),
        ("cora-lcc", 2485, 5069, 1433, 7, (247, 249, 1988)),
        ("cora-metattack-5", 2485, 5322, 1433, 7, (247, 249, 1988)),
        ("cora-metattack-25", 2485, 6246, 1433, 7, (247, 249, 1988)),
    ],
)
def test_published_datasets_have_the_published_sizes(
    published: Published,
    name: str,
    nodes: int,
    edges: int,
    features: int,
    classes: int,
    split: tuple[int, int, int],
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph = published(name)
    assert graph.name == name
    assert (graph.num_nodes, graph.num_edges) == (nodes, edges)
    assert (graph.num_features, graph.num_classes) == (features, classes)
    assert graph.split is not None
    assert (len(graph.split.train), len(graph.split.val), len(graph.split.test)) == split
    graph.check_trainable()


@pytest.mark.parametrize("name", ["cora", "citeseer", "pubmed"])
def test_planetoid_graphs_agree_with_pytorch_geometric(
    published: Published, mirror: Path, name: str
) -> None:
    from torch_geometric.io import read_planetoid_data

    theirs = read_planetoid_data(str(mirror / "planetoid"), name)
    ours = published(name)
    assert np.array_equal(ours.features.toarray(), theirs.x.numpy())
    assert edge_set(ours) == set(map(tuple, theirs.edge_index.T.tolist()))
    known = ours.labels >= 0
    assert np.array_equal(ours.labels[known], theirs.y.numpy()[known])
    assert ours.split is not None
    for part in ("train", "val", "test"):
        mask = theirs[f"{part}_mask"].numpy()
        assert np.array_equal(getattr(ours.split, part), np.flatnonzero(mask))


def test_citeseer_nodes_without_data_are_unlabelled_and_in_no_split(
    published: Published,
) -> None:
    graph = published("citeseer")
    bare = np.flatnonzero(graph.labels == -1)
    assert len(bare) == 15
    assert graph.features[bare].nnz == 0
    assert graph.split is not None
    for part in (graph.split.train, graph.split.val, graph.split.test):
        assert not np.intersect1d(part, bare).size
    assert graph.notes == ("self-loops of the published graph left out: 124",)


def test_amazon_photo_is_the_largest_component_of_the_published_file(
    published: Published, mirror: Path
) -> None:
    from torch_geometric.io import read_npz

    theirs = read_npz(str(mirror / "shchur" / "amazon_electronics_photo.npz"), to_undirected=True)
    edges = theirs.edge_index.T.tolist()
    largest = max(nx.connected_components(nx.Graph(edges)), key=len)
    component = sorted(largest)
    ours = published("amazon-photo")
    assert ours.ids.tolist() == component
    assert edge_set(ours) == {(u, v) for u, v in edges if u != v and u in largest}
    assert np.array_equal(ours.labels, theirs.y.numpy()[component])
    assert np.array_equal(ours.features.toarray() > 0, theirs.x.numpy()[component] > 0)


def test_class_names_come_from_the_file(published: Published) -> None:
    assert published("amazon-photo").class_names[:2] == ("Film Photography", "Digital Cameras")
    assert published("coauthor-cs").class_names[-1] == "theoretical_cs"
    assert published("cora").class_names[3] == "Neural_Networks"


@pytest.fixture
def small(tmp_path: Path) -> Entry:
    """Write a graph in the form of Cora-Full: a small class, two components, weights, a loop.

    0-1-2-3-4 is a path of classes A A S B B, 5-6-7 a triangle of class C, directed and weighted.
    Without the small class S the path falls apart into two pairs, and the triangle is largest.
    """
    edges = [(0, 1), (1, 0), (2, 1), (3, 2), (3, 4), (5, 6), (6, 7), (7, 5), (4, 4)]
    adjacency = sp.csr_matrix((np.arange(1.0, 10), tuple(np.array(edges).T)), shape=(8, 8))
    attributes = sp.csr_matrix(np.arange(16.0).reshape(8, 2))
    arrays: dict[str, Any] = {
        f"{prefix}_{part}": getattr(matrix, part)
        for prefix, matrix in (("adj", adjacency), ("attr", attributes))
        for part in ("data", "indices", "indptr", "shape")
    }
    arrays["labels"] = np.array([0, 0, 1, 2, 2, 3, 3, 3])
    arrays["class_names"] = np.array(["A", "S", "B", "C"], dtype=object)
    np.savez(tmp_path / "small.npz", **arrays)
    return replace(find("cora-full"), name="small", smallest_class=0, expected=Sizes())


def test_an_npz_loses_direction_weight_loops_and_small_components(
    small: Entry, tmp_path: Path
) -> None:
    graph = npz.read(small, {"small.npz": tmp_path / "small.npz"})
    assert graph.ids.tolist() == [0, 1, 2, 3, 4]
    assert edge_set(graph) == {(u, v) for u in range(5) for v in range(5) if abs(u - v) == 1}
    assert set(graph.adjacency.data) == {1.0}
    assert graph.features.toarray().tolist() == np.arange(10.0).reshape(5, 2).tolist()
    assert graph.class_names == ("A", "S", "B")
    assert graph.labels.tolist() == [0, 0, 1, 2, 2]
    assert graph.notes == (
        "self-loops of the published graph left out: 1",
        "kept the largest component: 5 of 8 nodes",
    )


def test_small_classes_go_and_with_them_what_they_alone_connected(
    small: Entry, tmp_path: Path
) -> None:
    graph = npz.read(replace(small, smallest_class=2), {"small.npz": tmp_path / "small.npz"})
    # The largest component is taken first, as the benchmark does, and again afterwards.
    assert graph.ids.tolist() == [0, 1]
    assert graph.class_names == ("A",)
    assert "left out 1 classes of fewer than 2 nodes" in graph.notes[-1]


def test_an_npz_that_points_outside_itself_is_refused(small: Entry, tmp_path: Path) -> None:
    path = tmp_path / "small.npz"
    arrays = npz.load_npz(path)
    arrays["adj_indices"][0] = 99
    np.savez(path, **arrays)
    with pytest.raises(DataError, match=r"small\.npz holds no sound adj_\* matrix"):
        npz.read(small, {"small.npz": path})
    del arrays["attr_shape"], arrays["adj_indices"]
    np.savez(path, **arrays)
    with pytest.raises(DataError, match="adj_indices"):
        npz.read(small, {"small.npz": path})


@pytest.fixture
def small_aminer(tmp_path: Path) -> tuple[Entry, dict[str, Path]]:
    """Write five papers on two topics in the form of AMiner CS."""
    objects = {
        "aminer.adj.sp.pkl": sp.csr_matrix(np.eye(5, k=1) + np.diag([1, 0, 0, 0, 0])),
        "aminer.features.pkl": np.arange(15.0).reshape(5, 3),
        "aminer.labels.pkl": np.eye(2)[[0, 1, 1, 0, 1]],
    }
    for name, value in objects.items():
        (tmp_path / name).write_bytes(pickle.dumps(value, protocol=3))
    entry = replace(
        find("aminer-cs"),
        expected=Sizes(nodes=5, features=3, classes=2),
        class_names=("theory", "practice"),
        class_sizes=(2, 3),
    )
    return entry, {name: tmp_path / name for name in objects}


def test_aminer_files_become_an_undirected_graph_with_raw_features(
    small_aminer: tuple[Entry, dict[str, Path]],
) -> None:
    entry, files = small_aminer
    graph = aminer.read(entry, files)
    check_sizes(entry, graph)
    assert edge_set(graph) == {(u, v) for u in range(5) for v in range(5) if abs(u - v) == 1}
    assert graph.features.tolist() == np.arange(15.0).reshape(5, 3).tolist()
    assert graph.labels.tolist() == [0, 1, 1, 0, 1]
    assert graph.class_names == ("theory", "practice")
    assert graph.notes == ("self-loops of the published graph left out: 1",)


def test_aminer_files_of_other_sizes_are_refused_with_both_numbers(
    small_aminer: tuple[Entry, dict[str, Path]],
) -> None:
    entry, files = small_aminer
    with pytest.raises(DataError, match=r"holds \(5, 2\), expected one-hot .* \(5, 18\)"):
        aminer.read(replace(entry, expected=find("aminer-cs").expected), files)
    graph = aminer.read(entry, files)
    with pytest.raises(DataError, match="has 5 nodes, expected 593,486"):
        check_sizes(replace(entry, expected=find("aminer-cs").expected), graph)
    with pytest.raises(DataError, match="has 2 nodes of class 'theory', expected 4"):
        check_sizes(replace(entry, class_sizes=(4, 1)), graph)


def test_attacked_coras_are_the_clean_one_with_other_edges(published: Published) -> None:
    clean = published("cora-lcc")
    assert clean.class_names[0] == "Case_Based"
    for rate, flips in ((5, 253), (10, 506), (15, 760), (20, 1013), (25, 1267)):
        attacked = published(f"cora-metattack-{rate}")
        assert abs(attacked.adjacency - clean.adjacency).sum() == 2 * flips
        assert (attacked.features != clean.features).nnz == 0
        assert np.array_equal(attacked.labels, clean.labels)
        assert attacked.class_names == clean.class_names


def test_a_split_that_is_none_is_refused(tmp_path: Path) -> None:
    arrays = {"adj": sp.csr_array(np.ones((2, 2))), "attr": sp.eye_array(2, format="csr")}
    parts = {
        f"{name}_{part}": getattr(matrix, part)
        for name, matrix in arrays.items()
        for part in ("data", "indices", "indptr", "shape")
    }
    np.savez(tmp_path / "clean.npz", labels=np.array([0, 1]), **parts)
    entry = find("cora-lcc")
    for text in ("{", "[]", '{"idx_train": [0]}'):
        (tmp_path / "split.json").write_text(text)
        with pytest.raises(DataError, match=r"split\.json holds no split"):
            metattack.read(entry, {p.name: p for p in tmp_path.iterdir()})
