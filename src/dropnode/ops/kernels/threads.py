"""How kernels share the cores: work cut into pieces, and threads that take them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import torch

Piece = TypeVar("Piece")

PIECES = 8
"""How many pieces work is cut into where any number would do."""


def each(work: Callable[[Piece], None], pieces: Iterable[Piece]) -> None:
    """Call ``work`` on every piece, here and now."""
    for piece in pieces:
        work(piece)


@dataclass(frozen=True)
class Threads:
    """The most threads that pay: for torch's own operations and for kernels; None for all."""

    torch: int | None = None
    kernels: int | None = None


def threads() -> int:
    """Return how many threads kernels may use."""
    return _threads or torch.get_num_threads()


@contextmanager
def at_most(limit: Threads) -> Iterator[None]:
    """Use no more threads than pay, of those that torch has been given.

    Torch's threads either spin, which takes the core from others, or take as long to wake as an
    operation on a small graph lasts; kernels last longer.
    """
    global _threads
    given, before = torch.get_num_threads(), _threads
    _threads = min(threads(), limit.kernels or given)
    if limit.torch is not None and limit.torch < given:
        torch.set_num_threads(limit.torch)
    try:
        yield
    finally:
        torch.set_num_threads(given)
        _threads = before


_threads: int | None = None


def spread(work: Callable[[Piece], None], pieces: Iterable[Piece]) -> None:
    """Call ``work`` on every piece, on as many threads as kernels may use.

    Which thread takes a piece must not matter to the result. Python's own threads do it: unlike
    OpenMP's they never spin. Waking one takes up to a tenth of a millisecond, so pieces should be
    few, and each worth as much.
    """
    pieces = list(pieces)
    count = min(threads(), len(pieces))
    if count <= 1 or getattr(_thread, "drains", False):
        # A piece that is itself spread stays on its thread: the others have pieces of their own,
        # and a thread that waited for them could wait for itself.
        each(work, pieces)
        return
    shared = iter(pieces)

    def drain() -> None:
        _thread.drains = True
        try:
            # next() on a list iterator is atomic under the interpreter lock.
            each(work, shared)
        finally:
            _thread.drains = False

    others = [_pool(count - 1).submit(drain) for _ in range(count - 1)]
    try:
        drain()
    finally:
        # Nobody may go on writing into the caller's arrays.
        wait(others)
    for other in others:
        other.result()


def spread_whole(work: Callable[[Piece], None], pieces: Iterable[Piece]) -> None:
    """Call ``work``, which spreads its own parts, on every piece.

    Whole pieces go to the threads if there are enough of them; otherwise their parts do.
    """
    pieces = list(pieces)
    (spread if len(pieces) >= threads() else each)(work, pieces)


def ranges(size: int, pieces: int, multiple: int = 1) -> list[tuple[int, int]]:
    """Cut ``range(size)`` into at most so many ranges, at multiples of ``multiple``."""
    if size == 0:
        return []
    step = -(-size // (pieces * multiple)) * multiple
    return [(start, min(start + step, size)) for start in range(0, size, step)]


_thread = threading.local()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="dropnode")


if hasattr(os, "register_at_fork"):
    # The threads of a pool stay behind in the parent.
    os.register_at_fork(after_in_child=_pool.cache_clear)
