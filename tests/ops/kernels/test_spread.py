"""Work is shared between threads whole: nothing twice, nothing left out, no error lost."""

from __future__ import annotations

import multiprocessing
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dropnode.data import load_dataset
from dropnode.errors import TrainingError
from dropnode.methods.grand.config import preset
from dropnode.methods.grand.model import Grand
from dropnode.ops.kernels.memory import LANES, aligned, padded, scratch, usable
from dropnode.ops.kernels.threads import Threads, at_most, ranges, spread, spread_whole
from dropnode.ops.kernels.threads import threads as kernel_threads
from dropnode.training import train


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
    spread(done.append, range(count))
    assert Counter(done) == Counter(range(count))
    again: list[int] = []
    spread(again.append, (piece for piece in done))
    assert Counter(again) == Counter(range(count))


def test_pieces_run_side_by_side(threads: int) -> None:
    """Each piece waits for the others: alone, the first would wait for ever."""
    together = threading.Barrier(threads, timeout=20)
    workers = set()

    def meet(piece: int) -> None:
        together.wait()
        workers.add(threading.get_ident())

    spread(meet, range(threads))
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

        spread(part, range(threads))

    spread_whole(whole, range(count))
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

    spread(work, range(20))
    assert sorted(done) == list(range(20))
    assert done.index(0) == (0 if threads == 1 else 19)


@pytest.mark.parametrize("failing", [0, 1, 6, 9])
def test_an_error_in_any_piece_reaches_the_caller(threads: int, failing: int) -> None:
    def work(piece: int) -> None:
        time.sleep(0.002)
        if piece == failing:
            raise ArithmeticError(f"piece {piece}")

    with pytest.raises(ArithmeticError, match=f"piece {failing}"):
        spread(work, range(10))
    # The threads live on.
    done: list[int] = []
    spread(done.append, range(10))
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


def test_scratch_is_kept_and_grows() -> None:
    small = scratch(3, 5)
    small[:] = 7.0
    assert small.shape == (3, 5)
    assert small.dtype == np.float32
    assert small.flags.c_contiguous
    assert np.shares_memory(scratch(5, 3), small)
    large = scratch(2, 100, 1000)
    assert large.shape == (2, 100, 1000)
    assert np.shares_memory(scratch(4), large), "what was made larger is what is kept"
    assert scratch(0, 3).shape == (0, 3)


@pytest.mark.parametrize("shape", [(1,), (7, 3), (2, 100, 33)])
def test_aligned_memory_starts_at_a_cache_line(shape: tuple[int, ...]) -> None:
    made = [aligned(*shape) for _ in range(20)]
    for number, one in enumerate(made):
        assert one.shape == shape
        assert one.dtype == np.float32
        assert one.flags.c_contiguous
        assert one.ctypes.data % 64 == 0
        one[:] = number
    for number, one in enumerate(made):
        assert np.all(one == number), "two arrays share memory"


def test_every_thread_has_a_scratch_of_its_own(threads: int) -> None:
    together = threading.Barrier(threads, timeout=20)
    held = []

    def work(piece: int) -> None:
        mine = scratch(1000)
        held.append(mine)
        together.wait()
        mine[:] = piece
        together.wait()
        assert np.all(mine == piece), "another thread wrote here"
        assert np.shares_memory(scratch(1000), mine)

    spread(work, range(threads))
    for number, one in enumerate(held):
        assert not any(np.shares_memory(one, other) for other in held[:number])


@given(st.integers(0, 10_000))
def test_padded_is_the_next_multiple(columns: int) -> None:
    assert padded(columns) % LANES == 0
    assert columns <= padded(columns) < columns + LANES


def test_kernels_are_for_the_cpu() -> None:
    assert usable(torch.device("cpu"))
    for other in ("cuda", "cuda:1", "mps", "meta"):
        assert not usable(torch.device(other))


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
        spread(work, range(3))
    before = list(done)
    time.sleep(0.3)
    assert done == before


@pytest.mark.usefixtures("two_threads")
def test_a_piece_may_spread_work_itself() -> None:
    done: list[tuple[int, int]] = []

    def work(piece: int) -> None:
        spread(lambda inner: done.append((piece, inner)), range(3))

    spread(work, range(4))
    assert sorted(done) == [(piece, inner) for piece in range(4) for inner in range(3)]


def _spread_in_a_child() -> None:
    spread(lambda piece: None, range(4))


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on Windows")
@pytest.mark.usefixtures("two_threads")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own() -> None:
    spread(lambda piece: time.sleep(0.01), range(4))
    process = multiprocessing.get_context("fork").Process(target=_spread_in_a_child)
    process.start()
    process.join(20)
    hung = process.is_alive()
    process.kill()
    assert not hung
    assert process.exitcode == 0


@pytest.mark.usefixtures("two_threads")
def test_torch_and_kernels_are_limited_apart() -> None:
    with at_most(Threads(torch=1)):
        assert (torch.get_num_threads(), kernel_threads()) == (1, 2)
        with at_most(Threads(kernels=1)):
            assert (torch.get_num_threads(), kernel_threads()) == (1, 1)
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
