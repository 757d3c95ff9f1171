"""The folder of a run: what is damaged is said, and nothing is ever replaced by less."""

from __future__ import annotations

import filecmp
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import damage
from dropnode.csv_text import csv_rows
from dropnode.data import load_dataset, save_graph
from dropnode.errors import ConfigError, WorkError
from dropnode.experiments.run import Request, run
from dropnode.files import unseal, write_bytes
from dropnode.graph import Graph, Split
from dropnode.saving import load_model
from dropnode.training import Outcome, Phase

SETTINGS = {"max_epochs": 8, "patience": 8, "hidden": 4, "order": 1, "augmentations": 1}
ARTIFACTS = [
    "history.csv",
    "predictions.csv",
    "model/weights.safetensors",
    "model/graph.safetensors",
]


@pytest.fixture(autouse=True)
def quick_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a figure without drawing it, which takes most of a second."""
    monkeypatch.setattr(
        "dropnode.experiments.curves.save_curves",
        lambda path, outcome, title: write_bytes(path, title.encode()),
    )


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("graph") / "small.npz"
    save_graph(load_dataset("sbm", nodes=200, classes=4), path)
    return str(path)


@pytest.fixture(scope="module")
def reference(small: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("reference") / "run"
    run(request(small), out=out)
    return out


def request(graph: str, **changes: Any) -> Request:
    return Request(graph, changes=SETTINGS | changes)


def assert_same_bits(out: Path, reference: Path) -> None:
    for name in ARTIFACTS:
        assert filecmp.cmp(out / name, reference / name, shallow=False), f"{name} differs"
    assert not list(out.rglob(".dropnode-*"))


class At:
    """Acts once, when an epoch is over."""

    def __init__(self, epoch: int, act: Callable[[], object]) -> None:
        self.epoch, self.act = epoch, act

    def on_epoch(self, phase: Phase, outcome: Outcome) -> None:
        if outcome.epochs == self.epoch:
            self.act()


def ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_before_the_first_checkpoint_can_be_gone_on_from(
    small: str, tmp_path: Path, reference: Path
) -> None:
    out, epochs = tmp_path / "run", []
    result = run(request(small), out=out, callbacks=[At(3, ctrl_c)], checkpoint_every=3600)
    assert (result.interrupted, result.epochs) == (True, 3)
    assert load_model(out / "model").extra["best_epoch"] == result.best_epoch

    class Counts:
        def on_epoch(self, phase: Phase, outcome: Outcome) -> None:
            epochs.append(outcome.epochs)

    resumed = run(request(small), out=out, resume=True, callbacks=[Counts()])
    assert not resumed.interrupted
    assert epochs == [4, 5, 6, 7, 8], "it did not go on where it was"
    assert_same_bits(out, reference)


def test_a_second_ctrl_c_does_not_wait(small: str, tmp_path: Path) -> None:
    def twice() -> None:
        ctrl_c()
        ctrl_c()

    out = tmp_path / "run"
    result = run(request(small), out=out, callbacks=[At(2, twice)], checkpoint_every=3600)
    assert (result.interrupted, result.epochs) == (True, 2)
    assert not (out / "checkpoint.safetensors").exists()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_earlier_interruption_does_not_replace_a_later_one(
    small: str, tmp_path: Path, reference: Path
) -> None:
    out = tmp_path / "run"
    first = run(request(small), out=out, callbacks=[At(6, ctrl_c)], checkpoint_every=3600)
    (out / "checkpoint.safetensors").unlink()
    model = (out / "model" / "weights.safetensors").read_bytes()
    again = run(request(small), out=out, resume=True, callbacks=[At(2, ctrl_c)])
    assert again == first
    assert (out / "model" / "weights.safetensors").read_bytes() == model
    run(request(small), out=out, resume=True)
    assert_same_bits(out, reference)


@pytest.mark.parametrize("checkpoint_every", [0.0, 3600.0])
def test_a_folder_that_is_deleted_under_a_run_is_an_error(
    small: str, tmp_path: Path, checkpoint_every: float
) -> None:
    out = tmp_path / "run"
    with pytest.raises(WorkError, match="was deleted while the run was writing to it"):
        run(
            request(small),
            out=out,
            callbacks=[At(2, lambda: shutil.rmtree(out))],
            checkpoint_every=checkpoint_every,
        )
    assert not out.exists()


def test_a_folder_that_is_deleted_under_a_method_without_epochs_is_an_error(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, real = tmp_path / "run", Graph.check_trainable

    def deletes(graph: Graph, split: Split | None) -> None:
        shutil.rmtree(out)
        real(graph, split)

    monkeypatch.setattr(Graph, "check_trainable", deletes)
    with pytest.raises(WorkError, match="was deleted while the run was writing to it"):
        run(Request(small, "label-propagation"), out=out)
    assert list(out.iterdir()) == []


def test_the_folder_of_something_else_is_refused_before_anything_in_it_changes(
    small: str, tmp_path: Path
) -> None:
    names = ["thesis.tex", ".dropnode-4711-0a1b2c3d.tmp", ".draft.tmp"]
    for name in names:
        (tmp_path / name).write_text("precious")
    for resume in (False, True):
        with pytest.raises(ConfigError, match="is not the folder of a run"):
            run(request(small), out=tmp_path, resume=resume)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


def test_a_run_is_not_resumed_by_another_number_of_workers(small: str, tmp_path: Path) -> None:
    """Its sums would be rounded in another way."""
    out = tmp_path / "run"
    run(Request(small, "label-propagation"), out=out)
    with pytest.raises(ConfigError, match=r"another workers \(1 there, 2 requested\)"):
        run(Request(small, "label-propagation", workers=2), out=out, resume=True)


def test_a_run_can_be_resumed_after_an_upgrade(
    small: str, tmp_path: Path, reference: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("dropnode.experiments.run.versions", lambda: {"torch": "an earlier one"})
        before = run(request(small), out=out, callbacks=[At(3, ctrl_c)])
    assert before.interrupted
    assert not run(request(small), out=out, resume=True).interrupted
    assert_same_bits(out, reference)


BROKEN = ["", "[]", "null", "3", "{}", "{", "[" * 100_000, '{"id": 1, "id": 2}', "NaN"]


@pytest.mark.parametrize("name", ["run.json", "result.json"])
def test_a_damaged_record_is_named(small: str, tmp_path: Path, reference: Path, name: str) -> None:
    out = tmp_path / "run"
    shutil.copytree(reference, out)
    sound = json.loads((out / name).read_text())
    plain = {key: value for key, value in sound.items() if key != "sha256"}
    broken = [*BROKEN, json.dumps(sound | {"seed": 1}), json.dumps(plain | {"sed": 1})]
    broken += [json.dumps(plain | {key: {"odd": []}}) for key in ("seed", "dataset", "versions")]
    # Records without workers are those of a single process, from before there were several.
    needed = plain.keys() - {"workers"}
    broken += [json.dumps({k: v for k, v in plain.items() if k != key}) for key in needed]
    for text in broken:
        (out / name).write_text(text)
        cure = "choose another folder" if name == "run.json" else "delete it and run"
        with pytest.raises(ConfigError, match=rf"{name}.*; {cure}"):
            run(request(small), out=out, resume=True)
    if name == "result.json":
        (out / name).unlink()
        run(request(small), out=out, resume=True)
        assert_same_bits(out, reference)
        again = unseal(json.loads((out / name).read_text()))
        assert (again["test_accuracy"], again["epochs"]) == (plain["test_accuracy"], 8)


@pytest.mark.parametrize("name", ["run.json", "result.json"])
@pytest.mark.parametrize("flips", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_a_flipped_bit_in_a_record_is_noticed_or_harmless(
    small: str, tmp_path: Path, reference: Path, name: str, flips: int
) -> None:
    out = tmp_path / "run"
    shutil.copytree(reference, out)
    expected = run(request(small), out=out, resume=True)
    for seed in range(flips):
        with damage.restored(out / name):
            told = damage.flip_bit(out / name, seed)
            found = []
            error = damage.error_of(
                lambda: found.append(run(request(small), out=out, resume=True)),  # noqa: B023
                ConfigError,
            )
            assert found == [expected] or (error is not None and name in error), told


def test_a_full_disk_at_every_write_loses_nothing(
    small: str, tmp_path: Path, reference: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        disk = damage.FullDisk(patch, fatal=10**6)
        run(request(small), out=tmp_path / "whole", checkpoint_every=0.0)
    assert disk.writes == 1 + 8 + 2 + 3 + 1 + 1, "a kind of file is new, or is not counted"
    for fatal in range(1, disk.writes + 1):
        out = tmp_path / str(fatal)
        with monkeypatch.context() as patch:
            damage.FullDisk(patch, fatal)
            with pytest.raises(OSError, match="No space left on device") as told:
                run(request(small), out=out, checkpoint_every=0.0)
        assert str(out) in str(told.value), "the file is not named"
        assert not list(out.rglob(".dropnode-*"))
        run(request(small), out=out, resume=True)
        assert_same_bits(out, reference)


def test_a_full_disk_does_not_cost_the_model_of_an_interrupted_run(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted = tmp_path / "run"
    run(request(small), out=interrupted, callbacks=[At(2, ctrl_c)])
    for fatal in range(1, 20):
        out = tmp_path / str(fatal)
        shutil.copytree(interrupted, out)
        with monkeypatch.context() as patch:
            damage.FullDisk(patch, fatal)
            error = damage.error_of(
                lambda: run(request(small), out=out, resume=True, callbacks=[At(4, ctrl_c)]),  # noqa: B023
                OSError,
            )
        # The old one or the new one, never none.
        epochs = len(load_model(out / "model").extra["history"])
        assert epochs == 4 if error is None else epochs in (2, 4)
        if error is None:
            break
    else:
        pytest.fail("it never came to an end")


def test_formulas_in_ids_and_classes_are_neutral_and_come_back(tmp_path: Path) -> None:
    graph = load_dataset("sbm", nodes=200, classes=4)
    names = ("=1+1", "-2", "@sum(a1)", "'=x")
    ids = [f"={number}" for number in range(200)]
    odd = Graph.from_scipy(
        graph.adjacency,
        graph.features,
        graph.labels,
        ids=ids,
        class_names=names,
        split=Split(graph.split.train, graph.split.val, graph.split.test),
    )
    save_graph(odd, tmp_path / "odd.npz")
    run(request(str(tmp_path / "odd.npz")), out=tmp_path / "run")
    text = (tmp_path / "run" / "predictions.csv").read_text()
    lines = text.splitlines()[1:]
    assert all(line.startswith("'=") for line in lines)
    assert {line.split(",")[2] for line in lines} == {"'=1+1", "'-2", "'@sum(a1)", "''=x"}
    rows = [row for _, row in csv_rows(text)]
    assert [row["id"] for row in rows] == ids
    assert [row["label"] for row in rows] == [names[label] for label in graph.labels]
