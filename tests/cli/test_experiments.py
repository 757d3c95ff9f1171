"""The commands reproduce, trials and report, as a person or a script meets them."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from dropnode import cli, load_dataset, save_graph
from dropnode.cli.results_table import print_results
from dropnode.engines.base import Failure
from dropnode.experiments import experiment
from dropnode.experiments.exchange import export_trials
from dropnode.experiments.record import Record
from dropnode.experiments.results import read_results
from dropnode.experiments.store import FILE, Store
from dropnode.experiments.trials import Trial
from dropnode.locks import FolderLock

SPEC = """
title: Two tiny rows
datasets: [sbm, digits]
seeds: 2
set: {max_epochs: 5, hidden: 8, order: 2}
reference: grand
rows:
  - {method: grand, label: GRAND, paper: {sbm: [40.0, 1.0]}}
  - {method: grand-no-cr, label: without CR}
claims:
  - {claim: consistency helps, better: grand, than: grand-no-cr}
"""
DIVERGING = """
title: One row learns, one does not
datasets: [sbm]
seeds: 2
set: {max_epochs: 60, hidden: 8, order: 2}
rows:
  - {method: grand}
  - {method: grand, name: wild, set: {learning_rate: 1.0e+25, feature_scaling: none}}
"""
SEARCH = """
title: One stage
datasets: [sbm]
seeds: 2
set: {max_epochs: 60, hidden: 8, order: 2, feature_scaling: none}
search:
  method: grand
  stages:
    - {learning_rate: [0.01, 1.0e+25]}
"""


@dataclass(frozen=True)
class Called:
    """What a call of the command line left behind."""

    code: int
    printed: str
    told: list[str]

    @property
    def json(self) -> Any:
        [line] = self.printed.splitlines()
        return json.loads(line)

    @property
    def line(self) -> str:
        [line] = self.told
        return line


def grand(*arguments: str | Path) -> Called:
    printed, told = io.StringIO(), io.StringIO()
    with redirect_stdout(printed), redirect_stderr(told):
        code = cli._run([str(argument) for argument in arguments])
    return Called(code, printed.getvalue(), told.getvalue().splitlines())


@dataclass(frozen=True)
class Kept:
    """A spec, the folder of its experiment, and the call that made it."""

    spec: Path
    out: Path
    called: Called


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """What a newcomer does first, with real workers and a real report."""
    folder = tmp_path_factory.mktemp("newcomer")
    spec, out = folder / "tiny.yaml", folder / "new" / "out"
    spec.write_text(SPEC)
    return Kept(spec, out, grand("reproduce", spec, "--out", out))


@pytest.fixture
def copy(kept: Kept, tmp_path: Path) -> Path:
    """The newcomer's folder, for a test to change."""
    return shutil.copytree(kept.out, tmp_path / "copy")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, threads: None, no_page: None) -> None:
    """Train in this process: workers take seconds to start."""

    def here(
        function: Callable[[Any, Trial], Any],
        trials: Iterable[Trial],
        jobs: int,
        *,
        shared: Any,
        timeout: float,
    ) -> Generator[tuple[Trial, Any], None, None]:
        for trial in trials:
            try:
                yield trial, function(shared, trial)
            except Exception as error:
                yield trial, Failure(f"{type(error).__name__}: {error}")

    monkeypatch.setattr("dropnode.engines.local.run_local", here)


@pytest.fixture
def no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw no report, which takes a second."""
    monkeypatch.setattr(experiment, "write_report", lambda folder: folder / "report.html")


def test_a_newcomer_gets_tables_and_a_report(kept: Kept) -> None:
    called, out = kept.called, kept.out
    assert called.code == 0, called.told
    assert called.told[0] == "tiny: 0 of 8 trials are stored"
    told = re.compile(r"\[\d/8\] (sbm|digits) grand(-no-cr)? seed [01]: \d+\.\d % ")
    assert all(told.match(line) for line in called.told[1:])
    assert len(called.told) == 9
    for text in ("Two tiny rows", "GRAND", "without CR", "sbm", "digits", "paper", "40.0"):
        assert text in called.printed
    assert called.printed.splitlines()[-1] == f"open {out / 'report.html'}"
    names = {path.name for path in out.iterdir() if not path.name.startswith(".")}
    tables = {f"results.{ending}" for ending in ("json", "csv", "md", "tex")}
    assert names == {
        "trials.sqlite",
        "trials.csv.gz",
        "experiment.json",
        "report.html",
        "figures",
        *tables,
    }
    assert "Two tiny rows" in (out / "report.html").read_text()
    results = json.loads((out / "results.json").read_text())
    assert [row["n"] for row in results["rows"]] == [2, 2, 2, 2]


def test_json_is_one_object_and_a_second_call_runs_nothing(
    kept: Kept, copy: Path, monkeypatch: pytest.MonkeyPatch, no_page: None
) -> None:
    monkeypatch.setattr("dropnode.engines.local._Worker", None)
    again = grand("reproduce", kept.spec, "--out", copy, "--json")
    assert again.code == 0, again.told
    assert again.line == "tiny: 8 of 8 trials are stored"
    before = json.loads((kept.out / "results.json").read_text())
    assert again.json["rows"] == before["rows"]
    assert (again.json["interrupted"], again.json["failed"]) == (False, 0)


def test_a_part_can_be_asked_for_and_more_of_it_later(kept: Kept, copy: Path, quick: None) -> None:
    options = ("--datasets", "sbm", "--methods", " grand-no-cr,", "--seeds", "3", "--json")
    called = grand("reproduce", kept.spec, "--out", copy, *options)
    assert called.code == 0, called.told
    assert called.told[0] == "tiny: 2 of 3 trials are stored"
    assert len(called.told) == 2
    [row] = called.json["rows"]
    assert (row["dataset"], row["method"], row["n"]) == ("sbm", "grand-no-cr", 3)


FORMS = """
title: Forms of a graph
datasets: [sbm, "sbm@random-edges:rate=0.1", "sbm@random-edges:rate=0.1,seed=3"]
seeds: 1
set: {max_epochs: 2, hidden: 4, order: 1}
rows:
  - {method: grand}
  - {method: grand, name: "wide, deep", set: {hidden: 8}}
"""


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        ("sbm@random-edges:rate=0.1,seed=3", [2]),
        ("sbm@random-edges:seed=3,rate=0.10", [2]),
        ("sbm@random-edges:rate=0.1", [1]),
        ("sbm@random-edges:rate=0.1,seed=3, sbm", [0, 2]),
        ("sbm,sbm@random-edges:rate=0.1,sbm@random-edges:rate=0.1,seed=3,", [0, 1, 2]),
    ],
)
def test_a_dataset_whose_name_has_a_comma_can_be_chosen(
    tmp_path: Path, quick: None, asked: str, chosen: list[int]
) -> None:
    spec = tmp_path / "forms.yaml"
    spec.write_text(FORMS)
    options = ("--datasets", asked, "--methods", "wide, deep", "--json")
    called = grand("reproduce", spec, "--out", tmp_path / "out", *options)
    assert called.code == 0, called.told
    names = ["sbm", "sbm@random-edges:rate=0.1", "sbm@random-edges:rate=0.1,seed=3"]
    assert [row["dataset"] for row in called.json["rows"]] == [names[place] for place in chosen]
    assert {row["method"] for row in called.json["rows"]} == {"wide, deep"}


def test_a_form_that_the_experiment_lacks_is_named(tmp_path: Path) -> None:
    spec = tmp_path / "forms.yaml"
    spec.write_text(FORMS)
    options = ("--datasets", "sbm,sbm@random-edges:rate=0.2,seed=3")
    called = grand("reproduce", spec, "--out", tmp_path / "out", *options)
    assert called.code == 2
    assert "no dataset 'sbm@random-edges:rate=0.2'" in called.line


def test_runs_lists_every_trial(kept: Kept) -> None:
    listed = grand("trials", kept.out)
    assert (listed.code, listed.told) == (0, [])
    lines = listed.printed.splitlines()
    assert lines[-1] == "8 trials"
    with Store(kept.out) as store:
        for record in store.records():
            [line] = [line for line in lines if record.trial.id in line]
            assert f"{100 * record.metrics['test_accuracy']:.1f} %" in line
            assert {record.trial.method, record.trial.dataset, "done"} <= set(line.split())


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ([], 8),
        (["--dataset", "sbm"], 4),
        (["--method", "grand-no-cr"], 4),
        (["--dataset", "digits", "--method", "grand", "--status", "done"], 2),
        (["--status", "failed"], 0),
    ],
)
def test_runs_can_be_filtered(kept: Kept, options: list[str], count: int) -> None:
    listed = grand("trials", kept.out, *options, "--json")
    assert listed.code == 0, listed.told
    trials = listed.json["trials"]
    assert len(trials) == count
    for key in ("dataset", "method", "status"):
        if f"--{key}" in options:
            assert {trial[key] for trial in trials} <= {options[options.index(f"--{key}") + 1]}


@pytest.mark.parametrize("ending", ["csv", "json", "csv.gz", "json.gz", "parquet"])
def test_trials_are_carried_from_folder_to_folder(kept: Kept, tmp_path: Path, ending: str) -> None:
    file, other = tmp_path / f"some.{ending}", tmp_path / "other"
    exported = grand("trials", kept.out, "export", file, "--dataset", "sbm")
    assert exported == Called(0, f"4 trials exported to {file}\n", [])
    assert grand("trials", other, "import", file, "--json").json == {"imported": 4}
    assert grand("trials", other, "import", file).printed == f"0 trials imported into {other}\n"
    there = grand("trials", kept.out, "--dataset", "sbm", "--json").json
    assert grand("trials", other, "--json").json == there


def test_report_is_written_anew(copy: Path) -> None:
    for name in ("report.html", "results.json", "results.md"):
        (copy / name).unlink()
    shutil.rmtree(copy / "figures")
    called = grand("report", copy)
    assert called == Called(0, f"open {copy / 'report.html'}\n", [])
    for name in ("report.html", "results.json", "results.md", "figures"):
        assert (copy / name).exists()


def test_failed_trials_are_told_seen_and_retried(tmp_path: Path, quick: None) -> None:
    spec, out = tmp_path / "diverging.yaml", tmp_path / "out"
    spec.write_text(DIVERGING)
    called = grand("reproduce", spec, "--out", out, "--json")
    assert called.code == 1
    assert [(row["n"], row["failed"]) for row in called.json["rows"]] == [(2, 0), (0, 2)]
    told = called.told[-1]
    assert told.startswith("2 trials failed; see: dropnode trials ")
    suggested = re.findall(r"see: dropnode ([^;]*);", told)[0]
    shown = grand(*shlex.split(suggested))
    assert shown.code == 0
    assert shown.printed.count("learning_rate") == 2
    again = grand("reproduce", spec, "--out", out)
    assert (again.code, again.told) == (1, ["diverging: 4 of 4 trials are stored", told])
    assert "--retry" in told
    retried = grand("reproduce", spec, "--out", out, "--retry")
    assert retried.code == 1
    assert retried.told[0] == "diverging: 2 of 4 trials are stored"
    assert sum("failed: " in line for line in retried.told) == 2


def test_failed_trials_of_a_search_are_told_too(tmp_path: Path, quick: None) -> None:
    spec, out = tmp_path / "search.yaml", tmp_path / "out"
    spec.write_text(SEARCH)
    called = grand("reproduce", spec, "--out", out)
    assert called.code == 1
    assert called.told[-1].startswith(
        f"2 trials failed; see: dropnode trials {out} --status failed"
    )
    assert "learning_rate=0.01 *" in called.printed


def test_a_stored_trial_that_cannot_be_confirmed_is_told_and_exit_1(
    tmp_path: Path, quick: None
) -> None:
    """As if another machine had made it: the number that is stored stays, every time."""
    spec, out = tmp_path / "tiny.yaml", tmp_path / "out"
    text = SPEC.replace("[sbm, digits]", "[sbm]")
    spec.write_text(text)
    assert grand("reproduce", spec, "--out", out).code == 0
    with Store(out) as store:
        changed, *_ = store.records()
        store.complete(replace(changed, metrics=changed.metrics | {"val_loss": 3.25}))
    spec.write_text(text + "measures: [loss_gap]\n")
    for stored in ("0 of 4", "3 of 4"):
        called = grand("reproduce", spec, "--out", out, "--json")
        assert called.code == 1
        assert called.told[0] == f"tiny: {stored} trials are stored"
        named = f"dropnode: trial {changed.trial.id} (sbm, grand, seed 0) was not completed: "
        assert called.told[-1].startswith(named)
        assert "but 3.25 is stored" in called.told[-1]
        assert "new folder" in called.told[-1]
        assert (called.json["failed"], called.json["missing"]) == (1, 0)
        row, _ = called.json["rows"]
        assert (row["n"], row["failed"], row["measures"]["loss_gap"]["n"]) == (2, 0, 1)
    with Store(out) as store:
        record = store.get(changed.trial.id)
        assert record is not None
        assert (record.status, record.metrics["val_loss"]) == ("done", 3.25)
        assert "loss_gap" not in record.metrics


def test_what_an_error_says_is_shown_as_it_is(tmp_path: Path) -> None:
    """Square brackets mean something to whoever draws the table, and nothing to us."""
    error = "OSError: [/tmp/x] is no [bold] file"
    trial = Trial("sbm", "ab" * 32, "public", 0, "grand", 1, "default", {}, 0)
    with Store(tmp_path) as store:
        store.add([(Record(trial, "failed", {}, None, "2026-11-16", {}, error), None)])
    shown = grand("trials", tmp_path)
    assert shown.code == 0
    assert error in shown.printed


@pytest.mark.parametrize(
    ("name", "paper"), [("theory", 0), ("robustness-random", 0), ("table1", 3)]
)
def test_the_papers_column_is_shown_where_there_are_figures(
    name: str, paper: int, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = Path(__file__).parents[2] / "results" / name / "results.json"
    print_results(read_results(stored), Path("out"))
    assert capsys.readouterr().out.count(" paper") == paper


def test_names_with_brackets_are_shown_as_they_are(tmp_path: Path, quick: None) -> None:
    spec, out = tmp_path / "diverging.yaml", tmp_path / "out [a]"
    spec.write_text(DIVERGING.replace("name: wild", "name: wild, label: 'wild [b]'"))
    called = grand("reproduce", spec, "--out", out)
    assert "wild [b]" in called.printed
    assert str(out) in called.told[-1]
    suggested = re.findall(r"see: dropnode ([^;]*);", called.told[-1])[0]
    assert grand(*shlex.split(suggested)).printed.endswith("2 trials\n")


RUN = "reproduce {spec} --out {new}"
MISUSES = [
    ("reproduce tabel1-grand --out {new}", "did you mean 'table1-grand'?"),
    ("reproduce missing.yaml --out {new}", "missing.yaml"),
    ("reproduce {broken} --out {new}", "not valid YAML"),
    ("reproduce {spec}", "--out"),
    (f"{RUN} --datasets smb", "did you mean 'sbm'?"),
    (f"{RUN} --datasets cora", "cora"),
    (f"{RUN} --datasets ,", "dataset"),
    (f"{RUN} --methods gradn", "did you mean 'grand'?"),
    (f"{RUN} --methods ''", "method"),
    (f"{RUN} --seeds 0", "--seeds"),
    (f"{RUN} --jobs 0", "--jobs"),
    (f"{RUN} --timeout 0", "--timeout"),
    (f"{RUN} --engine rey", "did you mean 'ray'?"),
    (f"{RUN} --engine slurm", "slurm"),
    (f"{RUN} --address auto", "--engine ray"),
    ("trials {empty}", "dropnode reproduce"),
    ("trials {new}", "dropnode reproduce"),
    ("trials {empty} export {new}/x.csv", "dropnode reproduce"),
    ("trials {kept} lsit", "did you mean 'list'?"),
    ("trials {kept} list x.csv", "export or import"),
    ("trials {kept} export", "needs a file"),
    ("trials {kept} export {new}/x.txt", ".csv, .json, .parquet"),
    ("trials {kept} import {text}", "text.csv"),
    ("trials {kept} import {empty}/x.csv", "x.csv"),
    ("trials {kept} import {text} --dataset sbm", "leave out --dataset"),
    ("trials {kept} --dataset smb", "did you mean 'sbm'?"),
    ("trials {kept} --method gradn", "did you mean 'grand'?"),
    ("trials {kept} --status finished", "failed"),
    ("report {empty}", "dropnode reproduce"),
    ("report {new}", "dropnode reproduce"),
]


@pytest.mark.parametrize(("arguments", "told"), MISUSES)
def test_a_wrong_call_is_one_line_and_exit_2(
    kept: Kept, tmp_path: Path, arguments: str, told: str
) -> None:
    places = {"spec": kept.spec, "kept": kept.out}
    places |= {"empty": tmp_path / "empty", "new": tmp_path / "new"}
    places |= {"broken": tmp_path / "broken.yaml", "text": tmp_path / "text.csv"}
    places["empty"].mkdir()
    places["broken"].write_text("title: [")
    places["text"].write_text("what somebody wrote\n")
    called = grand(*shlex.split(arguments.format(**places)))
    assert (called.code, called.printed) == (2, "")
    assert called.line.startswith("dropnode: ")
    assert told in called.line
    assert not places["new"].exists()
    assert list(places["empty"].iterdir()) == []


REFUSED = [
    ("missing.npz", "missing.npz"),
    ("{graph}@random-edges:rate=900", "rate"),
    ("{graph}@one-class:code=99", "class 99"),
]


@pytest.mark.parametrize(("dataset", "told"), REFUSED)
def test_a_refused_call_leaves_nothing(tmp_path: Path, dataset: str, told: str) -> None:
    save_graph(load_dataset("sbm", nodes=200, classes=2), tmp_path / "mine.npz")
    values = yaml.safe_load(SPEC)
    values["datasets"] = [dataset.format(graph=tmp_path / "mine.npz")]
    for row in values["rows"]:
        row.pop("paper", None)
    spec = tmp_path / "mine.yaml"
    spec.write_text(yaml.safe_dump(values))
    out, empty = tmp_path / "new" / "out", tmp_path / "empty"
    empty.mkdir()
    for folder in (out, empty):
        called = grand("reproduce", spec, "--out", folder)
        assert called.code in (1, 2)
        assert told in called.line
    assert not out.parent.exists()
    assert list(empty.iterdir()) == []


def test_a_refused_import_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("id,name\n1,Ada\n")
    called = grand("trials", tmp_path / "new" / "out", "import", tmp_path / "people.csv")
    assert called.code == 2
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("store", ["missing", "empty"])
def test_exported_trials_are_listed_without_a_store(tmp_path: Path, store: str) -> None:
    trial = Trial("sbm", "ab" * 32, "public", 0, "grand", 1, "default", {}, 0)
    failed = Record(trial, "failed", {}, None, "2026-11-16T02:10:00+00:00", {}, "no")
    export_trials([failed], tmp_path / "trials.csv.gz")
    if store == "empty":
        Store(tmp_path).close()
    called = grand("trials", tmp_path, "--json")
    assert called.code == 0
    assert [one["id"] for one in called.json["trials"]] == [trial.id]


@pytest.mark.parametrize("place", ["spec_file.load_spec", "experiment._sum_up"])
def test_ctrl_c_when_no_trial_runs_says_how_to_go_on(
    kept: Kept, copy: Path, quick: None, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    def press(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"dropnode.experiments.{place}", press)
    called = grand("reproduce", kept.spec, "--out", copy)
    assert called.code == 1
    assert called.told[-1] == (
        "dropnode: interrupted; trials that ended are stored: run the same command again to "
        "continue"
    )


@pytest.mark.parametrize("command", ["reproduce", "import"])
def test_a_second_driver_of_a_folder_is_refused(kept: Kept, copy: Path, command: str) -> None:
    arguments: list[str | Path] = ["reproduce", kept.spec, "--out", copy]
    if command == "import":
        arguments = ["trials", copy, "import", kept.out / "trials.csv.gz"]
    with FolderLock(copy):
        called = grand(*arguments)
        assert (called.code, called.printed) == (2, "")
        assert f"another process is writing to {copy}" in called.line
        # Looking is no driving.
        assert grand("trials", copy).code == 0
    assert grand("trials", copy, "import", kept.out / "trials.csv.gz").code == 0


def test_a_folder_that_cannot_be_made_is_exit_1(kept: Kept, tmp_path: Path) -> None:
    occupied = tmp_path / "file"
    occupied.write_text("not a folder")
    called = grand("reproduce", kept.spec, "--out", occupied / "out")
    assert called.code == 1
    assert str(occupied) in called.line
    called = grand("trials", kept.out, "export", occupied / "x.csv")
    assert called.code == 1
    assert str(occupied) in called.line


@pytest.mark.parametrize("command", ["reproduce", "trials", "report"])
def test_a_store_that_is_none_is_exit_1(kept: Kept, copy: Path, command: str) -> None:
    (copy / FILE).write_text("what somebody wrote\n" * 100)
    arguments: list[str | Path] = [command, copy]
    if command == "reproduce":
        arguments = [command, kept.spec, "--out", copy]
    called = grand(*arguments)
    assert (called.code, called.printed) == (1, "")
    assert str(copy / FILE) in called.line


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="Ctrl-C is sent to a group of processes")
def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(tmp_path: Path, quick: None) -> None:
    """On a terminal it reaches every process: all end, quietly."""
    spec, out = tmp_path / "tiny.yaml", tmp_path / "out"
    text = SPEC.replace("[sbm, digits]", "[sbm]").replace("seeds: 2", "seeds: 50")
    spec.write_text(text.replace("max_epochs: 5", "max_epochs: 100, patience: 100"))
    command = ["reproduce", str(spec), "--out", str(out), "--jobs", "1", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "dropnode", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    while not (line := process.stderr.readline()).startswith("[2/100]"):
        assert line, "it ended before it could be interrupted"
    pressed = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    printed, errors = process.communicate(timeout=60)
    assert time.monotonic() - pressed < 20
    assert process.returncode == 1
    results = Called(1, printed, []).json
    done = sum(row["n"] for row in results["rows"])
    assert done >= 2
    *ended, note = errors.splitlines()
    assert all(line.startswith("[") for line in ended), errors
    assert (
        note
        == f"Interrupted: {100 - done} trials are missing. Run the same command again to continue."
    )
    assert json.loads((out / "results.json").read_text())["rows"] == results["rows"]
    assert (out / "report.html").exists()
    assert results["command"] == f"dropnode {shlex.join(command)}"
    gone_on = grand("reproduce", spec, "--out", out, "--seeds", "2", "--json")
    assert gone_on.code == 0
    assert [row["n"] for row in gone_on.json["rows"]] == [2, 2]
