"""Seeded random streams, and masks made of random bits.

Every random number is a function of (run seed, purpose, epoch, augmentation). A :class:`Stream` is
such an address; it has no state. A resumed run therefore needs only its epoch number, two
implementations of a method can draw the same masks, and the order of work does not matter.
"""

from __future__ import annotations

import operator
import os
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from dropnode.errors import ConfigError
from dropnode.ops.bits import keep_words
from dropnode.ops.kernels.bits import keep_entries
from dropnode.ops.kernels.memory import usable
from dropnode.settings import shown

_MASK = 2**64 - 1


class Stream:
    """An address in the tree of random numbers of one run.

    Examples
    --------
    >>> epoch = Stream(0).at("epoch", 7)
    >>> first, again = epoch.at("mask", 0).generator(), epoch.at("mask", 0).generator()
    >>> bool(first.random() == again.random())
    True
    """

    def __init__(self, seed: int, path: tuple[int, ...] = ()) -> None:
        try:
            self.seed = operator.index(seed)
        except TypeError:
            self.seed = -1
        if not 0 <= self.seed < 2**128:
            raise ConfigError(
                f"seed is {shown(seed)}; expected a whole number, from 0 to below 2**128"
            )
        self.path = path

    def at(self, *keys: str | int) -> Stream:
        """Return the stream at a longer address: words name a purpose, numbers are counters."""
        words = tuple(zlib.crc32(k.encode()) if isinstance(k, str) else int(k) for k in keys)
        return Stream(self.seed, self.path + words)

    def words(self, count: int) -> np.ndarray:
        """Return 64-bit words that are a hash of this address."""
        # A cryptographic hash, so that similar addresses are independent. NumPy's SeedSequence
        # would do as well, but takes twenty times as long, for every mask of every epoch.
        address = np.array([self.seed & _MASK, self.seed >> 64, *self.path], dtype=np.uint64)
        digest = blake2b(address.tobytes(), digest_size=8 * count).digest()
        return np.frombuffer(digest, dtype=np.uint64)

    def generator(self) -> np.random.Generator:
        """Return a fresh NumPy generator that starts at this address."""
        return np.random.Generator(np.random.SFC64(self.words(4)))

    def integer(self) -> int:
        """Return a 63-bit seed for a library that has its own generator."""
        return int(self.words(1)[0] >> np.uint64(1))

    @contextmanager
    def torch_global(self) -> Iterator[None]:
        """Seed torch's global generator for the enclosed code, and restore it afterwards.

        For layers of libraries that take no generator, such as PyTorch Geometric's attention
        dropout. All threads share the global generator, so only one thread at a time runs enclosed
        code, and the others wait. Blocks of the same thread may be nested.
        """
        with _torch_generator:
            if torch.accelerator.is_available():
                with torch.random.fork_rng():
                    torch.manual_seed(self.integer())
                    yield
                return
            # Without an accelerator, fork_rng would still take a tenth of a small graph's epoch.
            before = torch.get_rng_state()
            torch.default_generator.manual_seed(self.integer())
            try:
                yield
            finally:
                torch.set_rng_state(before)


_torch_generator = threading.RLock()
"""Held by the thread that draws from torch's global generator."""


def _after_fork() -> None:
    # The thread that holds the lock may not exist in a forked process, and would never release it.
    global _torch_generator
    _torch_generator = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@dataclass(frozen=True)
class Mask:
    """A matrix of random bits for dropping things: a set bit keeps, a clear bit drops.

    Attributes
    ----------
    words : ndarray of uint64 (rows, words)
        The packed bits of each row, the lowest bit of a word first, as kernels read them.
    columns : int
        How many bits of a row are used.
    """

    words: np.ndarray
    columns: int

    @classmethod
    def draw(cls, stream: Stream, rows: int, columns: int, drop_rate: float) -> Mask:
        """Draw bits that are set independently with probability ``1 - drop_rate``."""
        state = np.append(stream.words(3), np.uint64(1))
        return cls(keep_words(state, rows, columns, 1.0 - drop_rate), columns)

    def both(self, other: Mask | None) -> Mask:
        """Return the mask that keeps what both masks keep; None keeps everything."""
        return self if other is None else Mask(self.words & other.words, self.columns)

    def array(self) -> np.ndarray:
        """Return the bits as booleans (rows, columns)."""
        octets = self.words.astype("<u8", copy=False).view(np.uint8)
        bits = np.unpackbits(octets, axis=1, count=self.columns, bitorder="little")
        return bits.view(np.bool_)

    def tensor(self, device: torch.device) -> torch.Tensor:
        """Return the bits as booleans (rows, columns), for products in plain torch."""
        return torch.from_numpy(self.array()).to(device)


def keep_mask(stream: Stream, shape: Sequence[int], drop_rate: float) -> np.ndarray:
    """Return the mask that a stream draws for a vector or a matrix, as booleans."""
    rows = shape[0] if len(shape) == 2 else 1
    return Mask.draw(stream, rows, shape[-1], drop_rate).array().reshape(shape)


@dataclass(frozen=True)
class Part:
    """Some rows of a matrix; they have the random bits that they have in the whole matrix.

    Attributes
    ----------
    rows : ndarray of int64
        Which ones.
    total : int
        The number of all rows.
    """

    rows: np.ndarray
    total: int


class Dropout:
    """Inverted dropout with gradients, with one stream of masks per augmentation.

    A call on an (n, h) tensor uses the first stream. On an (n, S, h) tensor, each of the S slices
    uses its own stream, so that its mask does not depend on the number of slices.

    With a ``part``, the rows of a tensor are that part of what the masks are drawn for.
    """

    def __init__(self, streams: Sequence[Stream], part: Part | None = None) -> None:
        self.streams, self.part = streams, part

    def __call__(self, x: torch.Tensor, rate: float, place: str) -> torch.Tensor:
        """Drop entries of ``x`` with probability ``rate``; ``place`` is the name of the layer."""
        if rate == 0:
            return x
        part = self.part
        rows = x.shape[0] if part is None else part.total
        masks = [Mask.draw(stream.at(place), rows, x.shape[-1], rate) for stream in self.streams]
        if part is not None:
            masks = [Mask(mask.words[part.rows], mask.columns) for mask in masks]
        scale = 1.0 / (1.0 - rate)
        if x.dim() == 2 and usable(x.device):
            kept: torch.Tensor = _Kept.apply(x, masks[0].words, scale)
            return kept
        bits = [mask.tensor(x.device) for mask in masks]
        mask = torch.stack(bits, dim=1) if x.dim() == 3 else bits[0]
        return (x * mask).mul_(scale)


class _Kept(torch.autograd.Function):
    """Dropout of a matrix in kernels: its gradient is dropout with the same bits."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, words: np.ndarray, scale: float) -> torch.Tensor:
        ctx.words, ctx.scale = words, scale
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        keep_entries(x.detach().contiguous().numpy(), words, scale, out.numpy())
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        out = torch.empty_like(gradient, memory_format=torch.contiguous_format)
        keep_entries(gradient.contiguous().numpy(), ctx.words, ctx.scale, out.numpy())
        return out, None, None
