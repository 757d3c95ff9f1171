"""How kernels use several cores: work is cut into pieces, and threads take the pieces.

How many threads may be used is a context, not a state of the process: :func:`at_most` limits the
code it encloses, on the thread that entered it, and nothing else.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import torch

Piece = TypeVar("Piece")

PIECES = 8
"""How many pieces work is cut into where any number would do."""


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
    """Return how many threads kernels may use: as many as torch, unless :func:`at_most` says so."""
    return _kernels.get() or _torch_threads()


@contextmanager
def at_most(limit: Threads) -> Iterator[None]:
    """Limit the threads of torch and of kernels in the enclosed code; a limit never raises them.

    Torch's threads either spin, which takes the core from others, or take as long to wake up as an
    operation on a small graph lasts. Kernels last longer, so they have a limit of their own.

    ``torch.set_num_threads`` does two things. It sets OpenMP's and MKL's number of threads for the
    calling thread alone; threads that run already keep theirs. It also stores the number for the
    whole process, and a thread that uses torch for the first time takes the stored one. Fits that
    start while another one is limited would therefore inherit its limit for good. So the stored
    number is put back right after the limit is set, by a thread that has nothing else to do.
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


def in_parallel(work: Callable[[Piece], None], pieces: Iterable[Piece]) -> None:
    """Call ``work`` on every piece, on as many threads as kernels may use.

    Which thread takes a piece must not matter to the result. The threads are Python's: unlike
    OpenMP's they never spin. Waking one takes up to a tenth of a millisecond, so there should be
    few pieces, and each should take at least as long.
    """
    pieces = list(pieces)
    count = min(kernel_threads(), len(pieces))
    if count <= 1 or getattr(_thread, "takes_pieces", False):
        # A piece that is itself cut into pieces stays on its thread: the other threads are busy,
        # and a thread that waited for them could wait for itself.
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
        # There are as many pieces at work as there are cores: torch must not share one out again.
        if _torch_threads() > 1:
            _set_torch_threads(1)
        take_pieces()

    pool = _pool(count - 1)
    helpers = [pool.submit(copy_context().run, help_out) for _ in range(count - 1)]
    try:
        take_pieces()
    finally:
        # Helpers that have not started are not needed any more: other fits may keep their threads
        # busy. The others have to end: nobody may go on writing into the caller's arrays.
        helpers = [helper for helper in helpers if not helper.cancel()]
        wait(helpers)
    for helper in helpers:
        helper.result()


def in_parallel_whole(work: Callable[[Piece], None], pieces: Iterable[Piece]) -> None:
    """Call ``work``, which runs its own parts in parallel, on every piece.

    Whole pieces go to the threads if there are enough of them; otherwise their parts do.
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


_kernels: ContextVar[int | None] = ContextVar("kernel_threads", default=None)
"""The limit on kernels of the code that runs now."""

_unlimited: ContextVar[int | None] = ContextVar("unlimited_torch_threads", default=None)
"""The number of torch's threads outside of every limit, of the code that runs now."""

_thread = threading.local()

_stored = threading.Lock()
"""Held while the number that torch stores for the process is not the one that it should be."""


def _torch_threads() -> int:
    # Asking for the number for the first time on a thread takes the stored one.
    with _stored:
        return torch.get_num_threads()


def _set_torch_threads(count: int) -> None:
    """Set how many threads torch uses when it is called on this thread, and on no other."""
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
    """Return a thread that never runs torch's operations, so that its own number is of no use."""
    return ThreadPoolExecutor(1, thread_name_prefix="dropnode-threads")


if hasattr(os, "register_at_fork"):
    # A forked process has none of its parent's threads.
    os.register_at_fork(after_in_child=_pool.cache_clear)
    os.register_at_fork(after_in_child=_bystander.cache_clear)
