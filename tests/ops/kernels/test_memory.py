"""Memory for kernels: aligned, padded, and scratch memory that threads do not share."""

from __future__ import annotations

import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dropnode.data.generators import sbm
from dropnode.data.splits import every_label_split
from dropnode.methods.grand.config import preset
from dropnode.methods.grand.model import Grand
from dropnode.ops.kernels.memory import (
    LANES,
    aligned,
    padded,
    release_scratch,
    scratch,
    usable,
)
from dropnode.training import train


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


def test_every_thread_has_a_scratch_of_its_own() -> None:
    together = threading.Barrier(3, timeout=20)

    def work(number: int) -> np.ndarray:
        mine = scratch(1000)
        together.wait()
        mine[:] = number
        together.wait()
        assert np.all(mine == number), "another thread wrote here"
        assert np.shares_memory(scratch(1000), mine)
        return mine

    with ThreadPoolExecutor(3) as executor:
        held = list(executor.map(work, range(3)))
    for number, one in enumerate(held):
        assert not any(np.shares_memory(one, other) for other in held[:number])


def test_released_memory_of_all_threads_goes_back() -> None:
    """But for what a thread is using."""
    with ThreadPoolExecutor(1) as executor:
        mine, other = scratch(1000), executor.submit(scratch, 1000).result()
        owners = [weakref.ref(one.base) for one in (mine, other)]
        del other
        release_scratch()
        assert [owner() is None for owner in owners] == [False, True]
        mine[:] = 7.0
        scratch(1000)[:] = 1.0
        assert np.all(mine == 7.0)
        assert executor.submit(scratch, 10).result().shape == (10,)


def test_a_training_leaves_no_scratch_memory() -> None:
    graph = sbm.make(nodes=60, classes=3, features=6)
    graph = graph.with_split(every_label_split(graph.labels))
    config = preset("default", None)[1].replace(max_epochs=2)
    before = scratch(100)
    train(Grand(config), graph)
    assert not np.shares_memory(scratch(100), before)


@given(st.integers(0, 10_000))
def test_padded_is_the_next_multiple(columns: int) -> None:
    assert padded(columns) % LANES == 0
    assert columns <= padded(columns) < columns + LANES


def test_kernels_are_for_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert usable(torch.device("cpu"))
    for other in ("cuda", "cuda:1", "mps", "meta"):
        assert not usable(torch.device(other))
    monkeypatch.setenv("DROPNODE_KERNELS", "0")
    assert not usable(torch.device("cpu"))
