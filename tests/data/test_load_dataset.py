"""What a user meets: names, options, descriptions, and errors that help."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from dropnode.data import dataset_names, datasets, describe, fetch, load_dataset
from dropnode.data.catalogue import Sizes, catalogue, find, parse
from dropnode.data.datasets import GENERATORS, READERS, check_sizes
from dropnode.errors import ConfigError, DataError
from dropnode.graph import Graph


def test_digits_need_no_file_and_no_network(isolated: Path) -> None:
    graph = load_dataset("digits")
    assert (graph.num_nodes, graph.num_features, graph.num_classes) == (1797, 64, 10)
    assert graph.split is not None
    assert (len(graph.split.train), len(graph.split.val), len(graph.split.test)) == (100, 100, 1597)
    source, target = graph.adjacency.nonzero()
    # Neighbours mostly agree, or the graph would be of no use.
    assert (graph.labels[source] == graph.labels[target]).mean() > 0.95
    assert np.diff(graph.adjacency.indptr).min() >= 10
    assert graph.features.max() == 16
    assert describe("digits")["available"] == "embedded"
    assert not isolated.exists()


def test_the_split_seed_draws_the_split_and_nothing_else() -> None:
    first, again, other = (load_dataset("digits", split_seed=seed) for seed in (1, 1, 2))
    assert first.split is not None
    assert again.split is not None
    assert other.split is not None
    assert np.array_equal(first.split.train, again.split.train)
    assert not np.array_equal(first.split.train, other.split.train)
    assert first.fingerprint() == other.fingerprint()


def test_an_unknown_dataset_gets_a_suggestion() -> None:
    with pytest.raises(ConfigError, match=r"unknown dataset 'coar'; did you mean 'cora'"):
        load_dataset("coar")
    with pytest.raises(ConfigError, match="did you mean 'amazon-computers'"):
        describe("Amazon-Computer")
    with pytest.raises(ConfigError, match=r"unknown dataset 'zzz'; expected one of cora, citeseer"):
        fetch("zzz")


def test_an_unknown_option_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="'sbm' has no option 'node'; its options: nodes, "):
        load_dataset("sbm", node=10)
    with pytest.raises(ConfigError, match="'cora' has no option 'nodes'; its options: none"):
        load_dataset("cora", nodes=10)


def test_wrong_sizes_are_an_error_with_both_numbers(published: Callable[[str], Graph]) -> None:
    entry = replace(find("cora"), expected=Sizes(nodes=2708, edges=5429))
    with pytest.raises(DataError, match="'cora' has 5,278 edges, expected 5,429"):
        check_sizes(entry, published("cora"))


@pytest.mark.parametrize("name", dataset_names())
def test_every_description_is_plain_json_and_complete(name: str) -> None:
    description = describe(name)
    assert json.loads(json.dumps(description)) == description
    for key in ("title", "licence", "citation", "split"):
        assert description[key]
    assert description["available"] in ("embedded", "download", "by hand")
    assert description["location"] is None


def test_a_description_says_where_the_files_are(
    mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert describe("cora")["available"] == "download"
    monkeypatch.setenv("DROPNODE_MIRROR", str(mirror))
    description = fetch("cora")
    assert description["available"] == "mirror"
    assert description["location"] == str(mirror / "planetoid")
    assert (description["edges"], description["paper"]) == (5278, {"edges": 5429})


def test_the_absent_aminer_says_what_to_do(isolated: Path) -> None:
    assert describe("aminer-cs")["available"] == "by hand"
    with pytest.raises(DataError) as caught:
        load_dataset("aminer-cs")
    message = str(caught.value)
    assert "THUDM/GRAND-plus" in message
    names = "aminer.adj.sp.pkl, aminer.features.pkl, aminer.labels.pkl"
    assert f"put {names} into {isolated / 'aminer'}" in message


def test_a_sound_file_of_the_wrong_dataset_is_caught_by_its_checksum(
    isolated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing listens here: upstream fails at once instead of reaching for the network.
    entry = replace(find("cora-full"), url="http://127.0.0.1:9")
    monkeypatch.setattr(datasets, "find", lambda name: entry)
    (isolated / "shchur").mkdir(parents=True)
    np.savez(isolated / "shchur" / "cora_full.npz", labels=np.arange(3))
    with pytest.raises(DataError, match="is damaged"):
        load_dataset("cora-full")
    assert not (isolated / "shchur" / "cora_full.npz").exists()


TEXT = resources.files("dropnode.data").joinpath("catalogue.yaml").read_text("utf-8")


def test_the_catalogue_is_sound() -> None:
    for name, entry in catalogue().items():
        assert entry.format in {**READERS, **GENERATORS}
        assert bool(entry.files) == (entry.format in READERS), name
        assert all(h is None or re.fullmatch("[0-9a-f]{64}", h) for h in entry.files.values())
        assert None not in entry.files.values() or entry.by_hand, name
        assert entry.url or entry.by_hand or not entry.files, name
        assert entry.class_names is None or len(entry.class_names) == entry.expected.classes
        assert entry.class_sizes is None or sum(entry.class_sizes) == entry.expected.nodes


def test_the_mirrored_files_have_the_catalogued_checksums(mirror: Path) -> None:
    checked = 0
    for entry in catalogue().values():
        for name, sha256 in entry.files.items():
            path = mirror / entry.folder / name
            if path.exists():
                assert hashlib.sha256(path.read_bytes()).hexdigest() == sha256, path
                checked += 1
    assert checked == 3 * 7 + 4 + 2 + 5 * 3


@pytest.mark.parametrize(
    ("path", "where"),
    [
        (["cora"], "cora"),
        (["cora", "expected"], "cora.expected"),
        (["cora", "package"], "cora.package"),
        (["amazon-photo", "split"], "amazon-photo.split"),
    ],
)
def test_a_misspelt_key_in_the_catalogue_is_an_error(path: list[str], where: str) -> None:
    values = yaml.safe_load(TEXT)
    inner = values
    for key in path:
        inner = inner[key]
    inner["licenze"] = 1
    with pytest.raises(ConfigError, match=f"unknown key 'licenze' in {where};"):
        parse(yaml.safe_dump(values))


def test_a_missing_key_in_the_catalogue_is_an_error() -> None:
    values = yaml.safe_load(TEXT)
    del values["pubmed"]["licence"]
    with pytest.raises(ConfigError, match="pubmed lacks licence"):
        parse(yaml.safe_dump(values))


def test_an_unknown_split_in_the_catalogue_is_an_error() -> None:
    values = yaml.safe_load(TEXT)
    values["pubmed"]["split"] = "publik"
    told = r"pubmed\.split = 'publik'; expected the keys train, val or 'public'"
    with pytest.raises(ConfigError, match=told):
        parse(yaml.safe_dump(values))


def test_looking_at_the_catalogue_does_not_import_the_heavy_libraries() -> None:
    program = (
        "import sys; from dropnode.data import dataset_names, describe; "
        "[describe(name) for name in dataset_names()]; "
        "print([m for m in ('torch', 'sklearn') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("files", ["a.npz"], "pubmed.files = .*; expected keys and values"),
        ("expected", {"nodes": "many"}, "pubmed.expected.nodes = 'many'; expected a whole number"),
        ("split", {"train": 0, "val": 1}, "pubmed.split.train = 0; expected a whole number of at"),
        ("class_sizes", [1, "x"], r"pubmed.class_sizes\[1\] = 'x'; expected a whole number"),
    ],
)
def test_a_value_of_the_wrong_type_in_the_catalogue_is_an_error(
    key: str, value: Any, told: str
) -> None:
    values = yaml.safe_load(TEXT)
    values["pubmed"][key] = value
    with pytest.raises(ConfigError, match=told):
        parse(yaml.safe_dump(values))
