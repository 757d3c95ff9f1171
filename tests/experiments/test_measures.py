"""Measures are asked for by name, stored with trials, and completed where a trial lacks one."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from dropnode import save_graph
from dropnode.engines.base import Failure
from dropnode.errors import ConfigError, GraphError
from dropnode.experiments.exchange import add_missing, export_trials, read_trials
from dropnode.experiments.experiment import reproduce
from dropnode.experiments.run import Job, run_trial
from dropnode.experiments.spec_file import parse_spec
from dropnode.experiments.store import Store
from dropnode.experiments.trials import Finished, Trial
from dropnode.graph import Graph, Split

SPEC = """
title: Small
datasets: [sbm]
seeds: 2
set: {max_epochs: 4, hidden: 8, order: 2}
rows:
  - {method: grand}
"""
Outcomes = Generator[tuple[Trial, Finished | Failure], None, None]


class Counting:
    """An engine that trains in this process, and counts."""

    def __init__(self, **shift: float) -> None:
        self.ran: list[str] = []
        self.shift = shift

    def __call__(self, trials: Sequence[Trial], job: Job) -> Outcomes:
        for trial in trials:
            self.ran.append(trial.id)
            finished = run_trial(job, trial)
            shifted = {name: finished.metrics[name] + by for name, by in self.shift.items()}
            yield trial, replace(finished, metrics=finished.metrics | shifted)


def records(folder: Path) -> list[Any]:
    with Store(folder) as store:
        return list(store.records())


def test_a_measure_is_the_number_of_its_definition(tmp_path: Path, threads: None) -> None:
    asked = "measures: [loss_gap, val_loss_fluctuation, seconds_per_epoch]\n"
    spec = parse_spec("small", SPEC + asked)
    reproduce(spec, tmp_path, Counting())
    with Store(tmp_path) as store:
        for record in store.records():
            history = store.history(record.trial.id)
            assert history is not None
            best = record.metrics["best_epoch"] - 1
            gap = history["val_loss"][best] - history["train_loss"][best]
            assert record.metrics["loss_gap"] == pytest.approx(gap, abs=1e-6)
            steps = [after - before for before, after in pairwise(history["val_loss"])]
            assert record.metrics["val_loss_fluctuation"] == pytest.approx(stdev(steps), abs=1e-6)
            assert record.metrics["seconds_per_epoch"] == pytest.approx(record.seconds / 4)


def test_a_trial_that_lacks_a_measure_is_run_again_and_completed(
    tmp_path: Path, threads: None
) -> None:
    first, second, third = Counting(), Counting(), Counting()
    reproduce(parse_spec("small", SPEC), tmp_path, first)
    before = records(tmp_path)
    asked = parse_spec("small", SPEC + "measures: [loss_gap]\n")
    results = reproduce(asked, tmp_path, second)
    assert sorted(second.ran) == sorted(first.ran)
    after = records(tmp_path)
    assert [record.trial.id for record in after] == [record.trial.id for record in before]
    for old, new in zip(before, after, strict=True):
        assert new.metrics.pop("loss_gap") is not None
        assert (new.metrics, new.seconds, new.finished) == (old.metrics, old.seconds, old.finished)
    assert (results.failed, results.missing) == (0, 0)
    reproduce(asked, tmp_path, third)
    assert third.ran == []


@pytest.mark.parametrize("measure", ["theory_dropnode", "theorem1_error_dropnode"])
def test_a_trial_without_a_value_of_a_measure_is_not_run_again(
    tmp_path: Path, threads: None, measure: str
) -> None:
    """Label propagation trains nothing that the theorems are about, so it has no curves of them."""
    text = f"title: t\ndatasets: [sbm]\nseeds: 1\nmeasures: [{measure}]\n"
    spec = parse_spec("small", text + "rows: [{method: label-propagation}]\n")
    for expected in (1, 0):
        counting = Counting()
        done = reproduce(spec, tmp_path, counting)
        assert len(counting.ran) == expected
        assert (done.failed, done.missing) == (0, 0)
    (record,) = records(tmp_path)
    assert record.metrics[measure] is None
    assert read_trials(tmp_path / "trials.csv.gz")[record.trial.id].metrics == record.metrics


def test_a_trial_that_gives_other_numbers_stays_as_it_was(tmp_path: Path, threads: None) -> None:
    reproduce(parse_spec("small", SPEC), tmp_path, Counting())
    before = records(tmp_path)
    asked = parse_spec("small", SPEC + "measures: [loss_gap]\n")
    told: list[Any] = []

    class Listener:
        def on_plan(self, cells: Any, ended: Any) -> None:
            pass

        def on_end(self, record: Any) -> None:
            told.append(record)

    results = reproduce(asked, tmp_path, Counting(val_loss=0.01), observers=[Listener()])
    assert records(tmp_path) == before
    assert (results.failed, results.missing) == (2, 0)
    assert results.not_completed == tuple(told)
    assert [record.status for record in told] == ["failed", "failed"]
    assert "gave val_loss =" in told[0].error
    assert "new folder" in told[0].error


def test_a_second_run_that_fails_leaves_the_first_and_is_reported(
    tmp_path: Path, threads: None
) -> None:
    def fails(trials: Sequence[Trial], job: Job) -> Outcomes:
        for trial in trials:
            yield trial, Failure("no memory") if trial.seed else run_trial(job, trial)

    reproduce(parse_spec("small", SPEC), tmp_path, Counting())
    first, second = records(tmp_path)
    asked = parse_spec("small", SPEC + "measures: [loss_gap]\n")
    results = reproduce(asked, tmp_path, fails)
    assert (results.failed, results.missing) == (1, 0)
    assert [(one.trial.seed, one.error) for one in results.not_completed] == [(1, "no memory")]
    assert records(tmp_path)[1] == second
    again = Counting()
    mended = reproduce(asked, tmp_path, again)
    assert again.ran == [second.trial.id]
    assert (mended.failed, mended.missing, mended.not_completed) == (0, 0, ())
    assert first.trial.seed == 0


@pytest.mark.parametrize("ending", ["csv", "json", "parquet"])
def test_measures_travel_with_trials(tmp_path: Path, threads: None, ending: str) -> None:
    asked = parse_spec("small", SPEC + "measures: [loss_gap]\n")
    reproduce(asked, tmp_path / "a", Counting())
    file = tmp_path / f"trials.{ending}"
    export_trials(records(tmp_path / "a"), file)
    with Store(tmp_path / "b") as store:
        assert add_missing(store, read_trials(file)) == 2
    assert records(tmp_path / "b") == records(tmp_path / "a")


def test_an_unknown_measure_is_an_error_before_anything_is_run() -> None:
    with pytest.raises(ConfigError, match="did you mean 'loss_gap'"):
        parse_spec("small", SPEC + "measures: [los_gap]\n")


def test_a_measure_that_is_named_twice_is_an_error() -> None:
    with pytest.raises(ConfigError, match="'loss_gap' is named twice"):
        parse_spec("small", SPEC + "measures: [loss_gap, val_loss, loss_gap]\n")


def test_a_standard_measure_that_is_named_is_shown_and_costs_nothing(
    tmp_path: Path, threads: None
) -> None:
    first, second = Counting(), Counting()
    reproduce(parse_spec("small", SPEC), tmp_path, first)
    # What has no value is not stored; that must not make a trial run again and again.
    with Store(tmp_path) as store:
        for record in store.records():
            metrics = {k: v for k, v in record.metrics.items() if k != "confusion"}
            store.complete(replace(record, metrics=metrics))
    named = parse_spec("small", SPEC + "measures: [val_loss, confusion, val_accuracy]\n")
    results = reproduce(named, tmp_path, second).results
    assert second.ran == []
    (row,) = results.rows
    stored = [record.metrics for record in records(tmp_path)]
    assert set(row.measures) == {"val_loss", "val_accuracy"}
    assert row.measures["val_loss"].mean == pytest.approx(fmean(one["val_loss"] for one in stored))
    mean = fmean(100 * one["val_accuracy"] for one in stored)
    assert row.measures["val_accuracy"].mean == pytest.approx(mean)
    assert "## validation accuracy (%)" in (tmp_path / "results.md").read_text(encoding="utf-8")
    assert "validation loss" in (tmp_path / "report.html").read_text(encoding="utf-8")
    heads = (tmp_path / "results.csv").read_text(encoding="utf-8").splitlines()[0].split(",")
    assert heads[-4:] == ["val_loss", "val_loss_std", "val_accuracy", "val_accuracy_std"]


def test_a_plot_may_draw_a_standard_measure(tmp_path: Path, threads: None) -> None:
    text = SPEC.replace("{method: grand}", "{method: grand, vary: {order: [1, 2]}}")
    text += "plots: [{title: Loss, x: hops, measures: [val_loss, test_accuracy]}]\n"
    results = reproduce(parse_spec("small", text), tmp_path, Counting()).results
    assert [set(row.measures) for row in results.rows] == [{"val_loss"}] * 2
    assert (tmp_path / "figures" / "sbm-loss.svg").exists()


CHOOSE = """
title: Small
datasets: [sbm]
seeds: 2
set: {max_epochs: 6, hidden: 8}
rows:
  - {method: grand, choose: {order: [0, 3], hidden: [4, 8]}}
  - {method: mlp, set: {max_epochs: 2}}
"""


def test_a_setting_left_to_validation_is_the_one_that_validates_best(
    tmp_path: Path, threads: None
) -> None:
    engine = Counting()
    results = reproduce(parse_spec("small", CHOOSE), tmp_path, engine)
    assert len(engine.ran) == 2 * 4 + 2
    means: dict[tuple[int, int], list[float]] = {}
    for record in records(tmp_path):
        if record.trial.method == "grand":
            config = record.trial.config
            key = config["order"], config["hidden"]
            means.setdefault(key, []).append(record.metrics["val_accuracy"])
    best = max(means, key=lambda key: sum(means[key]))
    row, _ = results.results.rows
    assert (row.config["order"], row.config["hidden"]) == best
    assert row.accuracy.n == 2
    assert [row.method for row in results.results.rows] == ["grand", "mlp"]


@pytest.mark.parametrize(
    "rows",
    [
        "rows: [{method: label-propagation, choose: {steps: [1, 2]}}]",
        "search: {method: label-propagation, stages: [{steps: [1, 2]}, {share: [0.5, 0.9]}]}",
    ],
)
def test_without_validation_nodes_nothing_is_left_to_validation(
    tmp_path: Path, community: Graph, rows: str
) -> None:
    save_graph(community.with_split(Split([0, 1, 2], [], [5, 6])), tmp_path / "bare.npz")
    spec = parse_spec("bare", f"title: t\ndatasets: [{tmp_path}/bare.npz]\nseeds: 1\n{rows}\n")
    engine = Counting()
    with pytest.raises(GraphError, match="no validation nodes, which a search needs to compare"):
        reproduce(spec, tmp_path / "out", engine)
    assert not engine.ran
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_chosen_from_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"order is \[\]"):
        parse_spec("small", CHOOSE.replace("[0, 3]", "[]"))
    with pytest.raises(ConfigError, match="did you mean 'order'"):
        parse_spec("small", CHOOSE.replace("order:", "ordre:"))
    with pytest.raises(ConfigError, match="at least 0"):
        parse_spec("small", CHOOSE.replace("[0, 3]", "[0, -3]"))
