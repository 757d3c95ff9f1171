"""Many seeds side by side: the same numbers as one by one, kept, resumed and summed up."""

from __future__ import annotations

import filecmp
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from dropnode import cli
from dropnode.cli.seeds import print_failures, print_seeds
from dropnode.engines.base import cores
from dropnode.errors import ConfigError
from dropnode.experiments.run import Request, load, prepare
from dropnode.experiments.run_folder import RunResult
from dropnode.experiments.seeds import SeedsResult, run_seeds
from dropnode.experiments.seeds_bar import SeedsBar
from dropnode.experiments.statistics import Summary, summarise
from dropnode.files import unseal, write_json
from dropnode.settings import MOST_SEED

QUICK = {"max_epochs": 5, "hidden": 16}
OPTIONS = [word for key, value in QUICK.items() for word in ("--set", f"{key}={value}")]
REQUEST = Request("digits", changes=QUICK, seed=3)


@dataclass(frozen=True)
class Called:
    """What a call of the command line left behind."""

    code: int
    printed: str
    told: list[str]
    out: Path

    @property
    def summary(self) -> dict[str, Any]:
        return json.loads(self.printed)


def train(out: Path, *arguments: str) -> Called:
    printed, told = io.StringIO(), io.StringIO()
    with redirect_stdout(printed), redirect_stderr(told):
        command = ["train", "digits", "--seed", "3", "--out", str(out), *arguments, *OPTIONS]
        code = cli._run(command)
    return Called(code, printed.getvalue(), told.getvalue().splitlines(), out)


@pytest.fixture(scope="module")
def one_by_one(tmp_path_factory: pytest.TempPathFactory) -> Called:
    """Seeds 3, 4 and 5, one after the other in one worker."""
    out = tmp_path_factory.mktemp("one-by-one") / "out"
    return train(out, "--seeds", "3", "--jobs", "1", "--json")


@pytest.fixture(scope="module")
def side_by_side(one_by_one: Called, tmp_path_factory: pytest.TempPathFactory) -> Called:
    """Four seeds resumed: 3 is finished, 4 and 5 are not begun, 6 has a broken checkpoint."""
    out = tmp_path_factory.mktemp("side-by-side") / "out"
    shutil.copytree(one_by_one.out / "seed-3", out / "seed-3")
    record, _ = prepare(replace(REQUEST, seed=6), load(REQUEST))
    write_json(out / "seed-6" / "run.json", asdict(record))
    (out / "seed-6" / "checkpoint.safetensors").write_bytes(b"not a checkpoint")
    return train(out, "--seeds", "4", "--jobs", "1000", "--resume", "--json")


def untimed(value: Any) -> Any:
    """Return a result without what two runs may differ in: the clock and the place."""
    if isinstance(value, dict):
        varies = ("seconds", "seconds_per_epoch", "out", "jobs")
        return {key: untimed(part) for key, part in value.items() if key not in varies}
    return [untimed(part) for part in value] if isinstance(value, list) else value


def test_one_json_object_sums_the_seeds_up(one_by_one: Called) -> None:
    assert one_by_one.code == 0, one_by_one.told
    summary = one_by_one.summary
    promised = "dataset method preset split seeds jobs mean std ci95 n runs failed seconds"
    assert list(summary) == promised.split()
    assert summary["seeds"] == [run["seed"] for run in summary["runs"]] == [3, 4, 5]
    assert (summary["jobs"], summary["n"], summary["failed"]) == (1, 3, [])
    accuracies = [run["test_accuracy"] for run in summary["runs"]]
    assert len(set(accuracies)) == 3, "seeds that make no difference"
    assert {key: summary[key] for key in ("mean", "std", "ci95", "n")} == asdict(
        summarise(accuracies)
    )
    assert json.loads((one_by_one.out / "seeds.json").read_text()) == summary
    assert [line.split("  ")[1] for line in one_by_one.told] == [f"{k}/3 seeds" for k in (1, 2, 3)]


def test_the_number_of_jobs_changes_no_bit(one_by_one: Called, side_by_side: Called) -> None:
    assert side_by_side.summary["jobs"] == min(4, cores())
    assert side_by_side.told[0].startswith(f"--jobs 1000 lowered to {cores()}, the cores")
    assert untimed(side_by_side.summary["runs"]) == untimed(one_by_one.summary["runs"])
    for seed in (4, 5):
        for name in ("history.csv", "predictions.csv", "model/weights.safetensors"):
            folder = f"seed-{seed}"
            one, other = one_by_one.out / folder / name, side_by_side.out / folder / name
            assert filecmp.cmp(one, other, shallow=False), f"{folder}/{name} differs"


def test_resume_trains_only_what_is_missing(one_by_one: Called, side_by_side: Called) -> None:
    kept, added = (side_by_side.out / f"seed-{seed}" / "result.json" for seed in (3, 4))
    assert kept.read_bytes() == (one_by_one.out / "seed-3" / "result.json").read_bytes()
    assert unseal(json.loads(added.read_text())) == side_by_side.summary["runs"][1]


def test_a_seed_that_fails_stops_no_other_and_is_told(side_by_side: Called) -> None:
    assert side_by_side.code == 1
    [failure] = side_by_side.summary["failed"]
    assert failure["seed"] == 6
    [line] = [line for line in side_by_side.told if line.startswith("dropnode: ")]
    assert line == f"dropnode: seed 6: {failure['error']}"
    assert line.startswith("dropnode: seed 6: CheckpointError: ")
    assert "seed-6/checkpoint.safetensors" in line
    assert json.loads((side_by_side.out / "seeds.json").read_text()) == side_by_side.summary


def test_a_seed_among_others_is_that_seed_alone(one_by_one: Called) -> None:
    """Seed 4 came after seed 3 in the same process, and owes it nothing."""
    alone = subprocess.run(
        [sys.executable, "-m", "dropnode", "train", "digits", "--seed", "4", "--json", *OPTIONS],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert untimed(json.loads(alone.stdout)) == untimed(one_by_one.summary["runs"][1])


def test_finished_seeds_take_no_process(
    one_by_one: Called, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same call again reads the results, and prints them for a person."""
    monkeypatch.setattr("dropnode.engines.local._Worker", None)
    out = shutil.copytree(one_by_one.out, tmp_path / "out")
    again = train(out, "--seeds", "3", "--resume")
    assert again.code == 0, again.told
    lines = again.printed.splitlines()
    assert [line.split()[0] for line in lines[2:5]] == ["3", "4", "5"]
    assert lines[-1] == f"saved in {out}"
    assert untimed(json.loads((out / "seeds.json").read_text())) == untimed(one_by_one.summary)


class PressesCtrlC:
    """As a person may, right after the first result."""

    def on_result(self, result: RunResult) -> None:
        raise KeyboardInterrupt

    def on_failure(self, seed: int, error: str) -> None:
        pytest.fail(f"seed {seed} failed: {error}")


def test_an_interruption_loses_no_result(one_by_one: Called, tmp_path: Path) -> None:
    out = shutil.copytree(one_by_one.out, tmp_path / "out")
    summary = run_seeds(REQUEST, 3, out=out, resume=True, observers=[PressesCtrlC()])
    assert untimed(asdict(summary)["runs"]) == untimed(one_by_one.summary["runs"][:1])
    assert [failure.seed for failure in summary.failed] == [4, 5]
    told = io.StringIO()
    print_failures(summary, out, Console(file=told, width=40))
    assert told.getvalue() == (
        "Interrupted: 1 of 3 seeds are done. Run the same command with --resume to continue.\n"
    )


def test_another_run_or_foreign_files_are_left_alone(one_by_one: Called, tmp_path: Path) -> None:
    out = one_by_one.out
    with pytest.raises(ConfigError, match="add --resume"):
        run_seeds(REQUEST, 3, out=out)
    other = Request("digits", changes=QUICK | {"hidden": 8}, seed=3)
    with pytest.raises(ConfigError, match=r"seed-3 .*hidden \(16 there, 8 requested\)"):
        run_seeds(other, 3, out=out, resume=True)
    (tmp_path / "thesis.tex").write_text("precious")
    for folder in (tmp_path, out / "seed-3"):
        for resume in (False, True):
            before = sorted(folder.iterdir())
            with pytest.raises(ConfigError, match="is not the folder of several seeds"):
                run_seeds(REQUEST, 3, out=folder, resume=resume)
            assert sorted(folder.iterdir()) == before


def test_the_largest_seed_is_a_seed(threads: None) -> None:
    assert not run_seeds(replace(REQUEST, seed=MOST_SEED), 1, jobs=1).failed
    with pytest.raises(ConfigError, match=f"none above {MOST_SEED}"):
        run_seeds(replace(REQUEST, seed=MOST_SEED), 2, jobs=1)


def test_what_is_wrong_for_every_seed_is_said_once() -> None:
    with pytest.raises(ConfigError, match="did you mean 'temperature'"):
        run_seeds(Request("digits", changes={"temprature": 1.0}), 3)
    with pytest.raises(ConfigError, match="at least 1"):
        run_seeds(REQUEST, 0)
    with pytest.raises(ConfigError, match="at least 1"):
        run_seeds(REQUEST, 2, jobs=0)


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=30).filter(lambda v: len(set(v)) > 1))
def test_the_interval_is_students(correct: list[int]) -> None:
    values = [count / 1000 for count in correct]
    summary = summarise(values)
    mean, half = scipy.stats.tmean(values), scipy.stats.sem(values)
    low, high = scipy.stats.t.interval(0.95, len(values) - 1, loc=mean, scale=half)
    assert summary.mean == pytest.approx(mean)
    assert summary.std == pytest.approx(scipy.stats.tstd(values))
    assert summary.ci95 == pytest.approx((high - low) / 2)
    assert summary.n == len(values)


def test_too_few_seeds_have_no_spread() -> None:
    assert summarise([]) == Summary(mean=None, std=None, ci95=None, n=0)
    assert summarise([0.75]) == Summary(mean=0.75, std=None, ci95=None, n=1)


def result(seed: int, accuracy: float | None, seconds: float = 60.0) -> RunResult:
    return RunResult(
        id=f"{seed:016d}",
        dataset="cora",
        dataset_sha256="ab" * 32,
        recipe="",
        split="public",
        split_sha256="",
        method="grand",
        revision=1,
        preset="official",
        config={},
        seed=seed,
        device="cpu",
        versions={},
        test_accuracy=accuracy,
        val_accuracy=accuracy,
        val_loss=None if accuracy is None else 1.0,
        best_epoch=1000,
        epochs=1200,
        seconds=seconds,
        seconds_per_epoch=seconds / 1200,
        interrupted=False,
        out=None,
    )


def table(accuracies: Sequence[float | None]) -> str:
    runs = [result(seed, accuracy) for seed, accuracy in enumerate(accuracies)]
    known = summarise([accuracy for accuracy in accuracies if accuracy is not None])
    summary = SeedsResult(
        dataset="cora",
        method="grand",
        preset="official",
        split="public",
        seeds=list(range(len(runs))),
        jobs=1,
        **asdict(known),
        runs=runs,
        failed=[],
        seconds=60.0,
    )
    shown = io.StringIO()
    print_seeds(summary, None, Console(file=shown, width=80))
    return shown.getvalue()


def test_the_table_has_a_line_a_seed_and_the_sum_of_them() -> None:
    lines = [line.rstrip() for line in table([0.5, 0.75, 0.625]).splitlines()]
    assert lines == [
        "grand on cora, preset official, split public",
        " seed    test  validation  epochs  seconds",
        "    0  50.0 %      50.0 %   1,200     60.0",
        "    1  75.0 %      75.0 %   1,200     60.0",
        "    2  62.5 %      62.5 %   1,200     60.0",
        "mean over 3 seeds: 62.50 ± 12.50 %",
        "95 % interval of the mean: 31.45 to 93.55 %",
    ]
    assert "±" not in table([0.5])
    assert "mean" not in table([])
    assert "mean" not in table([None])


def bar(log: io.StringIO, **terminal: Any) -> SeedsBar:
    return SeedsBar("grand on cora", 6, 2, Console(file=log, color_system=None, **terminal))


def test_a_log_gets_a_line_a_seed() -> None:
    """Two at a time, a minute each: after two of six, one is half done and three wait."""
    log = io.StringIO()
    with bar(log, width=40) as progress:
        progress.on_result(result(0, 0.5))
        progress.on_failure(1, "killed")
        progress.on_result(result(2, 0.75))
        for seed in (3, 4, 5):
            progress.on_result(result(seed, None))
    lines = log.getvalue().splitlines()
    assert lines[:3] == [
        "grand on cora: seed 0 50.0 %  1/6 seeds  test 50.0 %  about 2:15 left",
        "grand on cora: seed 1 failed  2/6 seeds  test 50.0 %  about 1:45 left",
        "grand on cora: seed 2 75.0 %  3/6 seeds  test 62.5 ± 17.7 %  about 1:15 left",
    ]
    assert lines[5] == "grand on cora: seed 5  6/6 seeds  test 62.5 ± 17.7 %"
    assert len(lines) == 6


def test_a_terminal_shows_one_live_line_that_counts_down(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("dropnode.training.progress.time.monotonic", lambda: now[0])
    screen = io.StringIO()
    with bar(screen, width=80, force_terminal=True) as progress:
        progress.on_result(result(0, 0.5))
        progress.on_result(result(1, 0.75))
        progress.bar.refresh()
        now[0] += 50.0
        progress.bar.refresh()
    text = screen.getvalue()
    assert "2/6 seeds  test 62.5 ± 17.7 % about 1:45 left" in text
    assert "about 0:55 left" in text
    assert "seed 0" not in text
