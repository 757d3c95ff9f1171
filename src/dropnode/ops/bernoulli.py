"""Flags from torch's global generator: those of ``Tensor.bernoulli_``, drawn in a kernel.

Layers of PyTorch Geometric drop attention with them. Torch draws one at a time where it has no MKL
for the processor, which takes a quarter of an epoch of GAT.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import torch

from dropnode.ops.kernels.mersenne import DIGITS, SIZE, draw_flags

_LEFT, _POSITION, _WORDS = slice(8, 12), slice(16, 24), slice(24, 24 + 8 * SIZE)
"""Where the bytes of a generator's state tell how many words are left, and one more; the place of
the next word; and the words, each as a 64-bit number."""


def fill(flags: torch.Tensor, probability: float) -> None:
    """Do what ``flags.bernoulli_(probability)`` does to contiguous booleans on a CPU."""
    if not _alike():
        flags.bernoulli_(probability)
        return
    state = torch.get_rng_state()
    _fill(flags, probability, state)
    torch.set_rng_state(state)


def _fill(flags: torch.Tensor, probability: float, state: torch.Tensor) -> None:
    """Draw flags from the state of a generator, and advance it."""
    held = state.numpy()
    left, position = held[_LEFT].view(np.int32), held[_POSITION].view(np.uint64)
    words = held[_WORDS].view(np.uint64)
    narrow = words.astype(np.uint32)
    threshold = np.uint64(math.ceil(probability * 2**DIGITS))
    start = SIZE if left[0] == 1 else int(position[0])
    stop = draw_flags(narrow, start, threshold, flags.numpy().reshape(-1))
    words[:], left[0], position[0] = narrow, SIZE + 1 - stop, stop


@cache
def _alike() -> bool:
    """Return whether torch draws on this machine as the kernel does.

    With MKL on a processor of Intel it does not, and another version of torch might not.
    """
    generator = torch.Generator().manual_seed(12345)
    state = generator.get_state()
    if len(state) < _WORDS.stop:
        return False
    ours, theirs = torch.empty(2, 2 * SIZE + 1, dtype=torch.bool)
    theirs.bernoulli_(0.3, generator=generator)
    _fill(ours, 0.3, state)
    return torch.equal(ours, theirs) and torch.equal(state, generator.get_state())
