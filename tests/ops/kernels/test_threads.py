"""Every piece of work is done once, errors reach the caller, and limits stay where they are set."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dropnode.data import load_dataset
from dropnode.errors import TrainingError
from dropnode.graph import Graph, Split
from dropnode.methods.grand.config import preset
from dropnode.methods.grand.model import Grand
from dropnode.methods.table import make_method
from dropnode.ops.kernels import threads as threads_module
from dropnode.ops.kernels.threads import (
    Threads,
    at_most,
    even_ranges,
    in_parallel,
    in_parallel_whole,
    kernel_threads,
    ranges,
    settle,
)
from dropnode.ops.randomness import Stream
from dropnode.training import Method, Phase, State, train

Result = TypeVar("Result")


@pytest.fixture(params=[1, 2, 5])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """Let torch, and so the kernels, use this many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 8, 100])
def test_every_piece_is_worked_on_once(threads: int, count: int) -> None:
    done: list[int] = []
    in_parallel(done.append, range(count))
    assert Counter(done) == Counter(range(count))
    again: list[int] = []
    in_parallel(again.append, (piece for piece in done))
    assert Counter(again) == Counter(range(count))


def test_pieces_run_side_by_side(threads: int) -> None:
    """Each piece waits for the others: alone, the first would wait for ever."""
    together = threading.Barrier(threads, timeout=20)
    workers = set()

    def meet(piece: int) -> None:
        together.wait()
        workers.add(threading.get_ident())

    in_parallel(meet, range(threads))
    assert len(workers) == threads
    assert threading.get_ident() in workers, "the caller works too"


@pytest.mark.parametrize("count", [1, 2, 4, 5, 7])
def test_whole_pieces_go_to_threads_if_there_are_enough(threads: int, count: int) -> None:
    """The parts of a piece share its thread, or all threads where whole pieces are too few."""
    workers: dict[int, set[int]] = {piece: set() for piece in range(count)}
    inside = [threading.Barrier(threads, timeout=20) for _ in range(count)]

    def whole(piece: int) -> None:
        def part(number: int) -> None:
            workers[piece].add(threading.get_ident())
            if count < threads:
                inside[piece].wait()

        in_parallel(part, range(threads))

    in_parallel_whole(whole, range(count))
    assert {len(each) for each in workers.values()} == {1 if count >= threads else threads}


def test_a_slow_piece_does_not_hold_up_the_others(threads: int) -> None:
    """Whoever is free takes the next piece, and the call returns when the last is done."""
    done = []
    others_done = threading.Event()

    def work(piece: int) -> None:
        if piece == 0 and threads > 1:
            assert others_done.wait(20), "the others wait for the slow piece"
        done.append(piece)
        if len(done) == 19:
            others_done.set()

    in_parallel(work, range(20))
    assert sorted(done) == list(range(20))
    assert done.index(0) == (0 if threads == 1 else 19)


@pytest.mark.parametrize("failing", [0, 1, 6, 9])
def test_an_error_in_any_piece_reaches_the_caller(threads: int, failing: int) -> None:
    def work(piece: int) -> None:
        time.sleep(0.002)
        if piece == failing:
            raise ArithmeticError(f"piece {piece}")

    with pytest.raises(ArithmeticError, match=f"piece {failing}"):
        in_parallel(work, range(10))
    # The threads live on.
    done: list[int] = []
    in_parallel(done.append, range(10))
    assert sorted(done) == list(range(10))


@given(st.integers(0, 5000), st.integers(1, 40), st.sampled_from([1, 2, 16, 64]))
def test_ranges_cover_everything_once(size: int, pieces: int, multiple: int) -> None:
    cut = ranges(size, pieces, multiple)
    assert len(cut) <= pieces
    assert [place for start, stop in cut for place in range(start, stop)] == list(range(size))
    for start, stop in cut:
        assert start < stop
        assert start % multiple == 0
    lengths = [stop - start for start, stop in cut]
    # All alike but the last, and none longer than its share, rounded up.
    assert len(set(lengths[:-1])) <= 1
    assert max(lengths, default=0) < size / pieces + multiple


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_an_error_waits_until_nobody_works_any_more() -> None:
    """Otherwise another thread would go on writing into arrays that the caller has given up."""
    together, done, here = threading.Barrier(2), [], threading.get_ident()

    def work(piece: int) -> None:
        if piece < 2:
            together.wait()
        if threading.get_ident() == here:
            raise ValueError
        time.sleep(0.1)
        done.append(piece)

    with pytest.raises(ValueError):  # noqa: PT011
        in_parallel(work, range(3))
    before = list(done)
    time.sleep(0.3)
    assert done == before


@pytest.mark.usefixtures("two_threads")
def test_a_piece_may_be_cut_into_pieces_itself() -> None:
    done: list[tuple[int, int]] = []

    def work(piece: int) -> None:
        in_parallel(lambda inner: done.append((piece, inner)), range(3))

    in_parallel(work, range(4))
    assert sorted(done) == [(piece, inner) for piece in range(4) for inner in range(3)]


FORKED = """
import faulthandler, os, sys, warnings
import torch
from dropnode.data import load_dataset
from dropnode.methods.table import make_method
from dropnode.ops.kernels.threads import in_parallel
from dropnode.ops.randomness import Stream
from dropnode.training import train

def fit():
    choice = make_method("grand", "sbm", changes={"max_epochs": 2})
    train(choice.method, graph)
    in_parallel(lambda piece: None, range(4))
    square = torch.ones(600, 600)
    return choice.method.logits(), (square @ square).sum()

torch.set_num_threads(2)
graph = load_dataset("sbm", nodes=300, features=8)
expected = fit()
# Another thread is in the middle of a step that draws from torch's generator.
import threading
held, over = threading.Event(), threading.Event()
def hold():
    with Stream(0).torch_global():
        held.set()
        over.wait()
other = threading.Thread(target=hold)
other.start()
held.wait()
warnings.simplefilter("ignore", DeprecationWarning)
child = os.fork()
if child == 0:
    faulthandler.dump_traceback_later(60, exit=True)
    with Stream(0).torch_global():
        found = fit()
    same = all(torch.allclose(one, two, rtol=1e-4, atol=1e-5) for one, two in zip(found, expected))
    os._exit(0 if same and torch.get_num_threads() == 1 else 3)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
over.set()
other.join()
assert torch.get_num_threads() == 2, "the parent keeps its threads"
sys.exit(code)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on Windows")
def test_a_process_forked_after_a_fit_can_fit() -> None:
    """OpenMP would wait for ever for the threads that only the parent has."""
    environment = os.environ | {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}
    ended = subprocess.run(
        [sys.executable, "-c", FORKED], env=environment, capture_output=True, text=True, timeout=200
    )
    assert ended.returncode == 0, ended.stderr


class OwnMethod(Method):
    """A method that somebody else wrote: it uses torch as soon as a training begins."""

    def prepare(self, graph: Graph, split: Split, stream: Stream) -> None:
        # Large enough to be shared among threads.
        self.answer = torch.ones(2**20).sqrt()[: graph.num_classes].expand(graph.num_nodes, -1)

    def phases(self) -> list[Phase]:
        return []

    def logits(self, graph: Graph | None = None, rows: np.ndarray | None = None) -> torch.Tensor:
        return self.answer

    def state(self) -> State:
        return {}

    def load_state(self, state: State) -> None:
        pass


@pytest.mark.usefixtures("two_threads")
def test_a_thread_never_takes_the_limit_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch stores a limit for the process for a moment, in which a thread may use it first."""
    # Large enough for torch to share an operation among threads; only then it reads their number.
    graph = load_dataset("sbm", nodes=2000, features=40)
    inside, over = threading.Event(), threading.Event()
    restored, stored = threads_module._bystander(), threads_module._stored
    arrived = threading.Semaphore(0)

    class Watched:
        """The lock of the stored number, which says when a thread comes to it."""

        def __enter__(self) -> None:
            if inside.is_set():
                arrived.release()
            stored.acquire()

        def __exit__(self, *_: object) -> None:
            stored.release()

    class Slow:
        def submit(self, *call: Any) -> Any:
            inside.set()
            assert over.wait(90)
            return restored.submit(*call)

    def limit() -> None:
        with at_most(Threads(torch=1)):
            pass

    fitted, other = (make_method("mlp", "any", changes={"max_epochs": 1}).method for _ in range(2))
    train(fitted, graph)
    uses: list[Callable[[], object]] = [
        lambda: train(other, graph),
        lambda: train(OwnMethod(), graph),
        lambda: make_method("mlp", "any"),
        lambda: fitted.held(graph.features),
        fitted.logits,
        settle,
    ]

    def count(use: Callable[[], object]) -> int:
        try:
            use()
            return torch.get_num_threads()
        finally:
            arrived.release()

    monkeypatch.setattr(threads_module, "_bystander", Slow)
    monkeypatch.setattr(threads_module, "_stored", Watched())
    with ThreadPoolExecutor(len(uses) + 1) as executor:
        limited = executor.submit(limit)
        assert inside.wait(20)
        counts = [executor.submit(count, use) for use in uses]
        # Each waits for the lock, or has gone past it.
        for _ in uses:
            assert arrived.acquire(timeout=60)
        over.set()
        assert [each.result(60) for each in counts] == [2] * len(uses)
        limited.result(20)


@pytest.mark.usefixtures("two_threads")
def test_torch_and_kernels_are_limited_apart() -> None:
    with at_most(Threads(torch=1)):
        assert (torch.get_num_threads(), kernel_threads()) == (1, 2)
        with at_most(Threads(kernels=1)):
            assert (torch.get_num_threads(), kernel_threads()) == (1, 1)
        assert (torch.get_num_threads(), kernel_threads()) == (1, 2)
        with at_most(Threads()):
            assert (torch.get_num_threads(), kernel_threads()) == (1, 2)
    with pytest.raises(KeyError), at_most(Threads(torch=1, kernels=1)):
        raise KeyError
    assert (torch.get_num_threads(), kernel_threads()) == (2, 2)
    with at_most(Threads(torch=8, kernels=8)):
        assert (torch.get_num_threads(), kernel_threads()) == (2, 2), "a limit, not a wish"


@pytest.mark.usefixtures("two_threads")
def test_a_limit_is_gone_after_an_epoch_and_after_a_failure() -> None:
    """Training small graphs must not leave the process with one thread."""
    graph = load_dataset("sbm", nodes=300, features=8)
    _, config = preset("default", "sbm")
    train(Grand(config.replace(max_epochs=2)), graph)
    assert (torch.get_num_threads(), kernel_threads()) == (2, 2)
    with pytest.raises(TrainingError):
        train(Grand(config.replace(max_epochs=5, learning_rate=1e30)), graph)
    assert (torch.get_num_threads(), kernel_threads()) == (2, 2)


def on_a_new_thread(function: Callable[[], Result]) -> Result:
    """Return what a function returns on a thread that has never used torch."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(function).result(20)


def limits() -> tuple[int, int]:
    return torch.get_num_threads(), kernel_threads()


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("limit", [Threads(torch=1), Threads(kernels=1), Threads(1, 1)])
def test_a_limit_is_for_one_thread(limit: Threads) -> None:
    """Neither a thread that runs already nor one that starts meanwhile is limited."""
    with ThreadPoolExecutor(1) as older:
        assert older.submit(limits).result(20) == (2, 2)
        with at_most(limit):
            assert limits() == (limit.torch or 2, limit.kernels or 2)
            assert older.submit(limits).result(20) == (2, 2)
            assert on_a_new_thread(limits) == (2, 2)
            with at_most(Threads(1, 1)):
                assert on_a_new_thread(limits) == (2, 2)
            assert on_a_new_thread(limits) == (2, 2)
        assert older.submit(limits).result(20) == (2, 2)
    assert on_a_new_thread(limits) == (2, 2)


def test_limits_within_limits_are_for_one_thread_too(threads: int) -> None:
    with at_most(Threads(torch=2)), at_most(Threads(torch=1)):
        assert on_a_new_thread(torch.get_num_threads) == threads
    with at_most(Threads(torch=2)):
        with pytest.raises(KeyError), at_most(Threads(torch=1)):
            raise KeyError
        assert on_a_new_thread(torch.get_num_threads) == threads
    assert limits() == on_a_new_thread(limits) == (threads, threads)


@pytest.mark.usefixtures("two_threads")
def test_two_threads_are_limited_apart() -> None:
    """Both are inside their limits at the same time, and leave them in the order of entering."""
    steps = [threading.Barrier(2, timeout=20) for _ in range(3)]

    def first() -> list[tuple[int, int]]:
        with at_most(Threads(torch=1)):
            steps[0].wait()
            steps[1].wait()
            inside = limits()
        steps[2].wait()
        return [inside, limits()]

    def second() -> list[tuple[int, int]]:
        steps[0].wait()
        with at_most(Threads(kernels=1)):
            steps[1].wait()
            steps[2].wait()
            inside = limits()
        return [inside, limits()]

    with ThreadPoolExecutor(2) as executor:
        results = [executor.submit(each).result for each in (first, second)]
        assert [result(20) for result in results] == [[(1, 2), (2, 2)], [(2, 1), (2, 2)]]


@pytest.mark.usefixtures("two_threads")
def test_torch_has_one_thread_in_helpers() -> None:
    """A piece on a helper must not be shared out again; threads that start later may do so."""
    together = threading.Barrier(2, timeout=20)
    counts = {}

    def work(piece: int) -> None:
        together.wait()
        counts[threading.get_ident()] = torch.get_num_threads()

    in_parallel(work, range(2))
    assert counts.pop(threading.get_ident()) == 2
    assert list(counts.values()) == [1]
    assert on_a_new_thread(limits) == (2, 2)


@pytest.mark.usefixtures("two_threads")
def test_busy_helpers_are_not_waited_for() -> None:
    """A call whose pieces are done returns, though the helpers work for another thread."""
    busy, free = threading.Barrier(3, timeout=20), threading.Event()

    def block(piece: int) -> None:
        busy.wait()
        assert free.wait(20)

    other = threading.Thread(target=in_parallel, args=(block, range(2)))
    other.start()
    busy.wait()
    done: list[int] = []
    in_parallel(done.append, range(4))
    assert done == list(range(4)), "the caller does it all"
    free.set()
    other.join(20)
    assert not other.is_alive()


@given(
    st.lists(st.sampled_from([0, 1, 2, 500]), max_size=40),
    st.integers(1, 9),
    st.sampled_from([1, 4]),
)
def test_rows_are_cut_into_ranges_of_equal_work(
    counts: list[int], pieces: int, multiple: int
) -> None:
    starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    cut = even_ranges(starts, pieces, multiple)
    assert [row for first, last in cut for row in range(first, last)] == list(range(len(counts)))
    assert len(cut) <= pieces
    assert all(first % multiple == 0 for first, _ in cut)
    total, largest = sum(counts) + len(counts), max(counts, default=0) + 1
    for first, last in cut:
        work = starts[last] - starts[first] + last - first
        assert work <= total / pieces + 2 * multiple * largest
