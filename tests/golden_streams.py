"""What the package draws, as golden_streams.json has it.

``python tests/golden_streams.py`` writes the file again. It refuses where a stream has changed, but
the revision of a method that draws from it has not: stored results would pass for reproducible.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dropnode.data.generators.sbm import make
from dropnode.data.splits import label_rate_split, per_class_split, stratified_holdout
from dropnode.graph import Split
from dropnode.methods.table import METHODS, make_method
from dropnode.ops.randomness import Mask, Stream
from dropnode.training import train

FILE = Path(__file__).with_suffix(".json")
Golden = dict[str, Any]

SHORT: dict[str, dict[str, int]] = {
    "label-propagation": {},
    "logistic": {},
    "boosting": {},
    "gmnn": {"max_epochs": 2, "round_epochs": 2},
}
"""What makes a training short, where it is not ``max_epochs`` alone."""


def masks() -> Golden:
    """Return the words of masks, by seed, phase, epoch, augmentation and rate of dropping."""
    drawn = {}
    for seed, phase, epoch, augmentation, rate in [
        (0, 0, 1, 0, 0.5),
        (0, 0, 1, 1, 0.5),
        (0, 0, 2, 0, 0.5),
        (0, 1, 1, 0, 0.5),
        (1, 0, 1, 0, 0.5),
        (2**70, 0, 1, 0, 0.5),
        (0, 0, 1, 0, 0.3),
        (0, 0, 1, 0, 1 / 3),
        (0, 0, 1, 0, 0.999),
    ]:
        stream = Stream(seed).at("phase", phase).at("epoch", epoch).at("batch", 0)
        mask = Mask.draw(stream.at("augmentation", augmentation), 2, 70, rate)
        name = f"seed {seed}, phase {phase}, epoch {epoch}, augmentation {augmentation}, {rate:.3f}"
        drawn[name] = [f"{word:016x}" for word in mask.words.ravel().tolist()]
    return drawn


def generators() -> Golden:
    """Return what the generators of an address give: NumPy's, torch's, and a seed."""
    stream = Stream(3).at("golden", 1)
    with stream.torch_global():
        bits = torch.randint(0, 2**31, (4,)).tolist()
    return {
        "numpy": [f"{word:016x}" for word in stream.generator().bit_generator.random_raw(4)],
        "integer": stream.integer(),
        "torch": bits,
    }


def splits() -> Golden:
    """Return drawn splits and a drawn graph, as hashes."""
    labels = np.arange(400) % 4
    kept, held = stratified_holdout(labels, 0.3, seed=5)
    graph = make(nodes=100, classes=3, features=4, seed=2)
    return {
        "per class": _hash(*_parts(per_class_split(labels, 5, 7, seed=1))),
        "label rate": _hash(*_parts(label_rate_split(labels, 0.1, 2, num_val=50, num_test=60))),
        "holdout": _hash(kept, held),
        "sbm": _hash(graph.adjacency.indptr, graph.adjacency.indices, graph.labels),
    }


def addresses() -> Golden:
    """Return a hash of all addresses that each method draws from in two epochs, by revision.

    Everything random comes from the words of an address, so that a method which draws more, less or
    elsewhere has another hash.
    """
    graph = make(nodes=60, classes=3, features=8, seed=1)
    split = per_class_split(graph.labels, 4, 4)
    found = {}
    for name in METHODS:
        method = make_method(name, "any", changes=SHORT.get(name, {"max_epochs": 2})).method
        with _recorded() as drawn:
            train(method, graph, split, seed=11)
        found[name] = {
            "revision": method.revision,
            "addresses": len(drawn),
            "sha256": sha256(repr(sorted(drawn)).encode()).hexdigest()[:16],
        }
    return found


@contextmanager
def _recorded() -> Iterator[set[tuple[int, tuple[int, ...], int]]]:
    drawn = set()
    words = Stream.words

    def recorded(self: Stream, count: int) -> np.ndarray:
        drawn.add((self.seed, self.path, count))
        return words(self, count)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stream, "words", recorded)
        yield drawn


def _parts(split: Split) -> tuple[np.ndarray, ...]:
    return split.train, split.val, split.test


def _hash(*arrays: np.ndarray) -> str:
    return sha256(repr([array.tolist() for array in arrays]).encode()).hexdigest()[:16]


SHARED = {"masks": masks, "generators": generators, "splits": splits}
"""What every method draws with; a change concerns them all."""


def drawn() -> Golden:
    """Return everything that the file holds."""
    return {name: draw() for name, draw in SHARED.items()} | {"methods": addresses()}


def not_raised(before: Golden, now: Golden) -> list[str]:
    """Return the methods whose streams have changed although their revision has not."""
    everything = any(before[name] != now[name] for name in SHARED)
    return [
        name
        for name, old in before["methods"].items()
        if (new := now["methods"].get(name))
        and (everything or new["sha256"] != old["sha256"])
        and new["revision"] <= old["revision"]
    ]


if __name__ == "__main__":
    now = drawn()
    if FILE.exists():
        stale = not_raised(json.loads(FILE.read_text()), now)
        if stale:
            sys.exit(f"streams have changed; first raise the revision of {', '.join(stale)}")
    FILE.write_text(json.dumps(now, indent=1) + "\n")
