"""Memory for kernels: float32, aligned, and padded to whole vectors."""

from __future__ import annotations

import math
import os
import threading
import weakref

import numpy as np
import torch

LANES = 16
"""Matrices for kernels are padded with zeros to a multiple of this many columns."""


def enabled() -> bool:
    """Return whether kernels may be used: unless the variable ``DROPNODE_KERNELS`` is 0."""
    return os.environ.get("DROPNODE_KERNELS") != "0"


def usable(device: torch.device) -> bool:
    """Return whether kernels are used for the tensors of a device, instead of plain torch.

    Results of kernels and of plain torch are equal up to rounding.
    """
    return device.type == "cpu" and enabled()


def padded(columns: int) -> int:
    """Return a number of columns after padding."""
    return -(-columns // LANES) * LANES


def aligned(*shape: int) -> np.ndarray:
    """Return new float32 memory for kernels, with arbitrary contents.

    It starts at a cache line, because otherwise every vector would lie in two. The memory comes
    from NumPy, which uses huge pages for large arrays; without them, every row of a large graph
    would miss the TLB.
    """
    size = math.prod(shape)
    memory = np.empty(size + LANES, dtype=np.float32)
    start = -(memory.ctypes.data // 4) % LANES
    return memory[start : start + size].reshape(shape)


def scratch(*shape: int) -> np.ndarray:
    """Return working memory of this thread, valid until the thread's next call.

    It is reused, because the first access to new memory takes longer than a hop over it. Every
    thread has its own, so that fits in several threads cannot overwrite each other's.
    """
    size = math.prod(shape)
    own: _Own | None = getattr(_thread, "own", None)
    if own is None:
        own = _thread.own = _Own()
        with _adding:
            _every.add(own)
    held = own.memory
    if held is None or held.size < size:
        held = own.memory = aligned(size)
    return held[:size].reshape(shape)


def release_scratch() -> None:
    """Let go of the working memory of all threads.

    For a large graph it is gigabytes, which would otherwise stay as long as its thread. A thread
    that is using its own keeps it until then.
    """
    with _adding:
        for own in _every:
            own.memory = None


class _Own:
    """The working memory of one thread."""

    memory: np.ndarray | None = None


_thread = threading.local()
_adding = threading.Lock()
_every: weakref.WeakSet[_Own] = weakref.WeakSet()
