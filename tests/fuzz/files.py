"""Broken files of datasets: ``npz`` archives and Planetoid's pickles."""

from __future__ import annotations

import collections
import io
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import junk
import numpy as np
import scipy.sparse as sp

from dropnode import load_dataset
from dropnode.data.catalogue import find
from dropnode.data.readers import planetoid

EDGES = np.array([[0, 1], [1, 2], [2, 3], [0, 5]])


def case(random: Random, folder: Path) -> Callable[[], object]:
    """Return a call that reads a broken file."""
    return random.choice([npz, npz, pickles])(random, folder)


def arrays() -> dict[str, Any]:
    """Return the arrays of a sound file."""
    half = sp.coo_array((np.ones(4), EDGES.T), shape=(junk.NODES, junk.NODES)).tocsr()
    adjacency = sp.csr_array(half + half.T)
    return {
        **{f"adj_{part}": getattr(adjacency, part) for part in ("data", "indices", "indptr")},
        "adj_shape": np.array(adjacency.shape),
        "attr_matrix": np.random.default_rng(0).random((junk.NODES, 3)),
        "labels": np.arange(junk.NODES) % 2,
        "class_names": np.array(["a", "b"]),
        "ids": np.arange(junk.NODES),
        "train": np.arange(4),
        "val": np.arange(4, 8),
        "test": np.arange(8, 12),
        "split_name": np.array("mine"),
    }


def npz(random: Random, folder: Path) -> Callable[[], object]:
    path = folder / "mine.npz"
    members = {name: _member(values) for name, values in arrays().items()}
    name = random.choice(list(members))
    spoil = random.randrange(8)
    if spoil == 0:
        del members[name]
    if spoil in (1, 2):
        members[name] = _hostile(random)
    if spoil == 3:
        members[name] = _header(random, np.asarray(arrays()[name]))
    if spoil == 4:
        members[name] = _wild(random, np.asarray(arrays()[name]))
    twice = {name} if spoil == 5 else set()
    with zipfile.ZipFile(path, "w", random.choice([0, 8, 8, 12])) as archive:
        for each, content in members.items():
            for _ in range(1 + (each in twice)):
                archive.writestr(f"{each}.npy", content)
        if spoil == 6:
            for number in range(random.choice([3, 2000])):
                archive.writestr(f"more{number}", b"")
    if spoil == 7:
        _damage(path, random)
    return lambda: load_dataset(path)


def _member(values: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(values), **options)
    return file.getvalue()


def _hostile(random: Random) -> bytes:
    """Return an array of another kind than expected."""
    return random.choice(
        [
            lambda: _member(np.array([junk.thing(random)], dtype=object), allow_pickle=True),
            lambda: _member(np.zeros(3, dtype=[("a", "f4")])),
            lambda: _member(np.array(["2020", "NaT"], dtype="M8[ns]")),
            lambda: _member(np.array("[" * 10_000)),
            lambda: _member(np.array('{"a": 1}')),
            lambda: _member(np.zeros((3, 3, 3))),
            lambda: _member(np.array([1j])),
            lambda: _member(np.array(["", "x"])),
            lambda: _member(np.full(junk.NODES, np.nan)),
            lambda: _member(np.full(junk.NODES, 2**62)),
            lambda: b"",
            lambda: b"\x93NUMPY\x07\x00",
            lambda: bytes(random.choice([1000, 50_000_000])),
        ]
    )()


def _header(random: Random, values: np.ndarray) -> bytes:
    """Return an array whose header claims another shape or type."""
    shape = random.choice([(10**12,), (-1,), (2**62, 4), (0, 10**30), (True,), "x", (1,) * 40])
    kind = random.choice(["<f8", "|O", "|V2000000000", "<U1000000", "x", [("a", "<f8")], "<M8[ns]"])
    header = {
        "descr": random.choice([kind, values.dtype.str]),
        "fortran_order": False,
        "shape": random.choice([shape, values.shape]),
    }
    text = (repr(header) + random.choice(["", "(" * 5000, "x"])).encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + values.tobytes()


def _wild(random: Random, values: np.ndarray) -> bytes:
    """Return an array with one wrong number."""
    if values.dtype.kind not in "if":
        return _member(values[:0] if values.ndim else values)
    values = values.copy()
    values.flat[random.randrange(values.size)] = random.choice([-1, 99, 2**31 - 1, -(2**31)])
    return _member(values)


def pickles(random: Random, folder: Path) -> Callable[[], object]:
    entry = find("cora")
    parts: dict[str, Any] = {
        "y": np.eye(7)[:2],
        "ty": np.eye(7)[:3],
        "ally": np.eye(7)[[0, 1, 2, 3, 4]],
        "tx": sp.csr_matrix(np.eye(3)),
        "allx": sp.csr_matrix(np.ones((5, 3))),
        "graph": collections.defaultdict(list, {n: [(n + 1) % 8] for n in range(8)}),
    }
    content = {part: pickle.dumps(value, protocol=2) for part, value in parts.items()}
    content["test.index"] = b"5\n6\n7\n"
    part = random.choice(list(content))
    spoil = random.randrange(5)
    if spoil == 0 and part != "test.index":
        content[part] = pickle.dumps(_pickled(random), protocol=2)
    if spoil == 1:
        content[part] = _flipped(content[part], random)
    if spoil == 2:
        content[part] = content[part][: random.randrange(len(content[part]))]
    if spoil == 3:
        content["test.index"] = random.choice(
            [
                b"",
                b"-1",
                b"5 6",
                b"5 5 6",
                b"99999999999999999999",
                b"1000000000 6 7",
                b"x",
                b"\xff",
            ]
        )
    if spoil == 4:
        content[part] = b"cnumpy\nndarray\n((I100000000000\ntR."
    files = {}
    for name, data in content.items():
        files[f"ind.cora.{name}"] = folder / f"ind.cora.{name}"
        files[f"ind.cora.{name}"].write_bytes(data)
    return lambda: planetoid.read(entry, files)


def _pickled(random: Random) -> Any:
    wild = sp.csr_matrix(np.ones((5, 3)))
    wild.indices = wild.indices + random.choice([0, 99, -7, 2**31 - 9])
    huge = sp.coo_matrix(([1.0], ([0], [0])), shape=(2**31 - 2, 3))
    strange = collections.defaultdict(list, {0: [99], "x": [1], 2: "ab"})
    given = [wild, huge, strange, {0: [1]}, np.zeros(3), np.array(["x"]), [1], None, "x", b"y"]
    return random.choice([*given, np.zeros((5, 0)), {1: {2}}, np.zeros((5, 7), dtype="U2")])


def _damage(path: Path, random: Random) -> None:
    content = path.read_bytes()
    if random.random() < 0.5:
        path.write_bytes(content[: random.randrange(len(content))])
    else:
        path.write_bytes(_flipped(content, random))


def _flipped(content: bytes, random: Random) -> bytes:
    changed = bytearray(content)
    for _ in range(random.choice([1, 3, 30])):
        changed[random.randrange(len(changed))] = random.randrange(256)
    return bytes(changed)
