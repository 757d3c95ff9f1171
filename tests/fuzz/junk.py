"""Values that nobody should give, drawn from a seeded generator."""

from __future__ import annotations

import datetime
from random import Random
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

NODES = 12


def number(random: Random) -> Any:
    """Return a number of any size, or something that looks like one."""
    return random.choice(
        [
            0,
            -1,
            1,
            2,
            1.5,
            -0.0,
            1e-300,
            1e18,
            1e300,
            10**10,
            10**12,
            2**31,
            2**63,
            2**64,
            10**30,
            10**400,
            10**5000,
            float("nan"),
            float("inf"),
            -float("inf"),
            True,
            np.float32(3),
            np.int8(-3),
            np.uint64(2**64 - 1),
            1j,
        ]
    )


def thing(random: Random) -> Any:
    """Return anything but a number."""
    return random.choice(
        [
            None,
            "",
            " ",
            "x" * 10_000,
            "\n",
            "\x00",
            "\ud800",
            "ä",
            "nan",
            "-1",
            b"bytes",
            [],
            (),
            {},
            set(),
            [[]],
            [None],
            {"a": 1},
            object(),
            int,
            len,
            Broken(),
            datetime.date(2020, 1, 1),
            np.datetime64("NaT"),
            slice(3),
            range(10**12),
            ...,
        ]
    )


def value(random: Random) -> Any:
    """Return any value."""
    return random.choice([number, thing, array])(random)


def text(random: Random) -> str:
    """Return a word of a command line, which has no NUL."""
    return random.choice(
        [
            "",
            " ",
            "-",
            "--",
            "=",
            ",",
            "0",
            "-1",
            "1",
            "3.7",
            "1e18",
            "nan",
            "inf",
            "-inf",
            "1e400",
            "0x10",
            "1_0",
            "9" * 20,
            "9" * 400,
            "9" * 5000,
            "10000000000",
            "99999999999999999999,1",
            "9" * 5000 + ",1",
            "true",
            "None",
            "[]",
            "ä",
            "\udcff",
            "\u202e",
            "a" * 300,
            "a/" * 3000,
            "\n",
            "x.npz",
            "/",
            "/dev/null",
            "/dev/full",
            ".",
            "..",
            "not ours.txt",
            "[red]x[/]",
            "%s{0}",
        ]
    )


class Broken:
    """An object of which nothing works."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


def array(random: Random, shape: tuple[int, ...] | None = None) -> Any:
    """Return an array of numbers, of which something may be wrong."""
    made = np.random.default_rng(random.getrandbits(32))
    usual = [(NODES,), (NODES, 3), (NODES, NODES)]
    shape = shape or random.choice([*usual, (0,), (3, 2), (), (2, 2, 2)])
    values = made.integers(0, 3, shape).astype(float)
    spoil = random.randrange(16)
    if spoil == 0 and values.size:
        values.flat[0] = random.choice([np.nan, np.inf, -np.inf, 1e300, -1])
    if spoil == 1:
        return np.ma.masked_less(values, 1)
    if spoil == 2:
        return values.astype(random.choice(["c16", "M8[ns]", "m8[D]", "U3", "S3", "O", "f2", "?"]))
    if spoil == 3:
        return np.broadcast_to(np.float32(0), (10**7, 10**7))
    if spoil == 4:
        return torch.tensor(values).to(random.choice([torch.bfloat16, torch.float64, torch.int8]))
    if spoil == 5:
        return values.tolist()
    if spoil == 6:
        return [values.tolist(), [1]]
    if spoil == 7:
        values.flags.writeable = False
    if spoil == 8 and values.ndim == 2:
        return sparse(random, values)
    if spoil == 9:
        return np.zeros(shape, dtype=[("a", "f4"), ("b", "U2")])
    if spoil == 10 and values.ndim:
        return values[::-1]
    if spoil == 11:
        return values.astype(">i2")
    return values


def sparse(random: Random, values: np.ndarray) -> Any:
    """Return a sparse matrix, whose indices may be wild."""
    kind = random.choice(["csr", "csc", "bsr", "coo", "lil", "dok", "dia"])
    matrix = sp.csr_array(values).asformat(kind)
    wild = random.choice([-1, 99, 2**31 - 1, -(2**31)])
    spoil = random.randrange(6)
    if kind in ("csr", "csc", "bsr") and len(matrix.indices):
        if spoil == 0:
            matrix.indices[random.randrange(len(matrix.indices))] = wild
        if spoil == 1:
            matrix.indptr[random.randrange(len(matrix.indptr))] = wild
        if spoil == 2:
            matrix.indptr[:] = [0, *[wild] * (len(matrix.indptr) - 2), 0]
        if spoil == 3:
            matrix.data = matrix.data[:1]
    if kind == "coo" and spoil < 3:
        matrix.coords[0][:1] = wild
    if kind == "lil" and spoil < 3:
        matrix.rows[0] = [abs(wild)]
        matrix.data[0] = [1.0]
    if spoil == 4:
        indices, pointers = torch.tensor([wild]), torch.tensor([0, 1, *[1] * (len(values) - 1)])
        return torch.sparse_csr_tensor(pointers, indices, torch.ones(1), size=values.shape)
    return matrix
