"""Seeded random streams, and masks made of random bits.

Every random number is a function of (run seed, purpose, epoch, augmentation): a :class:`Stream`
is that address, not a state. A resumed run therefore needs no more than its epoch number, two
implementations of one method can draw equal masks, and the order of work never matters.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch


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
        if seed < 0:
            raise ValueError(f"seed is {seed}; expected a whole number of at least 0")
        self.seed = int(seed)
        self.path = path

    def at(self, *keys: str | int) -> Stream:
        """Return the stream further down: words name a purpose, numbers count."""
        words = tuple(zlib.crc32(k.encode()) if isinstance(k, str) else int(k) for k in keys)
        return Stream(self.seed, self.path + words)

    def generator(self) -> np.random.Generator:
        """Return a fresh NumPy generator that starts at this address."""
        # SFC64 gives random bytes several times faster than Philox or torch's Mersenne twister;
        # the address is hashed by SeedSequence, so neighbouring addresses are independent.
        sequence = np.random.SeedSequence(self.seed, spawn_key=self.path)
        return np.random.Generator(np.random.SFC64(sequence))

    def integer(self) -> int:
        """Return a 63-bit seed for a library that keeps a generator of its own."""
        return int(
            np.random.SeedSequence(self.seed, spawn_key=self.path)
            .generate_state(2, np.uint32)
            .view(np.uint64)[0]
            >> np.uint64(1)
        )

    @contextmanager
    def torch_global(self) -> Iterator[None]:
        """Seed torch's global generator here and put it back afterwards.

        For library layers that offer no generator argument (PyTorch Geometric's attention dropout).
        """
        with torch.random.fork_rng():
            torch.manual_seed(self.integer())
            yield


def keep_mask(stream: Stream, shape: Sequence[int], drop_rate: float) -> np.ndarray:
    """Draw independent booleans that are True with probability ``1 - drop_rate``, exactly.

    A random byte decides; only where it hits the threshold itself (one in 256) is a second number
    drawn. That is a byte an element instead of the 4 to 8 of a uniform float.
    """
    generator = stream.generator()
    size = int(np.prod(shape))
    whole, fraction = divmod((1.0 - drop_rate) * 256.0, 1.0)
    values = np.frombuffer(generator.bytes(size), dtype=np.uint8)
    mask = values < int(whole)
    if fraction:
        ties = np.flatnonzero(values == int(whole))
        mask[ties] = generator.random(len(ties)) < fraction
    return mask.reshape(shape)


class Dropout:
    """Inverted dropout whose masks come from streams, one stream an augmentation.

    Calling it on an (n, h) tensor uses the first stream; on an (n, S, h) tensor each of the S
    slices uses its own, so a slice's mask does not depend on how many are drawn together.
    """

    def __init__(self, streams: Sequence[Stream]) -> None:
        self.streams = streams

    def __call__(self, x: torch.Tensor, rate: float, place: str) -> torch.Tensor:
        """Drop entries of ``x`` with probability ``rate``; ``place`` names the layer."""
        if rate == 0:
            return x
        shape = (x.shape[0], x.shape[-1])
        masks = [keep_mask(stream.at(place), shape, rate) for stream in self.streams]
        mask = np.stack(masks, axis=1) if x.dim() == 3 else masks[0]
        return (x * torch.from_numpy(mask).to(x.device)).mul_(1.0 / (1.0 - rate))
