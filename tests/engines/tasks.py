"""What workers of the tests do; it imports next to nothing, so that they start fast."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
import weakref
from pathlib import Path
from typing import Any


def behave(shared: Any, item: str) -> tuple[str, int]:
    """Do what the item says, good or bad."""
    if item == "raise":
        raise ValueError("this item is wrong")
    if item == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if item == "crash":
        ctypes.string_at(0)
    if item == "exit":
        sys.exit(3)
    if item == "large":
        return "x" * 5_000_000, os.getpid()
    if item == "unpicklable":
        item = lambda: None  # type: ignore[assignment]  # noqa: E731
    return item, os.getpid()


def meet(shared: Path, item: str) -> bool:
    """Return whether another item was there at the same time."""
    (shared / item).touch()
    deadline = time.monotonic() + 30
    while len(list(shared.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    return len(list(shared.iterdir())) >= 2


def environment(shared: Any, item: str) -> str | None:
    return os.environ.get(item)


def torch_threads(shared: Any, item: Any) -> int:
    import torch

    return torch.get_num_threads()


def examine(graph: Any, item: Any) -> tuple[str, list[bool], list[bool]]:
    """Return a graph's fingerprint, and of its arrays whether files hold them and may change."""
    import mmap

    import scipy.sparse as sp

    arrays = [graph.labels, graph.split.test]
    for matrix in (graph.adjacency, graph.features):
        arrays += [matrix.data, matrix.indices] if sp.issparse(matrix) else [matrix]
    mapped = []
    for array in arrays:
        root = array
        while getattr(root, "base", None) is not None:
            root = root.base
        mapped.append(isinstance(root, mmap.mmap))
    return graph.fingerprint(), mapped, [array.flags.writeable for array in arrays]


class Cycle:
    """Something that only the garbage collector can free."""

    latest: weakref.ref[Cycle] | None = None

    def __init__(self) -> None:
        self.itself = self


def leave_a_cycle(shared: Any, item: Any) -> bool:
    """Return whether what an earlier item left is still in memory."""
    lingers = Cycle.latest is not None and Cycle.latest() is not None
    Cycle.latest = weakref.ref(Cycle())
    return lingers


def linger(shared: Path, item: str) -> None:
    """Compute for ever, after leaving the process id in a file."""
    unfinished = shared / f".{item}"
    unfinished.write_text(str(os.getpid()))
    unfinished.rename(shared / item)
    while True:
        sum(range(1000))
