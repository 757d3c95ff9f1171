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


def behave(shared: Any, trial: str) -> tuple[str, int]:
    """Do what the trial says, good or bad."""
    if trial == "raise":
        raise ValueError("this trial is wrong")
    if trial == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if trial == "crash":
        ctypes.string_at(0)
    if trial == "exit":
        sys.exit(3)
    if trial == "large":
        return "x" * 5_000_000, os.getpid()
    if trial == "unpicklable":
        trial = lambda: None  # type: ignore[assignment]  # noqa: E731
    return trial, os.getpid()


def meet(shared: Path, trial: str) -> bool:
    """Return whether another trial was there at the same time."""
    (shared / trial).touch()
    deadline = time.monotonic() + 30
    while len(list(shared.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    return len(list(shared.iterdir())) >= 2


def environment(shared: Any, trial: str) -> str | None:
    return os.environ.get(trial)


def torch_threads(shared: Any, trial: Any) -> int:
    import torch

    return torch.get_num_threads()


def examine(graph: Any, trial: Any) -> tuple[str, list[bool], list[bool]]:
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


def leave_a_cycle(shared: Any, trial: Any) -> bool:
    """Return whether what an earlier trial left is still in memory."""
    lingers = Cycle.latest is not None and Cycle.latest() is not None
    Cycle.latest = weakref.ref(Cycle())
    return lingers


def linger(shared: Path, trial: str) -> None:
    """Compute for ever, after leaving the process id in a file."""
    unfinished = shared / f".{trial}"
    unfinished.write_text(str(os.getpid()))
    unfinished.rename(shared / trial)
    while True:
        sum(range(1000))
