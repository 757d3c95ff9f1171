"""A trial is known by what determines its numbers, and by nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropnode.analysis.metrics import BINS
from dropnode.data import save_graph
from dropnode.errors import ConfigError
from dropnode.experiments.measures import Training, measure
from dropnode.experiments.run import Job, Request, run, run_trial
from dropnode.experiments.trials import Data, Trial, plan, read_history, write_history
from dropnode.graph import Graph, Split
from dropnode.methods.baselines import BASELINES
from dropnode.methods.grand.config import preset_names
from dropnode.methods.table import GRAND_VARIANTS, make_method, restore_method
from dropnode.training import Outcome

QUICK = {"max_epochs": 5, "hidden": 8, "order": 2}
FIXED = Trial(
    dataset="cora",
    dataset_sha256="ab" * 32,
    split="public",
    split_seed=0,
    method="grand",
    revision=1,
    preset="official",
    config={"order": 8, "drop_rate": 0.5, "head": "mlp", "batch_norm": False},
    seed=3,
)

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "dataset": st.text(),
    "dataset_sha256": st.text("0123456789abcdef", min_size=64, max_size=64),
    "split": st.text(),
    "split_seed": st.integers(0, 100),
    "method": st.text(),
    "revision": st.integers(1, 100),
    "preset": st.text(),
    "config": st.dictionaries(st.text(), st.text() | st.integers()),
    "seed": st.integers(0, 2**40),
    "split_sha256": st.text(),
    "recipe": st.text(),
}
TELLS_APART = VALUES.keys() - {"dataset", "split_seed", "preset"}
TRIALS = st.builds(Trial, **VALUES)


def test_an_id_is_the_same_on_every_machine_and_in_every_version() -> None:
    """Results that people keep are found by it: a change here orphans them all."""
    assert FIXED.id == "56a51ce2357436c4"


@given(st.data())
def test_an_id_changes_with_what_determines_the_numbers_alone(data: st.DataObject) -> None:
    trial = data.draw(TRIALS)
    name = data.draw(st.sampled_from(sorted(VALUES)))
    value = data.draw(VALUES[name])
    other = replace(trial, **{name: value})
    same = name not in TELLS_APART or value == getattr(trial, name)
    assert (other.id == trial.id) is same


@given(st.data())
def test_an_id_does_not_depend_on_the_order_of_settings(data: st.DataObject) -> None:
    trial = data.draw(TRIALS)
    shuffled = dict(data.draw(st.permutations(list(trial.config.items()))))
    assert replace(trial, config=shuffled).id == trial.id


@pytest.fixture(scope="module")
def data() -> Data:
    return Data.load(["sbm", "digits"], range(2))


def test_numbers_written_differently_are_one_trial(data: Data) -> None:
    """A spec may say 0 or 0.0, 2 or 2.0; and a default that is spelt out is the default."""

    def identify(**changes: Any) -> str:
        return plan(data, "sbm", 0, "grand", None, changes, 0).id

    assert identify(drop_rate=0, order=2) == identify(order=2.0, drop_rate=0.0)
    assert identify(input_norm="batch") == identify()
    assert identify(drop_rate=0.25) != identify()


@pytest.mark.parametrize(
    ("dataset", "split_seed", "method", "seed"),
    [("sbm", 0, "grand", 0), ("sbm", 1, "grand-gcn", 1), ("digits", 1, "grand-dropedge", 2)],
)
def test_a_trial_comes_to_what_the_same_request_does(
    data: Data, dataset: str, split_seed: int, method: str, seed: int, threads: None
) -> None:
    trial = plan(data, dataset, split_seed, method, None, QUICK, seed)
    finished = run_trial(Job(data), trial)
    request = Request(dataset, method, seed=seed, split_seed=split_seed, changes=QUICK)
    alone = run(request)
    assert (trial.dataset_sha256, trial.split) == (alone.dataset_sha256, alone.split)
    judged = {"confusion", "reliability"}
    plain = {key: value for key, value in finished.metrics.items() if key not in judged}
    assert plain == {key: getattr(alone, key) for key in plain}
    assert set(plain) == {"test_accuracy", "val_accuracy", "val_loss", "best_epoch", "epochs"}
    assert finished.versions == alone.versions
    assert trial.id == alone.id


def test_what_a_trial_stores_agrees_with_itself(data: Data, threads: None) -> None:
    trial = plan(data, "digits", 0, "grand", None, QUICK, 0)
    finished = run_trial(Job(data), trial)
    metrics = finished.metrics
    confusion = np.array(metrics["confusion"])
    tested = len(data.splits["digits", 0].test)
    assert confusion.shape == (10, 10)
    assert confusion.sum() == sum(metrics["reliability"]["count"]) == tested
    right = sum(metrics["reliability"]["correct"])
    assert np.trace(confusion) == right == round(metrics["test_accuracy"] * tested)
    assert finished.history is not None
    history = read_history(finished.history)
    assert history["epoch"].tolist() == [1, 2, 3, 4, 5]
    best = metrics["best_epoch"] - 1
    assert history["val_loss"][best] == pytest.approx(metrics["val_loss"], rel=1e-6)
    assert history["val_accuracy"][best] == pytest.approx(metrics["val_accuracy"], rel=1e-6)


def somewhere(dataset: str) -> Data:
    """Return the data of a dataset whose graph nobody needs to plan a trial."""
    train, val, test = np.arange(3)[:, None]
    return Data({}, {(dataset, 0): Split(train, val, test, "public")}, {dataset: "ab" * 32})


@pytest.mark.parametrize(
    ("method", "preset"),
    [
        *((method, preset) for method in GRAND_VARIANTS for preset in preset_names()),
        *((method, preset) for method in BASELINES for preset in ("official", "default")),
    ],
)
@pytest.mark.parametrize("dataset", ["cora", "citeseer", "pubmed"])
def test_a_worker_restores_every_setting(method: str, preset: str, dataset: str) -> None:
    changes = {"feature_scaling": "none"}
    trial = plan(somewhere(dataset), dataset, 0, method, preset, changes, 0)
    made = make_method(method, dataset, preset, changes)
    assert settings_of(trial) == made.config
    assert trial.preset == preset


def settings_of(trial: Trial) -> Mapping[str, Any]:
    settings: Mapping[str, Any] = restore_method(trial.method, trial.config).config.as_dict()
    return settings


@pytest.mark.parametrize(
    ("method", "dataset", "change"),
    [
        ("grand", "cora", {"input_dropout_on": "propagated"}),
        ("grand", "pubmed", {"input_dropout_on": "propagated", "input_norm": "batch"}),
        ("grand-gat", "citeseer", {"attention_heads": 8}),
    ],
)
def test_a_setting_of_the_preset_can_be_put_back_to_its_default(
    method: str, dataset: str, change: dict[str, Any]
) -> None:
    """Keys at their default are not stored: the preset must not come back in their place."""
    where = somewhere(dataset)
    trial = plan(where, dataset, 0, method, "fast", change, 0)
    assert not set(change) & set(trial.config)
    assert {key: settings_of(trial)[key] for key in change} == change
    if method == "grand":
        assert trial.id != plan(where, dataset, 0, method, "fast", {}, 0).id


def test_what_cannot_be_asked_for_is_an_error_before_a_worker_has_it() -> None:
    where = somewhere("cora")
    with pytest.raises(ConfigError, match="did you mean 'temperature'"):
        plan(where, "cora", 0, "grand", None, {"temprature": 1.0}, 0)
    with pytest.raises(ConfigError, match="did you mean 'grand-gcn'"):
        plan(where, "cora", 0, "grand-gnc", None, {}, 0)


def test_a_published_split_counts_once_and_a_drawn_one_as_often_as_asked() -> None:
    data = Data.load(["cora", "sbm"], range(3))
    assert [key for key in data.splits if key[0] == "cora"] == [("cora", 0)]
    drawn = [data.splits["sbm", seed] for seed in range(3)]
    assert len({split.name for split in drawn}) == 3
    assert len({tuple(split.test) for split in drawn}) == 3


def test_a_file_with_another_split_is_another_trial(tmp_path: Path, community: Graph) -> None:
    """Though its graph and the name of its split are the same; a catalogue's names are unique."""
    split = community.split
    assert split is not None
    moved = Split(split.train, split.test, split.val, split.name)
    ids = []
    for number, chosen in enumerate((split, moved, split)):
        path = str(tmp_path / f"{number}.npz")
        save_graph(community.with_split(chosen), path)
        data = Data.load([path])
        assert data.splits[path, 0].name == split.name
        ids.append(plan(data, path, 0, "grand", None, QUICK, 0).id)
    assert ids[0] == ids[2] != ids[1]


@given(st.data())
def test_confusion_and_reliability_are_those_of_a_loop(data: st.DataObject) -> None:
    classes = data.draw(st.integers(2, 4))
    known = st.integers(0, classes - 1)
    labels = data.draw(st.lists(known | st.none(), min_size=4, max_size=20))
    # Every class has to be there, for a class is what some node is of.
    labels = [*range(classes), *labels]
    nodes = len(labels)
    # Confidences on the very edges between bins too.
    weights = data.draw(
        st.lists(
            st.lists(st.integers(0, 15), min_size=classes, max_size=classes).filter(any),
            min_size=nodes,
            max_size=nodes,
        )
    )
    chances = np.array(weights, dtype=np.float32)
    chances /= chances.sum(axis=1, keepdims=True)
    test = data.draw(st.lists(st.integers(0, nodes - 1), unique=True))
    nobody = np.array([], dtype=int)
    graph = Graph.from_edges(
        [], np.eye(nodes), labels, split=Split(nobody, nobody, np.array(test, dtype=int))
    )

    untrained = make_method("grand", "").method
    confusion = [[0] * classes for _ in range(classes)]
    count, correct = [0] * BINS, [0] * BINS
    confidence: list[list[float]] = [[] for _ in range(BINS)]
    for node in test:
        label = labels[node]
        if label is None:
            continue
        best = 0
        for one in range(classes):
            if chances[node, one] > chances[node, best]:
                best = one
        sure = float(chances[node, best])
        place = min(math.floor(Fraction(sure) * BINS), BINS - 1)
        confusion[label][best] += 1
        count[place] += 1
        confidence[place].append(sure)
        correct[place] += best == label

    judged = measure(Training(graph, untrained, Outcome(), chances))
    if not sum(count):
        assert not {"confusion", "reliability"} & judged.keys()
        assert judged["test_accuracy"] is None
        return
    assert judged["test_accuracy"] == pytest.approx(sum(correct) / sum(count))
    assert judged["confusion"] == confusion
    assert judged["reliability"]["count"] == count
    assert judged["reliability"]["correct"] == correct
    assert judged["reliability"]["confidence"] == pytest.approx([sum(one) for one in confidence])


COLUMNS = "epoch loss supervised consistency val_loss val_accuracy".split()


@given(
    st.lists(
        st.dictionaries(st.sampled_from(COLUMNS), st.floats(width=32, allow_nan=False), min_size=1),
        max_size=12,
    )
)
def test_a_history_comes_back_by_columns(history: list[dict[str, float]]) -> None:
    """To the bit; an epoch that lacks a column has none there."""
    columns = read_history(write_history(history))
    assert set(columns) == {name for line in history for name in line}
    for name, column in columns.items():
        assert len(column) == len(history)
        for line, value in zip(history, column, strict=True):
            assert value == line[name] if name in line else math.isnan(value)


def test_test_labels_play_no_part_in_training(data: Data, threads: None) -> None:
    """Shuffled, they change the test accuracy and nothing that training looks at."""
    graph, split = data.graphs["sbm"], data.splits["sbm", 0]
    labels = graph.labels.copy()
    labels[split.test] = np.random.default_rng(1).permutation(labels[split.test])
    blinded = graph.with_labels(labels, graph.class_names)
    shuffled = Data({"sbm": blinded}, data.splits, data.fingerprints)
    changes = {"order": 2, "hidden": 16, "max_epochs": 150, "patience": 5}
    trial = plan(data, "sbm", 0, "grand", None, changes, 0)
    honest, blind = run_trial(Job(data), trial), run_trial(Job(shuffled), trial)
    assert honest.metrics["test_accuracy"] > 2 * blind.metrics["test_accuracy"]
    assert honest.metrics["epochs"] < 150, "stopping was to have its say"
    for name in ("val_accuracy", "val_loss", "best_epoch", "epochs"):
        assert blind.metrics[name] == honest.metrics[name]
    assert honest.history is not None
    assert blind.history is not None
    expected = read_history(honest.history)
    assert read_history(blind.history).keys() == expected.keys()
    for name, column in read_history(blind.history).items():
        assert np.array_equal(column, expected[name], equal_nan=True), name
