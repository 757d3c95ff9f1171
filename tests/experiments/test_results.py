"""Results as dataclasses and as JSON, on the results of this repository."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dropnode.errors import ConfigError
from dropnode.experiments.exchange import add_missing, read_trials
from dropnode.experiments.report import write_report
from dropnode.experiments.results import ClaimResult, Results, Verdict, read_results
from dropnode.experiments.store import Store
from dropnode.experiments.writers import as_csv, as_latex, as_markdown, claimed, write_results

ROOT = Path(__file__).parents[2]
FOLDERS = sorted(path.parent for path in (ROOT / "results").glob("*/results.json"))
NAMES = [folder.name for folder in FOLDERS]


def test_there_are_results_to_test_on() -> None:
    assert {"table1", "hyperparameters"} <= set(NAMES)


@pytest.mark.parametrize("folder", FOLDERS, ids=NAMES)
def test_stored_results_are_read_and_written_again_byte_by_byte(
    folder: Path, tmp_path: Path
) -> None:
    """Others read these files: no key, value or order may change."""
    write_results(tmp_path, read_results(folder / "results.json"))
    for ending in ("json", "csv", "md", "tex"):
        name = f"results.{ending}"
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes(), name


@pytest.mark.parametrize("folder", FOLDERS, ids=NAMES)
def test_stored_trials_are_those_of_the_stored_results(folder: Path, tmp_path: Path) -> None:
    """So that ``dropnode reproduce`` in such a folder has nothing left to run."""
    results = read_results(folder / "results.json")
    with Store(tmp_path) as store:
        add_missing(store, read_trials(folder / "trials.csv.gz"))
        assert results.trials <= store.statuses().keys()
        for row in results.rows:
            done = [store.get(identifier) for identifier in row.trials]
            accuracies = [100 * record.metrics["test_accuracy"] for record in done if record]
            assert sum(accuracies) / len(accuracies) == pytest.approx(row.accuracy.mean)


def test_results_have_types() -> None:
    results = read_results(ROOT / "results/table1/results.json")
    row = next(row for row in results.rows if (row.method, row.dataset) == ("grand", "cora"))
    assert (row.label, row.paper, row.paper_std, row.accuracy.n) == ("GRAND", 85.4, 0.4, 100)
    assert row.complete
    assert isinstance(row.trials, tuple)
    assert results.claims[0].verdict is Verdict.CONFIRMED
    assert results.comparisons[0].test.n_first == 100
    assert results.stages == ()
    assert results.datasets[0].class_names[0] == "Theory"


VALID = json.loads((ROOT / "results/initialisation/results.json").read_text(encoding="utf-8"))
STAGES = json.loads((ROOT / "results/tune-pubmed/results.json").read_text(encoding="utf-8"))


def changed(change: Callable[[Any], Any], values: dict[str, Any] = VALID) -> dict[str, Any]:
    values = copy.deepcopy(values)
    change(values)
    return values


DAMAGES: dict[str, tuple[Any, str]] = {
    "a list": ([], r"results = \[\]; expected the keys experiment, title,"),
    "nothing": (None, "results = None; expected the keys experiment, title,"),
    "no rows": (changed(lambda v: v.pop("rows")), "results lacks rows"),
    "no search": (changed(lambda v: v.pop("search")), "results lacks search"),
    "a row without a mean": (
        changed(lambda v: v["rows"][2].pop("mean")),
        r"results.rows\[2\] lacks mean",
    ),
    "a mean of text": (
        changed(lambda v: v["rows"][0].update(mean="85")),
        r"results.rows\[0\].mean = '85'; expected a number",
    ),
    "a mean that is no number": (
        changed(lambda v: v["rows"][0].update(mean=float("nan"))),
        r"results.rows\[0\].mean = nan; expected a number",
    ),
    "a count that is true": (
        changed(lambda v: v["rows"][0].update(n=True)),
        r"results.rows\[0\].n = True; expected a whole number",
    ),
    "a count with a fraction": (
        changed(lambda v: v["rows"][0].update(asked=2.5)),
        r"results.rows\[0\].asked = 2.5; expected a whole number",
    ),
    "a choice that is a number": (
        changed(lambda v: v["search"][0]["rows"][0].update(chosen=1), STAGES),
        r"results.search\[0\].rows\[0\].chosen = 1; expected true or false",
    ),
    "an unknown key": (
        changed(lambda v: v["rows"][0].update(meen=1)),
        r"unknown key 'meen' in results.rows\[0\]; did you mean 'mean'",
    ),
    "a key by the name of its field": (
        changed(lambda v: v.update(stages=v.pop("search"))),
        "unknown key 'stages' in results",
    ),
    "a nested summary": (
        changed(lambda v: v["rows"][0].update(accuracy={"mean": 1.0})),
        r"unknown key 'accuracy' in results.rows\[0\]",
    ),
    "an unknown verdict": (
        changed(lambda v: v["claims"][0].update(verdict="proved")),
        r"results.claims\[0\].verdict = 'proved'; expected one of confirmed, contradicted,",
    ),
    "a verdict that is a list": (
        changed(lambda v: v["claims"][0].update(verdict=[])),
        r"results.claims\[0\].verdict = \[\]; expected one of confirmed, contradicted,",
    ),
    "trials that are no list": (
        changed(lambda v: v["rows"][0].update(trials="abc")),
        r"results.rows\[0\].trials = 'abc'; expected a list",
    ),
    "a row without trials": (
        changed(lambda v: v["rows"][0].update(trials=[])),
        r"results.rows\[0\].trials = \(\); expected a list of words, at least one",
    ),
    "datasets that are none": (
        changed(lambda v: v.update(datasets=None)),
        "results.datasets = None; expected a list",
    ),
    "a long value": (
        changed(lambda v: v.update(title=["x" * 500])),
        "results.title = .{60}; expected a word",
    ),
}


@pytest.mark.parametrize(("values", "message"), DAMAGES.values(), ids=DAMAGES.keys())
def test_reading_is_strict(values: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Results.from_json(values)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "Expecting value"),
        ('{"rows": [', "Expecting value"),
        (json.dumps(VALID).replace('"n": 20', '"n": NaN'), "NaN is not a number"),
        (json.dumps(VALID).replace('"n": 20', '"n": 20, "n": 21'), "'n' occurs twice"),
        (json.dumps(changed(lambda v: v.pop("command"))), "results lacks command"),
        (b"\xff\xfe{", "decode|Expecting"),
    ],
)
def test_a_damaged_file_is_an_error_that_says_what_to_do(
    tmp_path: Path, content: str | bytes, message: str
) -> None:
    data = content if isinstance(content, bytes) else content.encode()
    (tmp_path / "results.json").write_bytes(data)
    with pytest.raises(ConfigError, match=message) as raised:
        write_report(tmp_path)
    assert str(tmp_path / "results.json") in str(raised.value)
    assert f"dropnode report {tmp_path}" in str(raised.value)
    assert not (tmp_path / "report.html").exists()


def test_rows_without_further_measures_do_not_mention_them() -> None:
    results = Results.from_json(VALID)
    assert results.rows[0].measures == {}
    assert "measures" not in results.as_json()["rows"][0]
    for write in (as_csv, as_markdown, as_latex):
        assert "measure" not in write(results)


@pytest.mark.parametrize(
    ("measure", "low", "high", "text"),
    [
        ("", 0.00031, 0.00049, "+0.00 to +0.00"),
        ("val_loss", 0.00031, 0.00049, "+0.00031 to +0.00049"),
        ("val_loss", -0.31, 0.49, "-0.31 to +0.49"),
        ("val_loss", 12.0, 250.0, "+12.00 to +250.00"),
        ("val_loss", 0.5, 0.5, "+0.50 to +0.50"),
        ("val_loss", None, None, "–"),
    ],
)
def test_the_bounds_of_a_claimed_difference_can_be_told_apart(
    measure: str, low: float | None, high: float | None, text: str
) -> None:
    known = (None, 5, 5, None, Verdict.TOO_FEW_SEEDS, measure)
    claim = ClaimResult("so it is", "cora", "grand", "gcn", low, *known, low=low, high=high)
    difference, bounds = claimed(claim)
    assert bounds == text
    assert difference == text.partition(" ")[0]
