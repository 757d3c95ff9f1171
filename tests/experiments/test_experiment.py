"""An experiment in a folder: every trial once, whatever happens to whoever drives it."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

import damage
from dropnode.engines.base import Failure
from dropnode.errors import ConfigError, DataError, StoreError, WorkError
from dropnode.experiments import experiment
from dropnode.experiments.exchange import export_trials
from dropnode.experiments.experiment import EXPORT, Part, report
from dropnode.experiments.record import Record
from dropnode.experiments.results import read_results
from dropnode.experiments.run import Job, Request, run, run_trial
from dropnode.experiments.runner import Cell
from dropnode.experiments.spec import Spec
from dropnode.experiments.spec_file import parse_spec
from dropnode.experiments.store import FILE, Store
from dropnode.experiments.trials import Finished, Trial, now
from dropnode.locks import FolderLock

ROWS = """
title: Two tiny rows
datasets: [sbm]
seeds: 3
set: {max_epochs: 5, hidden: 8, order: 2}
reference: grand
rows:
  - {method: grand, label: GRAND, paper: {sbm: [40.0, 1.0]}}
  - {method: grand-no-cr}
claims:
  - {claim: consistency helps, better: grand, than: grand-no-cr}
"""
SEARCH = """
title: Two stages
datasets: [sbm, digits]
seeds: 2
search:
  method: grand
  stages:
    - {order: [1, 2, 3]}
    - {augmentations: [1, 2], temperature: [0.2, 1.0]}
"""

LINUX = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="which processes live is read from /proc"
)

FORKS = pytest.mark.skipif(
    not hasattr(os, "fork"), reason="processes to kill are forked, so that they start at once"
)


@pytest.fixture(autouse=True)
def no_page(monkeypatch: pytest.MonkeyPatch, threads: None) -> None:
    """Draw no report: it takes a second each time, and has tests of its own."""
    monkeypatch.setattr(experiment, "write_report", lambda folder: folder / "report.html")


Outcomes = Generator[tuple[Trial, Finished | Failure], None, None]


class Engine:
    """Answers trials with invented numbers, in this process, and keeps what it was asked.

    Parameters
    ----------
    score : callable
        Test and validation accuracy of a trial, or None for a failure.
    presses : int, optional
        After so many trials, Ctrl-C.
    pause : float
        Seconds that a trial takes.
    """

    def __init__(
        self,
        score: Callable[[Trial], tuple[float, float] | None] = lambda trial: (0.5, 0.5),
        presses: int | None = None,
        pause: float = 0.0,
    ) -> None:
        self.score, self.presses, self.pause = score, presses, pause
        self.asked: list[Trial] = []

    def __call__(self, trials: Sequence[Trial], job: Job) -> Outcomes:
        for trial in trials:
            if len(self.asked) == self.presses:
                raise KeyboardInterrupt
            self.asked.append(trial)
            scores = self.score(trial)
            time.sleep(self.pause)
            yield trial, Failure("it was ended") if scores is None else invent(*scores)


def invent(test: float, val: float) -> Finished:
    metrics = {
        "test_accuracy": test,
        "val_accuracy": val,
        "val_loss": 1.0,
        "best_epoch": 3,
        "epochs": 5,
    }
    return Finished(metrics, 0.5, now(), {"grand": "1"})


def by_its_id(trial: Trial) -> tuple[float, float]:
    """Return numbers that only this trial has."""
    return int(trial.id[:8], 16) / 2**32, int(trial.id[8:], 16) / 2**32


def in_this_process(trials: Sequence[Trial], job: Job) -> Outcomes:
    """Really train, but without the seconds that a worker takes to start."""
    for trial in trials:
        yield trial, run_trial(job, trial)


def idle(trials: Sequence[Trial], job: Job) -> Outcomes:
    """Run what cannot have been asked for."""
    yield from ()
    assert not trials, f"{len(trials)} trials were run again"


def spec(text: str = ROWS, **changes: Any) -> Spec:
    return replace(parse_spec("tiny", text), **changes)


def reproduce(*arguments: Any, **options: Any) -> dict[str, Any]:
    """Return what ``dropnode reproduce --json`` prints."""
    return experiment.reproduce(*arguments, **options).as_json()


def exported(out: Path) -> list[str]:
    """Return the lines of a folder's exported trials."""
    with gzip.open(out / EXPORT, "rt", encoding="utf-8") as file:
        return file.read().splitlines()


def seeds_of(asked: Sequence[Trial]) -> list[tuple[str, int]]:
    return [(trial.method, trial.seed) for trial in asked]


def stored(out: Path) -> dict[str, Record]:
    with Store(out) as store:
        return {record.trial.id: record for record in store.records()}


def row(results: dict[str, Any], method: str) -> dict[str, Any]:
    [found] = [row for row in results["rows"] if row["method"] == method]
    return found


def test_all_is_run_and_summed_up_right(tmp_path: Path) -> None:
    results = reproduce(spec(), tmp_path, in_this_process, command="dropnode reproduce tiny.yaml")
    assert [results.pop(key) for key in ("interrupted", "failed", "missing")] == [False, 0, 0]
    assert json.loads((tmp_path / "results.json").read_text()) == results
    assert results["command"] == "dropnode reproduce tiny.yaml"
    changes = {"max_epochs": 5, "hidden": 8, "order": 2}
    means = {}
    for method in ("grand", "grand-no-cr"):
        alone = [run(Request("sbm", method, seed=seed, changes=changes)) for seed in range(3)]
        scores = [100 * one.test_accuracy for one in alone]
        means[method] = fmean(scores)
        found = row(results, method)
        assert found["mean"] == pytest.approx(fmean(scores))
        assert found["std"] == pytest.approx(stdev(scores))
        assert (found["n"], found["asked"], found["failed"]) == (3, 3, 0)
        assert {found["config"][key] for key in changes} == set(changes.values())
        assert found["preset"] == "default"
    assert row(results, "grand")["label"] == "GRAND"
    assert row(results, "grand")["difference"] == pytest.approx(means["grand"] - 40.0)
    assert row(results, "grand-no-cr")["difference"] is None
    [claim] = results["claims"]
    assert claim["difference"] == pytest.approx(means["grand"] - means["grand-no-cr"])
    assert claim["verdict"] == "too few seeds"
    [dataset] = results["datasets"]
    assert (dataset["name"], dataset["nodes"], dataset["classes"]) == ("sbm", 1000, 5)
    records = stored(tmp_path)
    assert {one for found in results["rows"] for one in found["trials"]} == set(records)
    with Store(tmp_path) as store:
        for identifier in records:
            history = store.history(identifier)
            assert history is not None
            assert history["epoch"].tolist() == [1, 2, 3, 4, 5]


def test_a_second_call_runs_nothing_and_says_the_same(tmp_path: Path) -> None:
    first = reproduce(spec(), tmp_path, Engine(lambda trial: (trial.seed / 10, 0.5)))
    before = stored(tmp_path)
    second = reproduce(spec(), tmp_path, idle)
    assert second | {"finished": None} == first | {"finished": None}
    assert stored(tmp_path) == before


def test_the_first_seed_of_every_row_comes_before_the_second_of_any(tmp_path: Path) -> None:
    engine = Engine()
    reproduce(spec(), tmp_path, engine)
    assert [trial.seed for trial in engine.asked] == [0, 0, 1, 1, 2, 2]


def test_rows_of_the_same_trials_share_them(tmp_path: Path) -> None:
    text = ROWS + "  - {claim: a name matters, better: twin, than: grand}\n"
    text = text.replace("claims:", "  - {method: grand, name: twin}\nclaims:")
    engine = Engine()
    results = reproduce(spec(text), tmp_path, engine)
    assert len(engine.asked) == len({trial.id for trial in engine.asked}) == 6
    assert row(results, "twin")["trials"] == row(results, "grand")["trials"]
    assert row(results, "twin")["n"] == 3


def test_every_split_has_all_seeds(tmp_path: Path) -> None:
    engine = Engine()
    results = reproduce(spec(splits=2), tmp_path, engine)
    assert len({trial.id for trial in engine.asked}) == 12
    assert {trial.split_seed for trial in engine.asked} == {0, 1}
    assert [found["n"] for found in results["rows"]] == [6, 6]


def unless_seed_1(trial: Trial) -> tuple[float, float] | None:
    return None if trial.seed == 1 else (0.5, 0.5)


def test_a_failed_trial_is_recorded_and_retried_only_when_asked(tmp_path: Path) -> None:
    results = reproduce(spec(), tmp_path, Engine(unless_seed_1))
    assert [(found["n"], found["failed"]) for found in results["rows"]] == [(2, 1), (2, 1)]
    assert (results["failed"], results["missing"]) == (2, 0)
    errors = [one.error for one in stored(tmp_path).values() if one.status == "failed"]
    assert errors == ["it was ended"] * 2
    again = reproduce(spec(), tmp_path, idle)
    assert again["rows"] == results["rows"]
    engine = Engine()
    mended = reproduce(spec(), tmp_path, engine, retry=True)
    assert seeds_of(engine.asked) == [("grand", 1), ("grand-no-cr", 1)]
    assert [(found["n"], found["failed"]) for found in mended["rows"]] == [(3, 0), (3, 0)]
    reproduce(spec(), tmp_path, idle, retry=True)


def test_more_seeds_and_other_rows_later_cost_only_themselves(tmp_path: Path) -> None:
    first, second, third = Engine(), Engine(), Engine()
    reproduce(spec(), tmp_path, first, part=Part(methods=("grand",), seeds=2))
    assert seeds_of(first.asked) == [("grand", 0), ("grand", 1)]
    results = reproduce(spec(), tmp_path, second, part=Part(seeds=4))
    new = [("grand-no-cr", seed) for seed in range(4)] + [("grand", 2), ("grand", 3)]
    assert sorted(seeds_of(second.asked)) == sorted(new)
    assert [found["n"] for found in results["rows"]] == [4, 4]
    fewer = reproduce(spec(), tmp_path, third, part=Part(seeds=1))
    assert third.asked == []
    assert [found["n"] for found in fewer["rows"]] == [1, 1]


def test_another_setting_is_another_trial(tmp_path: Path) -> None:
    reproduce(spec(), tmp_path, Engine())
    engine = Engine()
    results = reproduce(spec(ROWS.replace("hidden: 8", "hidden: 9")), tmp_path, engine)
    assert len(engine.asked) == 6
    assert [found["asked"] for found in results["rows"]] == [3, 3]
    assert len(stored(tmp_path)) == 12


@pytest.mark.parametrize("name", ["trials.csv.gz", "trials.csv"])
def test_exported_trials_are_continued_from(tmp_path: Path, name: str) -> None:
    """A cloned folder has exported trials and no store; older ones are not compressed."""
    there, here = tmp_path / "there", tmp_path / "here"
    begun = reproduce(spec(), there, Engine(lambda trial: (trial.seed / 8, 0.5), presses=4))
    assert begun["interrupted"] is True
    here.mkdir()
    with Store(there) as store:
        export_trials(store.records(), here / name)
    engine = Engine()
    results = reproduce(spec(), here, engine)
    assert seeds_of(engine.asked) == [("grand", 2), ("grand-no-cr", 2)]
    assert row(results, "grand")["mean"] == pytest.approx(100 * (0 + 0.125 + 0.5) / 3)
    assert len(exported(here)) == 1 + 6
    taken = stored(there)
    assert {key: record for key, record in stored(here).items() if key in taken} == taken


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda text: text.replace(b',"grand",', b',"grnad",', 1),
            "trial 1 .* the id is .*nothing",
        ),
        (lambda text: text[: len(text) // 2], "its last line is not complete"),
    ],
    ids=["an altered trial", "half a file"],
)
def test_damaged_exported_trials_are_an_error_before_anything_is_run(
    tmp_path: Path, damage: Callable[[bytes], bytes], message: str
) -> None:
    reproduce(spec(), tmp_path / "there", Engine())
    here = tmp_path / "here"
    here.mkdir()
    content = gzip.decompress((tmp_path / "there" / EXPORT).read_bytes())
    (here / EXPORT).write_bytes(gzip.compress(damage(content)))
    with pytest.raises(ConfigError, match=rf"trials\.csv\.gz.*{message}"):
        reproduce(spec(), here, idle)
    assert stored(here) == {}


@pytest.mark.parametrize(
    "content", [b"not compressed\n", b"", gzip.compress(b"id\n" * 999, mtime=0)[:-20]]
)
def test_a_damaged_compressed_file_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / EXPORT).write_bytes(content)
    with pytest.raises(ConfigError, match=r"trials\.csv\.gz cannot be read \("):
        reproduce(spec(), tmp_path, idle)


def test_the_same_trials_are_exported_to_the_same_bytes(tmp_path: Path) -> None:
    reproduce(spec(), tmp_path, in_this_process)
    before = (tmp_path / EXPORT).read_bytes()
    (tmp_path / EXPORT).unlink()
    reproduce(spec(), tmp_path, idle)
    assert (tmp_path / EXPORT).read_bytes() == before
    assert before[4:8] == bytes(4), "the time of writing is part of the file"


def test_report_works_from_exported_trials_alone(tmp_path: Path) -> None:
    """In a clone of the repository there is no store; the results must not be lost."""
    there, here = tmp_path / "there", tmp_path / "here"
    results = reproduce(spec(), there, Engine(lambda trial: (trial.seed / 8, 0.5)))
    here.mkdir()
    for name in (EXPORT, "experiment.json"):
        shutil.copy(there / name, here)
    report(here)
    assert json.loads((here / "results.json").read_text())["rows"] == results["rows"]


@pytest.mark.parametrize(
    "told",
    ["10 %\r20 %\rno memory", "no memory" + 200_000 * " !", "no memory for \udcff"],
    ids=["carriage returns", "very long", "undecodable bytes"],
)
def test_what_an_error_says_does_not_lock_the_folder(tmp_path: Path, told: str) -> None:
    """Progress bars, tensors that were printed, and names of files get into errors."""

    def fail(trials: Sequence[Trial], job: Job) -> Outcomes:
        for trial in trials:
            yield trial, Failure(told)

    reproduce(spec(), tmp_path, fail)
    reproduce(spec(), tmp_path, idle)
    errors = [record.error for record in stored(tmp_path).values()]
    assert len(errors) == 6
    assert all("no memory" in error for error in errors if error is not None)


def test_ctrl_c_sums_up_what_is_done_and_the_same_call_goes_on(tmp_path: Path) -> None:
    results = reproduce(spec(), tmp_path, Engine(presses=3))
    assert (results["interrupted"], results["failed"], results["missing"]) == (True, 0, 3)
    assert [(found["n"], found["asked"]) for found in results["rows"]] == [(2, 3), (1, 3)]
    assert json.loads((tmp_path / "results.json").read_text())["rows"] == results["rows"]
    assert len(exported(tmp_path)) == 1 + 3
    engine = Engine()
    whole = reproduce(spec(), tmp_path, engine)
    assert len(engine.asked) == 3
    assert whole["interrupted"] is False
    assert [found["n"] for found in whole["rows"]] == [3, 3]


def test_an_engine_that_breaks_keeps_what_is_done(tmp_path: Path) -> None:
    def breaks(trials: Sequence[Trial], job: Job) -> Outcomes:
        yield trials[0], invent(0.5, 0.5)
        raise RuntimeError("the cluster is gone")

    with pytest.raises(RuntimeError, match="the cluster is gone"):
        reproduce(spec(), tmp_path, breaks)
    assert len(stored(tmp_path)) == 1
    assert len(exported(tmp_path)) == 1 + 1
    engine = Engine()
    reproduce(spec(), tmp_path, engine)
    assert len(engine.asked) == 5


def starve(out: Path, seeds: int) -> str:
    """Return the error of an experiment whose files cannot grow beyond a size."""
    import resource  # which only systems that fork have

    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, most))
    try:
        reproduce(spec(), out, Engine(by_its_id), part=Part(seeds=seeds))
    except (OSError, RuntimeError) as error:
        return str(error)
    return "no error"


@FORKS
def test_a_full_disk_is_told_and_what_is_done_is_gone_on_from(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        error = pool.submit(starve, tmp_path, 20).result(timeout=60)
    assert str(tmp_path) in error
    assert "disk" in error
    assert "\n" not in error
    before, engine = stored(tmp_path), Engine(by_its_id)
    assert 5 < len(before) < 40
    results = reproduce(spec(), tmp_path, engine, part=Part(seeds=20))
    assert len(engine.asked) == 40 - len(before)
    assert before.keys().isdisjoint(trial.id for trial in engine.asked)
    assert [found["n"] for found in results["rows"]] == [20, 20]


def test_a_full_disk_at_every_write_loses_no_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all files but the store, whose full disk is above."""
    with monkeypatch.context() as patch:
        disk = damage.FullDisk(patch, fatal=10**6)
        expected = reproduce(spec(), tmp_path / "whole", Engine(by_its_id))
    assert disk.writes == 6, "a kind of file is new, or is not counted"
    for fatal in range(1, disk.writes + 1):
        out, engine = tmp_path / str(fatal), Engine(by_its_id)
        with monkeypatch.context() as patch:
            damage.FullDisk(patch, fatal)
            with pytest.raises(OSError, match="No space left on device") as told:
                reproduce(spec(), out, engine)
        assert str(out) in str(told.value), "the file is not named"
        assert len(stored(out)) == len(engine.asked)
        resumed = reproduce(spec(), out, idle if engine.asked else Engine(by_its_id))
        assert resumed["rows"] == expected["rows"]


def test_a_second_driver_is_refused_and_the_first_not_disturbed(tmp_path: Path) -> None:
    def tries_again(trials: Sequence[Trial], job: Job) -> Outcomes:
        with pytest.raises(ConfigError, match="another process is writing"):
            reproduce(spec(), tmp_path, idle)
        for trial in trials:
            yield trial, invent(0.5, 0.5)

    results = reproduce(spec(), tmp_path, tries_again)
    assert [found["n"] for found in results["rows"]] == [3, 3]
    with FolderLock(tmp_path):
        pass


def test_what_a_killed_writer_left_half_written_is_cleared_up(tmp_path: Path) -> None:
    reproduce(spec(), tmp_path, Engine())
    leftover = tmp_path / ".dropnode-4711-0a1b2c3d.tmp"
    leftover.write_text('{"rows": [')
    others = [tmp_path / name for name in (".notes.tmp", ".dropnode-draft.tmp", "a.tmp")]
    for other in others:
        other.write_text("precious")
    reproduce(spec(), tmp_path, idle)
    assert not leftover.exists()
    assert [other.read_text() for other in others] == ["precious"] * 3


def test_the_folder_of_something_else_is_refused_before_anything_in_it_changes(
    tmp_path: Path,
) -> None:
    """Not even a file that could be one of ours is removed."""
    names = ["thesis.tex", ".dropnode-4711-0a1b2c3d.tmp", ".draft.tmp"]
    for name in names:
        (tmp_path / name).write_text("precious")
    with pytest.raises(ConfigError, match="is not the folder of an experiment"):
        reproduce(spec(), tmp_path, idle)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


def test_another_experiment_in_a_used_folder_is_refused(tmp_path: Path) -> None:
    before = reproduce(spec(), tmp_path, Engine())
    with pytest.raises(ConfigError, match=r"has the experiment 'tiny'; .* 'other' with --out"):
        reproduce(spec(name="other"), tmp_path, idle)
    assert json.loads((tmp_path / "results.json").read_text())["rows"] == before["rows"]


@pytest.mark.parametrize("emptied", ["deleted", "no bytes", "no rows"])
def test_report_imports_what_the_store_has_lost(tmp_path: Path, emptied: str) -> None:
    results = reproduce(spec(), tmp_path, Engine(by_its_id))
    path = tmp_path / FILE
    if emptied == "no rows":
        with Store(tmp_path) as store:
            store.connection.execute("delete from trials")
    else:
        path.unlink()
        if emptied == "no bytes":
            path.touch()
    report(tmp_path)
    assert json.loads((tmp_path / "results.json").read_text())["rows"] == results["rows"]


def test_report_without_any_trial_is_an_error_and_writes_nothing(tmp_path: Path) -> None:
    reproduce(spec(), tmp_path, Engine())
    before = (tmp_path / "results.json").read_bytes()
    (tmp_path / EXPORT).unlink()
    (tmp_path / FILE).unlink()
    with pytest.raises(ConfigError, match="has no trials"):
        report(tmp_path)
    assert (tmp_path / "results.json").read_bytes() == before


def test_a_damaged_store_is_said_with_a_cure_that_works(tmp_path: Path) -> None:
    results = reproduce(spec(), tmp_path, Engine(by_its_id))
    damage.zero(tmp_path / FILE, 4096, 4096)
    for act in (lambda: reproduce(spec(), tmp_path, idle), lambda: report(tmp_path)):
        with pytest.raises(StoreError, match=f"{FILE} is damaged .* move it away .* {EXPORT}"):
            act()
    (tmp_path / FILE).rename(tmp_path / "damaged")
    report(tmp_path)
    assert json.loads((tmp_path / "results.json").read_text())["rows"] == results["rows"]
    reproduce(spec(), tmp_path, idle)


class Deletes:
    """Deletes the folder of an experiment when its second trial has ended."""

    def __init__(self, out: Path) -> None:
        self.out, self.ended = out, 0

    def on_plan(self, cells: Sequence[Cell], ended: Mapping[str, Record]) -> None: ...

    def on_end(self, record: Record) -> None:
        self.ended += 1
        if self.ended == 2:
            shutil.rmtree(self.out)


def test_a_folder_that_is_deleted_under_an_experiment_is_an_error(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(WorkError, match="was deleted while the experiment was writing to it"):
        reproduce(spec(), out, Engine(), observers=[Deletes(out)])
    assert not out.exists()
    assert [found["n"] for found in reproduce(spec(), out, Engine())["rows"]] == [3, 3]


def test_a_spec_that_cannot_be_run_is_an_error_before_anything_is(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no dataset 'digit'"):
        reproduce(spec(), tmp_path / "out", idle, part=Part(datasets=("digit",)))
    assert not (tmp_path / "out").exists()


def test_report_sums_up_anew_what_is_there(tmp_path: Path) -> None:
    part = Part(methods=("grand",), seeds=2)
    score = lambda trial: (trial.seed / 10, 0.5)  # noqa: E731
    results = reproduce(spec(), tmp_path, Engine(score), part=part, command="dropnode reproduce x")
    for name in ("results.json", "results.csv", "results.md", "results.tex"):
        (tmp_path / name).unlink()
    assert report(tmp_path) == tmp_path / "report.html"
    anew = json.loads((tmp_path / "results.json").read_text())
    expected = {key: results[key] for key in anew}
    assert anew | {"finished": None} == expected | {"finished": None}
    assert (tmp_path / "results.md").read_text().count("GRAND") == 1


def test_an_optional_dataset_that_cannot_be_had_is_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DROPNODE_DATA", "DROPNODE_MIRROR"):
        monkeypatch.setenv(name, str(tmp_path / "empty"))
    both = ROWS.replace("datasets: [sbm]", "datasets: [sbm, aminer-cs]")
    out = tmp_path / "out"
    with pytest.raises(DataError, match="'aminer-cs' cannot be obtained"):
        reproduce(spec(both), out, Engine())
    optional = both + "optional: [aminer-cs]\n"
    reproduce(spec(optional), out, Engine())
    results = read_results(out / "results.json")
    assert ({row.dataset for row in results.rows}, results.absent) == ({"sbm"}, ("aminer-cs",))
    assert "could not be had: aminer-cs" in (out / "results.md").read_text(encoding="utf-8")
    (out / "results.md").unlink()
    report(out)
    assert "could not be had: aminer-cs" in (out / "results.md").read_text(encoding="utf-8")
    with pytest.raises(DataError, match="'aminer-cs' cannot be obtained"):
        reproduce(spec(optional), tmp_path / "alone", Engine(), part=Part(datasets=("aminer-cs",)))


def test_without_any_optional_dataset_the_reason_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DROPNODE_DATA", "DROPNODE_MIRROR"):
        monkeypatch.setenv(name, str(tmp_path / "empty"))
    text = ROWS.replace("[sbm]", "[./nowhere.npz, aminer-cs]").replace("{sbm: [40.0, 1.0]}", "{}")
    both = spec(text + "optional: [./nowhere.npz, aminer-cs]\n")
    with pytest.raises(DataError, match="'aminer-cs' cannot be obtained"):
        reproduce(both, tmp_path / "out", Engine())


def test_an_optional_file_is_left_out_where_it_does_not_exist_and_read_where_it_does(
    tmp_path: Path,
) -> None:
    path = tmp_path / "mine.npz"
    text = ROWS.replace("[sbm]", f"[sbm, {path}]") + f"optional: [{path}]\n"
    results = reproduce(spec(text), tmp_path / "out", Engine())
    assert results["absent"] == [str(path)]
    path.write_bytes(b"damaged")
    with pytest.raises(DataError, match="not a readable npz file"):
        reproduce(spec(text), tmp_path / "damaged", Engine())


def test_a_damaged_record_of_an_experiment_is_named_and_written_again(tmp_path: Path) -> None:
    reproduce(spec(), tmp_path, Engine())
    path = tmp_path / "experiment.json"
    sound = json.loads(path.read_text())
    story = {key: value for key, value in sound.items() if key != "sha256"}
    broken = ["", "[]", "null", "{}", "not json", "[" * 100_000, "\ud800"]
    for changes in (
        {"command": 5},
        {"part": 5},
        {"part": {"datasets": "sbm", "methods": None, "seeds": None}},
        {"part": {"seeds": "many"}},
        {"spec": None},
        {"spec": "title: x"},
        {"name": ["x"]},
        {"more": 1},
    ):
        broken.append(json.dumps(story | changes))
    broken.append(json.dumps(sound | {"spec": sound["spec"].replace("seeds: 3", "seeds: 2")}))
    broken += [json.dumps({k: v for k, v in story.items() if k != key}) for key in story]
    for text in broken:
        path.write_text(text, errors="surrogatepass")
        with pytest.raises(
            ConfigError, match=r"experiment\.json .*: dropnode reproduce EXPERIMENT"
        ):
            report(tmp_path)
    reproduce(spec(), tmp_path, idle)
    report(tmp_path)


def prefer(trial: Trial) -> tuple[float, float]:
    """Validate best with order 2 on sbm, 3 on digits; with 2 augmentations, temperature 1.

    The test accuracy would have it the other way round.
    """
    config = trial.config
    wanted = {"sbm": 2, "digits": 3}[trial.dataset]
    val = 0.5 - 0.1 * abs(config["order"] - wanted)
    val += 0.05 * (config["augmentations"] == 2) + 0.02 * (config["temperature"] == 1.0)
    return 1.0 - val, val + 0.001 * trial.seed


def chosen(results: dict[str, Any]) -> dict[tuple[str, int], list[dict[str, Any]]]:
    return {
        (stage["dataset"], stage["stage"]): [
            found["changes"] for found in stage["rows"] if found["chosen"]
        ]
        for stage in results["search"]
    }


ALL_CHOSEN = {
    ("sbm", 1): [{"order": 2}],
    ("digits", 1): [{"order": 3}],
    ("sbm", 2): [{"augmentations": 2, "temperature": 1.0}],
    ("digits", 2): [{"augmentations": 2, "temperature": 1.0}],
}


def test_a_search_chooses_by_validation_stage_by_stage(tmp_path: Path) -> None:
    engine = Engine(prefer)
    results = reproduce(spec(SEARCH), tmp_path, engine)
    assert chosen(results) == ALL_CHOSEN
    assert results["rows"] == []
    first, second = engine.asked[:12], engine.asked[12:]
    assert {trial.config["order"] for trial in first} == {1, 2, 3}
    assert {(trial.dataset, trial.config["order"]) for trial in second} == {
        ("sbm", 2),
        ("digits", 3),
    }
    # Two datasets, four settings, two seeds; those that stage 1 has run already are not run again.
    assert len({trial.id for trial in engine.asked}) == len(engine.asked)
    assert len(second) == 2 * 4 * 2 - len({trial.id for trial in first} & planned(results, 2))
    [stage] = [s for s in results["search"] if (s["dataset"], s["stage"]) == ("sbm", 1)]
    best = stage["rows"][1]
    assert (best["n"], best["asked"]) == (2, 2)
    assert best["test_mean"] == min(found["test_mean"] for found in stage["rows"])
    reproduce(spec(SEARCH), tmp_path, idle)


def planned(results: dict[str, Any], stage: int) -> set[str]:
    return {
        one
        for part in results["search"]
        if part["stage"] == stage
        for found in part["rows"]
        for one in found["trials"]
    }


@pytest.mark.parametrize("presses", [0, 5, 12, 20])
def test_a_search_that_is_cut_short_goes_on_where_it_was(tmp_path: Path, presses: int) -> None:
    whole = Engine(prefer)
    expected = reproduce(spec(SEARCH), tmp_path / "whole", whole)
    first, second = Engine(prefer, presses), Engine(prefer)
    out = tmp_path / "cut"
    begun = reproduce(spec(SEARCH), out, first)
    assert begun["interrupted"] is True
    assert begun["missing"] > 0
    stages = 2 if presses >= 12 else 1
    assert {stage["stage"] for stage in begun["search"]} == set(range(1, stages + 1))
    results = reproduce(spec(SEARCH), out, second)
    assert results["search"] == expected["search"]
    asked = [trial.id for trial in first.asked + second.asked]
    assert sorted(asked) == sorted(trial.id for trial in whole.asked)


def test_a_setting_that_always_fails_is_not_chosen(tmp_path: Path) -> None:
    def score(trial: Trial) -> tuple[float, float] | None:
        return None if trial.config["order"] == 2 else prefer(trial)

    results = reproduce(spec(SEARCH), tmp_path, Engine(score))
    assert chosen(results)["sbm", 1] == [{"order": 1}]
    assert chosen(results)["digits", 1] == [{"order": 3}]
    assert (results["failed"], results["missing"]) == (4, 0)


def test_a_stage_without_one_result_ends_the_search_and_says_so(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"stage 1 .*--retry"):
        reproduce(spec(SEARCH), tmp_path, Engine(lambda trial: None))
    assert len(stored(tmp_path)) == 12
    results = reproduce(spec(SEARCH), tmp_path, Engine(prefer), retry=True)
    assert chosen(results) == ALL_CHOSEN


class Says:
    """A watcher that lets another process know of every trial that was stored."""

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe

    def on_plan(self, cells: Sequence[Cell], ended: Mapping[str, Record]) -> None:
        pass

    def on_end(self, record: Record) -> None:
        os.write(self.pipe, f"{record.trial.id}\n".encode())


def drive(out: Path, seeds: int, pipe: int) -> None:
    engine = Engine(by_its_id, pause=0.01)
    reproduce(spec(), out, engine, part=Part(seeds=seeds), observers=[Says(pipe)])


@FORKS
def test_a_driver_killed_ten_times_loses_no_trial_and_runs_none_twice(tmp_path: Path) -> None:
    """Of 40 trials with invented numbers; the test below has real workers, which take longer."""
    moments, seeds = random.Random(20261116), 20
    out, told = tmp_path / "out", []
    for _ in range(10):
        reading, writing = os.pipe()
        process = multiprocessing.get_context("fork").Process(
            target=drive, args=(out, seeds, writing)
        )
        process.start()
        os.close(writing)
        said = os.read(reading, 100)
        time.sleep(moments.uniform(0.0, 0.04))
        process.kill()
        process.join()
        with os.fdopen(reading, "rb") as pipe:
            told += (said + pipe.read()).decode().split()
        assert process.exitcode == -signal.SIGKILL
        assert set(told) <= stored(out).keys()
        assert len(stored(out)) < 2 * seeds, "it was to be killed in the middle"
    before = stored(out)
    last = Engine(by_its_id)
    results = reproduce(spec(), out, last, part=Part(seeds=seeds))
    assert len(told) == len(set(told)), "a trial was run twice"
    assert {trial.id for trial in last.asked}.isdisjoint(before)
    assert len(stored(out)) == len(before) + len(last.asked) == 2 * seeds
    calm = reproduce(spec(), tmp_path / "calm", Engine(by_its_id), part=Part(seeds=seeds))
    assert results["rows"] == calm["rows"]
    for identifier, record in stored(tmp_path / "calm").items():
        assert stored(out)[identifier].metrics == record.metrics


class Driver:
    """``dropnode reproduce`` in a session of its own, whose processes can be told."""

    def __init__(self, text: Path, out: Path, scratch: Path) -> None:
        command = [sys.executable, "-m", "dropnode", "reproduce", str(text), "--out", str(out)]
        self.process = subprocess.Popen(
            [*command, "--jobs", "2"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"TMPDIR": str(scratch)},
            start_new_session=True,
        )
        self.told: list[str] = []

    def wait_for(self, trials: int) -> None:
        """Return as soon as so many trials were said to have ended."""
        assert self.process.stderr is not None
        while sum(line.startswith("[") for line in self.told) < trials:
            line = self.process.stderr.readline()
            assert line, f"it ended before it could be killed: {self.told}"
            self.told.append(line)

    def everyone(self) -> list[int]:
        """Return the processes of the session that are alive."""
        members = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except (FileNotFoundError, ProcessLookupError):
                    continue
                if fields[0] != "Z" and int(fields[3]) == self.process.pid:
                    members.append(int(entry.name))
        return members

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.returncode == -signal.SIGKILL
        assert self.process.stderr is not None
        self.process.stderr.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[Path, Path], Driver]]:
    """Start drivers whose processes do not outlive the test, even if it fails."""
    started: list[Driver] = []
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    def begin(text: Path, out: Path) -> Driver:
        started.append(Driver(text, out, scratch))
        return started[-1]

    yield begin
    for driver in started:
        for process in driver.everyone():
            os.kill(process, signal.SIGKILL)
        driver.process.wait()
    assert not list(scratch.glob("grand-*")), "data for workers was left behind"


def snapshot(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}


def count(out: Path) -> int:
    with Store(out) as store:
        return len(store.statuses())


@LINUX
@pytest.mark.parametrize(("kills", "seeds"), [(1, 3), pytest.param(10, 20, marks=pytest.mark.slow)])
def test_a_command_killed_at_work_leaves_no_process_and_ends_with_the_same_bits(
    tmp_path: Path, start: Callable[[Path, Path], Driver], kills: int, seeds: int
) -> None:
    """At random moments, each while workers train, and given anew each time.

    The rest is trained here: numbers depend neither on the process nor on who was killed.
    """
    moments = random.Random(20261116)
    text = ROWS.replace("max_epochs: 5", "max_epochs: 120, patience: 120")
    text = text.replace("seeds: 3", f"seeds: {seeds}")
    file, out = tmp_path / "tiny.yaml", tmp_path / "out"
    file.write_text(text)
    found = 0
    for _ in range(kills):
        driver = start(file, out)
        driver.wait_for(trials=moments.choice([1, 1, 2]))
        time.sleep(moments.uniform(0.0, 0.05))
        assert len(driver.everyone()) >= 3, "a driver and two workers"
        driver.kill()
        died, left = time.monotonic(), snapshot(out)
        while driver.everyone():
            assert time.monotonic() < died + 5, "workers outlived their driver"
            time.sleep(0.01)
        assert snapshot(out) == left, "a worker without a driver wrote"
        said = sum(line.startswith("[") for line in driver.told)
        assert found + said <= count(out) < 2 * seeds, "it was to be killed in the middle"
        found = count(out)
    asked: list[str] = []

    def counted(trials: Sequence[Trial], job: Job) -> Outcomes:
        asked.extend(trial.id for trial in trials)
        yield from in_this_process(trials, job)

    before, calm = stored(out), tmp_path / "calm"
    reproduce(spec(text), out, counted)
    assert before.keys().isdisjoint(asked)
    assert len(before) + len(asked) == 2 * seeds
    reproduce(spec(text), calm, in_this_process)
    disturbed, undisturbed = stored(out), stored(calm)
    assert len(disturbed) == 2 * seeds
    assert disturbed.keys() == undisturbed.keys()
    with Store(out) as one, Store(calm) as other:
        for identifier, record in disturbed.items():
            assert record.metrics == undisturbed[identifier].metrics
            (mine,), (theirs,) = (
                store.connection.execute(
                    "select columns from histories where id = ?", (identifier,)
                ).fetchone()
                for store in (one, other)
            )
            assert mine == theirs
        assert one.connection.execute("pragma integrity_check").fetchall() == [("ok",)]
    summaries = [json.loads((path / "results.json").read_text()) for path in (out, calm)]
    for summary in summaries:
        for found_row in summary["rows"]:
            del found_row["seconds"]
    assert summaries[0]["rows"] == summaries[1]["rows"]
    assert not list(out.glob(".*.tmp"))
