"""Memory that kernels read and write: float32, aligned, padded to whole vectors."""

from __future__ import annotations

import math
import threading

import numpy as np
import torch

LANES = 16
"""Matrices that kernels read have a multiple of this many columns, padded with zeros."""


def usable(device: torch.device) -> bool:
    """Whether tensors of a device can be handed to kernels."""
    return device.type == "cpu"


def padded(columns: int) -> int:
    """Return the number of columns that kernels need to hold this many."""
    return -(-columns // LANES) * LANES


def aligned(*shape: int) -> np.ndarray:
    """Return new float32 memory for kernels, its contents arbitrary.

    It starts at a cache line: otherwise every vector is read from two. NumPy asks the system for
    huge pages where there is much of it, without which every row of a large graph is a miss of
    the TLB too.
    """
    size = math.prod(shape)
    memory = np.empty(size + LANES, dtype=np.float32)
    start = -(memory.ctypes.data // 4) % LANES
    return memory[start : start + size].reshape(shape)


def scratch(*shape: int) -> np.ndarray:
    """Return memory of this thread to work in, for as long as nobody else of the thread asks.

    It is kept: memory fresh from the system costs more to touch first than a hop over it.
    """
    size = math.prod(shape)
    held: np.ndarray | None = getattr(_thread, "scratch", None)
    if held is None or held.size < size:
        held = _thread.scratch = aligned(size)
    return held[:size].reshape(shape)


_thread = threading.local()
