"""What a person sees of an experiment that runs: a table in a terminal, or lines in a log."""

from __future__ import annotations

import io
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from dropnode.engines.base import Failure
from dropnode.experiments.live_table import LiveTable
from dropnode.experiments.record import Record
from dropnode.experiments.run import Job
from dropnode.experiments.runner import Cell, run_cells
from dropnode.experiments.store import Store
from dropnode.experiments.trials import Data, Finished, Trial

FINISHED = "2026-11-16T02:10:00+00:00"


def cell(name: str, dataset: str = "cora", seeds: int = 3, label: str | None = None) -> Cell:
    trials = tuple(
        Trial(dataset, f"{dataset:0<64}", "public", 0, name, 1, "official", {}, seed)
        for seed in range(seeds)
    )
    return Cell(dataset, name, label or name, trials)


def done(trial: Trial, accuracy: float | None, seconds: float | None = 60.0) -> Record:
    return Record(trial, "done", {"test_accuracy": accuracy}, seconds, FINISHED, {})


def failed(trial: Trial, error: str) -> Record:
    return Record(trial, "failed", {}, None, FINISHED, {}, error)


def stored(*records: Record) -> dict[str, Record]:
    return {record.trial.id: record for record in records}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time in seconds, which goes on when a test says so."""
    now = [1000.0]
    monkeypatch.setattr("dropnode.experiments.live_table.time.monotonic", lambda: now[0])
    return now


class Watched:
    """A live table and what it has shown."""

    def __init__(self, *, terminal: bool, jobs: int = 1, title: str = "mine") -> None:
        self.file = io.StringIO()
        console = Console(file=self.file, force_terminal=terminal, width=100, color_system=None)
        self.table = LiveTable(title, jobs, console)

    @property
    def lines(self) -> list[str]:
        return self.file.getvalue().splitlines()

    def shown(self) -> list[str]:
        """Return the table as it stands, line by line."""
        screen = io.StringIO()
        Console(file=screen, width=100, color_system=None).print(self.table.render())
        return [line.rstrip() for line in screen.getvalue().splitlines()]


@pytest.fixture
def log(clock: list[float]) -> Watched:
    return Watched(terminal=False)


@pytest.fixture
def screen(clock: list[float]) -> Watched:
    return Watched(terminal=True)


def test_a_log_gets_a_line_a_trial(log: Watched) -> None:
    """How many, of how many, what this one was, and what all of its cell are so far."""
    ours, other = cell("grand"), cell("grand-gcn", seeds=1)
    with log.table as table:
        table.on_plan([ours, other], {})
        table.on_end(done(ours.trials[0], 0.85))
        table.on_end(done(ours.trials[2], 0.86))
        table.on_end(done(other.trials[0], 0.8))
        table.on_end(done(ours.trials[1], 0.855))
    assert log.lines == [
        "mine: 0 of 4 trials are stored",
        "[1/4] cora grand seed 0: 85.0 % 85.00 (1/3), about 3:00 left",
        "[2/4] cora grand seed 2: 86.0 % 85.50 ± 0.71 (2/3), about 2:00 left",
        "[3/4] cora grand-gcn seed 0: 80.0 % 80.00 (1/1), about 1:00 left",
        "[4/4] cora grand seed 1: 85.5 % 85.50 ± 0.50 (3/3)",
    ]


def test_of_settings_left_to_validation_the_best_so_far_is_shown(screen: Watched) -> None:
    shallow, deep = (
        replace(
            cell("grand", seeds=1),
            trials=(replace(cell("grand", seeds=1).trials[0], config={"order": order}),),
            setting={"order": order},
        )
        for order in (2, 8)
    )
    screen.table.on_plan([shallow, deep], {})
    for each, accuracy in ((shallow, 0.85), (deep, 0.8)):
        record = done(each.trials[0], accuracy)
        screen.table.on_end(replace(record, metrics={**record.metrics, "val_accuracy": accuracy}))
    assert "85.00 (1/1)" in "\n".join(screen.shown())
    assert "80.00" not in "\n".join(screen.shown())


def test_brackets_in_names_are_no_markup(screen: Watched) -> None:
    screen.table.title = "mine [/x] [see notes]"
    screen.table.on_plan([replace(cell("grand"), dataset="./runs[1]/[b]mine.npz")], {})
    head = screen.shown()[0]
    assert "mine [/x] [see notes]" in head
    assert "./runs[1]/[b]mine.npz" in head


def test_a_failure_is_told_with_its_error_and_stays_counted(log: Watched) -> None:
    ours = cell("grand")
    log.table.on_plan([ours], {})
    log.table.on_end(failed(ours.trials[0], "ValueError: the loss of epoch 31 is nan"))
    log.table.on_end(done(ours.trials[1], 0.85))
    assert log.lines[1:] == [
        "[1/3] cora grand seed 0: failed: ValueError: the loss of epoch 31 is nan",
        "[2/3] cora grand seed 1: 85.0 % 85.00 (1/3, 1 failed), about 1:00 left",
    ]


def test_a_long_error_stays_one_line_of_a_log(log: Watched) -> None:
    ours = cell("grand")
    log.table.on_plan([ours], {})
    log.table.on_end(failed(ours.trials[0], "RuntimeError: " + "no memory " * 30))
    log.table.on_end(failed(ours.trials[1], "RuntimeError: first line\n  second line\n"))
    assert len(log.lines) == 3
    assert log.lines[2].endswith("failed: RuntimeError: first line second line")


def test_brackets_in_an_error_are_no_markup(log: Watched) -> None:
    ours = cell("grand")
    log.table.on_plan([ours], {})
    log.table.on_end(failed(ours.trials[0], "KeyError: [red] in shape[/] [3, 4]"))
    assert log.lines[1].endswith("failed: KeyError: [red] in shape[/] [3, 4]")


def test_stored_trials_count_from_the_start(log: Watched) -> None:
    ours = cell("grand", seeds=4)
    foreign = cell("grand-gat").trials[0]
    before = stored(
        done(ours.trials[0], 0.85), failed(ours.trials[1], "killed"), done(foreign, 0.1, 9000.0)
    )
    log.table.on_plan([ours], before)
    log.table.on_end(done(ours.trials[2], 0.87))
    assert log.lines == [
        "mine: 2 of 4 trials are stored",
        "[3/4] cora grand seed 2: 87.0 % 86.00 ± 1.41 (2/4, 1 failed), about 1:00 left",
    ]


def test_trials_without_test_labels_have_no_accuracy(log: Watched) -> None:
    ours = cell("grand", seeds=2)
    log.table.on_plan([ours], {})
    log.table.on_end(done(ours.trials[0], None))
    assert log.lines[1] == "[1/2] cora grand seed 0: no test labels – (1/2), about 1:00 left"


def test_the_time_left_is_that_of_each_cells_own_trials(screen: Watched) -> None:
    """A cell that takes ten minutes a trial does not make one of ten seconds look slow."""
    slow, fast, unknown = cell("slow"), cell("fast", seeds=5), cell("new", seeds=2)
    table = screen.table
    table.on_plan([slow, fast, unknown], {})
    assert table.seconds_left() is None
    assert "left" not in table.status()
    table.on_end(done(slow.trials[0], 0.8, 600.0))
    table.on_end(done(fast.trials[0], 0.8, 10.0))
    table.on_end(done(fast.trials[1], 0.8, 14.0))
    table.on_end(done(fast.trials[2], 0.8, 500.0))
    # Two slow ones, two fast ones at their median, and two at the mean of everything known.
    assert table.seconds_left() == pytest.approx(2 * 600 + 2 * 14 + 2 * (600 + 10 + 14 + 500) / 4)


def test_imported_trials_tell_nothing_about_time(screen: Watched) -> None:
    ours = cell("grand")
    screen.table.on_plan([ours], stored(done(ours.trials[0], 0.8, None)))
    assert screen.table.seconds_left() is None
    screen.table.on_end(done(ours.trials[1], 0.8, 30.0))
    assert screen.table.seconds_left() == 30


def test_several_at_a_time_are_done_sooner(clock: list[float]) -> None:
    screen = Watched(terminal=True, jobs=4)
    ours = cell("grand", seeds=20)
    screen.table.on_plan([ours], stored(*(done(trial, 0.8) for trial in ours.trials[:4])))
    assert screen.table.seconds_left() == pytest.approx(16 * 60 / 4)
    assert screen.table.status() == "4 done, 0 failed, 4 running, 20 in all, about 4:00 left"


def test_the_last_trial_takes_as_long_however_many_could_run(clock: list[float]) -> None:
    """One trial of a minute is missing and just begun; seven idle workers do not help it."""
    screen = Watched(terminal=True, jobs=8)
    ours = cell("grand", seeds=10)
    screen.table.on_plan([ours], stored(*(done(trial, 0.8) for trial in ours.trials[:9])))
    assert screen.table.seconds_left() == pytest.approx(60)


def test_a_trial_of_two_rows_is_run_once(screen: Watched) -> None:
    one = cell("grand", seeds=3)
    other = Cell("cora", "again", "again", one.trials)
    screen.table.on_plan([one, other], {})
    screen.table.on_end(done(one.trials[0], 0.8))
    assert screen.table.status().startswith("1 done, 0 failed, 1 running, 3 in all")
    assert screen.table.seconds_left() == pytest.approx(120)
    assert [line.split() for line in screen.shown()[1:3]] == [
        ["grand", "80.00", "(1/3)"],
        ["again", "80.00", "(1/3)"],
    ]


def test_the_time_left_counts_down(screen: Watched, clock: list[float]) -> None:
    ours = cell("grand", seeds=3)
    table = screen.table
    table.on_plan([ours], {})
    table.on_end(done(ours.trials[0], 0.8))
    assert table.status().endswith("about 2:00 left")
    clock[0] += 45
    assert table.status().endswith("about 1:15 left")
    clock[0] += 3600
    assert table.status().endswith("about 0:00 left"), "late, and not less than nothing"
    table.on_end(done(ours.trials[1], 0.8))
    assert table.status().endswith("about 1:00 left")
    table.on_end(done(ours.trials[2], 0.8))
    assert table.status() == "3 done, 0 failed, 0 running, 3 in all"


def test_fetching_the_data_takes_nothing_off_the_time_left(
    screen: Watched, clock: list[float]
) -> None:
    """The table is there before the data is, and the first trial begins when that is."""
    ours = cell("grand", seeds=3)
    clock[0] += 100
    screen.table.on_plan([ours], stored(done(ours.trials[0], 0.8)))
    assert screen.table.status().endswith("about 2:00 left")


def test_the_table_has_a_line_a_row_and_a_column_a_dataset(screen: Watched) -> None:
    """Rows may leave out a dataset, and their place is empty."""
    cells = [
        cell("grand", "cora", label="GRAND"),
        cell("grand", "pubmed", label="GRAND"),
        cell("grand-gat", "pubmed", label="with GAT"),
    ]
    table = screen.table
    table.on_plan(cells, {})
    for trial, accuracy in zip(cells[0].trials, (0.85, 0.86, 0.855), strict=True):
        table.on_end(done(trial, accuracy))
    table.on_end(done(cells[2].trials[0], 0.79))
    table.on_end(failed(cells[2].trials[1], "killed"))
    assert screen.shown() == [
        " mine                    cora                 pubmed",
        " GRAND     85.50 ± 0.50 (3/3)                – (0/3)",
        " with GAT                      79.00 (1/3, 1 failed)",
        "4 done, 1 failed, 1 running, 9 in all, about 4:00 left",
    ]


def test_two_rows_of_one_label_are_two_lines(screen: Watched) -> None:
    one, other = cell("grand", label="GRAND"), cell("deeper", label="GRAND")
    screen.table.on_plan([one, other], {})
    screen.table.on_end(done(one.trials[0], 0.85))
    screen.table.on_end(done(other.trials[0], 0.75))
    assert [line.split()[1] for line in screen.shown()[1:3]] == ["85.00", "75.00"]


@pytest.mark.parametrize("label", ["GRAND [fast]", "GRAND [/]", "[bold]"])
def test_brackets_in_a_label_are_no_markup(screen: Watched, label: str) -> None:
    screen.table.on_plan([cell("grand", label=label)], {})
    assert label in screen.shown()[1]


def test_a_terminal_shows_the_table_and_no_lines(screen: Watched) -> None:
    ours = cell("grand", label="GRAND")
    with screen.table as table:
        table.on_plan([ours], {})
        table.on_end(done(ours.trials[0], 0.85))
        table.on_end(done(ours.trials[1], 0.86))
        table.live.refresh()
    text = screen.file.getvalue()
    assert "85.50 ± 0.71 (2/3)" in text
    assert "2 done, 0 failed, 1 running, 3 in all, about 1:00 left" in text
    assert "seed 0" not in text
    assert text.endswith("\x1b[2K"), "the table is gone when it is over"


def test_a_table_before_any_plan(screen: Watched) -> None:
    """As while the data is being read."""
    with screen.table as table:
        table.live.refresh()
    assert screen.shown()[-1] == "0 done, 0 failed, 0 running, 0 in all"


def test_a_second_stage_begins_anew(log: Watched) -> None:
    """A search plans stage after stage; the trials of the first are not those of the second."""
    first, second = cell("order=2", seeds=1), cell("hidden=16", seeds=2)
    log.table.on_plan([first], {})
    record = done(first.trials[0], 0.8)
    log.table.on_end(record)
    log.table.on_plan([second], stored(record))
    log.table.on_end(done(second.trials[0], 0.7))
    assert log.lines[2:] == [
        "mine: 0 of 2 trials are stored",
        "[1/2] cora hidden=16 seed 0: 70.0 % 70.00 (1/2), about 1:00 left",
    ]


def test_the_runner_tells_it_everything(log: Watched, tmp_path: Path) -> None:
    """The first run ends with a failure; the second finds all that, and has nothing to do."""

    def engine(
        trials: Sequence[Trial], job: Job
    ) -> Generator[tuple[Trial, Finished | Failure], None, None]:
        for trial in trials:
            if trial.seed == 1:
                yield trial, Failure("the worker was killed")
            else:
                yield trial, Finished({"test_accuracy": 0.8 + trial.seed / 100}, 60.0, FINISHED)

    ours = cell("grand")
    nothing = Job(Data({}, {}, {}))
    with Store(tmp_path) as store:
        run_cells([ours], store, nothing, engine, observers=[log.table])
        again = Watched(terminal=False)
        run_cells([ours], store, nothing, engine, observers=[again.table])
        retried = Watched(terminal=False)
        run_cells([ours], store, nothing, engine, again=store.failed(), observers=[retried.table])
    assert log.lines == [
        "mine: 0 of 3 trials are stored",
        "[1/3] cora grand seed 0: 80.0 % 80.00 (1/3), about 2:00 left",
        "[2/3] cora grand seed 1: failed: the worker was killed, about 1:00 left",
        "[3/3] cora grand seed 2: 82.0 % 81.00 ± 1.41 (2/3, 1 failed)",
    ]
    assert again.lines == ["mine: 3 of 3 trials are stored"]
    assert retried.lines == [
        "mine: 2 of 3 trials are stored",
        "[3/3] cora grand seed 1: failed: the worker was killed",
    ]
