"""The command line as a person or a script meets it."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import typer

from dropnode import GrandClassifier, cli
from dropnode.data import dataset_names, load_dataset, save_graph
from dropnode.errors import ConfigError, DataError, GraphError, WorkError
from dropnode.experiments.spec_file import load_spec, spec_names
from dropnode.files import unseal
from dropnode.methods.baselines import BASELINES
from dropnode.methods.grand.config import preset_names
from dropnode.methods.table import METHODS, configuration

QUICK = ["--set", "max_epochs=12", "--set", "order=2", "--set", "hidden=16"]


def dropnode(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = cli._run(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def one_line(text: str) -> str:
    lines = text.strip().splitlines()
    assert len(lines) == 1, text
    return lines[0]


def test_train_reports_and_keeps_everything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    code, printed, _ = dropnode("train", "digits", "--out", str(out), *QUICK, capsys=capsys)
    assert code == 0
    assert "test accuracy" in printed
    suggested = next(line for line in printed.splitlines() if "--method grand-no-cr" in line)
    assert shutil.which(suggested.split()[0]), "a suggestion that cannot be typed as it stands"
    assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")
    with (out / "history.csv").open() as file:
        history = list(csv.DictReader(file))
    assert [int(line["epoch"]) for line in history] == list(range(1, 13))
    with (out / "predictions.csv").open() as file:
        predictions = list(csv.DictReader(file))
    assert len(predictions) == 1797
    result = json.loads((out / "result.json").read_text())
    test = [line for line in predictions if line["part"] == "test"]
    right = sum(line["predicted"] == line["label"] for line in test) / len(test)
    assert right == pytest.approx(result["test_accuracy"])


def test_json_is_one_object_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    code, printed, _ = dropnode("train", "digits", "--json", *QUICK, capsys=capsys)
    assert code == 0
    result = json.loads(one_line(printed))
    promised = (
        "dataset method preset seed split test_accuracy val_accuracy val_loss best_epoch epochs "
        "seconds seconds_per_epoch out"
    ).split()
    assert set(promised) <= set(result)
    assert result["preset"] == "default"
    assert 0.5 < result["test_accuracy"] <= 1.0


def test_a_graph_of_ones_own_is_trained_by_its_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "mine.npz")
    save_graph(load_dataset("digits"), path)
    code, printed, errors = dropnode("train", path, "--json", *QUICK, capsys=capsys)
    assert code == 0, errors
    own = json.loads(printed)
    named = json.loads(dropnode("train", "digits", "--json", *QUICK, capsys=capsys)[1])
    assert (own["dataset"], own["preset"]) == (path, "default")
    for same in ("dataset_sha256", "split", "test_accuracy", "val_loss"):
        assert own[same] == named[same]
    code, _, errors = dropnode("train", str(tmp_path / "other.npz"), capsys=capsys)
    assert code == 2
    assert "other.npz is not a file" in one_line(errors)


def test_same_seed_same_result(capsys: pytest.CaptureFixture[str]) -> None:
    def result(seed: str) -> dict[str, Any]:
        _, printed, _ = dropnode("train", "--json", "--seed", seed, *QUICK, capsys=capsys)
        told: dict[str, Any] = json.loads(printed)
        return {key: told[key] for key in ("test_accuracy", "val_loss", "val_accuracy")}

    assert result("3") == result("3")
    assert result("3")["val_loss"] != result("4")["val_loss"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["train", "digitz"], "digits"),
        (["train", "--method", "grnad"], "did you mean 'grand'"),
        (["train", "--preset", "offical"], "official"),
        (["train", "digits", "--preset", "official"], "default"),
        (["train", "--set", "temprature=0.3"], "did you mean 'temperature'"),
        (["train", "--set", "temperature=0"], "above 0"),
        (["train", "--set", "order"], "KEY=VALUE"),
        (["train", "--set", "order=two"], "whole number"),
        (["train", "--seed", "-1"], "seed"),
        (["train", "--resume"], "--out"),
        (["train", "--jobs", "2"], "add --seeds"),
        (["train", "--workers", "2"], "add --engine ray"),
        (["train", "--address", "auto"], "add --engine ray"),
        (["train", "--engine", "rai"], "ray"),
        (["train", "--engine", "ray", "--workers", "2"], "add --method grand-plus"),
        (["train", "--engine", "ray", "--method", "grand-plus"], "add --workers"),
        (
            "train --engine ray --method grand-plus --workers 2 --seeds 2".split(),
            "leave out --engine ray",
        ),
        (["train", "--seeds", "0"], "--seeds"),
        (["train", "--seeds", "2", "--jobs", "0"], "--jobs"),
        (["train", "--seeds", "2", "--set", "temprature=0.3"], "did you mean 'temperature'"),
        (["train", "--seeds", "2", "--resume"], "--out"),
        (["train", "--device", "warp"], "cpu"),
        (["train", "--sed", "1"], "--seed"),
        (["datasets", "info", "core"], "cora"),
        (["frobnicate"], "frobnicate"),
    ],
)
def test_a_wrong_call_is_one_line_and_exit_2(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, printed, errors = dropnode(*arguments, capsys=capsys)
    assert code == 2
    assert printed == ""
    assert told in one_line(errors)


def test_failed_work_is_one_line_and_exit_1(capsys: pytest.CaptureFixture[str]) -> None:
    code, printed, errors = dropnode(
        "train",
        "digits",
        "--set",
        "learning_rate=1e25",
        "--set",
        "feature_scaling=none",
        *QUICK,
        "--set",
        "max_epochs=100",
        capsys=capsys,
    )
    assert code == 1
    assert printed == ""
    assert "learning_rate" in one_line(errors)


RAISED = "dropnode.experiments.tuning.validation_data"
"""What this search calls early; it is imported when the command runs."""

SEARCH = ["tune", "digits", "--method", "graphnas", "--out", "unused"]


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> list[str]:
    """Return a command whose work raises an error."""

    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(RAISED, fail)
    return SEARCH


def torch_out_of_memory() -> BaseException:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(10**15)
    return caught.value


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (ConfigError("no such thing"), 2, "no such thing"),
        (GraphError("no such node"), 2, "no such node"),
        (WorkError("it broke"), 1, "it broke"),
        (DataError("no source\nhas it"), 1, "no source has it"),
        (OSError(28, "No space left on device"), 1, "No space left on device"),
        (PermissionError(13, "Permission denied", "a.npz"), 1, "a.npz: Permission denied; choose"),
        (MemoryError(), 1, "out of memory"),
        (torch.OutOfMemoryError("CUDA"), 1, "out of memory: CUDA"),
        (torch_out_of_memory(), 1, "you tried to allocate 4000000000000000 bytes"),
        (KeyboardInterrupt(), 1, "interrupted"),
    ],
)
def test_a_foreseeable_failure_is_one_line_and_its_traceback_with_debug(
    error: BaseException,
    code: int,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = failing(monkeypatch, error)
    ended, printed, errors = dropnode(*command, capsys=capsys)
    assert (ended, printed) == (code, "")
    assert one_line(errors).startswith("dropnode: ")
    assert told in errors
    ended, printed, errors = dropnode("--debug", *command, capsys=capsys)
    assert (ended, printed) == (code, "")
    assert errors.startswith("Traceback")
    assert type(error).__name__ in errors.splitlines()[-1] or "\n" in str(error)


@pytest.mark.parametrize("error", [ValueError("x"), RuntimeError("x"), KeyError("x")])
def test_a_bug_is_not_made_into_a_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(type(error)):
        dropnode(*failing(monkeypatch, error), capsys=capsys)


def test_a_bug_shows_its_traceback_and_ends_with_1() -> None:
    program = (
        "import sys; from dropnode import cli; from dropnode.experiments import tuning; "
        f"tuning.validation_data = None; sys.argv = ['dropnode', *{SEARCH}]; cli.main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("Traceback (most recent call last):")
    assert ended.stderr.splitlines()[-1] == "TypeError: 'NoneType' object is not callable"


def test_a_dataset_that_cannot_be_had_is_exit_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DROPNODE_DATA", str(tmp_path))
    monkeypatch.delenv("DROPNODE_MIRROR", raising=False)
    code, _, errors = dropnode("train", "aminer-cs", capsys=capsys)
    assert code == 1
    assert str(tmp_path) in one_line(errors)


def test_an_unwritable_folder_is_exit_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    occupied = tmp_path / "file"
    occupied.write_text("not a folder")
    code, _, errors = dropnode("train", "--out", str(occupied / "run"), *QUICK, capsys=capsys)
    assert code == 1
    assert str(occupied) in one_line(errors)


def test_a_folder_with_other_files_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    for extra in ([], ["--resume"]):
        code, _, errors = dropnode("train", "--out", str(tmp_path), *extra, *QUICK, capsys=capsys)
        assert code == 2
        assert "--out" in one_line(errors)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_resume_refuses_another_run_and_repeats_a_finished_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "run")]
    assert dropnode("train", *out, *QUICK, capsys=capsys)[0] == 0
    code, _, errors = dropnode("train", *out, *QUICK, capsys=capsys)
    assert (code, "--resume" in one_line(errors)) == (2, True)
    code, _, errors = dropnode("train", *out, *QUICK, "--seed", "1", "--resume", capsys=capsys)
    assert code == 2
    assert "seed (0 there, 1 requested)" in one_line(errors)
    code, _, errors = dropnode("train", *out, *QUICK, "--set", "order=3", "--resume", capsys=capsys)
    assert code == 2
    assert "order (2 there, 3 requested)" in one_line(errors)
    stamp = (tmp_path / "run" / "model" / "weights.safetensors").stat().st_mtime_ns
    code, printed, _ = dropnode("train", *out, *QUICK, "--resume", "--json", capsys=capsys)
    assert code == 0
    assert json.loads(printed) == unseal(json.loads((tmp_path / "run" / "result.json").read_text()))
    assert (tmp_path / "run" / "model" / "weights.safetensors").stat().st_mtime_ns == stamp


def test_interruption_keeps_the_best_model_and_says_so(tmp_path: Path) -> None:
    """Ctrl-C in the middle of a real process; then --resume goes on to the end."""
    out = tmp_path / "run"
    command = [sys.executable, "-m", "dropnode", "train", "digits", "--out", str(out), "--json"]
    command += ["--set", "max_epochs=150", "--set", "patience=150", "--checkpoint-every", "0.1"]
    command += ["--set", "order=1", "--set", "augmentations=2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (out / "checkpoint.safetensors").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=60)
    assert process.returncode == 1, errors
    assert "Interrupted: kept the best model so far" in one_line(errors)
    assert "--resume" in errors
    result = json.loads(one_line(printed))
    assert result["interrupted"] is True
    assert 0 < result["epochs"] < 150
    assert (out / "model" / "weights.safetensors").exists()
    resumed = subprocess.run(
        [*command, "--resume"], capture_output=True, text=True, timeout=120, check=False
    )
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["epochs"] == 150


@pytest.mark.slow
def test_ctrl_c_ends_all_seeds_and_says_how_to_go_on(tmp_path: Path) -> None:
    """On a terminal it reaches every process: all end, quietly, and nothing is left over."""
    out, scratch = tmp_path / "seeds", tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-m", "dropnode", "train", "digits", "--seeds", "3", "--jobs", "1"]
    command += ["--out", str(out), "--checkpoint-every", "0", "--set", "max_epochs=100000"]
    process = subprocess.Popen(
        [*command, "--set", "patience=100000", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(scratch)},
        start_new_session=True,
    )
    checkpoint = out / "seed-0" / "checkpoint.safetensors"
    deadline = time.monotonic() + 60
    while not checkpoint.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    pressed = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    printed, errors = process.communicate(timeout=60)
    assert time.monotonic() - pressed < 10
    assert process.returncode == 1
    assert one_line(errors) == (
        "Interrupted: 0 of 3 seeds are done. Run the same command with --resume to continue."
    )
    summary = json.loads(one_line(printed))
    assert (summary["n"], summary["mean"], summary["runs"]) == (0, None, [])
    assert [failure["error"] for failure in summary["failed"]] == ["interrupted"] * 3
    assert list(scratch.iterdir()) == []
    written = checkpoint.stat().st_mtime_ns
    time.sleep(0.5)
    assert checkpoint.stat().st_mtime_ns == written, "a worker went on"


def test_datasets_can_be_listed_and_described(capsys: pytest.CaptureFixture[str]) -> None:
    code, printed, _ = dropnode("datasets", "list", "--json", capsys=capsys)
    names = [entry["name"] for entry in json.loads(one_line(printed))["datasets"]]
    assert code == 0
    assert names[:3] == ["cora", "citeseer", "pubmed"]
    assert {"digits", "sbm", "aminer-cs", "cora-full", "coauthor-physics"} <= set(names)
    code, printed, _ = dropnode("datasets", "info", "cora", capsys=capsys)
    assert code == 0
    assert "5,278" in printed
    assert "MIT" in printed
    code, printed, _ = dropnode("datasets", "get", "digits", "--json", capsys=capsys)
    assert (code, json.loads(printed)["available"]) == (0, "embedded")


def test_help_explains_every_option() -> None:
    environment = os.environ | {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
    shown = subprocess.run(
        [sys.executable, "-m", "dropnode", "train", "--help"],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
        timeout=60,
    ).stdout
    for option in (
        "--method --preset --seed --seeds --jobs --split-seed --set --device --engine --workers "
        "--address --out --resume "
        "--checkpoint-every --json"
    ).split():
        line = next(line for line in shown.splitlines() if f"{option} " in line)
        words = line.split(option, 1)[1].split()
        assert len(words) >= 4, f"{option} has no help: {line}"


def test_no_words_at_all_show_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    code, printed, errors = dropnode(capsys=capsys)
    assert code == 2
    assert "datasets" in printed + errors
    assert "dropnode: " not in errors


def test_help_does_not_wait_for_torch() -> None:
    """A person who asks for help gets it at once."""
    program = (
        "import sys; from dropnode import cli; code = cli._run(['--help']); "
        "sys.exit(code or int('torch' in sys.modules))"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, timeout=60
    )
    assert finished.returncode == 0


def test_a_baseline_is_trained_kept_and_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    arguments = ["train", "digits", "--method", "gcn", "--set", "max_epochs=15", "--json"]
    code, printed, _ = dropnode(*arguments, "--out", str(out), capsys=capsys)
    assert code == 0
    result = json.loads(one_line(printed))
    assert result["method"] == "gcn"
    assert result["preset"] == "default"
    assert result["test_accuracy"] > 0.8
    model = GrandClassifier.load(out / "model")
    assert model.method == "gcn"
    with (out / "predictions.csv").open() as file:
        kept = [line["predicted"] for line in csv.DictReader(file)]
    assert model.predict().tolist() == kept


def test_every_method_is_listed_with_a_line_about_it(capsys: pytest.CaptureFixture[str]) -> None:
    code, printed, _ = dropnode("methods", "--json", capsys=capsys)
    listed = json.loads(one_line(printed))["methods"]
    assert code == 0
    assert [method["name"] for method in listed] == list(METHODS)
    code, printed, _ = dropnode("methods", capsys=capsys)
    assert code == 0
    lines = printed.splitlines()[1:]
    assert len(lines) == len(listed)
    for line, method in zip(lines, listed, strict=True):
        assert line.strip().split(maxsplit=1) == [method["name"], method["title"]]


def test_presets_are_listed_with_their_datasets(capsys: pytest.CaptureFixture[str]) -> None:
    """Every pair of the list is accepted, and no dataset is missing from it."""
    code, printed, _ = dropnode("presets", "--json", capsys=capsys)
    listed = json.loads(one_line(printed))["presets"]
    assert code == 0
    ours = [preset["name"] for preset in listed if preset["method"] == "grand"]
    assert ours == preset_names()
    assert {preset["method"] for preset in listed} == {"grand", "grand-plus", *BASELINES}
    for preset in listed:
        for dataset in dataset_names():
            known = preset["datasets"] is None or dataset in preset["datasets"]
            if known:
                name, _ = configuration(preset["method"], dataset, preset["name"])
                assert name == preset["name"]
            else:
                with pytest.raises(ConfigError):
                    configuration(preset["method"], dataset, preset["name"])
    code, printed, _ = dropnode("presets", capsys=capsys)
    assert code == 0
    shown = {line.split()[0]: line for line in printed.splitlines()[1:]}
    assert set(shown) == {preset["name"] for preset in listed}
    assert "cora, citeseer, pubmed" in shown["official"]
    assert "any" in shown["default"]


def test_experiments_are_listed_with_what_they_cost(capsys: pytest.CaptureFixture[str]) -> None:
    code, printed, _ = dropnode("experiments", "--json", capsys=capsys)
    listed = {entry["name"]: entry for entry in json.loads(one_line(printed))["experiments"]}
    assert code == 0
    assert list(listed) == spec_names()
    spec = load_spec("table1-grand")
    assert listed["table1-grand"]["trials"] == sum(sum(row.seeds.values()) for row in spec.rows)
    assert listed["table1-grand"]["datasets"] == ["cora", "citeseer", "pubmed"]
    code, printed, _ = dropnode("experiments", capsys=capsys)
    assert code == 0
    assert [line.split()[0] for line in printed.splitlines()[1:]] == spec_names()


def test_help_says_which_forms_a_dataset_can_have() -> None:
    (argument,) = (
        one
        for one in typer.main.get_command(cli.app).commands["train"].params
        if one.name == "dataset"
    )
    for form in ("dropnode datasets list", ".npz", "cora@random-edges:rate=0.1"):
        assert form in argument.help


@pytest.mark.parametrize("command", ["train", "reproduce"])
def test_no_help_repeats_a_list(command: str) -> None:
    """Names that a list command prints would be out of date in a help text one day."""
    for parameter in typer.main.get_command(cli.app).commands[command].params:
        words = set((parameter.help or "").replace(",", " ").replace(";", " ").split())
        assert len(words & {*METHODS, *spec_names()}) <= 1, parameter.name


def test_a_list_of_numbers_can_be_set(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["train", "digits", "--method", "mixhop", "--set", "max_epochs=2", "--json"]
    code, printed, errors = dropnode(*arguments, "--set", "hidden=4,0,5", capsys=capsys)
    assert code == 0, errors
    assert json.loads(printed)["config"]["hidden"] == [4, 0, 5]
    code, _, errors = dropnode(*arguments, "--set", "hidden=4,x", capsys=capsys)
    assert code == 2
    assert "a list of whole numbers" in one_line(errors)


@pytest.mark.parametrize(
    "option",
    [
        *[["--engine", "ray"], ["--address", "auto"], ["--jobs", "2"], ["--timeout", "60"]],
        *[["--seeds", "3"], ["--try", "heads=1,2"]],
    ],
)
def test_an_option_that_a_search_does_not_read_is_refused(
    option: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["tune", "digits", "--method", "graphnas", "--out", str(tmp_path / "search")]
    code, _, errors = dropnode(*arguments, *option, capsys=capsys)
    assert code == 2
    assert one_line(errors).startswith(f"dropnode: {option[0]}: --search controller trains one")
    assert not (tmp_path / "search").exists()


def test_a_path_with_brackets_is_printed_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rich takes [a] for a style, and [/x] for the end of one."""
    (tmp_path / "x[a]").mkdir()
    monkeypatch.chdir(tmp_path)
    save_graph(load_dataset("sbm", nodes=200, classes=2), "x[a]/g.npz")
    arguments = ["train", "x[a]/g.npz", "--set", "max_epochs=2"]
    code, printed, errors = dropnode(*arguments, "--out", "y[b]/[/c]", capsys=capsys)
    assert code == 0, errors
    for told in ("on x[a]/g.npz, preset", "saved in", "look at y[b]/[/c]/curves.png"):
        assert told in printed
    assert "dropnode train x[a]/g.npz --method gcn" in printed
    code, printed, errors = dropnode(*arguments, "--seeds", "2", capsys=capsys)
    assert code == 0, errors
    assert "on x[a]/g.npz, preset" in printed


def test_a_search_finds_something_that_trains_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["tune", "digits", "--method", "graphnas", "--set", "max_epochs=2", "--json"]
    arguments += ["--out", str(tmp_path / "search")]
    code, printed, _ = dropnode(*arguments, "--trials", "2", capsys=capsys)
    assert code == 0
    first = json.loads(one_line(printed))
    code, printed, told = dropnode(*arguments, "--trials", "3", capsys=capsys)
    assert code == 0
    more = json.loads(one_line(printed))
    assert (first["trials"], more["trials"]) == (2, 3)
    assert more["val_accuracy"] >= first["val_accuracy"]
    assert "[3/3]" in told
    best = f"@{tmp_path / 'search' / 'best.yaml'}"
    train = ["train", "digits", "--method", "graphnas", "--set", best]
    code, printed, _ = dropnode(*train, "--json", capsys=capsys)
    assert code == 0
    config = json.loads(printed)["config"]
    assert (config["architecture"], config["max_epochs"]) == (more["setting"]["architecture"], 2)


def test_what_a_search_cannot_do_is_said_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    start = ["tune", "sbm", "--method", "sgc", "--out", "unused"]
    for more, told in (
        (["--search", "optna"], "did you mean 'optuna'"),
        (["--search", "random"], "use staged or optuna"),
        (["--trials", "3"], "add --search optuna"),
        (["--try", "stps=1,2"], "did you mean 'steps'"),
        (["--try", "steps=1,x"], "steps = 'x'"),
        (["--try", "steps"], "expected KEY=A,B"),
        (["--set", "@nowhere.yaml"], "--set @nowhere.yaml: the file cannot be read"),
    ):
        code, printed, errors = dropnode(*start, *more, capsys=capsys)
        assert (code, printed) == (2, "")
        assert told in one_line(errors)
    assert not Path("unused").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--set", f"order={'9' * 400}"], "expected at most 1,000"),
        (["--set", "order=1e18"], "expected at most 1,000"),
        (["--set", f"order={'9' * 5000}"], "expected a whole number"),
        (["--set", "hidden=99999999999999999999"], "expected at most 1,000,000"),
        (["--set", "augmentations=1000000000000"], "expected at most 1,000"),
        (["--seeds", "10000000000"], "expected at most 10,000 seeds"),
        (["--seed", "9" * 30], "expected at most"),
        (["--split-seed", "9" * 30], "expected at most"),
        (["--method", "x" * 3000], "unknown method"),
    ],
)
def test_a_number_that_cannot_be_meant_leaves_nothing_behind(
    arguments: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    code, printed, errors = dropnode("train", *arguments, "--out", str(out), capsys=capsys)
    assert (code, printed) == (2, "")
    assert told in one_line(errors)
    assert len(errors) < 2100
    assert not out.exists()


def test_a_run_that_fails_before_its_first_checkpoint_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dropnode.memory.available_memory", lambda: 10**6)
    out = ["--out", str(tmp_path / "run")]
    code, printed, errors = dropnode("train", *QUICK, "--set", "hidden=4000", *out, capsys=capsys)
    assert (code, printed) == (1, "")
    assert "training needs at least" in one_line(errors)
    assert not (tmp_path / "run").exists()
    monkeypatch.undo()
    assert dropnode("train", *QUICK, *out, capsys=capsys)[0] == 0
