"""The store under real faults: killed writers, full disks, two at once, files of others."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import damage
from dropnode.engines.base import Failure
from dropnode.errors import ConfigError, DropnodeError, StoreError
from dropnode.experiments.record import Record
from dropnode.experiments.store import EXPORT, FILE, LAYOUT, Store
from dropnode.experiments.trials import Finished, Trial, read_history, write_history
from dropnode.locks import FolderLock

FORKS = pytest.mark.skipif(
    not hasattr(os, "fork"), reason="processes to kill are forked, so that they start at once"
)
BATCH = 3


def trial(seed: int) -> Trial:
    return Trial("cora", "ab" * 32, "public", 0, "grand", 1, "official", {"order": 8}, seed)


def done(seed: int, epochs: int = 20) -> tuple[Record, bytes]:
    """Return a trial that is done; its numbers tell which."""
    metrics = {"test_accuracy": seed / 1000, "val_accuracy": None, "epochs": epochs}
    record = Record(trial(seed), "done", metrics, 1.5, "2026-11-16T02:10:00+00:00", {"grand": "1"})
    return record, history(seed, epochs)


def history(seed: int, epochs: int) -> bytes:
    noise = np.random.default_rng(seed).random(epochs)
    return write_history([{"epoch": float(k + 1), "loss": loss} for k, loss in enumerate(noise)])


def failed(seed: int, error: str = "ValueError: no") -> tuple[Record, None]:
    return Record(trial(seed), "failed", {}, None, "2026-11-16T02:11:00+00:00", {}, error), None


def assert_whole(store: Store, seed: int, epochs: int = 20) -> None:
    record, columns = done(seed, epochs)
    assert store.get(record.trial.id) == record
    found = store.history(record.trial.id)
    assert found is not None
    for name, column in read_history(columns).items():
        assert found[name].tolist() == column.tolist()


def assert_sound(folder: Path) -> None:
    connection = sqlite3.connect(folder / FILE)
    assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
    connection.close()


def test_what_is_added_is_found_by_id_and_condition(tmp_path: Path) -> None:
    with Store(tmp_path / "new" / "folder") as store:
        assert store.add([done(2), failed(1)]) == 2
        assert_whole(store, 2)
        record, _ = failed(1)
        assert store.get(record.trial.id) == record
        assert store.history(record.trial.id) is None
        assert store.get("no such id") is None
        assert store.history("no such id") is None
        assert [one.trial.seed for one in store.records()] == [1, 2]
        assert [one.trial.seed for one in store.records("status = ?", "done")] == [2]
        assert store.statuses() == {trial(1).id: "failed", trial(2).id: "done"}
    with Store(tmp_path / "new" / "folder") as store:
        assert_whole(store, 2)


def test_a_done_trial_is_never_changed(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.add([done(0)])
        better = replace(done(0)[0], metrics={"test_accuracy": 1.0}, seconds=0.1)
        for later in ((better, history(99, 5)), failed(0), done(0)):
            assert store.add([later]) == 0
            assert_whole(store, 0)


def test_a_failure_gives_way_to_a_later_one_and_to_success(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.add([failed(0, "first")])
        assert store.add([failed(0, "second")]) == 1
        found = store.get(trial(0).id)
        assert found is not None
        assert found.error == "second"
        assert store.add([done(0)]) == 1
        assert_whole(store, 0)
        assert len(list(store.records())) == 1


def test_what_an_engine_returns_becomes_a_record(tmp_path: Path) -> None:
    finished = Finished({"epochs": 3}, 2.5, "2026-11-16T02:10:00+00:00", {"torch": "2"})
    record = Record.of(trial(0), finished)
    assert record == Record(
        trial(0), "done", {"epochs": 3}, 2.5, finished.finished, {"torch": "2"}, None
    )
    lost = Record.of(trial(0), Failure("it was ended"))
    assert (lost.status, lost.metrics, lost.error) == ("failed", {}, "it was ended")


def unserialisable(seed: int) -> tuple[Record, None]:
    return replace(done(seed)[0], metrics={"epochs": object()}), None


def of_no_status(seed: int) -> tuple[Record, None]:
    return replace(done(seed)[0], status="running"), None


@pytest.mark.parametrize(
    ("wrong", "error"), [(unserialisable, TypeError), (of_no_status, StoreError)]
)
def test_a_transaction_is_all_or_none(
    tmp_path: Path, wrong: Callable[[int], tuple[Record, None]], error: type[Exception]
) -> None:
    with Store(tmp_path) as store:
        store.add([done(0), failed(1)])
        with pytest.raises(error):
            store.add([done(1), done(2), wrong(3), done(4)])
        assert [one.status for one in store.records()] == ["done", "failed"]
        assert store.history(trial(1).id) is None, "a history without its trial"
        assert store.add([done(1), done(2), done(4)]) == 3, "the store went on as before"


def test_a_source_of_records_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[tuple[Record, bytes | None]]:
        yield done(0)
        yield done(1)
        raise KeyboardInterrupt

    with Store(tmp_path) as store:
        with pytest.raises(KeyboardInterrupt):
            store.add(broken())
        assert store.statuses() == {}
        assert store.add([done(0)]) == 1


def child(function: Callable[..., None], *arguments: Any) -> Any:
    """Start a process that knows all we know already, so that it can be killed early."""
    process = multiprocessing.get_context("fork").Process(target=function, args=arguments)
    process.start()
    return process


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns, or raise what it raises, in a process of its own."""
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *arguments).result(timeout=60)


def add_for_ever(folder: Path, first: int, told: int) -> None:
    """Add batch after batch, and say so as soon as each is stored."""
    with Store(folder) as store:
        for seed in range(first, 10**6, BATCH):
            store.add(done(seed + k, epochs=200) for k in range(BATCH))
            os.write(told, f"{seed}\n".encode())


@FORKS
def test_a_killed_writer_loses_nothing_that_it_had_stored(tmp_path: Path) -> None:
    """Fifteen kills in a row, at random moments, of writers into the same store."""
    moments = random.Random(20261116)
    first = 0
    for _ in range(15):
        reading, writing = os.pipe()
        process = child(add_for_ever, tmp_path, first, writing)
        os.close(writing)
        told = os.read(reading, 100)
        time.sleep(moments.uniform(0.0, 0.06))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        with os.fdopen(reading, "rb") as pipe:
            told += pipe.read()
        added = [int(line) for line in told.decode().splitlines()]
        assert added[0] == first
        with Store(tmp_path) as store:
            for seed in added:
                for k in range(BATCH):
                    assert_whole(store, seed + k, epochs=200)
            seeds = sorted(record.trial.seed for record in store.records())
            histories = [store.history(trial(seed).id) for seed in seeds]
        assert seeds == list(range(len(seeds))), "a batch came in part"
        assert None not in histories
        # It may have been killed after storing a batch and before saying so.
        assert len(seeds) in (added[-1] + BATCH, added[-1] + 2 * BATCH)
        assert_sound(tmp_path)
        first = len(seeds)


def fill_the_disk(folder: Path) -> tuple[int, list[str], int]:
    """Add until nothing more fits; return how many did, the errors, and how many after all."""
    import resource  # which only systems that fork have

    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    errors: list[str] = []
    with Store(folder) as store:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, most))
        seed = 0
        while not errors:
            try:
                store.add([done(seed, epochs=2000)])
                seed += 1
            except StoreError as error:
                errors.append(str(error))
        # It is still full, and what is there can still be read.
        try:
            store.add([done(seed, epochs=2000)])
        except StoreError as error:
            errors.append(str(error))
        for k in range(seed):
            assert_whole(store, k, epochs=2000)
        assert len(store.statuses()) == seed
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        store.add([done(seed, epochs=2000)])
        assert_whole(store, seed, epochs=2000)
        return seed, errors, len(store.statuses())


@FORKS
def test_a_full_disk_is_said_in_a_line_and_costs_nothing(tmp_path: Path) -> None:
    fitted, errors, finally_there = apart(fill_the_disk, tmp_path)
    assert fitted > 5
    assert len(errors) == 2
    for error in errors:
        assert "\n" not in error
        assert str(tmp_path / FILE) in error
        assert "disk" in error
    assert finally_there == fitted + 1
    with Store(tmp_path) as store:
        for seed in range(fitted + 1):
            assert_whole(store, seed, epochs=2000)
    assert_sound(tmp_path)


def add_one_by_one(folder: Path, seeds: range) -> int:
    with Store(folder) as store:
        return sum(store.add([done(seed)]) for seed in seeds)


@FORKS
def test_two_writers_at_once_store_every_trial_once(tmp_path: Path) -> None:
    """Even the first moment, in which the file is made, is shared."""
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        for turn in range(3):
            folder = tmp_path / str(turn)
            shares = [range(0, 40), range(20, 60)]
            futures = [pool.submit(add_one_by_one, folder, share) for share in shares]
            assert sum(future.result(timeout=60) for future in futures) == 60
            with Store(folder) as store:
                assert [record.trial.seed for record in store.records()] == list(range(60))
                for seed in range(60):
                    assert_whole(store, seed)


def add_batches(folder: Path, batches: int) -> None:
    with Store(folder) as store:
        for batch in range(batches):
            store.add(done(batch * BATCH + k) for k in range(BATCH))


@FORKS
def test_a_reader_sees_whole_batches_while_a_writer_writes(tmp_path: Path) -> None:
    batches, seen = 60, [0]
    with Store(tmp_path) as reader:
        process = child(add_batches, tmp_path, batches)
        while process.exitcode is None:
            ids = [record.trial.id for record in reader.records()]
            assert len(ids) % BATCH == 0
            assert len(ids) >= seen[-1]
            assert all(reader.history(one) is not None for one in ids)
            seen.append(len(ids))
        process.join()
        assert process.exitcode == 0
        assert len(reader.statuses()) == batches * BATCH
    assert len(set(seen)) > 3, "the reader was not there at the same time"


def drive_for_ever(folder: Path, told: int) -> None:
    with FolderLock(folder):
        os.write(told, b"driving")
        time.sleep(600)


@FORKS
def test_a_second_driver_is_refused_until_the_first_ends_however_it_does(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    for _ in range(2):
        reading, writing = os.pipe()
        process = child(drive_for_ever, folder, writing)
        os.close(writing)
        assert os.read(reading, 100) == b"driving"
        os.close(reading)
        with pytest.raises(ConfigError, match=f"another process is writing to {folder}"):
            FolderLock(folder)
        # Whoever only reads is not in the way.
        Store(folder).close()
        process.kill()
        process.join()
        with FolderLock(folder):
            pass


def test_two_drivers_in_one_process_are_two_as_well(tmp_path: Path) -> None:
    with FolderLock(tmp_path), pytest.raises(ConfigError, match="another process"):
        FolderLock(tmp_path)
    with FolderLock(tmp_path):
        pass


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / FILE
    file.write_text("what somebody wrote\n" * 100)
    with pytest.raises(StoreError, match="not a database") as told:
        Store(tmp_path)
    assert str(file) in str(told.value)
    assert file.read_text() == "what somebody wrote\n" * 100
    assert list(tmp_path.iterdir()) == [file]


def test_a_row_with_other_numbers_is_an_error_that_names_the_trial(tmp_path: Path) -> None:
    """Such as a flipped bit in a digit, which SQLite cannot notice."""
    with Store(tmp_path) as store:
        store.add([done(0), done(1)])
        store.connection.execute(
            "update trials set metrics = replace(metrics, '0.001', '0.901') where seed = 1"
        )
        with pytest.raises(StoreError, match=f"checksum of trial {trial(1).id} .* move it away"):
            list(store.records())
        assert_whole(store, 0)


def test_a_damaged_history_is_an_error_that_names_the_trial(tmp_path: Path) -> None:
    record, content = done(0)
    with Store(tmp_path) as store:
        for broken in (b"", b"every epoch", content[:50], content[:60] + b"x" + content[61:]):
            store.connection.execute("delete from trials")
            store.connection.execute("delete from histories")
            store.add([(record, broken)])
            with pytest.raises(StoreError, match=f"damaged .the history of trial {trial(0).id}"):
                store.history(trial(0).id)


@pytest.mark.parametrize("flips", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_a_flipped_bit_is_noticed_or_harmless(tmp_path: Path, flips: int) -> None:
    """Nothing that is read from a damaged store differs from what was stored."""
    seeds = range(12)
    with Store(tmp_path) as store:
        store.add(done(seed, epochs=100) for seed in seeds)
    expected = [done(seed, epochs=100) for seed in seeds]
    file, noticed = tmp_path / FILE, 0

    def read() -> None:
        with Store(tmp_path) as store:
            assert list(store.records()) == [record for record, _ in expected]
            for record, content in expected:
                found = store.history(record.trial.id)
                assert found is not None
                for name, column in read_history(content).items():
                    assert found[name].tolist() == column.tolist()

    for seed in range(flips):
        with damage.restored(file):
            told = damage.flip_bit(file, seed)
            try:
                error = damage.error_of(read, DropnodeError)
            except AssertionError:
                pytest.fail(f"other values were read: {told}")
            assert error is None or FILE in error, told
            noticed += error is not None
        for extra in ("-wal", "-shm"):
            file.with_name(FILE + extra).unlink(missing_ok=True)
    assert noticed, "no flip was noticed"


def test_scattered_wrong_bytes_get_the_advice_for_damage(tmp_path: Path) -> None:
    """Those that break a text and not the structure of the file are found by Python alone."""
    with Store(tmp_path) as store:
        store.add(done(seed, epochs=100) for seed in range(40))
    file = tmp_path / FILE
    whole = file.read_bytes()
    (tmp_path / EXPORT).write_bytes(b"exported")
    for first in range(4000, 6000, 100):
        broken = bytearray(whole)
        for place in range(first, len(broken), 997):
            broken[place] ^= 0xFF
        file.write_bytes(broken)
        with pytest.raises(StoreError, match=r"is damaged .* move it away .* dropnode report"):
            look(tmp_path)
        for extra in ("-wal", "-shm"):
            file.with_name(FILE + extra).unlink(missing_ok=True)


@pytest.mark.parametrize("column", ["id", "status", "config", "error"])
def test_a_text_that_is_not_unicode_is_damage(tmp_path: Path, column: str) -> None:
    with Store(tmp_path) as store:
        store.add([done(0)])
        store.connection.execute("pragma ignore_check_constraints = on")
        store.connection.execute(f"update trials set {column} = cast(x'61ff62' as text)")
        with pytest.raises(StoreError, match="is damaged"):
            look(tmp_path)


def test_a_folder_in_place_of_the_file_is_damage(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.raises(
        StoreError, match=r"is damaged \(a folder is in its place\); .* move it away"
    ):
        Store(tmp_path)


@pytest.mark.parametrize("fate", ["cut", "zeros", "another file"])
def test_a_store_that_lost_a_part_is_an_error_with_a_cure(tmp_path: Path, fate: str) -> None:
    with Store(tmp_path) as store:
        store.add(done(seed, epochs=500) for seed in range(20))
    file, other = tmp_path / FILE, tmp_path / "other"
    if fate == "cut":
        damage.truncate(file, file.stat().st_size // 2)
    elif fate == "zeros":
        damage.zero(file, 0, 100)
    else:
        other.write_bytes(b"something else" * 999)
        damage.exchange(file, other)
    with pytest.raises(StoreError, match=f"{FILE} is damaged .* restore it from a copy"):
        look(tmp_path)


def test_a_database_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / FILE)
    connection.execute("create table letters (text)")
    connection.close()
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(ConfigError, match="is a database of something else"):
        Store(tmp_path)
    assert (tmp_path / FILE).read_bytes() == before


def test_a_store_without_checksums_gets_them(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.add([done(0), failed(1)])
        store.connection.execute("alter table trials drop column sha256")
        store.connection.execute("pragma user_version = 2")
    with Store(tmp_path) as store:
        assert_whole(store, 0)
        assert store.add([done(1)]) == 1
        assert_whole(store, 1)
        store.connection.execute("update trials set preset = 'paper' where seed = 0")
        with pytest.raises(StoreError, match="checksum"):
            list(store.records())


def write_for_a_while(folder: Path, told: int) -> None:
    """Hold the lock of a writer of a file that has no tables yet, as its maker does."""
    connection = sqlite3.connect(folder / FILE, isolation_level=None)
    connection.execute("begin immediate")
    os.write(told, b"writing")
    time.sleep(0.5)
    connection.execute("rollback")
    connection.close()


@FORKS
def test_a_store_that_another_process_opens_at_this_moment_is_waited_for(tmp_path: Path) -> None:
    """SQLite itself does not wait while it changes the journal mode."""
    (tmp_path / FILE).touch()
    reading, writing = os.pipe()
    process = child(write_for_a_while, tmp_path, writing)
    assert os.read(reading, 100) == b"writing"
    with Store(tmp_path) as store:
        store.add([done(0)])
        assert_whole(store, 0)
    process.join()
    assert process.exitcode == 0


def open_many(folder: Path, rounds: int) -> list[str]:
    """Open new stores as soon as somebody else does, too; return the errors."""
    errors = []
    for turn in range(rounds):
        # Both wait for the same moment, so that both find no file.
        while time.time() % 0.01 > 0.0005:
            pass
        try:
            Store(folder / str(turn)).close()
        except DropnodeError as error:
            errors.append(str(error))
    return errors


@FORKS
@pytest.mark.parametrize("rounds", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_processes_that_open_a_new_store_at_once_all_can(tmp_path: Path, rounds: int) -> None:
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(3, mp_context=context) as pool:
        futures = [pool.submit(open_many, tmp_path, rounds) for _ in range(3)]
        assert [future.result(timeout=300) for future in futures] == [[], [], []]


def test_a_damaged_store_is_an_error_that_names_it(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.add(done(seed, epochs=500) for seed in range(20))
    file = tmp_path / FILE
    content = bytearray(file.read_bytes())
    content[4096 : len(content) // 2] = bytes(len(content) // 2 - 4096)
    file.write_bytes(content)
    with pytest.raises(StoreError, match=FILE), Store(tmp_path) as store:
        list(store.records())


@pytest.mark.parametrize("layout", [LAYOUT + 1, 99])
def test_a_store_of_another_layout_is_refused_and_left_alone(tmp_path: Path, layout: int) -> None:
    with Store(tmp_path) as store:
        store.add([done(0)])
        store.connection.execute(f"pragma user_version = {layout}")
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(
        ConfigError, match=f"has layout {layout}, but this version reads layout {LAYOUT}"
    ):
        Store(tmp_path)
    assert (tmp_path / FILE).read_bytes() == before


@pytest.fixture
def read_only() -> Iterator[Path]:
    """A folder, with a store in it, in which whoever :func:`nobody` is may only read."""
    # Not tmp_path: nobody else can get through the folders above that.
    folder = Path(tempfile.mkdtemp())
    with FolderLock(folder), Store(folder) as store:
        store.add([done(0)])
    (folder / "empty").mkdir()
    for path in (*folder.iterdir(), folder):
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def drive(folder: Path) -> None:
    with FolderLock(folder), Store(folder):
        pass


def look(folder: Path) -> None:
    with Store(folder) as store:
        list(store.records())


def nobody(act: Callable[[Path], None], folder: Path) -> str:
    """Return the error that a user without rights gets; root would be let do everything."""
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    try:
        act(folder)
    except (OSError, RuntimeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


@FORKS
@pytest.mark.parametrize("act", [drive, look])
@pytest.mark.parametrize("place", [".", "empty", "missing"])
def test_a_folder_without_the_right_to_write_is_named_as_the_cause(
    read_only: Path, act: Callable[[Path], None], place: str
) -> None:
    """An error of a kind that the command line turns into one line."""
    error = apart(nobody, act, read_only / place)
    assert error.startswith(("StoreError", "WorkError", "PermissionError")), error
    assert str(read_only) in error
    assert "another process" not in error
