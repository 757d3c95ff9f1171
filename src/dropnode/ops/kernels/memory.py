"""Memory that kernels read and write: float32, aligned, padded to whole vectors."""

from __future__ import annotations

import math
import os
import threading

import numpy as np
import torch

LANES = 16
"""Matrices that kernels read have a multiple of this many columns, padded with zeros."""


def usable(device: torch.device) -> bool:
    """Whether kernels compute on tensors of a device; plain torch does otherwise.

    They do so on a CPU, unless the environment says ``DROPNODE_KERNELS=0``: results then are those
    of other devices, equal up to rounding.
    """
    return device.type == "cpu" and os.environ.get("DROPNODE_KERNELS") != "0"


def padded(columns: int) -> int:
    """Return the number of columns that kernels need to hold this many."""
    return -(-columns // LANES) * LANES


def aligned(*shape: int) -> np.ndarray:
    """Return new float32 memory for kernels, with arbitrary contents.

    It starts at a cache line: otherwise every vector would be read from two. NumPy asks the system
    for huge pages for large arrays; without them, every row of a large graph would miss the TLB.
    """
    size = math.prod(shape)
    memory = np.empty(size + LANES, dtype=np.float32)
    start = -(memory.ctypes.data // 4) % LANES
    return memory[start : start + size].reshape(shape)


def scratch(*shape: int) -> np.ndarray:
    """Return working memory of this thread, valid until the thread asks for some again.

    It is kept: touching fresh memory for the first time takes longer than a hop over it. Every
    thread has its own, so that fits in several threads do not write into each other's.
    """
    size = math.prod(shape)
    held: np.ndarray | None = getattr(_thread, "scratch", None)
    if held is None or held.size < size:
        held = _thread.scratch = aligned(size)
    return held[:size].reshape(shape)


_thread = threading.local()
