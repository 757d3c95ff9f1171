"""Trials that leave a store as a file arrive in another as they were, or not at all."""

from __future__ import annotations

import csv
import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import damage
from dropnode.errors import ConfigError
from dropnode.experiments.exchange import (
    FORMATS,
    add_missing,
    check_replaceable,
    export_trials,
    read_trials,
)
from dropnode.experiments.record import Record
from dropnode.experiments.store import Store
from dropnode.experiments.trial_row import COLUMNS
from dropnode.experiments.trials import Trial

ODD = [
    "",
    " ",
    ",",
    '"',
    "'",
    "\n",
    "\r",
    "\r\n",
    "\t",
    "\0",
    "é漢🦜",
    'say "no",\nthen\r\nNaN',
    "null",
]
TEXT = st.text(st.characters(codec="utf-8"), max_size=20) | st.sampled_from(ODD)
NAME = TEXT.filter(bool)
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
CONFIG = st.dictionaries(NAME, TEXT | NUMBER | st.booleans() | st.integers(-(2**60), 2**60))
COUNT = st.integers(0, 2**60)
FRACTION = st.floats(0.0, 1.0)
POSITIVE = st.floats(0.0, allow_infinity=False)

SHA256 = st.text("0123456789abcdef", min_size=64, max_size=64)
TIME = st.datetimes().map(lambda time: time.isoformat(timespec="seconds") + "+00:00")
BIN = COUNT.flatmap(
    lambda count: st.tuples(st.just(count), st.floats(0.0, float(count)), st.integers(0, count))
)

TRIAL = st.builds(
    Trial,
    dataset=NAME,
    dataset_sha256=SHA256,
    split=NAME,
    split_seed=COUNT,
    method=NAME,
    revision=st.integers(1, 2**60),
    preset=NAME,
    config=CONFIG,
    seed=COUNT,
)
METRICS = st.fixed_dictionaries(
    {
        "test_accuracy": st.none() | FRACTION,
        "val_accuracy": st.none() | FRACTION,
        "val_loss": st.none() | POSITIVE,
        "best_epoch": st.integers(0, 100),
        "epochs": st.integers(100, 2**60),
    },
    optional={
        "confusion": st.integers(1, 3).flatmap(
            lambda size: st.lists(
                st.lists(COUNT, min_size=size, max_size=size), min_size=size, max_size=size
            )
        ),
        "reliability": st.lists(BIN, min_size=1, max_size=3).map(
            lambda bins: dict(
                zip(
                    ("count", "confidence", "correct"),
                    map(list, zip(*bins, strict=True)),
                    strict=True,
                )
            )
        ),
    },
)
DONE = st.builds(
    Record,
    TRIAL,
    st.just("done"),
    METRICS,
    POSITIVE,
    TIME,
    st.dictionaries(NAME, TEXT, max_size=3),
    st.none(),
)
FAILED = st.builds(
    Record, TRIAL, st.just("failed"), st.just({}), st.none(), TIME, st.just({}), TEXT
)
RECORDS = st.lists(DONE | FAILED, max_size=4, unique_by=lambda record: record.trial.id)


def done(seed: int) -> Record:
    trial = Trial("cora", "ab" * 32, "public", 0, "grand", 1, "official", {"order": 8}, seed)
    metrics = {
        "test_accuracy": 0.8125 + seed / 1000,
        "val_accuracy": 0.75,
        "val_loss": None,
        "best_epoch": 7,
        "epochs": 20,
        "confusion": [[3, 1], [0, 4]],
        "reliability": {"count": [8], "confidence": [6.5], "correct": [7]},
    }
    return Record(trial, "done", metrics, 1.5, "2026-11-16T02:10:00+00:00", {"grand": "0.1"})


def failed(seed: int, error: str = "ValueError: the loss is nan, lower it") -> Record:
    return replace(done(seed), status="failed", metrics={}, seconds=None, versions={}, error=error)


def stored(store: Store) -> dict[str, Record]:
    return {record.trial.id: record for record in store.records()}


def by_id(records: list[Record]) -> dict[str, Record]:
    return {record.trial.id: record for record in records}


def carry(records: list[Record], kind: str, folder: Path) -> tuple[dict[str, Record], int, int]:
    """Take records out of one store and, twice, into another; return it and both counts."""
    path = folder / f"trials.{kind}"
    with Store(folder / "from") as source:
        source.add((record, None) for record in records)
        assert export_trials(source.records(), path) == len(records)
    with Store(folder / "to") as target:
        first, second = (
            add_missing(target, read_trials(path)),
            add_missing(target, read_trials(path)),
        )
        return stored(target), first, second


@pytest.mark.parametrize("kind", FORMATS)
# Without shrinking: every example goes through two stores on the disk.
@settings(max_examples=15, phases=[Phase.generate])
@given(records=RECORDS)
def test_records_come_back_as_they_were(kind: str, records: list[Record]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        arrived, first, _ = carry(records, kind, Path(folder))
    assert arrived == by_id(records)
    assert first == len(records)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("error", ODD, ids=repr)
def test_an_error_comes_back_whatever_it_says(tmp_path: Path, kind: str, error: str) -> None:
    """What a library says in an error is not ours to choose."""
    arrived, _, _ = carry([failed(0, error), done(1)], kind, tmp_path)
    assert arrived == by_id([failed(0, error), done(1)])


@pytest.mark.parametrize("kind", FORMATS)
def test_a_second_import_adds_nothing(tmp_path: Path, kind: str) -> None:
    arrived, first, second = carry([done(0), done(1), failed(2)], kind, tmp_path)
    assert arrived == by_id([done(0), done(1), failed(2)])
    assert (first, second) == (3, 0)


def test_an_import_changes_no_done_trial_and_mends_a_failed_one(tmp_path: Path) -> None:
    other = replace(done(0), metrics=done(0).metrics | {"test_accuracy": 1.0}, seconds=0.1)
    path = tmp_path / "trials.json"
    export_trials([other, done(1), failed(2)], path)
    with Store(tmp_path) as store:
        store.add([(done(0), None), (failed(1), None), (done(2), None)])
        assert add_missing(store, read_trials(path)) == 1
        assert stored(store) == by_id([done(0), done(1), done(2)])


def test_an_older_failure_does_not_come_back(tmp_path: Path) -> None:
    """Such as that of an export from before the trial was tried again."""
    path = tmp_path / "trials.csv"
    export_trials([failed(0, "the first time")], path)
    later = replace(failed(0, "the second time"), finished="2026-11-17T08:00:00+00:00")
    with Store(tmp_path) as store:
        store.add([(later, None)])
        assert add_missing(store, read_trials(path)) == 0
        assert stored(store) == by_id([later])


def test_histories_stay_where_they_are(tmp_path: Path) -> None:
    path = tmp_path / "trials.csv"
    with Store(tmp_path) as store:
        store.add([(done(0), b"every epoch")])
        export_trials(store.records(), path)
        add_missing(store, read_trials(path))
        kept = store.connection.execute("select columns from histories").fetchall()
    assert kept == [(b"every epoch",)]


def edit(path: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Change the rows of an exported file, as a person with an editor would."""
    if path.suffix == ".json":
        content = json.loads(path.read_text())
        change(content["trials"])
        path.write_text(json.dumps(content))
    elif path.suffix == ".csv":
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        change(rows)
        with path.open("w", newline="") as file:
            names = list(dict.fromkeys(name for row in rows for name in row))
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(rows)
    else:
        rows = pyarrow.parquet.read_table(path).to_pylist()
        change(rows)
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)


def other_seed(rows: list[dict[str, Any]]) -> None:
    rows[1]["seed"] = type(rows[1]["seed"])(17)


def other_setting(rows: list[dict[str, Any]]) -> None:
    config = rows[1]["config"]
    rows[1]["config"] = {"order": 4} if isinstance(config, dict) else config.replace("8", "4")


def other_data(rows: list[dict[str, Any]]) -> None:
    rows[1]["dataset_sha256"] = "cd" * 32


def other_id(rows: list[dict[str, Any]]) -> None:
    rows[1]["id"] = rows[0]["id"]


def other_status(rows: list[dict[str, Any]]) -> None:
    rows[1]["status"] = "running"


def no_seed(rows: list[dict[str, Any]]) -> None:
    rows[1]["seed"] = None


def no_end(rows: list[dict[str, Any]]) -> None:
    rows[1]["finished"] = None


WRONG: list[tuple[Callable[[list[dict[str, Any]]], None], str]] = [
    (other_seed, "the id is"),
    (other_setting, "the id is"),
    (other_data, "the id is"),
    (other_id, "the id is"),
    (other_status, "trial.status = 'running'; expected one of done, failed"),
    (no_seed, "trial lacks seed"),
    (no_end, "trial lacks finished"),
]


def assert_refused(path: Path, *told: str) -> None:
    """The file is refused in a line that says all this, and nothing of it was taken over."""
    with Store(path.parent / "to") as store:
        with pytest.raises(ConfigError) as error:
            add_missing(store, read_trials(path))
        assert stored(store) == {}
    for text in (str(path), *told):
        assert text in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(("change", "told"), WRONG, ids=lambda part: getattr(part, "__name__", ""))
def test_one_wrong_row_keeps_the_whole_file_out(
    tmp_path: Path, kind: str, change: Callable[[list[dict[str, Any]]], None], told: str
) -> None:
    path = tmp_path / f"trials.{kind}"
    export_trials([done(0), done(1), done(2)], path)
    edit(path, change)
    assert_refused(path, "trial 2", told, "nothing was imported")


@pytest.mark.parametrize("kind", FORMATS)
def test_an_unknown_column_is_told_with_what_it_may_mean(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"trials.{kind}"
    export_trials([done(0), done(1)], path)

    def rename(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            row["test_acuracy"] = row.pop("test_accuracy")

    edit(path, rename)
    assert_refused(
        path,
        "unknown key 'test_acuracy' in trial; did you mean 'test_accuracy'? Nothing was imported",
    )


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", ["id", "status", "dataset_sha256", "config", "seed", "finished"])
def test_a_column_that_has_to_be_there_is_missed(tmp_path: Path, kind: str, name: str) -> None:
    path = tmp_path / f"trials.{kind}"
    export_trials([done(0), done(1)], path)

    def drop(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            del row[name]

    edit(path, drop)
    assert_refused(
        path, "it has no column id" if (kind, name) == ("csv", "id") else f"trial lacks {name}"
    )


@pytest.mark.parametrize("kind", ["csv", "json"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seed", "three"),
        ("epochs", "1.5"),
        ("test_accuracy", "high"),
        ("config", "order 8"),
        ("config", '["order"]'),
        ("confusion", "[[3, 1], [0"),
        ("versions", "0.1"),
    ],
)
def test_a_value_of_the_wrong_type_is_told_with_its_row_and_column(
    tmp_path: Path, kind: str, name: str, value: str
) -> None:
    path = tmp_path / f"trials.{kind}"
    export_trials([done(0), done(1), done(2)], path)
    edit(path, lambda rows: rows[1].update({name: value}))
    assert_refused(path, "trial 2", name, "nothing was imported")


HUGE = 2**70
RELIABILITY = {"count": [8, 2], "confidence": [6.5, 2.0], "correct": [7, 1]}
CURVES = {"epoch": [1.0, 11.0], "training": [2.0, 1.0], "validation": [2.0, 1.5]}
POISON: list[tuple[str, Any]] = [
    ("id", "0123456789ABCDEF"),
    ("id", "=1+1"),
    ("dataset", ""),
    ("dataset", "\ud800"),
    ("dataset_sha256", "ab"),
    ("split_sha256", "none"),
    ("recipe", "random-edges:rate=0.1"),
    ("split_seed", -1),
    ("split_seed", HUGE),
    ("revision", 0),
    ("revision", HUGE),
    ("seed", -1),
    ("seed", HUGE),
    ("seed", 1.5),
    ("test_accuracy", float("nan")),
    ("test_accuracy", 7.5),
    ("test_accuracy", -0.1),
    ("val_accuracy", float("inf")),
    ("val_loss", -1.0),
    ("val_loss", float("nan")),
    ("best_epoch", 21),
    ("best_epoch", None),
    ("epochs", HUGE),
    ("epochs", None),
    ("seconds", float("-inf")),
    ("seconds", -3.0),
    ("seconds", None),
    ("finished", "yesterday"),
    ("error", "it failed as well"),
    ("config", {"order": float("nan")}),
    ("confusion", [[3, 1], [0]]),
    ("confusion", [[3, 1]]),
    ("confusion", [[3, -1], [0, 4]]),
    ("confusion", [[3, HUGE], [0, 4]]),
    ("confusion", []),
    ("reliability", RELIABILITY | {"count": [8]}),
    ("reliability", RELIABILITY | {"correct": [9, 1]}),
    ("reliability", RELIABILITY | {"correct": [-1, 1]}),
    ("reliability", RELIABILITY | {"confidence": [6.5, 750.0]}),
    ("reliability", RELIABILITY | {"confidence": [6.5, float("nan")]}),
    ("reliability", {"count": [8], "correct": [7]}),
    ("reliability", [8, 6.5, 7]),
    ("measures", {"test_accuracy": 7.5}),
    ("measures", {"loss_gap": float("nan")}),
    ("measures", {"loss_gap": "wide"}),
    ("measures", {"loss_gap": [1.0]}),
    ("measures", {"los_gap": 1.0}),
    ("measures", {"loss_curves": CURVES | {"training": [2.0]}}),
    ("measures", {"loss_curves": CURVES | {"training": [2.0, "low"]}}),
    ("measures", {"loss_curves": {"training": [2.0, 1.0]}}),
    ("measures", {"loss_curves": [1.0]}),
    ("versions", {"torch": 2}),
]


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    # UTF-8 has no half of a surrogate pair, so no CSV file has.
    [
        (kind, *pair)
        for kind in ("csv", "json")
        for pair in POISON
        if (kind, pair[1]) != ("csv", "\ud800")
    ],
    ids=ascii,
)
def test_no_field_of_an_imported_trial_can_hold_what_a_training_does_not_give(
    tmp_path: Path, kind: str, name: str, value: Any
) -> None:
    path = tmp_path / f"trials.{kind}"
    export_trials([done(0), done(1), done(2)], path)
    in_csv = json.dumps(value) if isinstance(value, dict | list) or name == "error" else value
    edit(path, lambda rows: rows[1].update({name: in_csv if kind == "csv" else value}))
    told = "cannot be read" if kind == "json" and is_nan(value) else "trial 2"
    assert_refused(path, told, name if told == "trial 2" else "not a number")
    if kind == "csv":
        assert_refused(path, "line 3")


def is_nan(value: Any) -> bool:
    """Return whether JSON has no such value anywhere in it."""
    return "NaN" in json.dumps(value) or "Infinity" in json.dumps(value)


@pytest.mark.parametrize(
    "change", [{"test_accuracy": 0.5}, {"measures": {"loss_gap": 0.5}}, {"error": None}], ids=str
)
def test_a_failed_trial_has_an_error_and_nothing_else(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    path = tmp_path / "trials.json"
    export_trials([failed(0)], path)
    edit(path, lambda rows: rows[0].update(change))
    assert_refused(path, "trial 1", *change)


def test_a_trial_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trials.json"
    export_trials([done(0), done(1), done(0)], path)
    assert_refused(path, "trial 3", "occurs twice")


def test_json_that_is_nested_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trials.json"
    path.write_text("[" * 100_000)
    assert_refused(path, "nested too deep")


def test_formulas_are_neutral_in_csv_and_come_back(tmp_path: Path) -> None:
    path = tmp_path / "trials.csv"
    record = replace(done(0), trial=replace(done(0).trial, dataset="=cmd()/a.npz", preset="'-x"))
    export_trials([record], path)
    with path.open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["dataset"], row["preset"]) == ("'=cmd()/a.npz", "''-x")
    with Store(tmp_path / "to") as store:
        add_missing(store, read_trials(path))
        assert stored(store) == by_id([record])


def test_a_column_of_the_wrong_type_in_parquet_is_told_too(tmp_path: Path) -> None:
    path = tmp_path / "trials.parquet"
    export_trials([done(0), done(1)], path)

    def count(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            row["config"] = 8

    edit(path, count)
    assert_refused(path, "trial 1", "config")


@pytest.mark.parametrize("record", [done(1), failed(1)], ids=["done", "failed"])
def test_a_csv_file_cut_short_inside_a_row_is_refused(tmp_path: Path, record: Record) -> None:
    """Unless all that is lost is nothing: what comes in must be what went out."""
    whole = tmp_path / "whole.csv"
    export_trials([done(0), record], whole)
    text = whole.read_text()
    last_row = text.index(record.trial.id)
    assert text.count("\n") == 3
    path = tmp_path / "trials.csv"
    accepted = {}
    with Store(tmp_path / "to") as store:
        for end in range(last_row + 1, len(text) - 1):
            path.write_text(text[:end])
            try:
                add_missing(store, read_trials(path))
            except ConfigError:
                assert stored(store) == {}
                continue
            if stored(store) != by_id([done(0), record]):
                accepted[end] = text[last_row:end]
            store.connection.execute("delete from trials")
    assert not accepted, f"taken for whole: {list(accepted.values())[:3]}"


@pytest.mark.parametrize("kind", ["csv.gz", "parquet"])
@pytest.mark.parametrize("flips", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_a_flipped_bit_in_a_file_with_checksums_is_refused_or_harmless(
    tmp_path: Path, kind: str, flips: int
) -> None:
    """The trials in an experiment's folder, from which another machine continues, are csv.gz."""
    path = tmp_path / f"trials.{kind}"
    records = [done(seed) for seed in range(20)]
    export_trials(records, path)
    noticed = 0
    for seed in range(flips):
        with damage.restored(path), Store(tmp_path / str(seed)) as store:
            told = damage.flip_bit(path, seed)
            if damage.error_of(lambda: add_missing(store, read_trials(path)), ConfigError):
                noticed += 1
                assert stored(store) == {}, told
            else:
                assert stored(store) == by_id(records), told
    assert noticed, "no flip was noticed"


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_any_other_file_cut_short_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"trials.{kind}"
    export_trials([done(0), done(1)], path)
    content = path.read_bytes()
    for end in range(0, len(content) - 2, max(1, len(content) // 50)):
        path.write_bytes(content[:end])
        assert_refused(path)


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("csv", b""),
        ("csv", b"date,temperature\n2026-11-16,-3\n"),
        ("csv", b"\xff\xfe\x00\x01"),
        ("csv", b"PK\x03\x04 a spreadsheet"),
        ("json", b"{}"),
        ("json", b"[]"),
        ("json", b"not json"),
        ("json", b'{"trials": {}}'),
        ("json", b'{"trials": [5]}'),
        ("json", b'{"trials": ["cora"]}'),
        ("json", b'{"trials": [null]}'),
        ("json", b"\xff\xfe\x00\x01"),
        ("parquet", b""),
        ("parquet", b"PAR1 but no more"),
        ("parquet", b"id,status\n"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, kind: str, content: bytes) -> None:
    path = tmp_path / f"trials.{kind}"
    path.write_bytes(content)
    assert_refused(path)


def test_a_file_that_is_not_there_or_of_no_known_kind_is_refused(tmp_path: Path) -> None:
    for kind in FORMATS:
        assert_refused(tmp_path / f"missing.{kind}")
    export_trials([done(0)], tmp_path / "trials.json")
    text = (tmp_path / "trials.json").rename(tmp_path / "trials.txt")
    assert_refused(text, "ends in .csv, .json, .parquet")
    with pytest.raises(ConfigError, match=r"ends in \.csv, \.json, \.parquet"):
        export_trials([done(0)], tmp_path / "trials.xlsx")
    assert not (tmp_path / "trials.xlsx").exists()


@pytest.mark.parametrize("kind", FORMATS)
def test_an_export_that_breaks_off_leaves_the_file_as_it_was(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"trials.{kind}"
    export_trials([done(0)], path)
    before = path.read_bytes()
    unserialisable = replace(done(1), versions={"grand": object()})  # type: ignore[dict-item]
    with pytest.raises(TypeError):
        export_trials([done(0), unserialisable], path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_spreadsheet_finds_the_figures_in_columns_of_their_own(tmp_path: Path) -> None:
    export_trials([done(0), failed(1)], tmp_path / "trials.csv")
    with (tmp_path / "trials.csv").open(newline="") as file:
        first, second = csv.DictReader(file)
    assert list(first) == list(COLUMNS)
    assert (first["test_accuracy"], first["epochs"], first["error"]) == ("0.8125", "20", "")
    assert (second["status"], second["test_accuracy"]) == ("failed", "")
    export_trials([done(0), failed(1)], tmp_path / "trials.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "trials.parquet")
    assert table["test_accuracy"].to_pylist() == [0.8125, None]
    assert table["seed"].type == pyarrow.int64()


FOREIGN = [
    ("csv", b"id,name,age\n1,Ada,36\n"),
    ("csv", b"id,status,dataset,method,seed\n1,done,people,census,0\n"),
    ("json", b'{"trials": [{"id": 1, "verdict": "guilty"}]}'),
    ("json", b'{"trials": [], "judges": ["Ada"]}'),
]


@pytest.mark.parametrize(("kind", "content"), FOREIGN)
def test_only_an_export_is_replaced_by_an_export(tmp_path: Path, kind: str, content: bytes) -> None:
    path = tmp_path / f"people.{kind}"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="exists and has no exported trials"):
        check_replaceable(path)


def test_a_foreign_parquet_file_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "people.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"id": [1], "name": ["Ada"]}), path)
    with pytest.raises(ConfigError, match="exists and has no exported trials"):
        check_replaceable(path)


@pytest.mark.parametrize("kind", [*FORMATS, "csv.gz", "json.gz"])
@pytest.mark.parametrize("records", [[], [done(0), failed(1)]], ids=["empty", "two"])
def test_every_export_can_be_replaced(tmp_path: Path, kind: str, records: list[Record]) -> None:
    path = tmp_path / f"trials.{kind}"
    export_trials(records, path)
    check_replaceable(path)
