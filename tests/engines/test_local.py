"""Items on several processes, some of which raise, crash, are killed or lose their parent."""

from __future__ import annotations

import multiprocessing
import operator
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tasks

from dropnode.data import load_dataset
from dropnode.engines.base import Failure, cores, usable_jobs
from dropnode.engines.local import run_local
from dropnode.graph import Graph, Split

# A parent for other processes to interrupt and to kill.
PARENT = """
import sys
from pathlib import Path
import tasks
from dropnode.engines.local import run_local
folder = Path(sys.argv[1])
try:
    for outcome in run_local(tasks.linger, ["a", "b", "c"], 2, shared=folder):
        print(outcome)
except KeyboardInterrupt:
    sys.exit("interrupted")
"""

LINUX = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="which processes live is read from /proc"
)


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files that has to be empty again afterwards, as if never used."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield folder
    assert list(folder.iterdir()) == []
    assert multiprocessing.active_children() == []


def wait_until(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def gone(process: int) -> bool:
    """Whether a process has ended; a zombie that nobody has collected yet has."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return True
    return status.rpartition(")")[2].split()[0] == "Z"


def test_bad_items_fail_alone(scratch: Path) -> None:
    """Whatever an item does to its process, the others have results, and every cause is told."""
    asked = ["one", "raise", "kill", "crash", "exit", "unpicklable", "large", "two"]
    outcomes = dict(run_local(tasks.behave, asked, 2))
    assert outcomes.keys() == set(asked)
    failures = {item: outcome for item, outcome in outcomes.items() if type(outcome) is Failure}
    assert failures.keys() == {"raise", "kill", "crash", "exit", "unpicklable"}
    assert failures["raise"].error == "ValueError: this item is wrong"
    assert "signal 9 (Killed)" in failures["kill"].error
    assert "signal 11 (Segmentation fault)" in failures["crash"].error
    assert "exit code 3" in failures["exit"].error
    assert "pickle" in failures["unpicklable"].error
    assert [outcomes[item][0] for item in ("one", "two")] == ["one", "two"]
    assert outcomes["large"][0] == "x" * 5_000_000


def test_one_worker_takes_item_after_item_until_it_dies(scratch: Path) -> None:
    outcomes = list(run_local(tasks.behave, ["one", "raise", "two", "kill", "three"], 1))
    assert [item for item, _ in outcomes] == ["one", "raise", "two", "kill", "three"]
    process = {item: outcome[1] for item, outcome in outcomes if type(outcome) is tuple}
    assert process["one"] == process["two"] != os.getpid(), "an item that raises costs no process"
    assert process["three"] not in (process["two"], os.getpid())


def test_items_run_side_by_side(tmp_path: Path, scratch: Path) -> None:
    folder = tmp_path / "meeting"
    folder.mkdir()
    outcomes = dict(run_local(tasks.meet, ["a", "b"], 2, shared=folder))
    assert outcomes == {"a": True, "b": True}


def test_no_items_no_processes(scratch: Path) -> None:
    assert list(run_local(tasks.behave, [], 2)) == []
    with pytest.raises(ValueError, match="jobs is 0"):
        list(run_local(tasks.behave, ["one"], 0))


@LINUX
def test_leaving_early_ends_the_workers(tmp_path: Path, scratch: Path) -> None:
    outcomes = run_local(tasks.behave, ["one", "two", "three"], 2)
    _, first = next(outcomes)
    assert not isinstance(first, Failure)
    assert len(multiprocessing.active_children()) == 2
    outcomes.close()  # The fixture sees that nothing is left.
    assert gone(first[1])


def test_an_item_that_takes_too_long_is_ended_alone(scratch: Path) -> None:
    """Every item has its own time, however many its worker has had before."""
    asked = [0.9, 0.9, 0.9, 3600.0, 0.0]
    outcomes = list(run_local(operator.call, asked, 1, shared=time.sleep, timeout=2.5))
    assert [seconds for seconds, _ in outcomes] == asked
    late = Failure("no result within 2.5 seconds, so it was stopped; allow more time")
    assert [outcome for _, outcome in outcomes] == [None, None, None, late, None]


@LINUX
def test_a_late_item_that_will_not_end_is_killed(tmp_path: Path, scratch: Path) -> None:
    """Two at a time, in workers that take no notice of SIGTERM."""
    folder, survived = tmp_path / "started", []
    folder.mkdir()

    def pester() -> None:
        for name in ("a", "b"):
            wait_until((folder / name).exists, "no workers came up")
            worker = int((folder / name).read_text())
            os.kill(worker, signal.SIGTERM)
            time.sleep(0.2)
            survived.append(not gone(worker))

    pestering = threading.Thread(target=pester)
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # which processes inherit
    try:
        pestering.start()
        started = time.monotonic()
        outcomes = dict(run_local(tasks.linger, ["a", "b"], 2, shared=folder, timeout=2.5))
        took = time.monotonic() - started
    finally:
        signal.signal(signal.SIGTERM, before)
        pestering.join()
    assert survived == [True, True]
    assert outcomes.keys() == {"a", "b"}
    for outcome in outcomes.values():
        assert isinstance(outcome, Failure)
        assert "no result within 2.5 seconds" in outcome.error
    assert took < 20
    assert all(gone(int((folder / name).read_text())) for name in ("a", "b"))


def test_nothing_of_an_item_stays_in_memory(scratch: Path) -> None:
    outcomes = run_local(tasks.leave_a_cycle, range(3), 1)
    assert [lingers for _, lingers in outcomes] == [False] * 3


def test_workers_compute_with_one_thread(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    names = ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"]
    assert dict(run_local(tasks.environment, names, 1)) == dict.fromkeys(names, "1")
    assert os.environ["OMP_NUM_THREADS"] == "2", "the caller's own setting was changed"
    assert "MKL_NUM_THREADS" not in os.environ
    assert list(run_local(tasks.torch_threads, ["torch"], 1)) == [("torch", 1)]


def sparse_without_edges() -> Graph:
    """A graph with empty arrays, ids of its own, and an empty part of the split."""
    split = Split([0, 1], [], [2])
    return Graph.from_edges([], np.eye(3), [0, 1, None], ids=["x", "y", ("z", 1)], split=split)


@pytest.mark.parametrize(
    "make", [lambda: load_dataset("digits"), lambda: load_dataset("cora"), sparse_without_edges]
)
def test_a_shared_graph_is_the_same_graph_in_files(
    make: Callable[[], Graph], scratch: Path
) -> None:
    graph = make()
    (_, seen), *_ = run_local(tasks.examine, ["graph"], 1, shared=graph)
    assert not isinstance(seen, Failure), seen
    fingerprint, mapped, writeable = seen
    assert fingerprint == graph.fingerprint()
    assert all(mapped), "a worker has a copy of its own"
    assert not any(writeable), "a worker could change what the others read"


class Orphanage:
    """A parent process whose two workers compute for ever."""

    def __init__(self, tmp_path: Path) -> None:
        self.scratch = tmp_path / "scratch"
        self.started = tmp_path / "started"
        for folder in (self.scratch, self.started):
            folder.mkdir()
        path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        self.parent = subprocess.Popen(
            [sys.executable, "-c", PARENT, str(self.started)],
            env=os.environ | {"TMPDIR": str(self.scratch), "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait_for_workers(self) -> list[int]:
        running = [self.started / name for name in ("a", "b")]
        wait_until(lambda: all(path.exists() for path in running), "no workers came up")
        workers = [int(path.read_text()) for path in running]
        assert not any(gone(worker) for worker in workers)
        assert len(list(self.scratch.iterdir())) == 1
        return workers

    def everyone(self) -> list[int]:
        """Every process that the parent has brought about: they are of its session."""
        members = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and not gone(int(entry.name)):
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except (FileNotFoundError, ProcessLookupError):
                    continue
                if int(fields[3]) == self.parent.pid:
                    members.append(int(entry.name))
        return members

    def assert_nothing_left(self) -> None:
        wait_until(lambda: not self.everyone(), "processes were left behind")
        assert list(self.scratch.iterdir()) == []
        assert not (self.started / "c").exists(), "an item was started after the end"


@pytest.fixture
def orphanage(tmp_path: Path) -> Iterator[Orphanage]:
    made = Orphanage(tmp_path)
    yield made
    for process in made.everyone():  # What a failed test leaves must not disturb the next.
        os.kill(process, signal.SIGKILL)
    made.parent.communicate()


@LINUX
@pytest.mark.parametrize("who", ["parent", "everyone"])
def test_ctrl_c_ends_all_and_leaves_nothing(orphanage: Orphanage, who: str) -> None:
    """A script signals the parent alone; a terminal signals every process of the group."""
    orphanage.wait_for_workers()
    send = os.kill if who == "parent" else os.killpg
    pressed = time.monotonic()
    send(orphanage.parent.pid, signal.SIGINT)
    printed, errors = orphanage.parent.communicate(timeout=30)
    assert time.monotonic() - pressed < 5
    assert (orphanage.parent.returncode, printed, errors) == (1, "", "interrupted\n")
    orphanage.assert_nothing_left()


@LINUX
@pytest.mark.parametrize("delay", [0.05, 0.15, 0.3])
def test_ctrl_c_while_workers_are_starting_is_as_quiet(orphanage: Orphanage, delay: float) -> None:
    wait_until(lambda: list(orphanage.scratch.iterdir()), "the parent did not come so far")
    time.sleep(delay)
    os.killpg(orphanage.parent.pid, signal.SIGINT)
    printed, errors = orphanage.parent.communicate(timeout=30)
    assert (orphanage.parent.returncode, printed, errors) == (1, "", "interrupted\n")
    orphanage.assert_nothing_left()


@LINUX
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_workers_stop_at_once_when_their_parent_dies(
    orphanage: Orphanage, how: signal.Signals
) -> None:
    workers = orphanage.wait_for_workers()
    os.kill(orphanage.parent.pid, how)
    died = time.monotonic()
    wait_until(lambda: all(gone(worker) for worker in workers), "orphans went on computing")
    assert time.monotonic() - died < 5
    orphanage.assert_nothing_left()


@LINUX
def test_a_killed_worker_is_replaced_while_the_others_go_on(orphanage: Orphanage) -> None:
    """From outside, as the system does when memory runs out."""
    first, second = orphanage.wait_for_workers()
    os.kill(first, signal.SIGKILL)
    wait_until((orphanage.started / "c").exists, "nobody took over")
    third = int((orphanage.started / "c").read_text())
    assert third not in (first, second)
    assert not gone(second)
    os.kill(orphanage.parent.pid, signal.SIGINT)
    printed, _ = orphanage.parent.communicate(timeout=30)
    assert "signal 9 (Killed)" in printed
    assert printed.startswith("('a', Failure")


@LINUX
def test_cores_are_those_this_process_may_use() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert cores() == 1
        assert usable_jobs(8, 5) == 1
    finally:
        os.sched_setaffinity(0, allowed)
    assert cores() == len(allowed)
    assert usable_jobs(None, 1) == 1
    assert usable_jobs(None, 10_000) == len(allowed)


def test_a_script_that_works_at_its_top_level_is_not_run_again_by_workers(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "print('runs', flush=True)\n"
        "import operator\n"
        "from dropnode.engines.local import run_local\n"
        "print(sorted(run_local(operator.add, [1, 2], 2, shared=10)))\n"
        "print(__file__ == __import__('sys').argv[0])\n"
    )
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout.splitlines() == ["runs", "[(1, 11), (2, 12)]", "True"], done.stderr
