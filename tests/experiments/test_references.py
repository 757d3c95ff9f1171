"""A reference names a graph, is spelt one way, and says what it cannot be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components

from dropnode.analysis.attacks.random_edges import add_random_edges
from dropnode.data import load_dataset
from dropnode.errors import ConfigError, GraphError
from dropnode.experiments import references
from dropnode.experiments.references import TRANSFORMS, Reference, one_class
from dropnode.experiments.run import Request, load, prepare, run
from dropnode.experiments.trials import Data, plan
from dropnode.graph import Graph

QUICK = {"max_epochs": 3, "hidden": 8, "order": 2}


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("cora", "cora"),
        ("cora@random-edges:rate=0.1", "cora@random-edges:rate=0.1"),
        ("cora@random-edges:seed=0,rate=.10", "cora@random-edges:rate=0.1"),
        ("cora@random-edges:seed=7,rate=1e-1", "cora@random-edges:rate=0.1,seed=7"),
        ("cora@random-edges:rate=0.1,definition=clean", "cora@random-edges:rate=0.1"),
        (
            "cora@metattack:rate=0.05,mode=self,degree_test=false",
            "cora@metattack:rate=0.05,degree_test=False",
        ),
        (
            "cora@label-rate:rate=0.01@random-edges:rate=2",
            "cora@label-rate:rate=0.01@random-edges:rate=2.0",
        ),
    ],
)
def test_a_reference_has_one_spelling(text: str, canonical: str) -> None:
    assert str(Reference.parse(text)) == canonical
    assert str(Reference.parse(canonical)) == canonical


@given(
    st.floats(1e-6, 10.0, allow_nan=False),
    st.integers(0, 2**31),
    st.sampled_from(["cora", "sbm", "graphs/mine.npz"]),
)
def test_the_text_of_a_reference_is_the_reference(rate: float, seed: int, source: str) -> None:
    reference = Reference.parse(f"{source}@random-edges:rate={rate!r},seed={seed}")
    assert Reference.parse(str(reference)) == reference
    options = reference.steps[0].options.as_dict()
    assert options == {"rate": rate, "seed": seed, "definition": "clean"}
    assert reference.catalogue_name == (None if source.endswith("npz") else source)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("coar", r"did you mean 'cora'\? Or give the path of an \.npz file$"),
        ("xyz", "expected one of .*; or give the path of an"),
        ("", "unknown dataset ''"),
        ("@random-edges:rate=1", "unknown dataset ''"),
        ("cora@random-edge:rate=1", "did you mean 'random-edges'"),
        ("cora@", "unknown transform ''"),
        ("cora@random-edges", "lacks rate"),
        ("cora@random-edges:rate", "expected KEY=VALUE"),
        ("cora@random-edges:rate=", "expected KEY=VALUE"),
        ("cora@random-edges:rate=-1", "above 0"),
        ("cora@random-edges:rate=much", "expected a number"),
        ("cora@random-edges:rate=0.1,sed=3", r"^'cora@.*,sed=3': .*did you mean 'seed'\?$"),
        ("cora@label-rate:rate=2", "from 0 to 1"),
        ("cora@metattack:rate=0.1,mode=selfish", "expected one of self, train, both"),
        ("cora@prbcd:rate=0.1,threat=none", "expected one of poisoning, evasion"),
    ],
)
def test_what_is_no_reference_is_refused_with_what_would_be(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Reference.parse(text)


def test_every_transform_changes_the_graph_or_the_split_and_says_which() -> None:
    for transform in TRANSFORMS.values():
        assert (transform.graph is None) != (transform.split is None)


def test_one_class_against_all_others() -> None:
    clean = Reference.parse("sbm").load()
    graph = Reference.parse("sbm@one-class:code=1").load()
    assert np.array_equal(graph.labels, (clean.labels == 1).astype(int))
    assert graph.class_names == ("others", clean.class_names[1])
    assert np.array_equal(graph.split.train, clean.split.train)
    with pytest.raises(ConfigError, match="class 99 of a graph with the classes 0 to"):
        Reference.parse("sbm@one-class:code=99").load()


def test_a_node_of_unknown_class_is_none_of_the_others() -> None:
    graph = Graph.from_edges([(0, 1)], np.eye(4), ["a", "b", None, "c"])
    assert one_class(graph, 1).labels.tolist() == [0, 1, -1, 0]


def test_a_place_on_an_axis() -> None:
    attacked = Reference.parse(
        "cora@random-edges:rate=0.1,definition=cumulative@label-rate:rate=0.2"
    )
    clean = "cora@label-rate:rate=0.2"
    assert attacked.along("random-edges.rate") == (clean, "definition=cumulative", 0.1)
    assert attacked.along("label-rate.rate")[1:] == ("", 0.2)
    assert attacked.along("metattack.rate") == (str(attacked), None, 0.0)
    assert Reference.parse("cora").along("label-rate.rate") == ("cora", None, None)


def test_a_transform_of_a_later_revision_is_read_as_it_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its recipe has the revision, so that its trials are none of before."""
    before = Reference.parse("cora@random-edges:rate=0.1")
    changed = replace(references.TRANSFORMS["random-edges"], revision=2)
    monkeypatch.setattr(
        references, "TRANSFORMS", {**references.TRANSFORMS, "random-edges": changed}
    )
    reference = Reference.parse("cora@random-edges:rate=0.1")
    assert str(reference) == "cora@random-edges#2:rate=0.1"
    assert Reference.parse(str(reference)) == reference == before
    assert reference.along("random-edges.rate") == ("cora", "", 0.1)
    with pytest.raises(ConfigError, match="this version has revision 2 of random-edges, which is"):
        Reference.parse("cora@random-edges#1:rate=0.1")
    with pytest.raises(ConfigError, match="this version has revision 1 of label-rate"):
        Reference.parse("cora@label-rate#:rate=0.1")


def test_classes_have_the_names_that_the_transform_gives_them() -> None:
    for code in (0, 1):
        graph = load_dataset("sbm", nodes=200, classes=2)
        reference = Reference.parse(f"sbm@random-edges:rate=0.1@one-class:code={code}")
        assert reference.class_names(("0", "1")) == one_class(graph, code).class_names
    assert Reference.parse("sbm@random-edges:rate=0.1").class_names(("0", "1")) == ("0", "1")


@pytest.mark.parametrize("rate", [0.1, 1.0])
def test_the_random_attack_adds_new_edges_and_nothing_else(rate: float) -> None:
    clean = load_dataset("sbm", nodes=200, classes=4)
    attacked = add_random_edges(clean, rate, seed=3)
    assert attacked.num_edges == clean.num_edges + round(rate * clean.num_edges)
    difference = attacked.adjacency - clean.adjacency
    assert set(np.unique(difference.data)) <= {0.0, 1.0}
    assert np.array_equal(attacked.features, clean.features)
    assert np.array_equal(attacked.labels, clean.labels)
    assert attacked.class_names == clean.class_names
    assert attacked.split is clean.split
    assert add_random_edges(clean, rate, seed=3).fingerprint() == attacked.fingerprint()
    assert add_random_edges(clean, rate, seed=4).fingerprint() != attacked.fingerprint()


def test_more_fake_edges_than_there_is_room_for_are_refused() -> None:
    clean = load_dataset("sbm", nodes=120, classes=2, average_degree=50.0)
    with pytest.raises(ConfigError, match="only 4,140 pairs of nodes are not connected"):
        add_random_edges(clean, 5.0)


def test_a_label_rate_is_drawn_anew_for_every_split_seed() -> None:
    name = "pubmed@label-rate:rate=0.001"
    data = Data.load([name], range(2))
    first, second = (data.splits[name, seed] for seed in range(2))
    assert len(first.train) == len(second.train) == 20
    assert not np.array_equal(first.train, second.train)
    assert data.graph(name, 1).split is second


def test_a_split_can_stay_within_the_largest_component() -> None:
    graph = load_dataset("citeseer")
    _, components = connected_components(graph.adjacency, directed=False)
    largest = components == np.bincount(components).argmax()
    # The share of labelled nodes is still one of the whole graph: 33 of 3,327.
    within, anywhere = (
        Reference.parse(f"citeseer@label-rate:rate=0.01{option}").split(graph, seed=0)
        for option in (",component=largest", "")
    )
    for part in ("train", "val", "test"):
        assert largest[getattr(within, part)].all()
        assert len(getattr(within, part)) == len(getattr(anywhere, part))
    assert not largest[anywhere.test].all()


def test_a_recipe_is_part_of_the_identity_and_planning_makes_no_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ["sbm", "sbm@random-edges:rate=0.5", "sbm@random-edges:rate=0.5,seed=1"]
    data = Data.load(names)
    monkeypatch.setattr(Reference, "transformed", None)
    trials = [plan(data, name, 0, "grand", None, QUICK, 0) for name in names]
    assert len({trial.id for trial in trials}) == 3
    assert len({trial.dataset_sha256 for trial in trials}) == 1
    assert {"recipe", "split_sha256"} & trials[0].identity().keys() == set()
    assert trials[1].identity()["recipe"] == "random-edges:rate=0.5"


def test_presets_are_those_of_the_catalogue_entry() -> None:
    request = Request("citeseer@random-edges:rate=0.1")
    record, _ = prepare(request, load(request))
    assert (record.preset, record.recipe) == ("official", "random-edges:rate=0.1")


def test_an_attacked_graph_is_trained_on_and_a_run_of_it_resumes(tmp_path: Path) -> None:
    request = Request("sbm@random-edges:rate=1.0", changes=QUICK)
    result = run(request, out=tmp_path / "run")
    clean = run(Request("sbm", changes=QUICK))
    assert result.val_loss != clean.val_loss
    assert result.id != clean.id
    assert run(request, out=tmp_path / "run", resume=True) == result
    with pytest.raises(ConfigError, match="another dataset"):
        run(Request("sbm", changes=QUICK), out=tmp_path / "run", resume=True)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("cora@random-edges:rate=0.1,rate=0.2", "gives 'rate' twice"),
        ("cora@random-edges:rate=0.1, rate =0.1", "gives 'rate' twice"),
        ("cora@random-edges:rate=1e300", "expected at most 1,000"),
        ("cora" + "@one-class:code=1" * 11, "11 transforms; expected at most 10"),
        ("co\0ra", "expected a name or the path"),
        ("\udcff.npz", "expected a name or the path"),
        ("x" * 5000, "unknown dataset"),
        ("x" * 5000 + "/a.npz", None),
        (3, "expected a name or the path"),
    ],
)
def test_odd_references_are_refused(text: Any, told: str | None) -> None:
    if told is None:
        with pytest.raises(ConfigError, match="is not a file"):
            Reference.parse(text).load()
        return
    with pytest.raises(ConfigError, match=told) as caught:
        Reference.parse(text)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ("random-edges:rate=900", "a rate of 900 needs 4,500,000 fake edges"),
        ("metattack:rate=999", "flips, but there are only 499,500 pairs"),
        ("prbcd:rate=60", "raise block above it"),
        ("metattack:rate=1e-9", "is less than one; raise the rate"),
        ("one-class:code=5", "class 5 of a graph with the classes 0 to 4"),
    ],
)
def test_an_impossible_transform_is_found_while_planning(step: str, told: str) -> None:
    with pytest.raises((ConfigError, GraphError), match=told):
        Data.load([f"sbm@{step}"])
