"""Parallel kernels: work is cut into pieces, and threads take the pieces.

The number of threads is a property of the context, not of the process: :func:`at_most` limits the
code it encloses, on the calling thread, and nothing else.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TypeVar

import numpy as np
import torch

Piece = TypeVar("Piece")

PIECES = 8
"""The number of pieces to cut work into if nothing else determines it."""


@dataclass(frozen=True)
class Threads:
    """The largest numbers of threads that make an epoch faster; None for no limit.

    Attributes
    ----------
    torch : int or None
        The limit for torch's own operations.
    kernels : int or None
        The limit for kernels.
    """

    torch: int | None = None
    kernels: int | None = None


def kernel_threads() -> int:
    """Return the number of threads for kernels: the limit of :func:`at_most`, or that of torch."""
    return _kernels.get() or _torch_threads()


@contextmanager
def at_most(limit: Threads) -> Iterator[None]:
    """Limit the threads of torch and of kernels in the enclosed code; never increase them.

    Torch's threads either spin, which keeps the core from others, or take as long to wake up as an
    operation on a small graph takes. Kernels take longer, so they have their own limit.

    ``torch.set_num_threads`` does two things. It sets OpenMP's and MKL's number of threads for the
    calling thread alone; threads that run already keep theirs. It also stores the number for the
    whole process, and a thread that uses torch for the first time takes the stored one. A fit that
    starts while another one is limited would therefore keep that limit for good. So the stored
    number is restored right after the limit is set, by a thread that does nothing else.
    """
    given, kernels = _torch_threads(), kernel_threads()
    lowered = limit.torch is not None and limit.torch < given
    tokens = (
        _kernels.set(min(kernels, limit.kernels or kernels)),
        _unlimited.set(_unlimited.get() or given),
    )
    try:
        if lowered:
            assert limit.torch is not None
            _set_torch_threads(limit.torch)
        yield
    finally:
        if lowered:
            _set_torch_threads(given)
        _kernels.reset(tokens[0])
        _unlimited.reset(tokens[1])


def settle() -> None:
    """Let this thread take torch's number of threads now, if it has not used torch before.

    Its first operation would take the number that is stored at that moment, and keep it: perhaps a
    limit that :func:`at_most` is just setting on another thread. Here it waits until that is over.
    Whatever may be the first use of torch on a thread calls this: a method that is made, a
    training, a prediction.
    """
    _torch_threads()


def in_parallel(work: Callable[[Piece], None], pieces: Iterable[Piece]) -> None:
    """Call ``work`` on every piece, on as many threads as kernels may use.

    The result must not depend on which thread takes a piece. The threads are Python's, which never
    spin, unlike OpenMP's. Waking one takes up to a tenth of a millisecond, so there should be few
    pieces, and each should take at least as long.
    """
    pieces = list(pieces)
    count = min(kernel_threads(), len(pieces))
    if count <= 1 or getattr(_thread, "takes_pieces", False):
        # A piece that is cut into further pieces stays on its thread: the other threads are busy,
        # and waiting for them could be a deadlock.
        one_by_one(work, pieces)
        return
    shared = iter(pieces)

    def take_pieces() -> None:
        _thread.takes_pieces = True
        try:
            # next() on a list iterator is atomic under the interpreter lock.
            one_by_one(work, shared)
        finally:
            _thread.takes_pieces = False

    def help_out() -> None:
        # All cores are busy with pieces, so torch must not use several threads within one.
        if _torch_threads() > 1:
            _set_torch_threads(1)
        take_pieces()

    pool = _pool(count - 1)
    helpers = [pool.submit(copy_context().run, help_out) for _ in range(count - 1)]
    try:
        take_pieces()
    finally:
        # No piece is left, so helpers that have not started are not needed; other fits may occupy
        # their threads for long. The rest must finish, because they write to the caller's arrays.
        helpers = [helper for helper in helpers if not helper.cancel()]
        wait(helpers)
    for helper in helpers:
        helper.result()


def in_parallel_whole(work: Callable[[Piece], None], pieces: Iterable[Piece]) -> None:
    """Call ``work``, which runs its own parts in parallel, on every piece.

    The threads share out whole pieces if there are enough of them, and the parts of one piece
    otherwise.
    """
    pieces = list(pieces)
    (in_parallel if len(pieces) >= kernel_threads() else one_by_one)(work, pieces)


def one_by_one(work: Callable[[Piece], None], pieces: Iterable[Piece]) -> None:
    """Call ``work`` on every piece, on this thread."""
    for piece in pieces:
        work(piece)


def ranges(size: int, pieces: int, multiple: int = 1) -> list[tuple[int, int]]:
    """Cut ``range(size)`` into at most ``pieces`` ranges, at multiples of ``multiple``."""
    if size == 0:
        return []
    step = -(-size // (pieces * multiple)) * multiple
    return [(start, min(start + step, size)) for start in range(0, size, step)]


def even_ranges(starts: np.ndarray, pieces: int, multiple: int = 1) -> list[tuple[int, int]]:
    """Cut the rows of a CSR matrix into at most ``pieces`` ranges with equally many entries.

    A row costs its entries and itself: in a graph with heavy-tailed degrees, equally many rows may
    have a hundred times as many entries. Rows are cut at multiples of ``multiple``.

    Examples
    --------
    >>> even_ranges(np.array([0, 97, 98, 99, 100]), 2)
    [(0, 1), (1, 4)]
    """
    rows = len(starts) - 1
    total = int(starts[-1]) + rows
    cuts = [0]
    for piece in range(1, pieces):
        # The key is increasing, so that nothing of the size of the graph has to be made.
        cut = bisect_left(range(rows), total * piece / pieces, key=lambda row: starts[row] + row)
        cuts.append(max(cuts[-1], min(rows, -(-cut // multiple) * multiple)))
    return [(first, last) for first, last in pairwise([*cuts, rows]) if first < last]


_kernels: ContextVar[int | None] = ContextVar("kernel_threads", default=None)
"""The limit on kernels in the current context."""

_unlimited: ContextVar[int | None] = ContextVar("unlimited_torch_threads", default=None)
"""The number of torch's threads outside of all limits in the current context."""

_thread = threading.local()

_stored = threading.Lock()
"""Held while the number that torch stores for the process is temporarily changed."""


def _torch_threads() -> int:
    # The first call on a thread copies the stored number.
    with _stored:
        return torch.get_num_threads()


def _set_torch_threads(count: int) -> None:
    """Set how many threads torch uses for calls on this thread, and on no other."""
    unlimited = _unlimited.get() or _torch_threads()
    with _stored:
        torch.set_num_threads(count)
        if count != unlimited:
            _bystander().submit(torch.set_num_threads, unlimited).result()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="dropnode")


@cache
def _bystander() -> ThreadPoolExecutor:
    """Return a thread that runs no torch operations, so that its own number has no effect."""
    return ThreadPoolExecutor(1, thread_name_prefix="dropnode-threads")


def _after_fork() -> None:
    """Make a forked process usable: it has none of its parent's threads, but all of its state.

    GNU's OpenMP would wait for ever for the threads that torch had in the parent. With one thread,
    torch does not ask for them.
    """
    global _stored
    _stored = threading.Lock()
    _pool.cache_clear()
    _bystander.cache_clear()
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
